from __future__ import annotations

import sys

import numpy as onp
import pytest

from mxdp.backend import mx, np
from mxdp.collectives import GradientSync, allreduce
from mxdp.datasets import Split, load
from mxdp.engine import prepare_update
from mxdp.processes import CheckpointFolder
from mxdp.scratch import cross_entropy, evaluate, get_params, in_sync, init_lenet, lenet, train_batch
from mxdp.timing import Timer
from mxdp.training import History, Stopped, loop, step, train, train_epochs


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


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("samples", [1, 2])
def test_fewer_samples_than_devices_equal_the_serial_run(samples, synced):
    """After a step on all devices, whose gradients must not be summed once more."""
    runs = []
    for devices, device_params in (replicas(1), replicas(3)):
        sync = GradientSync(device_params) if synced else None
        for size in (5, samples, 4):
            losses = train_batch(*batch(size), device_params, devices, 0.5, sync=sync)
            assert len(losses) == min(size, len(devices))
        assert in_sync(device_params)
        runs.append([param.asnumpy() for param in device_params[0]])
    for serial, parallel in zip(*runs):
        onp.testing.assert_allclose(parallel, serial, rtol=0, atol=2e-5 * abs(serial).max())


def test_a_device_without_a_sample_keeps_the_gradients_that_it_accumulates():
    devices, device_params = replicas(3)
    sync = GradientSync(device_params)
    X, y = batch(5)
    with sync.no_sync():
        train_batch(X[:3], y[:3], device_params, devices, 0.0, sync=sync)
    train_batch(X[3:], y[3:], device_params, devices, 0.0, sync=sync)
    accumulated = [param.grad.asnumpy() for param in device_params[2]]
    train_batch(X, y, device_params, devices, 0.0, sync=sync)
    for param, before in zip(device_params[2], accumulated):
        onp.testing.assert_allclose(before, param.grad.asnumpy(), rtol=0, atol=2e-5 * abs(before).max())


def test_no_samples_are_refused():
    devices, device_params = replicas(2)
    with pytest.raises(ValueError, match="can't split a batch of 0 over 2 devices"):
        train_batch(*batch(0), device_params, devices, 0.1)


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
@pytest.mark.parametrize("from_host", [True, False])
def test_samples_of_another_dtype_than_the_parameters_are_named(dtype, from_host):
    devices, device_params = replicas(2)
    X, y = batch(4)
    X = X.astype(dtype) if from_host else np.array(X, dtype=dtype)
    message = rf"X is {dtype}, which lenet can't take: convert it, by X\.astype\('float32'\)$"
    with pytest.raises(ValueError, match=message):
        train_batch(X, y, device_params, devices, 0.1)


def test_a_network_may_take_another_dtype_and_its_own_errors_stay():
    devices, device_params = replicas(2)
    X, y = batch(4)

    def scaled(X, params):
        return lenet(X.astype("float32") / 255, params)

    train_batch((255 * X).astype("uint8"), y, device_params, devices, 0.1, net=scaled)
    with pytest.raises(mx.MXNetError, match="should be 4D"):
        train_batch(X[:, 0], y, device_params, devices, 0.1, net=lambda X, params: lenet(X, params))


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [1, 7, 500])
def test_evaluate_equals_one_look_at_everything(small, n, batch_size):
    _, device_params = replicas(n, scale=0.3)
    scores = lenet(np.array(small.test.X), [p.copyto(mx.cpu(0)) for p in device_params[0]]).asnumpy()
    expected = (scores.argmax(1) == small.test.y).mean()
    assert evaluate(small.test, device_params, batch_size) == pytest.approx(expected, abs=1e-12)


def test_evaluate_refuses_nothing():
    empty = Split(onp.zeros((0, 1, 28, 28), "float32"), onp.zeros(0, "int32"))
    with pytest.raises(ValueError, match=r"with samples, .* not <Split: 0 pictures>"):
        evaluate(empty, replicas(1)[1])


def test_epochs_take_turns_and_count_samples(small):
    devices, device_params = replicas(2)
    epochs = train_epochs(small.train, device_params, devices, 64, 0.1, samples=130)
    first, second = next(epochs), next(epochs)
    assert (first.number, second.number) == (1, 2)
    assert first.samples == second.samples == 130
    assert first.seconds > 0
    assert 0 < second.loss < 10


def test_an_epochs_loss_is_that_of_all_devices():
    """Of a last step on 5 samples, of which the devices have 3 and 2."""
    X, y = batch(5)
    devices, device_params = replicas(2, scale=0.3)
    expected = cross_entropy(lenet(np.array(X), device_params[0]), np.array(y)).asnumpy()
    assert abs(expected[:3].mean() - expected.mean()) > 1e-2
    epoch = next(train_epochs(Split(X, y), device_params, devices, 5, 0.1))
    assert epoch.loss == pytest.approx(expected.mean(), rel=1e-5)


