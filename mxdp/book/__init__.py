"""``import mxdp.book``: the code of the book's chapters on several GPUs runs as it stands, with GPUs or without.

The first line of a notebook, or of a script. From then on, until :func:`restore`:

==================================  ===================================================================================
``d2l.try_gpu``, ``try_all_gpus``,  different devices: GPUs if there are enough, else ``cpu(1)``, ``cpu(2)``, ... On a
``gpu``, ``num_gpus``, ``npx.gpu``  machine without GPUs the book's own give an empty list, and the same CPU twice.
``d2l.load_data_fashion_mnist``     the official files or the download that :func:`mxdp.load` finds, else the digits,
                                    held in memory. The book's host is gone, and gluon refuses the official files.
``d2l.Animator``                    outside a notebook, a line for each point in place of a picture
``np.dot``, ``ndarray.dot``         as before, but products that take long on a CPU are announced first
==================================  ===================================================================================

Nothing else changes, and no function of your own. ``cpu(0)`` stays the CPU of the book's code: "copy to the CPU" is a
copy between devices here, too. ``MXDP_BOOK_DEVICES`` is the number of devices (2), ``MXDP_BOOK_SAMPLES`` the number of
pictures to train on (all).
"""

from __future__ import annotations

import os
import sys
import time
from functools import lru_cache
from typing import Any, Callable, List, Sequence, Tuple

from mxdp import datasets
from mxdp.backend import Device, NDArray, gluon, mx, upload, usable_gpus
from mxdp.curves import in_notebook
from mxdp.errors import UsageError, plural
from mxdp.timing import Timer

try:
    from d2l import mxnet as d2l
except ImportError as error:
    raise ImportError(
        f"mxdp.book needs the book's library ({error}): `pip install --no-deps d2l==1.0.3` and `pip install ipython "
        "matplotlib-inline pandas`, or `make run`",
        name=__name__,  # by which `python -m mxdp.book` says this in a line, without a traceback
    ) from error

# The modules themselves, in which names are replaced.
np = mx.np
npx = mx.npx
usual_dot = np.dot
DEVICES = "MXDP_BOOK_DEVICES"
SAMPLES = "MXDP_BOOK_SAMPLES"
LONG_PRODUCT = 1.0
"""Seconds from which a product is announced."""
LONG_EPOCH = 60.0
"""Seconds from which an epoch is announced."""
LOOKED_AT = 3
"""Batches after which the time of an epoch is estimated; the first one does not count."""


def _whole_number(variable: str, default: int) -> int:
    text = os.environ.get(variable) or str(default)
    if not text.isdigit() or (variable == DEVICES and int(text) < 1):
        raise UsageError(f"{variable} must be a whole number, not {text!r}")
    return int(text)


@lru_cache(maxsize=None)
def say_once(text: str) -> None:
    """Print a sentence on stderr, unless it was printed before."""
    print(f"mxdp.book: {text}", file=sys.stderr, flush=True)


def num_gpus() -> int:
    """How many devices stand for the book's GPUs."""
    return len(try_all_gpus())


def try_all_gpus() -> List[Device]:
    """The usable GPUs if there are as many as ``MXDP_BOOK_DEVICES``, else as many CPU contexts, from ``cpu(1)`` on."""
    count = _whole_number(DEVICES, 2)
    gpus = usable_gpus()
    if len(gpus) >= count:
        return gpus
    names = ", ".join(f"cpu({1 + number}) for gpu({number})" for number in range(count))
    are = "are" if count > 1 else "is"
    say_once(f"there {are} not {plural(count, 'usable GPU')} here: CPU devices work, {names}")
    return [mx.cpu(1 + number) for number in range(count)]


def gpu(i: int = 0) -> Device:
    """The i-th of :func:`try_all_gpus`. Raises a ValueError if there is none."""
    devices = try_all_gpus()
    if not 0 <= i < len(devices):
        raise ValueError(
            f"gpu({i}) is not one of {plural(len(devices), 'device')}: set {DEVICES}={i + 1} before the book's code"
        )
    return devices[i]


def try_gpu(i: int = 0) -> Device:
    """The i-th of :func:`try_all_gpus`, else ``cpu(0)``, as the book's."""
    devices = try_all_gpus()
    if 0 <= i < len(devices):
        return devices[i]
    say_once(
        f"try_gpu({i}) is cpu(0), since there are {plural(len(devices), 'device')}: {DEVICES}={i + 1} gives more"
    )
    return mx.cpu(0)


def load_data_fashion_mnist(batch_size: int, resize: Any = None) -> Tuple[Any, Any]:
    """The book's two iterators, over pictures in memory. The first says how long an epoch takes, if that is long.

    A batch is float32 (n, 1, height, width) and int32 (n,), both on ``cpu(0)``; the last one may be smaller.

    Raises:
        ValueError: ``batch_size`` is less than 1.
    """
    datasets.positive_int("batch_size", batch_size)
    data = datasets.load(notify=say_once)
    samples = _whole_number(SAMPLES, 0)
    if samples:
        data = data.take(min(samples, len(data.train)), min(samples, len(data.test)))
    train = _loader(data.train, batch_size, resize, True)
    test = _loader(data.test, batch_size, resize, False)
    return train, test


