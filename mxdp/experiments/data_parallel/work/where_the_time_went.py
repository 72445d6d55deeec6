"""Splits the wall clock of recorded training steps."""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Iterator, Tuple

from mxdp.backend import HostArray
from mxdp.datasets import load
from mxdp.engine import CompletionEvent
from mxdp.errors import UsageError, plural
from mxdp.experiments.data_parallel.work.recorded_steps import recorder
from mxdp.experiments.data_parallel.work.serial_run import check_step, synced_step
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.devices import devices_of
from mxdp.experiments.measure.timelines import described
from mxdp.scratch import get_params, init_lenet, train_batch
from mxdp.tracing.recording import can_record
from mxdp.training import RUN_AHEAD, TrainStep

LR = 0.1


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """An uneven batch."""
    step = synced_step() if case.settings["sync"] == "buckets" else train_batch
    return check_step(devices_of(case, settings), 61, settings["seed"], step=step)


def set_up(case: Case, settings: Settings) -> Work:
    """A round is ``steps`` steps, recorded, after some that warm up. The row shows the last round's first three."""
    devices = devices_of(case, settings)
    if not can_record(devices):
        raise UsageError(
            f"MXNet's profiler can't follow {plural(len(devices), 'CPU device')} on this machine: ask for fewer"
        )
    data = load(settings["data"], settings["data_dir"], seed=settings["seed"])
    params = init_lenet(settings["seed"])
    replicas = [get_params(params, device) for device in devices]
    pending: Deque[CompletionEvent] = deque()

    def one_by_one(X: HostArray, y: HostArray) -> None:
        pending.append(CompletionEvent(train_batch(X, y, replicas, devices, LR)))
        if len(pending) > RUN_AHEAD:
            pending.popleft().wait()

    step: Any = TrainStep(replicas, devices, LR) if case.settings["sync"] == "buckets" else one_by_one
    record = recorder(data.train, settings["batch_size"], settings["seed"], step, devices)

    def one_round() -> Round:
        split = record(settings["steps"])
        three_steps = split.timeline.between(0.0, min(split.timeline.length, 3 * split.wall_clock))
        metrics = {**split.shares(), "on_processor": split.on_processor}
        return Round(split.wall_clock, metrics, described(three_steps))

    return Work(devices, one_round)
