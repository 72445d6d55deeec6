"""Pushes products, and copies of their results to another device."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import Any, Dict, Iterator, List, Sequence, Tuple, Union

from mxdp import memory
from mxdp.backend import Device, NDArray, devices, mx, np, npx
from mxdp.engine import prepare
from mxdp.experiments.automatic_parallelism.copy_overlap import CHAIN, ENVIRONMENTS, INDEPENDENT, SLIDES
from mxdp.experiments.automatic_parallelism.work.products import (
    Products,
    compared,
    factors,
    multiply_adds_a_second,
    square_side,
    whole_factors,
)
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.clock import seconds_of

FIRST_COPIES = 5
"""Copies of each result that are measured first, for an idea of what one costs."""
WARM_UP = 5
"""Products that warm up. The slides' size takes minutes, so not all of them do."""
RECORDED = (
    *((CHAIN, name) for name in ENVIRONMENTS), (INDEPENDENT, "2 workers"), (SLIDES, "stock"), (SLIDES, "2 workers"),
)  # fmt: skip
"""The work and the environments of which both without a wait between are recorded."""

Parts = Tuple[float, float, float]
"""Seconds of the products alone, of the copies alone, and of both with no wait between."""


class KeptArrays:
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


class FreshArrays:
    """The slides' code: each product and each copy makes an array of its own when it is pushed."""

    results: List[NDArray]
    landed: List[List[NDArray]]

    def __init__(self, lefts: Sequence[NDArray], w: NDArray, host: Device) -> None:
        self._lefts, self._w, self._host = lefts, w, host

    def run(self) -> None:
        """The slides' ``run``."""
        self.results = [np.dot(left, self._w) for left in self._lefts]

    def copy(self) -> None:
        """The slides' ``copy_to_cpu``. The results may still be under way."""
        self.landed = [[y.copyto(self._host)] for y in self.results]

    def forget(self) -> None:
        """Free results and copies, so that the next ones do not need as much memory again."""
        self.results, self.landed = [], []


Job = Union[KeptArrays, FreshArrays]


@dataclass(frozen=True)
class Size:
    """A product is of (height, width) and (width, width); its result is copied ``copies`` times.

    ``product_seconds``, ``copy_seconds``: the time of one of each on one core, measured at set-up.
    """

    height: int
    width: int
    copies: int
    product_seconds: float
    copy_seconds: float

    def fitting(self, products: int, device: Device, host: Device) -> int:
        """How many of ``products`` fit into half of the free memory, each with its result and a copy of it.

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


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """Four products; where the arrays are kept, three copies of each result."""
    device, host = places(settings["kind"])
    lefts, w = whole_factors(4, device, settings["seed"])
    job = _job(case, lefts, w, host, [[np.zeros(w.shape, ctx=host) for _ in range(3)] for _ in lefts])
    both(job)
    found = [(result, *landed) for result, landed in zip(job.results, job.landed)]
    return compared(found, lefts, w, case.settings["work"] == CHAIN)


def set_up(case: Case, settings: Settings) -> Work:
    """A round: the products alone, the copies alone, then both with no wait between, whose time counts."""
    device, host = places(settings["kind"])
    rate = case.settings.get("rate") or multiply_adds_a_second(device)
    products, seed = settings["products"], settings["seed"]
    seconds = settings["run_seconds"] / products
    if case.settings["work"] == SLIDES:
        size = square(settings["size"] or square_side(seconds, rate), device, host)
    else:
        size = balanced(seconds, settings["nbytes"], products, rate, device, host)
    count = size.fitting(products, device, host)

    def job(count: int) -> Job:
        x, w = factors(size.height, size.width, device, seed)
        landing = np.zeros(x.shape, ctx=host)
        return _job(case, [x] * count, w, host, [[landing] * size.copies] * count)

    size.touch(count, device, host)
    seconds_of_parts(job(min(WARM_UP, count)))

    def one_round() -> Round:  # the cases share one process, so none may hold memory while another is measured
        parts = seconds_of_parts(job(count))
        return Round(parts[2], described(*parts))

    recorded = (case.settings["work"], case.settings["engine"]) in RECORDED
    record = (lambda: partial(both, job(count))) if recorded else None
    return Work([device, host], one_round, record, {**asdict(size), "products": count}, {"rate": rate})


def _job(case: Case, lefts: Sequence[NDArray], w: NDArray, host: Device, landed: Any) -> Job:
    if case.settings["work"] == SLIDES:
        return FreshArrays(lefts, w, host)
    return KeptArrays(lefts, w, case.settings["work"] == CHAIN, landed)


def places(kind: str) -> Tuple[Device, Device]:
    """The device that computes, and the one to which its results go: the CPU, or another CPU device."""
    (device,) = devices(1, kind)
    return device, mx.cpu(1 if device == mx.cpu(0) else 0)


def square(side: int, device: Device, host: Device) -> Size:
    """The size of the slides' work: square matrices, each result copied once."""
    return _measured(side, side, 2, 1, device, host)


@lru_cache(maxsize=None)
def balanced(seconds: float, nbytes: int, products: int, rate: float, device: Device, host: Device) -> Size:
    """Tall matrices, with results of ``nbytes`` whose product takes about ``seconds`` at ``rate`` multiply-adds a
    second. Each result is copied (at least once) until copying takes as long as the product, measured with
    ``products``.

    With large results there are few copies to push: Python needs a core for that, too. The cases of a process share the
    answer, so that they do equal work.
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
    job = KeptArrays([x] * products, w, True, [[landing] * copies] * products)
    runs, away = zip(*[(seconds_of(job.run), seconds_of(job.copy)) for _ in range(2)])
    return Size(height, width, copies, min(runs) / products, min(away) / (products * copies))


def both(job: Job) -> None:
    """Push the products and the copies, with no wait between."""
    job.run()
    job.copy()


def seconds_of_parts(job: Job) -> Parts:
    """Seconds of the products alone, then of the copies alone, and of both with no wait between; each waited for."""
    run, copy = seconds_of(job.run), seconds_of(job.copy)
    job.forget()
    return run, copy, seconds_of(partial(both, job))


def described(run: float, copy: float, both: float) -> Dict[str, float]:
    """A round's numbers: seconds, and ratios of them."""
    return {
        "run_seconds": run,
        "copy_seconds": copy,
        "in_turn_seconds": run + copy,
        "overlapped_seconds": both,
        "overlapped_over_longer": both / max(run, copy),
        "overlapped_over_sum": both / (run + copy),
    }
