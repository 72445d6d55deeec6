from __future__ import annotations

import itertools
import math
import threading
import time

import numpy as onp
import pytest

from mxdp.backend import mx, np, npx
from mxdp.datasets.minibatches import Stream
from mxdp.datasets.synthetic import load_synthetic
from mxdp.engine import CompletionEvent, Gate
from mxdp.experiments.automatic_parallelism.run_ahead import BOUNDED, OWN_CHILD, POLICIES, WAITS, RunAhead
from mxdp.experiments.automatic_parallelism.work import run_ahead as work
from mxdp.experiments.automatic_parallelism.work.run_ahead import (
    ProductsOnEach,
    Training,
    additions,
    policy,
    queued_additions,
)
from mxdp.experiments.harness.experiment import Case
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.measure.child import one_round
from mxdp.experiments.measure.oracle import count
from mxdp.experiments.measure.timelines import recorded
from mxdp.tracing import Timeline
from mxdp.training import RUN_AHEAD, TrainStep

SETTINGS = dict(
    devices=[2], kind="cpu", seed=0, rounds=2, timeout=60.0, batch_size=8, samples=24, size=16, products=2, additions=10
)
CASES = {case.label: case for case in RunAhead().cases(SETTINGS)}
PARAMETERS = 20 * 9 + 20 + 50 * 500 + 50 + 128 * 800 + 128 + 1280 + 10


def checked(devices=2, **case):
    return count(work.oracle(Case("", devices, settings=case), SETTINGS))


def finished(bounded=1.0, peak=40, waited=3.0, front=1.0, back=2.0):
    def row(case, seconds, **metrics):
        rounds = {key: [value] * 6 for key, value in metrics.items()}
        return Row(str(case), case, [seconds] * 6, metrics, rounds)

    times = {"never": 1.0, "each epoch": 1.1, "each step": 1.2, "2 ahead": 1.3, "2 ahead, events": bounded}
    rows = [row({"wait": name}, times[name], steps=4, ahead=3, peak_bytes=peak * 1e6) for name in POLICIES]
    rows[0] = row({"wait": "never"}, 1.0, steps=4, ahead=3, peak_bytes=60e6)
    rows += [row({"products": name}, number) for number, name in zip((1.0, 0.9, 0.1), WAITS)]
    rows.append(row({"each": False}, 2.0, front_us=front, back_us=back))
    rows.append(row({"each": True}, waited))
    RunAhead().finish(rows, [], SETTINGS)
    return rows


def test_each_way_to_train_has_a_child_of_its_own_and_the_rest_share_one():
    environments = [case.environment.get(OWN_CHILD) for case in CASES.values()]
    assert environments == [*POLICIES, None, None, None, None, None]


def test_its_ways_are_those_that_there_are():
    assert all(policy(name, 3) for name in POLICIES)
    assert f"{RUN_AHEAD} ahead, events" == BOUNDED
    assert [case.settings["products"] for case in CASES.values() if "products" in case.settings] == list(work.WAITS)


@pytest.mark.parametrize("label", ["never", "the first: completion event", "10, a wait for each"])
def test_rounds_come_with_the_devices_that_they_use(label):
    ready = work.set_up(CASES[label], SETTINGS)
    assert [str(device) for device in ready.devices] == ["cpu(0)", "cpu(1)"][: CASES[label].devices]
    assert one_round(ready).seconds > 0


@pytest.mark.parametrize(("way", "waits"), [("never", 1), ("wait each step", 5), ("wait each epoch", None)])
def test_a_few_steps_are_recorded(way, waits):
    ready = work.set_up(CASES[way], SETTINGS)
    assert (ready.record is not None) is (waits is not None)
    if waits:
        events = Timeline.from_json(recorded(ready.record(), ready.devices)["timeline"]).events
        assert sum(event.name == "MXNDArrayWaitAll" for event in events) == waits
        assert {event.kind for event in events if event.name == "mxdp job"} == {"engine"}


