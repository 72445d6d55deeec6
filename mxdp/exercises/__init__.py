"""Exercises that check themselves: ``python -m mxdp.exercises``.

The files to fill in lie in ``experiments/exercises/``. :mod:`mxdp.exercises.check` reads a student's file in a process
of its own. The trials come from :mod:`mxdp.exercises.exchanges`, ``halves``, ``steps``, ``shards`` and ``plans``: the
expected results are serial computations in NumPy, or mxdp's own plans, and no solution stands there.
:mod:`mxdp.exercises.trial` makes a trial and judges it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Dict

from mxdp.errors import MxdpError, UsageError, need
from mxdp.plans.show.files import write_beside

need("mxdp.exercises", "experiments", "rich")

FOLDER = Path("experiments/exercises")


@dataclass(frozen=True)
class Exercise:
    """``function``: what the student writes. The function of the same name in ``module`` gives its cases. ``stem``
    names the file where several functions stand in it."""

    number: int
    title: str
    function: str
    module: str
    stem: str = ""

    @property
    def file(self) -> str:
        """The name of the file to fill in."""
        return f"{self.number:02}_{self.stem or self.function}.py"


EXERCISES: Dict[str, Exercise] = {
    exercise.function: exercise
    for exercise in (
        Exercise(1, "naive all-reduce", "naive_allreduce", "exchanges"),
        Exercise(2, "ring all-reduce", "ring_allreduce", "exchanges"),
        Exercise(3, "split with a remainder", "split_and_load", "shards"),
        Exercise(4, "one data-parallel step", "train_batch", "steps"),
        Exercise(5, "gradient accumulation", "accumulate", "steps"),
        Exercise(6, "gradient buckets", "fill_buckets", "plans"),
        Exercise(7, "GPipe's schedule", "gpipe", "plans"),
        Exercise(8, "halo exchange", "exchange_halos", "exchanges"),
        Exercise(9, "alpha and beta of a link", "fit_alpha_beta", "plans"),
        Exercise(10, "sharded optimiser step", "sharded_step", "shards"),
        Exercise(11, "reduce-scatter", "reduce_scatter", "halves", "two_halves"),
        Exercise(11, "all-gather", "all_gather", "halves", "two_halves"),
    )
}
"""By the name of the function."""


def copy(folder: Path) -> None:
    """Write the files to fill in into ``folder``, from the clone or from what pip installed (``share/mxdp``).

    Raises:
        UsageError: one of them is there already; nothing is written.
        MxdpError: a file can't be written, or the installation has none.
    """
    clone = Path(__file__).parents[2] / FOLDER
    installed = (file for wheel in metadata.distributions(name="mxdp") for file in wheel.files or ())
    places = clone.iterdir() if clone.is_dir() else (Path(str(file.locate())) for file in installed)
    sources = {path.name: path for path in places if path.parent.name == FOLDER.name}
    for exercise in EXERCISES.values():
        if os.path.lexists(folder / exercise.file):
            raise UsageError(f"{folder / exercise.file} is there already; name an empty folder")
        if exercise.file not in sources:
            raise MxdpError("this installation has no exercises' files; install mxdp again")
    for exercise in EXERCISES.values():
        text = sources[exercise.file].read_text(encoding="utf-8")
        write_beside(folder / exercise.file, text.replace(f"{FOLDER}/", f"{folder}/"))
