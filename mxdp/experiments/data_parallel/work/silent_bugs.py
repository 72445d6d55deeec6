"""Trains the front door with a bug, as a module made from its changed text."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import time
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, Iterator, List, Optional, Tuple

from mxdp.backend import npx
from mxdp.datasets import Dataset, load
from mxdp.errors import MxdpError
from mxdp.experiments.data_parallel.bugs import of, source
from mxdp.experiments.data_parallel.silent_bugs import LAST_BATCH, PARTS
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.devices import devices_of
from mxdp.experiments.measure.oracle import count_wrong
from mxdp.scratch import in_sync

TOLERANCES = (1e-3, 2e-2)
"""Of a parameter's largest value after two steps, and of its gradient's: ten times what a relu at its kink can do."""
LIMIT = 120.0
WRONG = "wrong"
"""What the oracle leaves in the case's folder for all processes: how many numbers are wrong."""

LAST = """
from mxdp.backend import np
import mxdp
ranks = mxdp.world()
for step in range(20 - ranks.rank):  # the last rank has one batch less
    ranks.sum([np.ones((4,))])
    ranks.step_done()
print(ranks.rank, "is done")
mxdp.backend.npx.waitall()
"""


@lru_cache(maxsize=1)
def _pictures(name: str, folder: Optional[str], seed: int) -> Dataset:
    """Of all trainings of this process: dozens, of which each would keep a data set of its own."""
    return load(name, folder, seed=seed)


def train(case: Case, data: Dataset, settings: Settings, devices: int, epochs: int, seed: int, right: bool) -> Any:
    """The replicas, the accuracy after each epoch, and the module, whose global names are the training's own."""
    bug = of(case.settings["bug"])
    module = ModuleType(f"scratch, {bug.name}")
    exec(compile(source(bug, case.settings["optimizer"], right), module.__name__, "exec"), vars(module))
    module.SEED = seed  # type: ignore[attr-defined]
    accuracies: List[float] = []

    def keep(label: str, found: List[float]) -> None:
        accuracies[:] = found

    with contextlib.redirect_stdout(io.StringIO()):
        replicas = module.train(
            devices, settings["batch_size"], settings["lr"], epochs, data,
            allreduce=getattr(module, bug.allreduce), draw=keep,
        )  # fmt: skip
    return replicas, accuracies, module


def compare(case: Case, settings: Settings, right: bool) -> List[Tuple[int, int]]:
    """After two steps, (numbers compared, numbers wrong) of each replica: parameters, and gradients as they are summed,
    against those of the serial run; and the running means, if there are any."""
    n, data = case.devices, _pictures(settings["data"], settings["data_dir"], settings["seed"])
    # Devices that together have k times the batch make half as many steps of an epoch.
    times = n if "k times" in of(case.settings["bug"]).right else 1
    small = data.take(2 * times * 30, 10)
    replicas, _, module = train(case, small, {**settings, "batch_size": 30}, n, 1, settings["seed"], right)
    serial = {**settings, "batch_size": times * 30, "lr": times * settings["lr"]}
    (expected,), _, true = train(case, small, serial, 1, 1, settings["seed"], True)
    npx.waitall()
    found = []
    for replica, device in zip(replicas, module.backend.devices(n)):
        compared = [
            count_wrong(x.asnumpy(), own.asnumpy(), tolerance)
            for one, other in zip(replica, expected)
            for x, own, tolerance in zip((one, one.grad), (other, other.grad), TOLERANCES)
        ]
        for mean in getattr(true, "MEANS", {}).values():
            compared.append(count_wrong(module.MEANS[device], mean, 1e-5))
        found.append((sum(each[0] for each in compared), sum(each[1] for each in compared)))
    return found


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """Right versions equal the serial run. A bug must not: what equals it is none."""
    if case.settings["bug"] == LAST_BATCH:
        yield [last_batch(case.devices).seconds < LIMIT], [True], 0.0
        return
    wrong = [wrong for _, wrong in compare(case, settings, case.settings["right"])]
    Path(case.folder, WRONG).write_text(str(max(wrong)))
    yield [max(wrong) > 0], [not case.settings["right"]], 0.0


def set_up(case: Case, settings: Settings) -> Work:
    """A round is a whole training from a seed of its own."""
    devices = devices_of(case, settings)
    if case.settings["bug"] == LAST_BATCH:
        return Work(["cpu"] * case.devices, lambda: last_batch(case.devices))
    data = _pictures(settings["data"], settings["data_dir"], settings["seed"])
    part = data.take(settings["samples"], settings["samples"])
    right, numbers = case.settings["right"], iter(range(1000))
    wrong = int(Path(case.folder, WRONG).read_text())

    def one_round() -> Round:
        seed = settings["seed"] + 1000 * case.settings["repeat"] + next(numbers)
        started = time.perf_counter()
        replicas, accuracies, _ = train(case, part, settings, len(devices), PARTS, seed, right)
        metrics: Dict[str, Any] = {f"accuracy_{number}": each for number, each in enumerate(accuracies)}
        metrics.update(test_accuracy=accuracies[-1], in_sync=in_sync(replicas), wrong=wrong)
        return Round(time.perf_counter() - started, metrics)

    steps = -(-settings["samples"] // settings["batch_size"])
    return Work(devices, one_round, case={"data": data.name, "steps": steps})


def last_batch(ranks: int) -> Round:
    """One of several ranks ends a step before the others, who wait for it. When the job has ended."""
    command = [sys.executable, "-m", "mxdp.launch", "-n", str(ranks), "--", sys.executable, "-c", LAST]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    if not done.returncode:
        raise MxdpError("ranks with different numbers of batches ended as if all were well")
    return Round(time.perf_counter() - started)
