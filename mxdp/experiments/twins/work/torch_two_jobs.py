"""Products on two GPUs, or in two streams of one."""

from __future__ import annotations

from functools import partial
from typing import Any, Iterator, List, Tuple

import torch

from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.twins.torch_two_jobs import ALONE, TURN
from mxdp.experiments.twins.work.places import Place, factors, places, processor, seconds, wait


def _jobs(case: Case, settings: Settings) -> List[Place]:
    both = places(settings)
    return [both[case.settings["job"]]] if case.settings["run"] == ALONE else both


def push(place: Place, arrays: List[torch.Tensor], products: int) -> None:
    """A job. Doesn't wait."""
    x, w, y = arrays
    with place.here():
        for _ in range(products):
            torch.mm(x, w, out=y)


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """The product of each job, all pushed at once."""
    jobs = _jobs(case, settings)
    size = min(settings["size"], 1000)
    arrays = [factors(size, place, settings["seed"] + n) for n, place in enumerate(jobs)]
    for place, own in zip(jobs, arrays):
        push(place, own, 2)
    wait()
    for x, w, y in arrays:
        yield y.cpu().numpy(), x.cpu().numpy() @ w.cpu().numpy(), 0.0


def set_up(case: Case, settings: Settings) -> Work:
    """A round does all jobs of the case."""
    jobs, products = _jobs(case, settings), settings["products"]
    arrays = [factors(settings["size"], place, settings["seed"]) for place in jobs]

    def run() -> None:
        for place, own in zip(jobs, arrays):
            push(place, own, products)
            if case.settings["run"] == TURN:
                wait()

    seconds(partial(push, jobs[0], arrays[0], 1))
    seconds(run)
    case_of = {"processor": processor(jobs[0])}
    return Work([place.device for place in jobs], lambda: Round(seconds(run)), case=case_of)
