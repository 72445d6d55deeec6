"""What ``pipeline`` and ``latency-throughput`` run, compare and tell."""

from __future__ import annotations

import itertools

import pytest
from littles import little

from mxdp.backend import mx
from mxdp.experiments.lab.module import Question
from mxdp.experiments.oracle import count
from mxdp.experiments.other_splits import latency_throughput, pipeline
from mxdp.experiments.other_splits.nets import net_and_shape
from mxdp.experiments.other_splits.split import SplitNet, memory

DEVICES = [mx.cpu(0), mx.cpu(1)]
SETTINGS = little(Question(pipeline), kind="cpu", batch_size=16)
CASES = {case.label: case for case in pipeline.cases(SETTINGS)}
ANSWERS = little(Question(latency_throughput), kind="cpu", batches=[1, 3], stream=3)
ANSWERED = {case.label: case for case in latency_throughput.cases(ANSWERS)}


def without_gradients(made):
    for stage in made.stages:
        stage._addends, stage._add = stage._sums, []


def with_other_scores(made):
    right = made.scores
    made.scores = lambda X: right(X[::-1])


@pytest.mark.parametrize("fault", [without_gradients, with_other_scores])
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
def test_every_replica_is_compared(label, replicas, monkeypatch):
    case = ANSWERED[f"{label}, batch 3"]
    assert count(latency_throughput.oracle(case, ANSWERS)) == (3 * 10 * replicas, 0)
    right = SplitNet.make
    for spoiled in range(replicas):
        numbers = iter(range(replicas))

        def make(self, spoiled=spoiled, numbers=numbers):
            made = right(self)
            if next(numbers) == spoiled:
                with_other_scores(made)
            return made

        monkeypatch.setattr(SplitNet, "make", make)
        assert 10 < count(latency_throughput.oracle(case, ANSWERS))[1] <= 30


@pytest.mark.parametrize("number", [0, 1])
def test_a_round_has_its_own_prediction_and_the_first_process_alone_looks_at_memory(number, monkeypatch):
    case = CASES["2 x gpipe, m = 4"]
    monkeypatch.setattr(case, "number", number, raising=False)
    work, times = pipeline.set_up(case, SETTINGS), itertools.cycle([1.0, 5.0, 2.0, 9.0])
    monkeypatch.setattr(pipeline, "timed", lambda push: next(times))
    (seconds, first), (_, second) = work.round(), work.round()
    assert seconds == 5.0  # the median of three steps
    assert first["predicted_over_measured"] != second["predicted_over_measured"]
    assert len({"peak_bytes", "predicted_peak_bytes"} & set(second)) == 2 * (number == 0)


def test_answers_are_those_of_the_stream_and_the_latency_is_of_one_batch(virtual):
    seconds, numbers = latency_throughput.set_up(ANSWERED["2 replicas, batch 3"], ANSWERS).round()
    assert numbers["answers_per_second"] == pytest.approx(9 / seconds)
    assert numbers["latency_seconds"] - 1 == (seconds - 1) / ANSWERS.stream


def test_memory_is_that_of_the_fullest_device_with_what_stays():
    options = {"micro_batches": 4, "schedule": "1f1b", "cuts": (4,)}
    split = SplitNet("pipeline", *net_and_shape("stages"), DEVICES, 0, options)
    made, (X, y) = split.make(), split.batch(16)
    made.step(X, y)
    assert memory(DEVICES, [8, 7], lambda: None) == 8
    assert memory(DEVICES, [0, 10**9], lambda: made.step(X, y)) > 10**9
    assert memory(DEVICES, [0, 8], lambda: made.step(X, y)) > 8 + 4 * 20 * 24 * 24 * 4


def test_memory_is_not_counted_where_mxnet_would_abort():
    many = SplitNet("pipeline", *net_and_shape("stages"), [mx.cpu(0), mx.cpu(1000)], 0, {"cuts": (4,)})
    assert memory(many.devices, [0, 0], lambda: None) is None
