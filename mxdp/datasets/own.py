"""A data set of the reader's own, in a file of NumPy's::

numpy.savez("mine.npz", X=X, y=y, X_test=X_test, y_test=y_test)
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any, Dict

import numpy as np

from mxdp.datasets.records import Dataset, Split
from mxdp.errors import DataError

ENDING = ".npz"
ARRAYS = ("X", "y", "X_test", "y_test")
"""Training pictures and their labels, test pictures and theirs, as :class:`Split` takes them."""
HOW = f"write it by numpy.savez({', '.join(['FILE', *(f'{name}={name}' for name in ARRAYS)])})"


def load_own(path: Path) -> Dataset:
    """The data set in this file, which is called as the file without its ending; its classes are the labels. Raises a
    DataError if the file can't be read, lacks an array, or holds one that :class:`Split` doesn't take."""
    arrays = _read(path)
    lacking = [name for name in ARRAYS if name not in arrays]
    if lacking:
        raise DataError(f"{path} has no {' and no '.join(lacking)}: {HOW}")
    splits = []
    for X, y in (("X", "y"), ("X_test", "y_test")):
        try:
            splits.append(Split(arrays[X], arrays[y]))
        except ValueError as error:
            raise DataError(f"{path}, {X} and {y}: {error}") from error
    train, test = splits
    last = max(int(split.y.max(initial=0)) for split in splits)
    classes = tuple(str(label) for label in range(last + 1))
    try:
        return Dataset(path.stem, train, test, classes, f"{path}, of your own")
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error


def _read(path: Path) -> Dict[str, Any]:
    try:
        file = np.load(path, allow_pickle=False)  # a pickle could run anything
        if isinstance(file, np.lib.npyio.NpzFile):
            with file:
                return {name: file[name] for name in ARRAYS if name in file.files}
    except OSError as error:
        raise DataError(f"{path} can't be read ({error.strerror or error}): {HOW}") from error
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged, or no file of numpy.savez: {HOW}") from error
    raise DataError(f"{path} holds one array alone: {HOW}")
