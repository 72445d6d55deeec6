"""A data set in memory: two splits of 28 x 28 pictures and their labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional, Tuple

import numpy as np
import numpy.typing as npt

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int32]


def positive_int(what: str, value: Any) -> int:
    """``value`` as a plain int.

    Raises:
        ValueError: it is not an int (a bool does not count) or less than 1. The message calls it ``what``.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{what} must be a positive int, not {value!r}")
    return int(value)


@dataclass(frozen=True, eq=False)
class Split:
    """Pictures ``X``: float32 (n, 1, 28, 28) in [0, 1], C-contiguous; and their labels ``y``: int32 (n,).

    Raises:
        ValueError: ``X`` or ``y`` has another shape, type or layout, or their lengths differ.
    """

    X: Images
    y: Labels

    def __post_init__(self) -> None:
        if self.X.dtype != np.float32 or self.X.ndim != 4 or self.X.shape[1:] != (1, 28, 28):
            raise ValueError(f"X must be float32 of shape (n, 1, 28, 28), not {self.X.dtype} of shape {self.X.shape}")
        if self.y.dtype != np.int32 or self.y.ndim != 1:
            raise ValueError(f"y must be int32 of shape (n,), not {self.y.dtype} of shape {self.y.shape}")
        if len(self.X) != len(self.y):
            raise ValueError(f"there are {len(self.X)} pictures in X and {len(self.y)} labels in y")
        if not self.X.flags.c_contiguous:
            raise ValueError("X must be C-contiguous: a batch is gathered row by row")

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        return f"<Split: {len(self)} pictures>"

    def take(self, n: int) -> Split:
        """The first ``n`` samples, or all if there are fewer. They are views: nothing is copied.

        Raises:
            ValueError: ``n`` is not a positive int.
        """
        n = positive_int("the number of samples to take", n)
        return Split(self.X[:n], self.y[:n])


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training and a test split, the names of the classes by label, and in ``origin`` where the data came from.

    ``name`` is the data set that was loaded, never ``auto``.
    """

    name: str
    train: Split
    test: Split
    classes: Tuple[str, ...]
    origin: str

    def __repr__(self) -> str:
        return f"<Dataset {self.name!r}: {len(self.train)} training and {len(self.test)} test pictures>"

    def take(self, n_train: int, n_test: Optional[int] = None) -> Dataset:
        """The first ``n_train`` training and ``n_test`` test samples (None: all), or fewer. They are views.

        Raises:
            ValueError: a number is not a positive int.
        """
        test = self.test if n_test is None else self.test.take(n_test)
        return Dataset(self.name, self.train.take(n_train), test, self.classes, self.origin)
