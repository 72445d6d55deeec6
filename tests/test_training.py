from __future__ import annotations

import numpy as onp
import pytest

from mxdp import training
from mxdp.backend import mx, np
from mxdp.collectives import GradientSync, allreduce
from mxdp.datasets import Split, load
from mxdp.models import init_lenet
from mxdp.replicas import get_params, in_sync
from mxdp.training import evaluate, train, train_batch, train_epochs, train_steps


def batch(n, seed=0):
    random = onp.random.RandomState(seed)
    return random.uniform(size=(n, 1, 28, 28)).astype("float32"), random.randint(0, 10, n).astype("int32")


def replicas(n, scale=0.1):
    devices = [mx.cpu(i) for i in range(n)]
    return devices, [get_params(init_lenet(0, scale), device) for device in devices]


@pytest.fixture
def small():
    return load("synthetic").take(300, 100)


def test_a_step_keeps_replicas_in_step_and_lowers_the_loss():
    X, y = batch(23)
    devices, device_params = replicas(3)
    first, *_, last = (train_batch(X, y, device_params, devices, 0.5) for _ in range(8))
    assert in_sync(device_params)
    assert [len(losses) for losses in first] == [8, 8, 7]

    def mean(losses):
        return onp.concatenate([shard.asnumpy() for shard in losses]).mean()

    assert mean(last) < mean(first)


def test_the_allreduce_is_called_once_for_each_parameter_with_all_its_gradients():
    X, y = batch(4)
    devices, device_params = replicas(2)
    calls = []

    def spy(data):
        calls.append([x.shape for x in data])
        allreduce(data)

    train_batch(X, y, device_params, devices, 0.1, spy)
    assert calls == [[p.shape] * 2 for p in device_params[0]]


def test_a_sync_takes_the_allreduces_place():
    X, y = batch(5)
    devices, device_params = replicas(2)
    _, expected = replicas(2)
    calls = []

    class Spy(GradientSync):
        def __call__(self):
            calls.append(self)
            super().__call__()

    sync = Spy(device_params)
    train_batch(X, y, device_params, devices, 0.1, allreduce=lambda data: pytest.fail("called"), sync=sync)
    train_batch(X, y, expected, devices, 0.1)
    assert calls == [sync]
    assert in_sync([device_params[1], expected[0]])


def test_replicas_and_devices_must_be_as_many():
    devices, device_params = replicas(2)
    with pytest.raises(ValueError, match="2 replicas for 1 devices"):
        train_batch(*batch(4), device_params, devices[:1], 0.1)


def test_python_runs_ahead_by_a_bounded_number_of_steps(monkeypatch):
    waited, pushed = [], []

    class Losses:
        def __init__(self, step):
            self.step = step

        def wait_to_read(self):
            waited.append(self.step)
            assert self.step == len(pushed) - 1 - training.RUN_AHEAD

    def push(X, y, *more, sync):
        pushed.append(X)
        return [Losses(X)]

    monkeypatch.setattr(training, "train_batch", push)
    (last,) = train_steps(((step, None) for step in range(6)), [], [], 0.1)
    assert waited == [0, 1, 2, 3]
    assert last.step == 5


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [1, 7, 500])
def test_evaluate_equals_one_look_at_everything(small, n, batch_size):
    _, device_params = replicas(n, scale=0.3)
    from mxdp.models import lenet

    scores = lenet(np.array(small.test.X), [p.copyto(mx.cpu(0)) for p in device_params[0]]).asnumpy()
    expected = (scores.argmax(1) == small.test.y).mean()
    assert evaluate(small.test, device_params, batch_size) == pytest.approx(expected, abs=1e-12)


def test_evaluate_refuses_nothing():
    empty = Split(onp.zeros((0, 1, 28, 28), "float32"), onp.zeros(0, "int32"))
    with pytest.raises(ValueError, match="0 samples"):
        evaluate(empty, replicas(1)[1])


def test_epochs_take_turns_and_count_samples(small):
    devices, device_params = replicas(2)
    epochs = train_epochs(small.train, device_params, devices, 64, 0.1, samples=130)
    first, second = next(epochs), next(epochs)
    assert (first.number, second.number) == (1, 2)
    assert first.samples == second.samples == 130
    assert first.seconds > 0
    assert 0 < second.loss < 10


def test_train_learns_on_two_devices(small, capsys):
    history = train(2, 30, 0.5, num_epochs=2, kind="cpu", data=small)
    assert history.devices == [mx.cpu(0), mx.cpu(1)]
    assert in_sync(history.device_params)
    assert [epoch.samples for epoch in history.epochs] == [300, 300]
    assert history.test_accuracies[-1] == evaluate(small.test, history.device_params)
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 3
    assert out[0].startswith("epoch 1: ")
    assert out[-1] == "trained on cpu(0), cpu(1); replicas in sync: True"


@pytest.mark.parametrize("bad", [{"batch_size": 0}, {"lr": -1.0}, {"num_epochs": 0}])
def test_train_names_the_number_that_is_wrong(small, bad):
    arguments = {"batch_size": 10, "lr": 0.1, "num_epochs": 1, **bad}
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be more than 0"):
        train(1, data=small, **arguments)


def test_the_same_seed_gives_the_same_parameters(small):
    runs = [train(2, 50, 0.3, 1, kind="cpu", data=small, report=lambda line: None) for _ in range(2)]
    assert in_sync([runs[0].device_params[0], runs[1].device_params[0]])


def test_an_uneven_last_batch_is_trained_on():
    X, y = batch(5)
    devices, device_params = replicas(2)
    assert next(train_epochs(Split(X, y), device_params, devices, 3, 0.1)).samples == 5
