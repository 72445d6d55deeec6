from __future__ import annotations

import itertools

import numpy as onp
import pytest

from mxdp.backend import mx, np, npx
from mxdp.experiments.automatic_parallelism.work import waiting, waits

TWO = [mx.cpu(0), mx.cpu(1)]
PARAMETERS = 20 * 9 + 20 + 50 * 500 + 50 + 128 * 800 + 128 + 1280 + 10


@pytest.mark.parametrize("way", ["never", "each epoch", "2 ahead", "2 ahead, stamps"])
def test_parameters_are_compared_bit_for_bit_and_with_one_devices(way):
    assert waits.check_training(way, TWO, seed=0, lr=0.1) == (2 * 2 * PARAMETERS, 0)


def test_a_step_too_few_is_caught(monkeypatch):
    steps = waiting.Training.steps

    def skips(self, batches, lr, wait):
        few = itertools.islice(batches, 5) if len(self.devices) == 2 else batches
        return steps(self, few, lr, wait)

    monkeypatch.setattr(waiting.Training, "steps", skips)
    checked, wrong = waits.check_training("never", TWO, seed=0, lr=0.1)
    assert 0 < wrong <= checked


def test_a_batch_that_is_written_over_before_it_is_read_is_caught(monkeypatch):
    """What running ahead would break, if the input were one buffer that every step writes into."""
    train_batch, calls = waiting.train_batch, []

    def of_the_step_before(X, y, *more, **others):
        calls.append((onp.array(X), onp.array(y)))
        late = len(calls) > 6 and len(calls) % 6 == 5  # the fifth step of the way that is checked
        return train_batch(*(calls[-2] if late else (X, y)), *more, **others)

    monkeypatch.setattr(waiting, "train_batch", of_the_step_before)
    assert waits.check_training("never", TWO, seed=0, lr=0.1)[1] > 0


@pytest.mark.parametrize("way", waiting.WAITS)
def test_products_are_compared(way):
    assert waits.check_products(way, TWO, seed=0) == (2 * 3 * 129 * 129, 0)


def test_a_wrong_product_is_caught(monkeypatch):
    push = waiting.Products.push
    monkeypatch.setattr(waiting.Products, "push", lambda self: [*push(self)[:-1], np.zeros((129, 129))])
    # (In a few places the right product is zero, too.)
    assert 16000 < waits.check_products("waitall", TWO, seed=0)[1] <= 129 * 129


def test_the_last_sum_is_compared(monkeypatch):
    assert waits.check_additions(True, mx.cpu(0)) == (2, 0)
    wrong = waiting.Additions(1.0, 1.0, np.ones((1, 2)))
    monkeypatch.setattr(waits, "additions", lambda count, device, each: wrong)
    assert waits.check_additions(False, mx.cpu(0)) == (2, 2)


def test_a_round_of_training_is_all_its_epochs():
    rounds = waits.train("each step", TWO, batch_size=8, samples=20, epochs=2, seed=0, lr=0.1)
    first, second = next(rounds), next(rounds)
    assert (second.metrics["steps"], second.metrics["ahead"]) == (6, 1)
    assert second.metrics["peak_bytes"] >= 0
    assert first.seconds > 0


def test_a_round_of_waiting_leaves_nothing_to_the_next(monkeypatch):
    rounds = waits.wait("stamp", TWO, size=8, count=3, seed=0)
    assert next(rounds).seconds > 0
    happened = []
    monkeypatch.setattr(npx, "waitall", lambda: happened.append("wait"))
    next(rounds)
    assert happened == ["wait"]


def test_additions_that_do_not_wait_tell_what_both_ends_cost():
    pushed, waited = next(waits.add(20, mx.cpu(0), each=False)), next(waits.add(20, mx.cpu(0), each=True))
    assert set(pushed.metrics) == {"front_us", "back_us"}
    assert pushed.metrics["front_us"] * 20 / 1e6 <= pushed.seconds
    assert waited.metrics == {}
