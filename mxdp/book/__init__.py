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

Nothing else changes, and no function that you have defined yourself. ``cpu(0)`` stays the CPU of the book's code: so
"copy to the CPU" is a copy between devices here, too.

``MXDP_BOOK_DEVICES`` is the number of devices (2), ``MXDP_BOOK_SAMPLES`` the number of pictures to train on (all).
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import Any, Callable, Dict, List, Tuple

from mxdp.backend import Device, mx, usable_gpus
from mxdp.book.pictures import PictureBatches, iterators, seconds_in_words
from mxdp.curves import in_notebook
from mxdp.errors import UsageError, plural
from mxdp.timing import Timer

np, npx = mx.np, mx.npx  # the modules themselves, in which names are replaced
DEVICES, SAMPLES = "MXDP_BOOK_DEVICES", "MXDP_BOOK_SAMPLES"
WORTH_SAYING = 1.0
"""Seconds of a product that is announced."""

try:
    from d2l import mxnet as d2l
except ImportError as error:
    raise ImportError(
        f"mxdp.book needs the book's library ({error}): `pip install --no-deps d2l==1.0.3` and `pip install ipython "
        "matplotlib-inline pandas`, or `make run`"
    ) from error


def _whole_number(variable: str, default: int) -> int:
    text = os.environ.get(variable) or str(default)
    if not text.isdigit() or (variable == DEVICES and int(text) < 1):
        raise UsageError(f"{variable} must be a whole number, not {text!r}")
    return int(text)


def _say(text: str) -> None:
    print(f"mxdp.book: {text}", file=sys.stderr, flush=True)


def num_gpus() -> int:
    """How many devices stand for the book's GPUs."""
    return len(try_all_gpus())


def try_all_gpus() -> List[Device]:
    """The usable GPUs if there are as many as ``MXDP_BOOK_DEVICES``, else as many CPU contexts, from ``cpu(1)`` on."""
    count, gpus = _whole_number(DEVICES, 2), usable_gpus()
    if len(gpus) >= count:
        return gpus
    _introduce(count)
    return [mx.cpu(1 + number) for number in range(count)]


@lru_cache(maxsize=None)
def _introduce(count: int) -> None:
    names = ", ".join(f"cpu({1 + number}) for gpu({number})" for number in range(count))
    _say(f"there {'are not' if count > 1 else 'is not'} {plural(count, 'usable GPU')} here: CPU devices work, {names}")


def gpu(i: int = 0) -> Device:
    """The i-th of :func:`try_all_gpus`. Raises a ValueError if there is none."""
    devices = try_all_gpus()
    if not 0 <= i < len(devices):
        raise ValueError(
            f"gpu({i}) is not one of {plural(len(devices), 'device')}: set {DEVICES}={i + 1} before the book's code"
        )
    return devices[i]


def load_data_fashion_mnist(batch_size: int, resize: Any = None) -> Tuple[PictureBatches, PictureBatches]:
    """The book's two iterators, over pictures in memory. The first says how long an epoch takes, if that is long.

    Raises:
        ValueError: ``batch_size`` is less than 1.
    """
    return iterators(batch_size, resize, _whole_number(SAMPLES, 0), _say)


class Animator:
    """The book's; outside a notebook it prints what it would draw. ``X`` and ``Y`` hold the points, as in the book."""

    def __init__(self, xlabel: Any = None, ylabel: Any = None, legend: Any = None, *more: Any, **others: Any) -> None:
        self._drawn = _original(d2l, "Animator")(xlabel, ylabel, legend, *more, **others) if in_notebook() else None
        self._xlabel, self._names = xlabel or "x", list(legend or [ylabel or "y"])
        self.X: List[List[float]] = []
        self.Y: List[List[float]] = []

    def add(self, x: Any, y: Any) -> None:
        """A point of each curve."""
        ys = list(y) if hasattr(y, "__len__") else [y]
        xs = list(x) if hasattr(x, "__len__") else [x] * len(ys)
        while len(self.X) < len(ys):
            self.X.append([])
            self.Y.append([])
        values = []
        for number, (a, b) in enumerate(zip(xs, ys)):
            if a is not None and b is not None:
                self.X[number].append(a)
                self.Y[number].append(b)
                values.append(f"{self._names[number] if number < len(self._names) else number} {float(b):.3f}")
        if self._drawn:
            self._drawn.add(x, y)
        elif values:
            print(f"{self._xlabel} {max(a for a in xs if a is not None)}: {', '.join(values)}", flush=True)


def _announcing(usual: Callable[..., Any], announced: Dict[Any, float]) -> Callable[..., Any]:
    """``usual``, which announces a product of matrices that will take longer than a second on a CPU, once a size."""

    def dot(a: Any, b: Any, *more: Any, **others: Any) -> Any:
        if getattr(a, "ndim", 0) == getattr(b, "ndim", 0) == 2 and a.ctx.device_type == "cpu":
            operations = 2.0 * a.shape[0] * a.shape[1] * b.shape[1]
            if operations >= 1e9 and (a.shape, b.shape) not in announced:
                if "rate" not in announced:
                    announced["rate"] = _operations_a_second(usual)
                announced[a.shape, b.shape] = seconds = operations / announced["rate"]
                if seconds >= WORTH_SAYING:
                    sizes = " and ".join(" x ".join(map(str, matrix.shape)) for matrix in (a, b))
                    _say(
                        f"a product of {sizes} takes about {seconds_in_words(seconds)} on this CPU, 50 of them "
                        f"{seconds_in_words(50 * seconds)}; interrupt it, and take smaller matrices, if that is too "
                        "long"
                    )
        return usual(a, b, *more, **others)

    return dot


def _operations_a_second(dot: Callable[..., Any]) -> float:
    x, timer = np.ones((512, 512)), Timer()
    for _ in range(2):
        with timer:
            dot(x, x)
    return 2.0 * 512**3 / timer.times[-1]


def replace() -> None:
    """Replace what the table above names. ``import mxdp.book`` does it; a second call does nothing."""
    if _replaced:
        return
    announced: Dict[Any, float] = {}
    for owner, name, new in (
        (d2l, "try_gpu", gpu),
        (d2l, "gpu", gpu),
        (npx, "gpu", gpu),
        (d2l, "try_all_gpus", try_all_gpus),
        (d2l, "num_gpus", num_gpus),
        (d2l, "load_data_fashion_mnist", load_data_fashion_mnist),
        (d2l, "Animator", Animator),
        (np, "dot", _announcing(np.dot, announced)),
        (np.ndarray, "dot", _announcing(np.ndarray.dot, announced)),
    ):
        _replaced.append((owner, name, vars(owner)[name], new))
        setattr(owner, name, new)


def replaced() -> List[str]:
    """The names that are replaced at the moment."""
    return [f"{owner.__name__}.{name}" for owner, name, _, new in _replaced if vars(owner).get(name) is new]


def restore() -> None:
    """Undo :func:`replace`. A name that somebody has replaced again since stays as it is."""
    while _replaced:
        owner, name, usual, new = _replaced.pop()
        if vars(owner).get(name) is new:
            setattr(owner, name, usual)


def _original(owner: Any, name: str) -> Any:
    return next(usual for *place, usual, _ in _replaced if place == [owner, name])


_replaced: List[Tuple[Any, str, Any, Any]] = []
"""Names of other libraries: where they stand, what they have meant, and what they mean now."""
replace()
