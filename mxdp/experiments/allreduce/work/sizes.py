"""Sums one array over the devices, by one algorithm or by one of MXNet's stores."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Dict, Iterator, List, Optional, Tuple

from mxdp.backend import Device, NDArray, npx
from mxdp.collectives import AllReduce
from mxdp.collectives.calibration import calibrate
from mxdp.collectives.tuning import choose
from mxdp.experiments.allreduce.common import STORES
from mxdp.experiments.allreduce.sizes import NAMES
from mxdp.experiments.allreduce.work.arrays import Sync, exact_sums, replicas, seconds_in_turn, store_sync
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.devices import devices_of
from mxdp.plans.collective.algorithms import AUTO, plan
from mxdp.plans.cost.machine import Machine
from mxdp.plans.cost.simulate import predict


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """One sum of whole numbers."""
    arrays = replicas([_shape(case)], devices_of(case, settings), settings["seed"])
    sync, _ = _sync(case, arrays)
    sync()
    npx.waitall()  # a store of MXNet's is freed with ``sync``, and its jobs would still use it
    return exact_sums(arrays, settings["seed"])


def set_up(case: Case, settings: Settings) -> Work:
    """What sums the same arrays is timed in turn, when the first of these cases has its round. A round makes its own
    arrays, and none may hold memory while others are measured."""
    devices, numbers = tuple(devices_of(case, settings)), itertools.count()
    several = next((n for n in settings["devices"] if n > 1), 1)
    calibrated = tuple(devices_of(replace(case, devices=several), settings))
    name, nbytes = case.settings["algorithm"], case.settings["bytes"]
    _cases(devices, nbytes).append(case)

    def one_round() -> Round:
        number = next(numbers)
        first, now = (_machine(calibrated, each) for each in (0, number))
        seconds, chosen = _times(devices, nbytes, number, first)[name]
        metrics: Dict[str, Any] = {"chosen": chosen} if chosen else {}
        if chosen and name == AUTO:
            default = choose(devices, list(_shape(case)), 4)
            metrics.update(choice=NAMES.index(chosen), default_choice=NAMES.index(default))
        if chosen and now and len(devices) > 1:
            metrics["predicted_ms"] = predict(plan(chosen, case.devices, [nbytes // 4]), nbytes, now) * 1e3
        return Round(seconds, metrics)

    return Work(devices, one_round)


@lru_cache(maxsize=None)
def _cases(devices: Tuple[Device, ...], nbytes: int) -> List[Case]:
    """Those of these arrays that are set up."""
    return []


@lru_cache(maxsize=None)
def _times(
    devices: Tuple[Device, ...], nbytes: int, number: int, machine: Optional[Machine]
) -> Dict[str, Tuple[float, Optional[str]]]:
    """What each case's sum took in round ``number``, and the algorithm, by the case's algorithm."""
    cases = _cases(devices, nbytes)
    arrays = replicas([_shape(cases[0])], devices, seed=None)
    algorithms: Dict[str, Optional[str]] = {}

    def make(case: Case) -> Sync:
        sync, algorithms[case.settings["algorithm"]] = _sync(case, arrays, machine)
        return sync

    seconds = seconds_in_turn({case.settings["algorithm"]: partial(make, case) for case in cases})
    return {name: (seconds[name], algorithm) for name, algorithm in algorithms.items()}


def _shape(case: Case) -> Tuple[int]:
    return (max(1, case.settings["bytes"] // 4),)


def _sync(case: Case, arrays: List[List[NDArray]], machine: Optional[Machine] = None) -> Tuple[Sync, Optional[str]]:
    """The sum, and the algorithm, which ``auto`` chooses for ``machine``; none for a store."""
    name = case.settings["algorithm"]
    if name in STORES:
        return store_sync(name, arrays), None
    sync = AllReduce([own[0] for own in arrays], name, machine=machine)
    return sync, sync.algorithm


@lru_cache(maxsize=None)
def _machine(devices: Tuple[Device, ...], number: int) -> Optional[Machine]:
    """The machine's speeds in round ``number``, for all cases: a shared machine is not equally fast at all times."""
    return calibrate(devices) if len(devices) > 1 else None
