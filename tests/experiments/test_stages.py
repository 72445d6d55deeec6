"""What ``pipeline`` and ``latency-throughput`` run, compare and make of their rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mxdp.backend import mx
from mxdp.experiments.harness import claims
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.measure.child import one_round
from mxdp.experiments.measure.oracle import count
from mxdp.experiments.other_splits.latency_throughput import LatencyThroughput
from mxdp.experiments.other_splits.pipeline import PipelineStages, idle
from mxdp.experiments.other_splits.split import ONE_DEVICE
from mxdp.experiments.other_splits.work import latency_throughput, pipeline
from mxdp.experiments.other_splits.work.pipeline import recorded_spans, spans
from mxdp.experiments.other_splits.work.split import SplitNet, memory, network, workers
from mxdp.layers import outputs, param_shapes
from mxdp.parallel.traffic import elements
from mxdp.plans.pipeline import pipeline as planned
from mxdp.process import cores
from mxdp.tracing import record

DEVICES = [mx.cpu(0), mx.cpu(1)]
SETTINGS = dict(devices=[2], kind="cpu", seed=0, rounds=2, timeout=60.0, batch_size=16, micro_batches=[1, 4])
CASES = {case.label: case for case in PipelineStages().cases(SETTINGS)}
ANSWERS = {**SETTINGS, "batches": [1, 3], "stream": 3}
ANSWERED = {case.label: case for case in LatencyThroughput().cases(ANSWERS)}
OPTIONS = {"micro_batches": 4, "schedule": "1f1b", "cuts": (4,)}
NUMBERS = 16 * 11 + 2 * sum(elements(shape) for own in param_shapes(*network("stages")) for shape in own)
"""That the oracle of ``pipeline`` compares."""


@pytest.fixture
def split():
    return SplitNet("pipeline", *network("stages"), DEVICES, 0, OPTIONS)


def test_the_network_ends_in_ten_scores():
    assert outputs(*network("stages"))[-1] == (10,)


@pytest.mark.parametrize("label", CASES)
def test_a_pipeline_equals_one_device(label):
    assert count(pipeline.oracle(CASES[label], SETTINGS)) == (NUMBERS, 0)


def without_gradients(made):
    for stage in made.stages:
        stage._addends, stage._add = stage._sums, []


def without_an_update(made):
    made.stages[1].flat = []


def with_other_scores(made):
    right = made.scores
    made.scores = lambda X: right(X[::-1])


@pytest.mark.parametrize("fault", [without_gradients, without_an_update, with_other_scores])
def test_a_broken_pipeline_is_found(fault, monkeypatch):
    right = SplitNet.make

    def wrong(self):
        made = right(self)
        fault(made)
        return made

    monkeypatch.setattr(SplitNet, "make", wrong)
    assert count(pipeline.oracle(CASES["2 x 1f1b, m = 4"], SETTINGS))[1] > 10
    if fault is with_other_scores:
        assert count(latency_throughput.oracle(ANSWERED["2 stages, batch 3"], ANSWERS))[1] > 10


@pytest.mark.parametrize(("label", "replicas"), [("1 device", 1), ("2 stages", 1), ("2 replicas", 2)])
def test_every_replica_is_compared(label, replicas):
    assert count(latency_throughput.oracle(ANSWERED[f"{label}, batch 3"], ANSWERS)) == (3 * 10 * replicas, 0)


def test_a_round_has_its_own_prediction():
    work = pipeline.set_up(CASES["2 x gpipe, m = 4"], SETTINGS)
    first, second = one_round(work), one_round(work)
    for done in (first, second):
        expected, ratio = done.metrics["predicted_seconds"], done.metrics["predicted_over_measured"]
        assert ratio == pytest.approx(expected / done.seconds)
    assert first.metrics != second.metrics
    assert [len(second.last["stage_seconds"][way]) for way in ("forward", "backward")] == [2, 2]


@pytest.mark.parametrize(("repeat", "looks"), [(0, True), (1, False)])
def test_the_first_process_alone_looks_at_memory_and_tasks(repeat, looks):
    case = CASES["2 x gpipe, m = 4"]
    last = one_round(pipeline.set_up(replace(case, settings={**case.settings, "repeat": repeat}), SETTINGS)).last
    found = {"predicted_end", "peak_by_device", "predicted_peak_by_device", "spans", "cuts"} & set(last)
    assert len(found) == 5 * looks


def test_answers_are_those_of_the_stream():
    done = one_round(latency_throughput.set_up(ANSWERED["2 replicas, batch 3"], ANSWERS))
    assert done.metrics["seconds_per_step"] == pytest.approx(done.seconds / 3)
    assert done.metrics["answers_per_second"] == pytest.approx(9 / done.seconds)
    assert done.metrics["latency_seconds"] > 0


def test_spans_are_the_plans_tasks(split):
    made, (X, y) = split.make(), split.batch(16)
    made.step(X, y)
    with record(made.devices) as recording:
        made.step(X, y)
    for found in (spans(recording.timeline, made), recorded_spans(made, X, y)):
        for stage in (0, 1):
            own = [span for span in found if span[0] == stage]
            assert [span[1] for span in own] == [str(task) for task in planned("1f1b", 2, 4).tasks[stage]]
            assert all(start < stop for _, _, start, stop in own)
            assert all(before[3] <= after[2] for before, after in zip(own, own[1:]))
        assert min(span[2] for span in found) == 0


def test_what_stays_counts_as_memory(split):
    made, (X, y) = split.make(), split.batch(16)
    made.step(X, y)
    assert memory(DEVICES, [7, 8], lambda: None) == [7, 8]
    assert memory(DEVICES, [0, 8], lambda: made.step(X, y))[1] > 8 + 4 * 20 * 24 * 24 * 4


def test_memory_is_not_counted_where_mxnet_would_abort():
    many = SplitNet("pipeline", *network("stages"), [mx.cpu(0), mx.cpu(1000)], 0, {"cuts": (4,)})
    assert memory(many.devices, [0, 0], lambda: None) is None
    assert recorded_spans(many.make(), *many.batch(2)) == []


def row(schedule="gpipe", m=1, seconds=1.0, over=1.0, peak=(1, 2), cores=2):
    return Row(
        label=f"2 x {schedule}, m = {m}",
        case={"schedule": schedule, "stages": 2, "micro_batches": m, "devices": ["cpu(0)", "cpu(1)"]},
        samples=[seconds] * 12,
        metrics={
            "predicted_over_measured": over,
            "spans": [],
            "peak_by_device": list(peak) if peak else None,
            "predicted_peak_by_device": [3, 4],
            "workers": cores,
        },
        rounds={"predicted_over_measured": [over] * 12},
    )


def finished(rows):
    """What each claim says, by name, and the answer."""
    experiment, references = PipelineStages(), [row(seconds=1.0)]
    experiment.finish(rows, references, SETTINGS)
    held = {name: claims.judged(name, claim, rows)["holds"] for name, claim in experiment.claims.items()}
    return held, experiment.answer(rows, references, SETTINGS)


def four(several=0.6, over=1.0, peak=(1, 2)):
    return [
        row(schedule, m, 1.0 if m == 1 else several, over if m == 4 else 1.0, peak)
        for schedule in ("gpipe", "1f1b")
        for m in (1, 4)
    ]


def test_nothing_is_claimed_for_more_stages_than_cores():
    rows = four(several=1.1, over=0.5)
    for each in rows:
        each.metrics["workers"] = 1
    held, text = finished(rows)
    assert held == dict.fromkeys(PipelineStages.claims)
    assert "takes 1.10 (1.10 to 1.10) of one device's time" in text


def test_python_and_cpu_devices_share_the_cores():
    assert workers(DEVICES) == cores()


def test_rows_carry_what_other_programs_read():
    rows = four(peak=None)
    finished(rows)
    metrics = rows[1].metrics
    assert (metrics["seconds_per_step"], metrics["peak_bytes"], metrics["predicted_peak_bytes"]) == (0.6, None, 4)
    assert metrics["bubble"] == pytest.approx(1 / 5)
    assert metrics["of_one_device"] == pytest.approx(0.6)
    assert metrics["idle"] is None


def test_a_device_that_waits_is_idle():
    assert idle([(0, "F0", 0.0, 1.0), (1, "F0", 0.0, 1.0)], 2) == 0
    assert idle([(0, "F0", 1.0, 2.0), (1, "F0", 2.0, 3.0)], 2) == 0.5


def test_without_a_second_device_the_answer_asks_for_one():
    for experiment, settings in (
        (PipelineStages(), {**SETTINGS, "devices": [1]}),
        (LatencyThroughput(), {**SETTINGS, "devices": [1], "batches": [1], "stream": 2}),
    ):
        assert [case.devices for case in experiment.cases(settings)] == [1]
        assert experiment.predict(settings, 2) == experiment.answer([], [], settings) == ONE_DEVICE
