"""What ``pipeline`` and ``latency-throughput`` run, compare and make of their rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from mxdp.backend import mx
from mxdp.experiments.harness import claims
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.measure.child import one_round
from mxdp.experiments.measure.oracle import count
from mxdp.experiments.other_splits.latency_throughput import LatencyThroughput
from mxdp.experiments.other_splits.pipeline import PipelineStages, idle
from mxdp.experiments.other_splits.split import ONE_DEVICE
from mxdp.experiments.other_splits.staircases import Panel, staircase
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


def names(**wrong):
    return {**dict.fromkeys(PipelineStages.claims, True), **wrong}


def test_the_pipelines_claims():
    held, text = finished(four())
    assert held == names()
    assert text == (
        "On 2 devices, GPipe with 4 micro-batches takes 0.60 (0.60 to 0.60) of one device's time, and the plan "
        "predicts 1.00 (1.00 to 1.00) times what was measured."
    )
    assert "predicts 0.86 (0.86 to 0.86) times" in finished(four(over=0.86))[1]
    assert finished(four(over=0.86))[0] == names()
    assert finished(four(over=0.84))[0] == names(predicted_at_least=False)
    assert finished(four(over=1.16))[0] == names(predicted_at_most=False)
    assert finished(four(several=1.01))[0] == names(several_of_one=False)


def test_rounds_on_both_sides_leave_a_claim_open():
    rows = four()
    rows[1].rounds["predicted_over_measured"] = [0.8, 1.0] * 6
    assert finished(rows)[0] == names(predicted_at_least=None)


def test_nothing_is_claimed_for_more_stages_than_cores():
    rows = four(several=1.1, over=0.5)
    for each in rows:
        each.metrics["workers"] = 1
    held, text = finished(rows)
    assert held == dict.fromkeys(PipelineStages.claims)
    assert "takes 1.10 (1.10 to 1.10) of one device's time" in text


def test_the_explanation_says_which_schedule_needs_less_memory():
    rows = four(peak=(1e6, 2e6))
    rows[3].metrics["peak_by_device"] = [5e5]
    finished(rows)
    assert PipelineStages().explanation(rows, [], SETTINGS) == (
        "1F1B keeps fewer activations: with 4 micro-batches it needs 0.5 MB on the fullest device, and GPipe 2.0 MB."
    )
    rows[3].metrics["peak_bytes"] = None
    assert PipelineStages().explanation(rows, [], SETTINGS) == ""


def test_python_and_cpu_devices_share_the_cores():
    assert workers(DEVICES) == cores()


def test_one_schedule_that_is_no_faster_is_enough_to_refute_it():
    rows = four()
    rows[3].samples = [1.1] * 12
    assert finished(rows)[0] == names(several_of_one=False)


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


def answers(stages, replicas, latency, per_second):
    layout = f"{stages} stages" if stages > 1 else f"{replicas} replicas" if replicas > 1 else "1 device"
    return Row(
        label=layout,
        case={"layout": layout, "stages": stages, "replicas": replicas, "batch": 8},
        metrics={"latency_seconds": latency, "answers_per_second": per_second},
        rounds={"latency_seconds": [latency] * 6, "answers_per_second": [per_second] * 6},
    )


@pytest.mark.parametrize(
    ("latency", "per_second", "later", "more"),
    [(1.0, 1.3, True, True), (0.95, 1.3, True, True), (0.5, 1.3, False, True), (1.0, 1.1, True, False)],
)
def test_stages_give_more_answers_and_none_sooner(latency, per_second, later, more):
    rows = [answers(1, 1, 1.0, 1.0), answers(2, 1, latency, per_second), answers(1, 2, 1.0, 0.1)]
    settings = {**SETTINGS, "batches": [8], "stream": 2}
    experiment = LatencyThroughput()
    experiment.finish(rows, [], settings)
    held = {name: claims.judged(name, claim, rows)["holds"] for name, claim in experiment.claims.items()}
    assert held == {"stages_answers": more, "stages_latency": later}
    more, later = (f"{each:.2f} ({each:.2f} to {each:.2f}) times" for each in (per_second, latency))
    said = f"With batches of 8, 2 stages give {more} the throughput of one device, at {later} its latency."
    assert experiment.answer(rows, [], settings) == said


SPANS = [(0, "F0", 0.0, 0.1), (1, "F0", 0.1, 0.101), (1, "B0", 0.101, 0.15), (0, "B0", 0.15, 0.2)]


def test_the_boxes_of_the_picture_are_the_tasks():
    figure = Figure(layout="constrained")
    staircase(figure, [Panel("first", SPANS, 0.25), Panel("second", SPANS[:1], 0.1)])
    first, second = figure.axes
    assert [each.get_title(loc=place) for each, place in ((first, "center"), (second, "center"))] == ["first", "second"]
    boxes = [(round(box.get_y() + 0.4), box.get_x(), box.get_width()) for box in first.patches]
    assert boxes == [(stage, 1e3 * start, pytest.approx(1e3 * (stop - start))) for stage, _, start, stop in SPANS]
    assert [text.get_text() for text in first.texts] == ["F0", "B0", "B0"], "a box too narrow has no name"
    assert [axes.lines[0].get_xdata()[0] for axes in figure.axes] == [250.0, 100.0]
    assert len({box.get_facecolor() for box in first.patches}) == 2
    assert first.get_xlim() == second.get_xlim()


def test_a_narrow_box_has_the_number_alone_and_the_line_is_behind_the_boxes():
    spans = [(0, "F0", 0.0, 0.1), (0, "F1", 0.1, 0.103), (0, "B1", 0.103, 0.15), (0, "B0", 0.15, 0.2)]
    figure = Figure(layout="constrained")
    staircase(figure, [Panel("one", spans, 0.12)])
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == ["F0", "B1", "B0"], "1.5 % of the width hold no number"
    assert axes.lines[0].get_zorder() < min(box.get_zorder() for box in axes.patches)
    staircase(figure, [Panel("one", [(0, "F0", 0.0, 0.1), (0, "F1", 0.1, 0.106), *spans[2:]], 0.12)])
    assert [text.get_text() for text in figure.axes[-1].texts] == ["0", "1", "B1", "B0"]