def _loader(split: datasets.Split, batch_size: int, resize: Any, train: bool) -> Any:
    """gluon's, without processes. To estimate an epoch it waits for all devices before the first batches."""
    started: List[float] = []

    def batch(rows: Sequence[int]) -> Tuple[NDArray, NDArray]:
        if train and len(started) <= LOOKED_AT < len(loader):
            npx.waitall()
            started.append(time.perf_counter())
            if len(started) > LOOKED_AT:
                seconds = (started[-1] - started[1]) / (LOOKED_AT - 1) * len(loader)
                if seconds >= LONG_EPOCH:
                    what = f"an epoch of {len(split):,} pictures"
                    _announce(what, seconds, 10, "set MXDP_BOOK_SAMPLES=1024")
        X = upload(split.X[rows], mx.cpu())
        if resize is not None:
            channels_last = X.transpose(0, 2, 3, 1)
            X = npx.image.resize(channels_last, resize).transpose(0, 3, 1, 2)
        return X, upload(split.y[rows], mx.cpu())

    loader = gluon.data.DataLoader(range(len(split)), batch_size, shuffle=train, batchify_fn=batch)
    return loader


def _announce(what: str, seconds: float, times: int, cure: str) -> None:
    one = seconds_in_words(seconds)
    together = seconds_in_words(times * seconds)
    takes = f"takes about {one} here, {times} of them {together}"
    say_once(f"{what} {takes}; interrupt it, and {cure}, if that is too long")


def seconds_in_words(seconds: float) -> str:
    """As in ``3 s``, ``3 min`` and ``3.3 h``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"


class Animator:
    """Prints the points that the book's would draw. ``X`` and ``Y`` hold them, as in the book."""

    def __init__(
        self,
        xlabel: Any = None,
        ylabel: Any = None,
        legend: Any = None,
        *_: Any,
        **others: Any,
    ) -> None:
        self._xlabel = xlabel or "x"
        self._names = dict(enumerate(legend or [ylabel or "y"]))
        self.X: List[List[float]] = []
        self.Y: List[List[float]] = []

    def add(self, x: Any, y: Any) -> None:
        """A point of each curve."""
        ys = y if hasattr(y, "__len__") else [y]
        xs = x if hasattr(x, "__len__") else [x] * len(ys)
        if not self.X:
            self.X = [[] for _ in ys]
            self.Y = [[] for _ in ys]
        places = []
        values = []
        for number, (a, b) in enumerate(zip(xs, ys)):
            if a is not None and b is not None:
                self.X[number].append(a)
                self.Y[number].append(b)
                places.append(a)
                values.append(f"{self._names.get(number, number)} {float(b):.3f}")
        if places:
            print(f"{self._xlabel} {max(places)}: {', '.join(values)}", flush=True)


def _announcing(usual: Callable[..., Any]) -> Callable[..., Any]:
    """``usual``, which announces a product of matrices that will take longer than a second on a CPU, once a size."""

    def dot(a: Any, b: Any, *more: Any, **others: Any) -> Any:
        matrices = getattr(a, "ndim", 0) == getattr(b, "ndim", 0) == 2
        if matrices and a.ctx.device_type == "cpu":
            rows, inner = a.shape
            columns = b.shape[1]
            operations = 2.0 * rows * inner * columns
            if operations >= 1e9:
                seconds = operations / _operations_a_second()
                if seconds >= LONG_PRODUCT:
                    what = f"a product of {rows} x {inner} and {b.shape[0]} x {columns}"
                    _announce(what, seconds, 50, "take smaller matrices")
        return usual(a, b, *more, **others)

    return dot


@lru_cache(maxsize=None)
def _operations_a_second() -> float:
    x = np.ones((512, 512))
    timer = Timer()
    for _ in range(2):
        with timer:
            usual_dot(x, x)
    return 2.0 * 512**3 / timer.times[-1]


def replace() -> None:
    """Replace what the table above names. ``import mxdp.book`` does it; a second call does nothing."""
    if _replaced:
        return
    functions: List[Any] = [try_gpu, gpu, try_all_gpus, num_gpus, load_data_fashion_mnist]
    if not in_notebook():
        functions.append(Animator)
    rows: List[Any] = [(d2l, new.__name__, new) for new in functions]
    rows.append((npx, "gpu", gpu))
    rows += [(owner, "dot", _announcing(owner.dot)) for owner in (np, np.ndarray)]
    for owner, name, new in rows:
        _replaced.append((owner, name, vars(owner)[name], new))
        setattr(owner, name, new)


def replaced() -> List[str]:
    """The names that are replaced at the moment."""
    return [
        f"{owner.__name__}.{name}"
        for owner, name, _, new in _replaced
        if vars(owner).get(name) is new
    ]


def restore() -> None:
    """Undo :func:`replace`. A name that somebody has replaced again since stays as it is."""
    while _replaced:
        owner, name, usual, new = _replaced.pop()
        if vars(owner).get(name) is new:
            setattr(owner, name, usual)


_replaced: List[Tuple[Any, str, Any, Any]] = []
"""Names of other libraries: where they stand, what they have meant, and what they mean now."""
replace()
