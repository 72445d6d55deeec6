"""A reader's own network has the bits of ``train_batch`` on devices and on ranks, also after a stop."""

from __future__ import annotations

import hashlib
import threading

import fake_mpi
import numpy as onp
import pytest

from mxdp.backend import devices, np, npx
from mxdp.collectives import GradientSync
from mxdp.datasets import load, minibatches
from mxdp.processes import World
from mxdp.scratch import evaluate, get_params, train_batch
from mxdp.training import train

DATA = load("synthetic").take(91, 50)
BATCH, EPOCHS, LR, SEED = 15, 2, 0.5, 3
"""The last batch of an epoch has one sample, fewer than devices."""


def dense(X, W, b):
    return np.dot(X, W) + b


def mlp(X, params):
    W1, b1, W2, b2 = params
    return dense(npx.relu(dense(X.reshape(len(X), -1), W1, b1)), W2, b2)


def squared(y_hat, y):
    return ((npx.softmax(y_hat) - npx.one_hot(y, 10)) ** 2).sum(axis=1)


def initial(seed=0):
    random = onp.random.RandomState(seed)
    shapes = (784, 16), (16,), (16, 10), (10,)
    return [np.array(random.normal(scale=0.1, size=shape), dtype="float32") for shape in shapes]


def bits(params):
    """A digest of each: pytest takes minutes to show where 50 kB differ."""
    return [hashlib.sha256(param.asnumpy().tobytes()).hexdigest() for param in params]


def by_train_batch(n):
    """The parameters of the serial run, or of ``train_batch`` on several devices; the accuracy."""
    some = devices(n, "cpu")
    replicas = [get_params(initial(), device) for device in some]
    for epoch in range(EPOCHS):
        for X, y in minibatches(DATA.train, BATCH, SEED, epoch):
            train_batch(X, y, replicas, some, LR, net=mlp, loss=squared)
    return replicas[0], evaluate(DATA.test, replicas, net=mlp)


def fast(n, folder=None, **more):
    settings = dict(kind="cpu", data=DATA, seed=SEED, net=mlp, loss=squared, params=initial(), checkpoint_every=0.25)
    settings.update(report=lambda line: None, checkpoint=folder)
    return train(n, BATCH, LR, EPOCHS, **{**settings, **more})


class Stopped(Exception):
    pass


class Stopping(World):
    """Stops in the second epoch, after its first steps, when all ranks' sums are done: a rank whose sum fails would
    end, and write no checkpoint, but its thread here goes on."""

    steps = 0

    def step_done(self):
        self.steps += 1
        if self.steps == 10:
            npx.waitall()
            for thread in threading.enumerate():
                if thread.name == "mxdp checkpoint":
                    thread.join()
            raise Stopped


def check(histories, n):
    """All replicas of all ranks are those of ``train_batch`` on ``n`` devices, and close to the serial run's."""
    expected, accuracy = by_train_batch(n)
    for history in histories:
        assert [bits(params) for params in history.device_params] == [bits(expected)] * len(history.device_params)
        assert history.test_accuracies[-1] == pytest.approx(accuracy, abs=1e-12)
    for param, serial, start in zip(expected, by_train_batch(1)[0], initial()):
        onp.testing.assert_allclose(param.asnumpy(), serial.asnumpy(), rtol=0, atol=2e-5)
        assert not (serial.asnumpy() == start.asnumpy()).all()


@pytest.mark.parametrize("n", [1, 2])
def test_on_devices_with_and_without_a_stop(n, tmp_path):
    check([fast(n)], n)
    with pytest.raises(Stopped):
        fast(n, tmp_path, world=Stopping())
    lines = []
    check([fast(n, tmp_path, report=lines.append)], n)
    assert lines[0].startswith("continuing from ")
    assert [line[:8] for line in lines if line.startswith("epoch")] == ["epoch 2:"]


def test_on_two_ranks_with_and_without_a_stop_and_rank_0s_params_count(tmp_path):
    def work(world, **more):
        return fast(1, tmp_path / f"{world.rank}", world=world, params=initial(world.rank), **more)

    check(fake_mpi.run(2, lambda world: fast(1, world=world, params=initial(world.rank))), 2)
    found, _ = fake_mpi.outcomes(2, work, make=Stopping)
    assert any(isinstance(each, Stopped) for each in found)
    lines = []
    check(fake_mpi.run(2, lambda world: work(world, report=lines.append)), 2)
    assert lines[0].startswith("continuing from ")
    assert not (tmp_path / "1").exists()


class Deaf(World):
    """Hears nothing of the other ranks."""

    def sum(self, arrays):
        pass


@pytest.mark.parametrize("broken", ["ranks", "devices"])
def test_what_would_make_it_unequal_is_noticed(broken, monkeypatch):
    if broken == "ranks":
        histories = fake_mpi.run(2, lambda world: fast(1, world=world), make=Deaf)
    else:
        monkeypatch.setattr(GradientSync, "__call__", lambda self: None)
        histories = [fast(2)]
    with pytest.raises(AssertionError):
        check(histories, 2)