def test_rows_are_compared_with_the_first_of_their_kind():
    rows = finished()
    of_first = [row.metrics["of_first"] for row in rows]
    assert of_first == [1.0, 1.1, 1.2, 1.3, 1.0, 1.0, 0.9, 0.1, 1.0, 1.5]
    assert rows[1].metrics["ms_a_step"] == pytest.approx(275)
    assert rows[-1].metrics["us_an_op"] == pytest.approx(3e5)


def test_a_round_in_which_never_waiting_took_no_memory_says_nothing():
    rows = finished()
    rows[0].rounds["peak_bytes"][2] = 0
    RunAhead().finish(rows, [], SETTINGS)
    assert rows[4].rounds["peak_of_never"] == pytest.approx([2 / 3] * 2 + [math.nan] + [2 / 3] * 3, nan_ok=True)


@pytest.fixture
def waited(monkeypatch):
    """What a policy waits for, step by step, without a wait."""
    happened = []
    monkeypatch.setattr(npx, "waitall", lambda: happened.append("all"))

    class Losses:
        """The next step overwrites them, so to wait for them later takes a copy."""

        def __init__(self, step):
            self.step = step

        def copy(self):
            copied = Losses(self.step)
            copied.wait_to_read = lambda: happened.append(self.step)
            return copied

    def steps(name, count, epoch_steps=3):
        wait, by_step = policy(name, epoch_steps), []
        for step in range(1, count + 1):
            wait(step, [Losses(step)])
            by_step.append(list(happened))
            happened.clear()
        return by_step

    return steps


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("never", [[], [], [], [], [], []]),
        ("each epoch", [[], [], ["all"], [], [], ["all"]]),
        ("each step", [["all"]] * 6),
        ("2 ahead", [[], [], [1], [2], [3], [4]]),
        ("2 ahead, events", [[], [], [], [], [], []]),  # the step waits by itself
    ],
)
def test_what_each_way_waits_for(waited, name, expected):
    assert waited(name, 6) == expected


@pytest.mark.parametrize("way", POLICIES)
def test_training_takes_every_batch(way):
    data = load_synthetic(0, 40, 1).train
    training = Training([mx.cpu(0), mx.cpu(1)], 0, way)
    before = training.replicas[0][0].asnumpy().copy()
    ahead = training.steps(Stream(data, 8, 0).take(40), epoch_steps=2)
    assert 0 <= ahead <= 5
    assert not (training.replicas[1][0].asnumpy() == before).all()


@pytest.mark.parametrize(("way", "most"), [("never", 6), (BOUNDED, RUN_AHEAD + 1), ("each step", 1)])
def test_ahead_counts_steps_that_are_pushed_and_not_done(way, most):
    """None is done before the gate opens, and a bounded Python has to wait for that."""
    stream = Stream(load_synthetic(0, 48, 1).train, 8, 0)
    training = Training([mx.cpu(0)], 0, way)
    training.steps(stream.take(8), epoch_steps=6)
    npx.waitall()
    gate = Gate(training.replicas[0][0])
    opener = threading.Timer(0.2, gate.open)
    opener.start()
    assert training.steps(stream.take(48), epoch_steps=6) == most
    opener.join()


@pytest.mark.parametrize("each", [False, True])
def test_additions_add(each):
    found = additions(5, mx.cpu(0), each)
    assert found.last.asnumpy().tolist() == [[2.0, 2.0]]
    assert 0 < found.pushing <= found.seconds


def test_queued_additions_are_timed_from_when_they_may_begin(monkeypatch):
    opened = []

    class SlowGate(Gate):
        def open(self):
            opened.append(time.perf_counter())
            super().open()

    monkeypatch.setattr(work, "Gate", SlowGate)
    assert 0 < queued_additions(50, mx.cpu(0)) <= time.perf_counter() - opened[0]


def test_products_are_pushed_in_turn_on_each_device():
    answers = ProductsOnEach([mx.cpu(0), mx.cpu(1)], 4, 2, seed=0).push()
    assert [answer.ctx for answer in answers] == [mx.cpu(0), mx.cpu(1)] * 2


