"""The devices that a case runs on, variables that make them others' (MXNet reads them when it is loaded), and times of
work that is pushed to them.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as onp

from mxdp import process, processor
from mxdp.backend import Device, devices, npx
from mxdp.experiments.lab.module import Case, Settings
from mxdp.timing import Timer

WARM_UP = 20
"""Steps of training before a clock starts: until then MXNet finds its memory, and Linux its pages."""
FEWEST = 2
SEVERAL = {
    "devices": (lambda counts: max(counts) > 1, "numbers of which one is above 1, as in 2,4")
}
"""Checks of the settings of a question that one device can't answer."""


def several(s: Settings) -> List[int]:
    """The numbers of devices above 1."""
    return [n for n in s.devices if n > 1]


def devices_of(case: Case, s: Settings) -> List[Device]:
    """The devices of this process of ``case``; other processes of the case get others. All cases of a question get one
    kind, which the largest decides: with ``kind="auto"`` and one GPU, ``devices(1)`` would be that GPU and
    ``devices(2)`` two CPU contexts, which can't be compared."""
    in_all = case.devices
    first = 0
    if not case.engine:  # the processes exchange nothing, and none has another one's devices
        in_all *= case.processes
        first = case.process * case.devices
    of_all_cases = devices(max([*s.get("devices", ()), in_all]), s.kind)
    return of_all_cases[first : first + case.devices]


def defaults(devices: int) -> Dict[str, Optional[str]]:
    """MXNet's default environment, for this number of devices: its allocator, its temporary space, its single worker.
    With four cores or more, its two OpenMP threads would let ``np.dot`` on two devices hang (:mod:`mxdp.process`):
    there it gets one."""
    threads = "1" if devices > 1 and process.cores() >= 4 else None
    unset = dict.fromkeys([*process.SETTINGS, processor.CORETYPE])
    return {**unset, "MXDP_PREPARE": "0", "OMP_NUM_THREADS": threads}


def workers(count: int) -> Dict[str, Optional[str]]:
    """mxdp's settings with ``count`` workers for each device. MXNet's own defaults are 1 on a CPU and 2 on a GPU."""
    kinds = ("MXNET_CPU_WORKER_NTHREADS", "MXNET_GPU_WORKER_NTHREADS")
    return {"OMP_NUM_THREADS": "1", **dict.fromkeys(kinds, str(count))}


def random_of(s: Settings) -> Any:
    """NumPy's random numbers for the seed of these settings."""
    return onp.random.RandomState(s.seed)


def timed(push: Callable[[], Any]) -> float:
    """Seconds of what ``push`` pushes. Waits at both ends."""
    with Timer() as timer:
        push()
    return timer.sum()


def mean_seconds(push: Callable[[], Any], at_least: float) -> Tuple[float, float]:
    """Mean seconds until ``push`` has returned (the front end's part), and until its work is done. It is called for
    about ``at_least`` seconds. Waits at both ends, not between calls."""
    push()
    times = max(FEWEST, round(at_least / max(timed(push), 1e-6)))
    started = time.perf_counter()
    for _ in range(times):
        push()
    pushed = time.perf_counter() - started
    npx.waitall()
    done = time.perf_counter() - started
    return pushed / times, done / times
