"""A data set in memory: two splits of pictures and their labels."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import Any, Optional, Tuple

import numpy as np
import numpy.typing as npt

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int32]

CLASSES = 10
"""LeNet has ten scores, so its labels are 0 to 9."""
_COLOURS = (1, 3, 4)
_MOST_CLASSES = 1 << 20


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def positive_int(what: str, value: Any) -> int:
    """``value`` as a plain int. Raises a ValueError, which calls it ``what``, unless it is an int (no bool) above 0."""
    if not _is_int(value) or value < 1:
        raise ValueError(f"{what} must be a positive int, not {value!r}")
    return int(value)


def check_seed(what: str, value: Any) -> None:
    """Raise a ValueError that calls ``value`` ``what``, unless NumPy's ``RandomState`` takes it as a seed."""
    if not _is_int(value) or not 0 <= value < 2**32:
        raise ValueError(f"{what} must be an int from 0 to 2**32 - 1, not {value!r}")


def finite(what: str, value: Any, above: float = -math.inf) -> None:
    """Raise a ValueError that calls ``value`` ``what``, unless it is a real number, finite and more than ``above``."""
    known = _is_int(value) or isinstance(value, (float, np.floating))
    if not known or not above < value < math.inf:
        more = f" more than {above}" if above > -math.inf else ""
        raise ValueError(f"{what} must be a finite number{more}, not {value!r}")


def check_labels(y: Any, classes: Optional[int] = CLASSES) -> None:
    """Raise a ValueError unless ``y`` (n,) holds whole numbers from 0 to ``classes - 1`` (None: no limit). Of MXNet's
    arrays only dtype and shape are checked: to read them waits. (``pick`` takes the nearest class for other labels.)"""
    if y.ndim != 1:
        raise ValueError(
            f"y must hold a label for each sample, so have the shape (n,), not {y.shape}"
        )
    if np.dtype(y.dtype).kind not in "iuf":
        raise ValueError(f"labels must be whole numbers from 0, not of dtype {y.dtype}")
    if isinstance(y, np.ndarray) and len(y):
        low = y.min()
        high = y.max()
        fractions = y.dtype.kind == "f" and (y % 1).any()
        if not 0 <= low <= high < (classes or math.inf) or fractions:
            last = f"to {classes - 1}" if classes else "on"
            raise ValueError(f"labels must be whole numbers from 0 {last}, not {low} to {high}")


def _cure(X: npt.NDArray[Any]) -> str:
    """What makes pictures of these, which have other axes or another dtype; nothing, if that can't be told."""
    if X.ndim == 3:
        axes = "X[:, None]"
    elif X.ndim == 4 and X.shape[3] in _COLOURS and X.shape[1] not in _COLOURS:
        axes = "X.transpose(0, 3, 1, 2)"
    elif X.ndim == 4:
        axes = "X"
    else:
        return ""
    scaled = " / 255" if X.dtype == np.uint8 else ""
    return f": numpy.ascontiguousarray({axes}, dtype='float32'){scaled}"


@dataclass(frozen=True, eq=False)
class Split:
    """Pictures ``X``: float32 (n, channels, height, width), finite, C-contiguous; and labels ``y``: whole numbers (n,)
    from 0, which become int32. Raises a TypeError for what is no array of NumPy's, and a ValueError, with the
    cure, for other arrays."""

    X: Images
    y: Labels

    def __post_init__(self) -> None:
        for name, array in (("X", self.X), ("y", self.y)):
            if not isinstance(array, np.ndarray):
                raise TypeError(f"{name} must be an array of NumPy's, not a {type(array).__name__}")
        shape = self.X.shape
        if self.X.dtype != np.float32 or len(shape) != 4 or 0 in shape[1:]:
            raise ValueError(
                f"X must be float32 of shape (n, channels, height, width), not {self.X.dtype} of shape {shape}"
                f"{_cure(self.X)}"
            )
        if self.y.ndim != 1 or self.y.dtype.kind not in "iu":
            cure = "y.astype('int32')" if self.y.ndim == 1 else "of one-hot labels y.argmax(axis=1)"
            raise ValueError(
                f"y must be whole numbers of shape (n,), not {self.y.dtype} of shape {self.y.shape}: {cure}"
            )
        if len(self.X) != len(self.y):
            raise ValueError(f"there are {len(self.X)} pictures in X and {len(self.y)} labels in y")
        if not self.X.flags.c_contiguous:
            raise ValueError(
                "X must be C-contiguous, since a batch is gathered row by row: numpy.ascontiguousarray(X)"
            )
        # The least and the largest pixel say it of all, without an array of truth values.
        extremes = [self.X.min(), self.X.max()] if len(self.y) else []
        if not np.isfinite(extremes).all():
            raise ValueError("X holds NaN or infinity: every pixel must be a finite number")
        check_labels(self.y, classes=_MOST_CLASSES)
        object.__setattr__(self, "y", self.y.astype(np.int32, copy=False))  # as the loss takes them

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        return f"<Split: {len(self)} pictures>"

    def take(self, n: int) -> Split:
        """Views of the first ``n`` samples, or of all. Raises a ValueError unless ``n`` is a positive int."""
        n = positive_int("the number of samples to take", n)
        return Split(self.X[:n], self.y[:n])


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training and a test split, and the names of the classes by label. ``name`` is the data set that was loaded,
    never ``auto``; ``origin`` says where it came from. Raises a ValueError if pictures differ in shape, or a label has
    no class."""

    name: str
    train: Split
    test: Split
    classes: Tuple[str, ...]
    origin: str

    def __post_init__(self) -> None:
        if self.train.X.shape[1:] != self.test.X.shape[1:]:
            raise ValueError(
                f"pictures for training are {self.train.X.shape[1:]}, those for the test {self.test.X.shape[1:]}: give "
                "both the same channels, height and width"
            )
        for split in (self.train, self.test):
            check_labels(split.y, len(self.classes))

    def __repr__(self) -> str:
        return f"<Dataset {self.name!r}: {len(self.train)} training and {len(self.test)} test pictures>"

    def checksum(self) -> str:
        """A checksum of all training labels and every hundredth training picture: other files or orders differ."""
        labels = zlib.crc32(self.train.y.tobytes())
        both = zlib.crc32(self.train.X[::100].tobytes(), labels)
        return f"{both:08x}"

    def take(self, n_train: int, n_test: Optional[int] = None) -> Dataset:
        """The first ``n_train`` training and ``n_test`` test samples (None: all), as :meth:`Split.take` gives them."""
        test = self.test if n_test is None else self.test.take(n_test)
        return Dataset(self.name, self.train.take(n_train), test, self.classes, self.origin)
