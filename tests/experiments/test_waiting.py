from __future__ import annotations

import threading
import time

import pytest

from mxdp.backend import mx, np, npx
from mxdp.datasets.minibatches import Stream
from mxdp.datasets.synthetic import load_synthetic
from mxdp.experiments.automatic_parallelism.work import waiting
from mxdp.experiments.automatic_parallelism.work.waiting import (
    WAITS,
    Products,
    Training,
    additions,
    policy,
    queued_additions,
)
from mxdp.experiments.measure.completion import CompletionEvent, Gate

WAYS = ("never", "each epoch", "each step", "2 ahead", "2 ahead, stamps")


@pytest.fixture
def waited(monkeypatch):
    """What a policy waits for, step by step, without a wait."""
    happened = []
    monkeypatch.setattr(npx, "waitall", lambda: happened.append("all"))

    class Losses(list):
        def __init__(self, step):
            super().__init__([self])
            self.step = step

        def wait_to_read(self):
            happened.append(self.step)

        wait = wait_to_read

    def steps(name, count, epoch_steps=3):
        wait, by_step = policy(name, epoch_steps), []
        for step in range(1, count + 1):
            wait(step, Losses(step), Losses(step))
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
        ("2 ahead, stamps", [[], [], [1], [2], [3], [4]]),
    ],
)
def test_what_each_way_waits_for(waited, name, expected):
    assert waited(name, 6) == expected


def test_only_these_ways_are_known():
    with pytest.raises(KeyError):
        policy("sometimes", 3)


@pytest.mark.parametrize("way", WAYS)
def test_training_takes_every_batch(way):
    data = load_synthetic(0, 40, 1).train
    training = Training([mx.cpu(0), mx.cpu(1)], seed=0)
    before = training.replicas[0][0].asnumpy().copy()
    ahead = training.steps(Stream(data, 8, 0).take(40), 0.1, policy(way, epoch_steps=2))
    assert 0 <= ahead <= 5
    assert not (training.replicas[1][0].asnumpy() == before).all()


def test_ahead_counts_steps_that_are_pushed_and_not_done(monkeypatch):
    data = load_synthetic(0, 24, 1).train
    training = Training([mx.cpu(0)], seed=0)
    gate = Gate(training.replicas[0][0])
    assert training.steps(Stream(data, 8, 0).take(24), 0.1, policy("never", 3)) == 3
    gate.open()
    npx.waitall()
    assert training.steps(Stream(data, 8, 0).take(24), 0.1, policy("each step", 3)) == 1


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

    monkeypatch.setattr(waiting, "Gate", SlowGate)
    assert 0 < queued_additions(50, mx.cpu(0)) <= time.perf_counter() - opened[0]


def test_products_are_pushed_in_turn_on_each_device():
    answers = Products([mx.cpu(0), mx.cpu(1)], 4, 2, seed=0).push()
    assert [answer.ctx for answer in answers] == [mx.cpu(0), mx.cpu(1)] * 2


@pytest.mark.parametrize(("way", "for_all"), [("waitall", True), ("wait_to_read", True), ("stamp", False)])
def test_only_a_stamp_comes_back_before_the_queue_of_the_first_cpu_is_empty(way, for_all):
    """The reason for stamps: MXNet's own wait takes its turn on ``cpu(0)``, behind what was queued before it."""
    first, x = np.ones((2,), ctx=mx.cpu(1)), np.ones((800, 800))
    npx.waitall()
    gate = Gate(first)
    answers = [first + 1]
    behind = [npx.fully_connected(x, x, num_hidden=800, no_bias=True) for _ in range(24)]
    late = CompletionEvent([behind[12]])  # of the last, it might be noted a moment after the wait
    threading.Timer(0.02, gate.open).start()  # an answer that is there already is not waited for
    WAITS[way](answers)
    assert (late.at is not None) == for_all
    npx.waitall()