@pytest.mark.parametrize(("way", "for_all"), [("waitall", True), ("wait_to_read", True), ("event", False)])
def test_only_an_event_comes_back_before_the_queue_of_the_first_cpu_is_empty(way, for_all):
    """The reason for completion events: MXNet's own wait queues on ``cpu(0)`` behind all work there."""
    first, x = np.ones((2,), ctx=mx.cpu(1)), np.ones((800, 800))
    npx.waitall()
    gate = Gate(first)
    answers = [first + 1]
    behind = [npx.fully_connected(x, x, num_hidden=800, no_bias=True) for _ in range(24)]
    late = CompletionEvent([behind[12]])  # of the last, it might be noted a moment after the wait
    threading.Timer(0.02, gate.open).start()  # an answer that is there already is not waited for
    work.WAITS[way](answers)
    assert (late.at is not None) == for_all
    npx.waitall()


@pytest.mark.parametrize("way", POLICIES)
def test_parameters_are_compared_bit_for_bit_and_with_one_devices(way):
    assert checked(wait=way) == (2 * 2 * PARAMETERS, 0)


def test_a_step_too_few_is_caught(monkeypatch):
    steps = work.Training.steps

    def skips(self, batches, epoch_steps):
        few = itertools.islice(batches, 5) if len(self.devices) == 2 else batches
        return steps(self, few, epoch_steps)

    monkeypatch.setattr(work.Training, "steps", skips)
    found, wrong = checked(wait="never")
    assert 0 < wrong <= found


def test_a_batch_that_is_written_over_before_it_is_read_is_caught(monkeypatch):
    """What running ahead would break, if the input were one buffer that every step writes into."""
    calls = []

    class OfTheStepBefore(TrainStep):
        def __call__(self, X, y):
            calls.append((onp.array(X), onp.array(y)))
            late = len(calls) > 6 and len(calls) % 6 == 5  # the fifth step of the way that is checked
            return super().__call__(*(calls[-2] if late else (X, y)))

    monkeypatch.setattr(work, "TrainStep", OfTheStepBefore)
    assert checked(wait="never")[1] > 0


@pytest.mark.parametrize("way", work.WAITS)
def test_products_are_compared(way):
    assert checked(products=way) == (2 * 3 * 129 * 129, 0)


def test_a_wrong_product_is_caught(monkeypatch):
    push = work.ProductsOnEach.push
    monkeypatch.setattr(work.ProductsOnEach, "push", lambda self: [*push(self)[:-1], np.zeros((129, 129))])
    # (In a few places the right product is zero, too.)
    assert 16000 < checked(products="waitall")[1] <= 129 * 129


def test_the_last_sum_is_compared(monkeypatch):
    assert checked(1, each=True) == (2, 0)
    wrong = work.TimedAdditions(1.0, 1.0, np.ones((1, 2)))
    monkeypatch.setattr(work, "additions", lambda count, device, each: wrong)
    assert checked(1, each=False) == (2, 2)


def test_a_round_of_training_is_all_its_epochs():
    ready = work.set_up(CASES["wait each step"], {**SETTINGS, "samples": 20})
    first, second = one_round(ready), one_round(ready)
    assert (second.metrics["steps"], second.metrics["ahead"]) == (6, 1)
    assert second.metrics["peak_bytes"] >= 0
    assert first.seconds > 0


def test_a_round_of_waiting_leaves_nothing_to_the_next(monkeypatch):
    ready = work.set_up(CASES["the first: completion event"], {**SETTINGS, "size": 8})
    happened = []
    monkeypatch.setattr(npx, "waitall", lambda: happened.append("wait"))
    assert ready.round().seconds > 0
    assert happened == []
    one_round(ready)
    assert happened == ["wait", "wait"]


def test_additions_that_do_not_wait_tell_what_both_ends_cost():
    pushed, waited = (work.set_up(CASES[label], SETTINGS).round() for label in ("10 additions", "10, a wait for each"))
    assert set(pushed.metrics) == {"front_us", "back_us"}
    assert pushed.metrics["front_us"] * 10 / 1e6 <= pushed.seconds
    assert waited.metrics == {}