def test_an_epochs_seconds_are_its_own(monkeypatch):
    class Clock(Timer):
        def stop(self):
            self.times.append(float(len(self.times) + 1))

    monkeypatch.setattr(loop, "Timer", Clock)
    devices, device_params = replicas(1)
    epochs = train_epochs(Split(*batch(2)), device_params, devices, 2, 0.1)
    assert [next(epochs).seconds for _ in range(3)] == [1.0, 2.0, 3.0]


def test_what_train_is_given_arrives_and_each_step_is_synced_at_once(small, monkeypatch):
    given = []

    class Spy(GradientSync):
        def __init__(self, device_params, algorithm, world):
            given.append(algorithm)
            super().__init__(device_params, algorithm, world=world)

        def __call__(self):
            given.append("sync")
            super().__call__()

    monkeypatch.setattr(loop, "GradientSync", Spy)
    for home, name, place in (
        (sys.modules["mxdp.processes.world"], "find_devices", 1),
        (loop, "init_lenet", 0),
        (loop, "Stream", 2),
        (loop, "TrainStep", 2),
    ):
        whole = getattr(home, name)
        monkeypatch.setattr(home, name, lambda *a, f=whole, n=place, **more: (given.append(a[n]), f(*a, **more))[1])
    train(2, 50, 0.3, 1, kind="cpu", data=small.take(100, 10), seed=7, algorithm="tree", report=lambda line: None)
    assert given == ["cpu", 7, 7, "tree", 0.3, "sync", "sync"]


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


@pytest.mark.parametrize(
    ("calls", "finished"),
    [(0, []), (3, []), (4, [1]), (7, [1])],
    ids=["at once", "between two replicas", "in the second epoch", "between two replicas of the second epoch"],
)
@pytest.mark.parametrize("interactive", [True, False])
def test_ctrl_c_keeps_the_finished_epochs(small, monkeypatch, tmp_path, calls, finished, interactive):
    """An epoch is two steps, and a step two updates, one for each replica. A script is ended, a notebook goes on."""
    if interactive:
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    else:
        monkeypatch.delattr(sys, "ps1", raising=False)
    done, lines = [], []

    def interrupted(*arguments):
        update = prepare_update(*arguments)

        def call():
            if len(done) == calls:
                raise KeyboardInterrupt
            done.append(update())

        return call

    monkeypatch.setattr(step, "prepare_update", interrupted)

    def run():
        return train(2, 50, 0.5, 3, "cpu", small.take(100, 10), report=lines.append, checkpoint=tmp_path / "kept")

    if interactive:
        history = run()
    else:
        with pytest.raises(KeyboardInterrupt, match=f"after {len(finished)} epoch") as caught:
            run()
        history = caught.value.history
    kept = CheckpointFolder(tmp_path / "kept", report=pytest.fail)
    assert [path.suffix for path in kept.folder.iterdir()] == [".npz"] * len(finished)
    assert [epoch.number for epoch in history.epochs] == finished
    assert len(history.test_accuracies) == len(finished)
    assert in_sync(history.device_params)
    assert in_sync([history.device_params[0], init_lenet(0)]) == (calls == 0)
    assert lines[-2] == f"stopped by Ctrl-C after {len(finished)} of 3 epochs"


def test_ctrl_c_while_an_epoch_is_reported_keeps_it(small):
    def report(line):
        if line.startswith("epoch 2"):
            raise KeyboardInterrupt

    with pytest.raises(Stopped) as caught:
        train(1, 50, 0.5, num_epochs=3, kind="cpu", data=small.take(100, 10), report=report)
    history = caught.value.history
    assert [epoch.number for epoch in history.epochs] == [1, 2]
    assert history.test_accuracies[1] == evaluate(small.take(100, 10).test, history.device_params)


def test_a_history_shows_itself_in_a_line(small):
    history = train(2, 50, 0.5, num_epochs=1, kind="cpu", data=small.take(100, 10), report=lambda line: None)
    last = history.test_accuracies[0]
    assert repr(history) == f"<History: 1 epoch on cpu(0), cpu(1), the last with test accuracy {last:.4f}>"
    assert repr(History([mx.cpu(0)], [], [], [])) == "<History: 0 epochs on cpu(0)>"


def test_the_same_seed_gives_the_same_parameters(small):
    runs = [train(2, 50, 0.3, 1, kind="cpu", data=small, report=lambda line: None) for _ in range(2)]
    assert in_sync([runs[0].device_params[0], runs[1].device_params[0]])


def test_a_last_batch_with_fewer_samples_than_devices_is_trained_on(small):
    history = train(2, 4, 0.5, num_epochs=2, kind="cpu", data=small.take(9, 10), report=lambda line: None)
    assert [epoch.samples for epoch in history.epochs] == [9, 9]
    assert in_sync(history.device_params)


def test_train_wants_a_sample_for_each_device(small):
    with pytest.raises(ValueError, match="batch_size 1 gives 2 devices less than a sample each"):
        train(2, 1, 0.5, kind="cpu", data=small)


def test_an_uneven_last_batch_is_trained_on():
    X, y = batch(5)
    devices, device_params = replicas(2)
    assert next(train_epochs(Split(X, y), device_params, devices, 3, 0.1)).samples == 5
