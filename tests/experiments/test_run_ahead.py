from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as onp
import pytest
from gate import Gate
from littles import little

from mxdp.backend import mx, np, npx
from mxdp.datasets.minibatches import Stream
from mxdp.datasets.synthetic import load_synthetic
from mxdp.engine import CompletionEvent
from mxdp.experiments.automatic_parallelism import run_ahead
from mxdp.experiments.automatic_parallelism.run_ahead import (
    BOUNDED,
    OWN_PROCESS,
    POLICIES,
    Training,
    products,
)
from mxdp.experiments.lab import Case
from mxdp.experiments.lab.module import Question
from mxdp.experiments.oracle import count
from mxdp.experiments.timelines import recorded
from mxdp.tracing import Timeline
from mxdp.training import RUN_AHEAD, TrainStep

SETTINGS = little(Question(run_ahead), kind="cpu", batch_size=8, samples=24, size=16, additions=10)
CASES = {case.label: case for case in run_ahead.cases(SETTINGS)}
CPUS = [mx.cpu(0), mx.cpu(1)]
PARAMETERS = 20 * 9 + 20 + 50 * 500 + 50 + 128 * 800 + 128 + 1280 + 10


def checked(devices=2, **case):
    return count(run_ahead.oracle(Case("", devices, **case), SETTINGS))


def test_each_way_to_train_has_a_process_of_its_own_and_the_rest_share_one():
    environments = [case.environment.get(OWN_PROCESS) for case in CASES.values()]
    assert environments == [*POLICIES, *[None] * 5]
    assert f"{RUN_AHEAD} ahead, events" == BOUNDED


@pytest.mark.parametrize(("way", "waits"), [("never", 1), ("wait each step", 5), ("wait each epoch", None)])
def test_a_few_steps_are_recorded(way, waits):
    ready = run_ahead.set_up(CASES[way], SETTINGS)
    assert (ready.record is not None) is (waits is not None)
    if waits:
        events = Timeline.from_json(recorded(ready.record, CPUS)["timeline"]).events
        assert sum(event.name == "MXNDArrayWaitAll" for event in events) == waits
        assert {event.kind for event in events if event.name == "mxdp job"} == {"engine"}


@pytest.mark.parametrize(("way", "most"), [("never", 6), ("each epoch", 4), (BOUNDED, RUN_AHEAD + 1), ("each step", 1)])
def test_ahead_counts_steps_that_are_pushed_and_not_done(way, most):
    """None is done before the gate opens, and a bounded Python has to wait for that."""
    stream = Stream(load_synthetic(0, 48, 1).train, 8, 0)
    training = Training([mx.cpu(0)], 0, way)
    training.steps(stream.take(8), epoch_steps=6)
    npx.waitall()
    gate = Gate(training.replicas[0][0])
    opener = threading.Timer(0.2, gate.open)
    opener.start()
    assert training.steps(stream.take(48), epoch_steps=4) == most
    opener.join()


@pytest.mark.parametrize(("way", "for_all"), list(zip(run_ahead.WAITS, (True, True, False))))
def test_only_an_event_comes_back_before_the_queue_of_the_first_cpu_is_empty(way, for_all):
    """The reason for completion events: MXNet's own wait queues on ``cpu(0)`` behind all work there."""
    first, x = np.ones((2,), ctx=mx.cpu(1)), np.ones((800, 800))
    npx.waitall()
    gate = Gate(first)
    answers = [first + 1]
    behind = [npx.fully_connected(x, x, num_hidden=800, no_bias=True) for _ in range(24)]
    late = CompletionEvent([behind[12]])  # of the last, it might be noted a moment after the wait
    threading.Timer(0.02, gate.open).start()  # an answer that is there already is not waited for
    run_ahead.WAITS[way](answers)
    assert (late.at is not None) == for_all
    npx.waitall()


@pytest.mark.parametrize("replica", [0, 1])
def test_a_replica_that_differs_is_caught(replica, monkeypatch):
    steps = Training.steps

    def spoilt(self, batches, epoch_steps):
        steps(self, batches, epoch_steps)
        if self._way == "never":
            self.replicas[replica][-1][3] += 1

    monkeypatch.setattr(Training, "steps", spoilt)
    assert checked(wait="never")[1] == 2  # against the bits, and against one device's


def test_a_batch_that_is_written_over_before_it_is_read_is_caught(monkeypatch):
    """What running ahead would break, if the input were one buffer that every step writes into."""
    calls = []

    class OfTheStepBefore(TrainStep):
        def __call__(self, X, y):
            calls.append((onp.array(X), onp.array(y)))
            late = len(calls) > 6 and len(calls) % 6 == 5  # the fifth step of the way that is checked
            return super().__call__(*(calls[-2] if late else (X, y)))

    monkeypatch.setattr(run_ahead, "TrainStep", OfTheStepBefore)
    assert checked(wait="never")[1] > 0


@pytest.mark.parametrize("way", run_ahead.WAITS)
def test_products_of_every_device_are_compared(way, monkeypatch):
    assert checked(way=way) == (2 * 3 * 129 * 129, 0)
    _, push = products(CPUS, 4, 2, SETTINGS)
    assert [answer.ctx for answer in push()] == CPUS * 2

    def spoilt(*more):
        factor, push = products(*more)
        return factor, lambda: [*push()[:-1], np.zeros((129, 129))]

    monkeypatch.setattr(run_ahead, "products", spoilt)
    # (In a few places the right product is zero, too.)
    assert 16000 < checked(way=way)[1] <= 129 * 129


@pytest.mark.parametrize("each", [False, True])
def test_the_last_sum_is_compared(each, monkeypatch):
    assert checked(1, each=each) == (2, 0)
    monkeypatch.setattr(run_ahead, "additions", lambda *more: np.ones((1, 2)))
    assert checked(1, each=each) == (2, 2)


def test_a_round_of_training_is_all_its_epochs(monkeypatch):
    ready = run_ahead.set_up(CASES["wait each step"], little(Question(run_ahead), **{**SETTINGS, "samples": 20}))
    steps, call = [], TrainStep.__call__
    monkeypatch.setattr(TrainStep, "__call__", lambda self, X, y: (steps.append(len(X)), call(self, X, y))[1])
    monkeypatch.setattr(run_ahead, "timed", lambda push: (push(), 5.0)[1])
    monkeypatch.setattr(run_ahead, "grown", lambda work: (work(), 7)[1])
    assert ready.round() == (5.0, {"ahead": 1, "peak_bytes": 7})
    assert steps == [8, 8, 4] * 2


def test_a_round_of_waiting_waits_in_its_own_way_alone(monkeypatch):
    ready = run_ahead.set_up(CASES["the first: completion event"], SETTINGS)
    happened = []
    monkeypatch.setattr(npx, "waitall", lambda: happened.append("wait"))
    times = iter([2.0, 5.0])
    monkeypatch.setattr(run_ahead, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    assert ready.round() == 3.0
    assert happened == []
