"""Trains a network that is cut into stages; plays its plan through; records when each task of a step runs."""

from __future__ import annotations

import statistics
from typing import Any, Dict, Iterator, List, Tuple

from mxdp.backend import HostArray
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.clock import seconds_of
from mxdp.experiments.measure.devices import devices_of
from mxdp.experiments.other_splits.pipeline import SEVERAL
from mxdp.experiments.other_splits.work.split import LR, SplitNet, memory, network, stage_cuts, workers
from mxdp.parallel.pipeline import Pipeline
from mxdp.parallel.stage_times import StageTimes, measure_stages
from mxdp.plans.cost.simulate import pipeline_seconds
from mxdp.tracing import Timeline, record
from mxdp.tracing.recording import can_record

CHECKED = 16
"""Samples that are compared with the serial run, at least."""
STEPS = RECORDED = 3

Span = Tuple[int, str, float, float]
"""Stage, task, start and end in seconds."""


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """A sample for each micro-batch, at least. There is no batch normalisation, so micro-batches change nothing."""
    return _split(case, settings).compare(max(CHECKED, case.settings["micro_batches"]))


def set_up(case: Case, settings: Settings) -> Work:
    """A round measures the stages alone, for the prediction, and then steps with their updates. The first process looks
    at memory and at when tasks run, which are no times that are compared."""
    split, batch_size = _split(case, settings), settings["batch_size"]
    made, (X, y) = split.make(), split.batch(batch_size)
    for _ in range(2):
        made.step(X, y)
        measure_stages(made, X, y)
    cores, lasting = workers(made.devices), made.lasting_bytes(batch_size)

    def predicted(times: StageTimes) -> float:
        return pipeline_seconds(made.plan, times.forward, times.backward, cores=cores, push=times.push)

    def step_and_update() -> None:
        made.step(X, y)
        made.update(LR, batch_size)

    found: Dict[str, Any] = {"bytes_moved": made.bytes_moved(batch_size), "workers": cores}
    if not case.settings.get("repeat"):
        found.update(
            predicted_end=predicted(measure_stages(made, X, y)),
            peak_by_device=memory(made.devices, lasting, lambda: made.step(X, y)),
            predicted_peak_by_device=[sum(both) for both in zip(lasting, made.peak_bytes(batch_size))],
            spans=recorded_spans(made, X, y),
            cuts=list(made.cuts),
        )

    def one_round() -> Round:
        times = measure_stages(made, X, y)
        expected = predicted(times) + seconds_of(lambda: made.update(0.0, batch_size))
        made.step(X, y)
        seconds = statistics.median(seconds_of(step_and_update) for _ in range(STEPS))
        metrics = {"predicted_seconds": expected, "predicted_over_measured": expected / seconds}
        return Round(seconds, metrics, {**found, "stage_seconds": vars(times)})

    return Work(made.devices, one_round)


def recorded_spans(made: Pipeline, X: HostArray, y: HostArray) -> List[Span]:
    """When each task of a step ran, in the quickest of three recorded steps; empty where MXNet's profiler can't follow
    the devices. Waits."""
    if not can_record(made.devices):
        return []
    found = []
    for _ in range(RECORDED):
        with record(made.devices) as recording:
            made.step(X, y)
        found.append(spans(recording.timeline, made))
    return min(found, key=lambda each: max(stop for _, _, _, stop in each))


def spans(timeline: Timeline, made: Pipeline) -> List[Span]:
    """The tasks in a recording. On each device they follow the plan's order, and each ends when its stage's token is
    passed on."""
    found: List[Span] = []
    for stage, device in enumerate(made.devices):
        tasks = list(made.plan.tasks[stage])
        work: List[Any] = []
        for event in timeline.lanes[str(device)]:
            if event.name == "ImperativeBulk":
                work.append(event)
            elif event.name == "size_array" and work:
                found.append((stage, str(tasks.pop(0)), work[0].start, work[-1].end))
                work = []
    began = min(start for _, _, start, _ in found)
    return [(stage, task, start - began, stop - began) for stage, task, start, stop in found]


def _split(case: Case, settings: Settings) -> SplitNet:
    devices, own, seed = devices_of(case, settings), case.settings, settings["seed"]
    cuts = stage_cuts(devices[0], own["stages"], SEVERAL, settings["batch_size"], seed)
    options = {"micro_batches": own["micro_batches"], "schedule": own["schedule"], "cuts": cuts}
    return SplitNet("pipeline", *network("stages"), devices, seed, options)
