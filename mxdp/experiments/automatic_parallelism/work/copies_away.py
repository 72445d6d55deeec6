"""Products, and copies of their results to another device. Loads MXNet: import it inside ``oracle`` and ``run``."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import List, Sequence, Tuple, Union

from mxdp import memory
from mxdp.backend import Device, NDArray, devices, mx, np, npx
from mxdp.experiments.automatic_parallelism.overlap_model import Parts
from mxdp.experiments.automatic_parallelism.work.products import Products, factors
from mxdp.experiments.measure.clock import seconds_of
from mxdp.prepared import prepare

FIRST_COPIES = 5
"""So many copies of each result give a first idea of what one costs."""


class Kept:
    """Products, and copies of their results, on arrays that are kept: ``landed[i]`` are the targets for result i.

    If all targets are one array, one copy runs at a time, whatever the number of workers: as over one bus.
    """

    def __init__(self, lefts: Sequence[NDArray], w: NDArray, chain: bool, landed: Sequence[Sequence[NDArray]]) -> None:
        products = Products(lefts, w, chain)
        self.results, self.landed, self.run = products.results, landed, products.push
        self._copies = [prepare("_copyto", [y], target) for y, own in zip(self.results, landed) for target in own]

    def copy(self) -> None:
        """Push all copies."""
        for call in self._copies:
            call()

    def forget(self) -> None:
        """Nothing: the arrays are kept."""


class Fresh:
    """The deck's code: each product and each copy makes an array of its own, when it is pushed."""

    results: List[NDArray]
    landed: List[List[NDArray]]

    def __init__(self, lefts: Sequence[NDArray], w: NDArray, host: Device) -> None:
        self._lefts, self._w, self._host = lefts, w, host

    def run(self) -> None:
        """The deck's ``run``."""
        self.results = [np.dot(left, self._w) for left in self._lefts]

    def copy(self) -> None:
        """The deck's ``copy_to_cpu``, for what is there or on its way."""
        self.landed = [[y.copyto(self._host)] for y in self.results]

    def forget(self) -> None:
        """Give the memory of results and copies back: the next ones should not need as much again beside them."""
        self.results, self.landed = [], []


Work = Union[Kept, Fresh]


def places(kind: str) -> Tuple[Device, Device]:
    """The device that computes, and the one to which its results go: the CPU, or another CPU device."""
    (device,) = devices(1, kind)
    return device, mx.cpu(1 if device == mx.cpu(0) else 0)


@dataclass(frozen=True)
class Size:
    """A product is of (height, width) and (width, width); its result is copied ``copies`` times.

    ``product_seconds``, ``copy_seconds``: of one of each on one core, as found at set-up.
    """

    height: int
    width: int
    copies: int
    product_seconds: float
    copy_seconds: float

    def fitting(self, products: int, device: Device, host: Device) -> int:
        """As many of ``products`` as fit into half of the memory that is left, each with its result and a copy of it.

        Raises:
            MemoryShortage: not even one does.
        """
        each = 2 * 4 * self.height * self.width
        room = min(memory.available_bytes(place) for place in (device, host)) // 2
        memory.check_fits(each, device, limit=room)
        return min(products, room // each)

    def touch(self, products: int, device: Device, host: Device) -> None:
        """Have this process get the memory for results and copies before it is measured; it is free again then."""
        shape = (self.height, self.width)
        pages = [np.zeros(shape, ctx=place) for place in (device, host) for _ in range(products)]
        npx.waitall()
        del pages


def square(side: int, device: Device, host: Device) -> Size:
    """The deck's: square matrices, each result copied once."""
    return _measured(side, side, 2, 1, device, host)


def balanced(seconds: float, nbytes: int, products: int, rate: float, device: Device, host: Device) -> Size:
    """Tall matrices, for results of ``nbytes`` whose product takes about ``seconds``, at ``rate`` multiply-adds a
    second; with as many copies as take as long as the product (at least 1), measured with ``products`` of them.

    With large results there are few copies to push: Python needs a core for that, too.
    """
    elements = max(1, nbytes // 4)
    width = max(1, min(8 * round(seconds * rate / elements / 8), math.isqrt(elements)))
    copies = FIRST_COPIES
    for _ in range(2):
        found = _measured(elements // width, width, products, copies, device, host)
        copies = max(1, round(found.product_seconds / found.copy_seconds))
    return replace(found, copies=copies)


def _measured(height: int, width: int, products: int, copies: int, device: Device, host: Device) -> Size:
    """By a chain of ``products``, and ``copies`` of each result to one place: the better of two measurements."""
    x, w = factors(height, width, device, 0)
    landing = np.zeros(x.shape, ctx=host)
    work = Kept([x] * products, w, True, [[landing] * copies] * products)
    runs, away = zip(*[(seconds_of(work.run), seconds_of(work.copy)) for _ in range(2)])
    return Size(height, width, copies, min(runs) / products, min(away) / (products * copies))


def both(work: Work) -> None:
    """Push the products and the copies, with no wait between."""
    work.run()
    work.copy()


def seconds_of_parts(work: Work) -> Parts:
    """Seconds of the products alone, then of the copies alone, and of both with no wait between; each waited for."""
    run, copy = seconds_of(work.run), seconds_of(work.copy)
    work.forget()
    return run, copy, seconds_of(partial(both, work))
