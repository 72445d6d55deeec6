"""Trains LeNet on devices that keep to a core each, of which the last has a busy neighbour."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import numpy as onp

from mxdp.backend import npx
from mxdp.experiments.data_parallel.uneven import BY_SPEED
from mxdp.experiments.data_parallel.work.serial_run import check_step, synced_step
from mxdp.experiments.harness.experiment import Case, Round, Settings, Skipped, Work
from mxdp.experiments.measure.devices import devices_of
from mxdp.plans.partition import cuts
from mxdp.scratch import get_params, init_lenet
from mxdp.timing import Timer
from mxdp.training import TrainStep

TASKS = Path("/proc/self/task")
NEIGHBOUR = """
import os, select
busy = False
while True:
    if select.select([0], [], [], 0 if busy else None)[0]:
        said = os.read(0, 1)
        if not said:
            break
        busy = said == b"1"
    for _ in range(20000):
        pass
"""
"""Counts while it was last told ``1``; ends with the process that has started it."""


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """Shards in proportion 1 to 3, and 3 to 1."""
    devices = devices_of(case, settings)
    for weights in ([1] * (len(devices) - 1) + [3], [3] * (len(devices) - 1) + [1]):
        yield from check_step(devices, 61, settings["seed"], step=synced_step(weights))


def set_up(case: Case, settings: Settings) -> Work:
    """The speeds that weigh the shards are measured here, with the neighbour."""
    devices, random = devices_of(case, settings), onp.random.RandomState(settings["seed"])
    cores = _cores(len(devices))
    X = random.uniform(size=(settings["batch_size"], 1, 28, 28)).astype("float32")
    y = random.randint(0, 10, size=len(X)).astype("int32")
    params, timer, half = init_lenet(settings["seed"]), Timer(), len(X) // len(devices)
    alone = [TrainStep([get_params(params, device)], [device], 0.1) for device in devices]
    for step, core in zip(alone, cores):
        os.sched_setaffinity(_thread_of(partial(step, X[:half], y[:half])), {core})

    neighbour = subprocess.Popen([sys.executable, "-c", NEIGHBOUR], stdin=subprocess.PIPE, bufsize=0)
    os.sched_setaffinity(neighbour.pid, {cores[-1]})
    assert neighbour.stdin is not None
    tell = neighbour.stdin.write

    def seconds(step: TrainStep, samples: int) -> float:
        step(X[:samples], y[:samples])
        with timer:
            for _ in range(settings["steps"]):
                step(X[:samples], y[:samples])
        return float(timer.times[-1])

    def speeds() -> List[float]:
        return [1 / seconds(step, half) for step in alone]

    tell(b"1" if case.settings["busy"] else b"0")
    seconds(alone[-1], half)
    weights = None
    if case.settings["split"] == BY_SPEED:
        weights = [statistics.median(own) for own in zip(*(speeds() for _ in range(5)))]
    together = TrainStep([get_params(params, device) for device in devices], devices, 0.1, weights=weights)

    def one_round() -> Round:
        tell(b"1" if case.settings["busy"] else b"0")
        first, *_, last = speeds()
        taken = seconds(together, len(X))
        tell(b"0")
        return Round(taken, {"slower": first / last})

    one_round()
    borders = [0, *cuts(len(X), len(devices), weights), len(X)]
    shards = " + ".join(str(stop - start) for start, stop in zip(borders, borders[1:]))
    return Work(devices, one_round, case={"shards": shards})


def _cores(count: int) -> List[int]:
    if not hasattr(os, "sched_setaffinity"):
        raise Skipped("this system can't bind a thread to a core: run it on Linux")
    found = sorted(os.sched_getaffinity(0))
    if len(found) < count:
        raise Skipped(f"{count} devices need a core each, and this process has {len(found)}: take fewer --devices")
    return found[:count]


def _thread_of(step: Callable[[], Any]) -> int:
    """The thread of the device of these steps: the one that works most while they run."""

    def ran() -> Dict[int, int]:
        return {int(path.name): int((path / "schedstat").read_text().split()[0]) for path in TASKS.iterdir()}

    step()
    npx.waitall()
    before = ran()
    for _ in range(3):
        step()
    npx.waitall()
    after = ran()
    return max(after, key=lambda thread: after[thread] - before.get(thread, 0))
