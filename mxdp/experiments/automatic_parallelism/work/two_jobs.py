"""Pushes matrix products to one device or to several."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray, NDArray, np, npx
from mxdp.experiments.automatic_parallelism.work.products import multiply_adds_a_second, square_side
from mxdp.experiments.harness.experiment import Case, Settings, Work
from mxdp.experiments.measure.devices import devices_of

Job = Callable[[], List[NDArray]]

WARM_UP = 5
"""Products of a job that each device does before it is measured."""


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """Whole numbers this small have exact float32 products, in whatever order they are added up."""
    random = onp.random.RandomState(settings["seed"])
    factors = random.randint(-8, 9, size=(case.devices, 257, 257)).astype("float32")
    _, jobs = _jobs(case, settings, factors, products=3)
    answers = [job() for job in jobs]
    own = factors if case.settings["run"] != "alone" else factors[case.settings["job"] :]
    for three, factor in zip(answers, own):
        for answer in three:
            yield answer.asnumpy(), onp.dot(factor, factor), 0.0


def set_up(case: Case, settings: Settings) -> Work:
    """A round is every job of the case."""
    shared: Dict[str, float] = {}
    if not settings["size"]:
        # The first case measures the rate for all. If each process measured its own, they would do unequal work.
        shared = {"rate": case.settings.get("rate") or multiply_adds_a_second(devices_of(case, settings)[0])}
    size = settings["size"] or square_side(settings["run_seconds"] / settings["products"], shared["rate"])
    random = onp.random.RandomState(settings["seed"])
    factors = random.uniform(size=(case.devices, size, size)).astype("float32")
    for job in _jobs(case, settings, factors, min(settings["products"], WARM_UP))[1]:
        job()
    npx.waitall()
    devices, jobs = _jobs(case, settings, factors, settings["products"])

    def push() -> None:
        for job in jobs:
            job()
            if case.settings["run"] == "in turn":
                npx.waitall()

    return Work(devices, push, (lambda: push) if case.settings["run"] == "at once" else None, {"size": size}, shared)


def _jobs(case: Case, settings: Settings, factors: HostArray, products: int) -> Tuple[List[Device], List[Job]]:
    """The case's devices, and a function for each that pushes ``products`` products of its factor with itself."""
    devices = devices_of(case, settings)
    if case.settings["run"] == "alone":
        job = case.settings["job"]
        devices, factors = devices[job : job + 1], factors[job : job + 1]
    loaded = [np.array(factor, ctx=device) for factor, device in zip(factors, devices)]

    def push(x: NDArray) -> List[NDArray]:
        return [np.dot(x, x) for _ in range(products)]

    return devices, [partial(push, x) for x in loaded]
