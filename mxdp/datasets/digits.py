"""scikit-learn's handwritten digits: 1797 real pictures. They come with the library and need no network.

Each 8 x 8 picture (values 0 to 16) is enlarged to 24 x 24 by repeating every pixel 3 x 3, inside a border of 2::

    8 x 8  --x3-->  24 x 24  --border of 2-->  28 x 28

Source: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from mxdp.datasets.records import Dataset, Split
from mxdp.errors import DataError

_ENLARGE = 3
_BORDER = 2
_LARGEST = 16
_TEST_EVERY = 5


def load_digits(seed: int = 0) -> Dataset:
    """1437 training and 360 test digits. A fifth of each class is for the test; ``seed`` decides which, and the order.
    Raises a DataError if scikit-learn is not installed."""
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise DataError(
            "the digits come with scikit-learn, which is not installed: "
            '`python -m pip install "mxdp[data]"` installs it'
        )
    # The file is read directly: importing sklearn.datasets takes a second, as long as the rest of a small training.
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(file, delimiter=",")
    values = table[:, :-1].reshape(-1, 8, 8)
    pictures = (values / _LARGEST).astype(np.float32)
    enlarged = pictures.repeat(_ENLARGE, axis=1).repeat(_ENLARGE, axis=2)
    border = (_BORDER, _BORDER)
    X = np.pad(enlarged, ((0, 0), border, border))[:, np.newaxis]
    y = table[:, -1].astype(np.int32)

    order = np.random.RandomState(seed).permutation(len(y))
    # One class after another, each in random order.
    by_class = order[np.argsort(y[order], kind="stable")]
    is_test = np.zeros(len(y), bool)
    # Every fifth: a fifth of each class.
    is_test[by_class[::_TEST_EVERY]] = True
    train = order[~is_test[order]]
    test = order[is_test[order]]
    return Dataset(
        name="digits",
        train=Split(X[train], y[train]),
        test=Split(X[test], y[test]),
        classes=tuple("0123456789"),
        origin="scikit-learn's handwritten digits, enlarged from 8 x 8 to 28 x 28",
    )
