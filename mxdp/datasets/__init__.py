"""Data sets in memory: Fashion-MNIST, scikit-learn's digits, synthetic pictures, and files of the reader's own. They
need NumPy, but not MXNet.

>>> data = load("synthetic", seed=1)
>>> data.train.X.shape, data.train.X.dtype.name, data.train.y.dtype.name
((6000, 1, 28, 28), 'float32', 'int32')
"""

from __future__ import annotations

import reprlib
import sys
from functools import partial
from pathlib import Path
from typing import Optional, Union

from mxdp.datasets import fashion_mnist
from mxdp.datasets.digits import load_digits
from mxdp.datasets.fetch import Notify, Progress
from mxdp.datasets.minibatches import Stream, minibatches, permutation, sequential
from mxdp.datasets.own import ENDING, load_own
from mxdp.datasets.records import CLASSES, Dataset, Split, check_labels, finite, positive_int
from mxdp.datasets.synthetic import load_synthetic
from mxdp.errors import DataError, did_you_mean

__all__ = [
    "CLASSES",
    "NAMES",
    "Dataset",
    "Split",
    "Stream",
    "check_labels",
    "finite",
    "load",
    "minibatches",
    "permutation",
    "positive_int",
    "sequential",
    "to_train",
]

NAMES = ("auto", "fashion-mnist", "digits", "synthetic")


def load(
    name: Union[str, Path] = "auto",
    data_dir: Optional[Union[str, Path]] = None,
    seed: int = 0,
    notify: Optional[Notify] = None,
    progress: Optional[Progress] = None,
) -> Dataset:
    """The whole data set of that name, in memory. Waits for the network if it must be downloaded.

    ``auto`` is Fashion-MNIST if it is cached or can be downloaded, else the digits, with one line to ``notify``. The
    ``name`` of the result says which it is. A problem in a folder that the user named is an error, also for ``auto``.

    Args:
        name: one of ``NAMES``, or a file of the reader's own, which ends in ``.npz`` (:mod:`mxdp.datasets.own`).
        data_dir: a folder with ``fashion-mnist/`` or its four files; default ``$MXDP_DATA_DIR``, else the cache.
        seed: of the digits' split, and of the synthetic data. Fashion-MNIST has a fixed split.
        notify: receives messages of one line; by default they go to stderr.
        progress: ``progress(description, done_bytes, total_bytes)`` while downloading.

    Raises:
        ValueError: there is no such data set.
        DataError: it is not available, or the file holds something else; the message says what to do.
    """
    if str(name).endswith(ENDING):
        return load_own(Path(name))
    if not isinstance(name, str) or name not in NAMES:
        near = did_you_mean(name, [*NAMES, f"FILE{ENDING}"])
        raise ValueError(f"no data set is called {reprlib.repr(name)}; {near}")
    say = notify or partial(print, file=sys.stderr)
    if name == "digits":
        return load_digits(seed)
    if name == "synthetic":
        return load_synthetic(seed)
    try:
        return fashion_mnist.load_fashion_mnist(data_dir, say, progress)
    except DataError as error:
        if name != "auto" or fashion_mnist.given_folder(data_dir) is not None:
            raise
        digits = load_digits(seed)
        why = error.__cause__ or error  # the cause does not say what could be done by hand
        say(f"using scikit-learn's digits instead of Fashion-MNIST (docs/messages.md): {why}")
        return digits


def to_train(data: Union[str, Dataset]) -> Dataset:
    """The data set itself, or the one of that name, as :func:`load`. Raises a ValueError if one split is empty."""
    dataset = data if isinstance(data, Dataset) else load(data)
    for what, split in (("training", dataset.train), ("test", dataset.test)):
        if not len(split):
            raise ValueError(
                f"the {what} split of {dataset.name!r} is empty: give it at least one sample"
            )
    return dataset
