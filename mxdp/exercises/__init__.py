"""Exercises that check themselves: ``python -m mxdp.exercises``.

The files to fill in lie in ``experiments/exercises/``. :mod:`mxdp.exercises.check` reads a student's file in a process
of its own, and judges it. The trials, of which :mod:`mxdp.exercises.trial` says what they are, come from
:mod:`mxdp.exercises.exchanges`, ``shards``, ``steps`` and ``plans``: the expected results are serial computations in
NumPy, or mxdp's own plans, and no solution stands there.
"""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

from mxdp.errors import MxdpError, UsageError, need
from mxdp.exercises.exchanges import (
    all_gather,
    naive_allreduce,
    reduce_scatter,
    ring_allreduce,
)
from mxdp.exercises.plans import fill_buckets, fit_alpha_beta, gpipe
from mxdp.exercises.shards import exchange_halos, sharded_step, split_and_load
from mxdp.exercises.steps import accumulate, train_batch
from mxdp.files import write_beside

need("mxdp.exercises", "experiments", "rich")

FOLDER = Path("experiments/exercises")

EXERCISES = {
    exercise.trial.__name__: exercise
    for exercise in (
        naive_allreduce,
        ring_allreduce,
        split_and_load,
        train_batch,
        accumulate,
        fill_buckets,
        gpipe,
        exchange_halos,
        fit_alpha_beta,
        sharded_step,
        reduce_scatter,
        all_gather,
    )
}
"""By the name of the function that the student writes."""

ORDER = (1, 3, 4, 2, 5, 6, 7, 8, 9, 10, 11)
"""In which the lab of docs/for-lecturers does them."""


def copy(folder: Path) -> None:
    """Write the files to fill in into ``folder``, from the clone or from what pip installed (``share/mxdp``).

    Raises:
        UsageError: one of them is there already; nothing is written.
        MxdpError: a file can't be written, or the installation has none.
    """
    clone = Path(__file__).parents[2] / FOLDER
    places = list(clone.glob("*"))
    if not places:
        for wheel in metadata.distributions(name="mxdp"):
            places += [Path(str(file.locate())) for file in wheel.files or ()]
    sources = {path.name: path for path in places if path.parent.name == FOLDER.name}
    for exercise in EXERCISES.values():
        if os.path.lexists(folder / exercise.file):
            raise UsageError(f"{folder / exercise.file} is there already; name an empty folder")
        if exercise.file not in sources:
            raise MxdpError("this installation has no exercises' files; install mxdp again")
    for exercise in EXERCISES.values():
        text = sources[exercise.file].read_text(encoding="utf-8")
        write_beside(folder / exercise.file, text.replace(f"{FOLDER}/", f"{folder}/"))
