from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace

import numpy as onp
import pytest

from mxdp import timing
from mxdp.backend import mx, np, npx
from mxdp.collectives import GradientSync, allreduce
from mxdp.datasets import Split, load, permutation
from mxdp.processes import CheckpointFolder, World
from mxdp.scratch import cross_entropy, evaluate, get_params, in_sync, init_lenet, lenet, sgd, train_batch
from mxdp.timing import Timer
from mxdp.training import History, Interrupted, copied_after_ctrl_c, plain_step, train, train_epochs
from mxdp.training import epochs as epochs_module
from mxdp.training import update as update_module
from mxdp.training.update import prepare_update


def batch(n, seed=0):
    random = onp.random.RandomState(seed)
    return random.uniform(size=(n, 1, 28, 28)).astype("float32"), random.randint(0, 10, n).astype("int32")


def replicas(n, scale=0.1):
    devices = [mx.cpu(i) for i in range(n)]
    return devices, [get_params(init_lenet(0, scale), device) for device in devices]


train_module = sys.modules[train.__module__]


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


def test_a_plain_step_has_the_bits_of_train_batch_and_syncs_once():
    X, y = batch(5)
    devices, device_params = replicas(2)
    _, expected = replicas(2)
    calls = []

    class Spy(GradientSync):
        def __call__(self):
            calls.append(self)
            super().__call__()

    sync = Spy(device_params)
    plain_step(X, y, device_params, devices, 0.1, sync)
    train_batch(X, y, expected, devices, 0.1)
    assert calls == [sync]
    assert in_sync([device_params[1], expected[0]])


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("samples", [1, 2])
def test_fewer_samples_than_devices_equal_the_serial_run(samples, synced):
    """After a step on all devices, whose gradients must not be summed once more."""
    runs = []
    for devices, device_params in (replicas(1), replicas(3)):
        sync = GradientSync(device_params) if synced else None
        for size in (5, samples, 4):
            more = (plain_step, [sync]) if synced else (train_batch, [])
            losses = more[0](*batch(size), device_params, devices, 0.5, *more[1])
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
        plain_step(X[:3], y[:3], device_params, devices, 0.0, lambda: None)
    plain_step(X[3:], y[3:], device_params, devices, 0.0, sync)
    accumulated = [param.grad.asnumpy() for param in device_params[2]]
    plain_step(X, y, device_params, devices, 0.0, sync)
    for param, before in zip(device_params[2], accumulated):
        onp.testing.assert_allclose(before, param.grad.asnumpy(), rtol=0, atol=2e-5 * abs(before).max())


def test_no_samples_are_refused():
    devices, device_params = replicas(2)
    with pytest.raises(ValueError, match="can't split a batch of 0 over 2 devices"):
        train_batch(*batch(0), device_params, devices, 0.1)


def test_a_network_may_take_another_dtype_and_its_own_errors_stay():
    devices, device_params = replicas(2)
    X, y = batch(4)

    def scaled(X, params):
        return lenet(X.astype("float32") / 255, params)

    train_batch((255 * X).astype("uint8"), y, device_params, devices, 0.1, net=scaled)

    def own(X, params):
        return npx.convolution(X, *params[:2], kernel=(3, 3), num_filter=20)

    with pytest.raises(mx.MXNetError, match="should be 4D"):
        train_batch(X[:, 0], y, device_params, devices, 0.1, net=own)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [1, 7, 500])
def test_evaluate_equals_one_look_at_everything(small, n, batch_size):
    _, device_params = replicas(n, scale=0.3)
    scores = lenet(np.array(small.test.X), [p.copyto(mx.cpu(0)) for p in device_params[0]]).asnumpy()
    expected = (scores.argmax(1) == small.test.y).mean()
    assert evaluate(small.test, device_params, batch_size) == pytest.approx(expected, abs=1e-12)


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

    monkeypatch.setattr(epochs_module, "Timer", Clock)
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

    monkeypatch.setattr(epochs_module, "GradientSync", Spy)
    for home, name, place in (
        (sys.modules["mxdp.processes.world"], "find_devices", 1),
        (train_module, "init_lenet", 0),
        (epochs_module, "Stream", 2),
        (epochs_module, "TrainStep", 2),
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

    monkeypatch.setattr(update_module, "prepare_update", interrupted)

    def run():
        return train(2, 50, 0.5, 3, "cpu", small.take(100, 10), report=lines.append, checkpoint=tmp_path / "kept")

    raised = None
    try:
        history = run()
    except KeyboardInterrupt as error:  # which would end pytest
        raised, history = error, error.history
    assert (raised is None) == interactive
    assert interactive or f"after {len(finished)} epoch" in str(raised)
    kept = CheckpointFolder(tmp_path / "kept", report=pytest.fail)
    assert len(list(kept.folder.glob("*.npz"))) == len(finished)
    assert [epoch.number for epoch in history.epochs] == finished
    assert len(history.test_accuracies) == len(finished)
    assert in_sync(history.device_params)
    assert in_sync([history.device_params[0], init_lenet(0)]) == (calls == 0)
    assert lines[-2] == f"stopped by Ctrl-C after {len(finished)} of 3 epochs"


@pytest.mark.parametrize("before", [0, 1, 2])
def test_ctrl_c_in_a_loop_of_ones_own_leaves_equal_replicas(before, monkeypatch):
    """Between the updates of two replicas."""
    devices, device_params = replicas(3)
    updates = iter(range(6))

    def update(*arguments):
        if next(updates) == 3 + before:
            raise KeyboardInterrupt
        sgd(*arguments)

    def loop():
        with copied_after_ctrl_c(device_params):
            for _ in range(2):
                train_batch(*batch(6), device_params, devices, 0.5)

    monkeypatch.setattr("mxdp.scratch.sgd", update)
    with pytest.raises(KeyboardInterrupt):
        loop()
    assert in_sync(device_params)


def test_ctrl_c_while_an_epoch_is_reported_keeps_it(small):
    def report(line):
        if line.startswith("epoch 2"):
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
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


def test_an_uneven_last_batch_is_trained_on():
    X, y = batch(5)
    devices, device_params = replicas(2)
    assert next(train_epochs(Split(X, y), device_params, devices, 3, 0.1)).samples == 5


class Ranks(World):
    """One of several ranks. The others do nothing; ``gather`` keeps what this one gives, and ``agree`` its facts."""

    def __init__(self, rank, size):
        super().__init__()
        self.rank, self.size, self.gathered, self.agreed = rank, size, [], None

    def sum(self, arrays):
        pass

    broadcast = sum

    def gather(self, value):
        self.gathered.append(value)
        return [value] * self.size

    def agree(self, facts):
        self.agreed = facts


class Steps:
    """In place of :class:`TrainStep`: what each of its steps is given, and a loss of 1."""

    def __init__(self, *arguments, **more):
        self.made, self.more, self.calls = arguments, more, []
        self.update = SimpleNamespace(load=lambda state: None, state=list)
        Steps.last = self

    def __call__(self, X, y, samples):
        self.calls.append((X, y, samples))
        return [np.ones(len(X))]


@pytest.mark.parametrize("samples", [None, 4, 10, 25])
@pytest.mark.parametrize("start", [(0, 0), (0, 3), (0, 10), (1, 2), (2, 7)])
def test_epochs_have_the_samples_and_numbers_that_they_say(samples, start, monkeypatch):
    """Of 10 samples; ``samples`` may be a part or a multiple of them, and the start in the middle of either."""
    monkeypatch.setattr(epochs_module, "TrainStep", Steps)
    devices, device_params = replicas(1)
    X, y = batch(10)
    X[:, 0, 0, 0] = onp.arange(10)
    epochs = train_epochs(Split(X, y), device_params, devices, 3, 0.1, samples, seed=5, start=start)
    length, done = samples or 10, 10 * start[0] + start[1]
    places, seen = [], []
    for number in range(done // length + 1, done // length + 5):
        epoch, calls = next(epochs), Steps.last.calls
        trained = sum(samples for _, _, samples in calls)
        assert (epoch.number, epoch.samples) == (number, trained)
        assert done + trained == number * length
        done += trained
        seen += [int(x) for X, _, _ in calls for x in X[:, 0, 0, 0]]
        places.append(done)
        calls.clear()
    order = [int(each) for epoch in range(20) for each in permutation(10, 5, epoch)]
    first = 10 * start[0] + start[1]
    assert seen == order[first : places[-1]], "each sample of each epoch of the stream, once"


def test_an_epochs_seconds_are_those_between_two_fences(monkeypatch):
    """Three epochs of 1, 2 and 4 seconds, and an hour of something else between them."""
    log, times = [], iter([10.0, 11.0, 4000.0, 4002.0, 8000.0, 8004.0])
    monkeypatch.setattr(timing.npx, "waitall", lambda: log.append("fence"))
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: (log.append("clock"), next(times))[1]))

    class Logged(Steps):
        def __call__(self, X, y, samples):
            log.append("step")
            return super().__call__(X, y, samples)

    monkeypatch.setattr(epochs_module, "TrainStep", Logged)
    devices, device_params = replicas(1)
    epochs = train_epochs(Split(*batch(5)), device_params, devices, 3, 0.1)
    assert [next(epochs).seconds for _ in range(3)] == [1.0, 2.0, 4.0]
    assert log == ["fence", "clock", "step", "step", "fence", "clock"] * 3


def mlp(X, params):
    W1, b1, W2, b2 = params
    return npx.relu(X.reshape(len(X), -1) @ W1 + b1) @ W2 + b2


def initial(hidden):
    random = onp.random.RandomState(0)
    shapes = (784, hidden), (hidden,), (hidden, 10), (10,)
    return [np.array(random.normal(scale=0.1, size=shape), dtype="float32") for shape in shapes]


def twice(y_hat, y):
    return 2 * cross_entropy(y_hat, y)


def arguments_of(function):
    return set(inspect.signature(function).parameters)


def test_each_argument_of_train_arrives(small, monkeypatch, tmp_path):
    """Beside those that the test above sees arrive further down."""
    given, drawn, lines = {}, [], []

    def spy(*arguments, **more):
        given.update(inspect.signature(train_epochs).bind(*arguments, **more).arguments)
        return train_epochs(*arguments, **more)

    monkeypatch.setattr(train_module, "train_epochs", spy)
    ranks, data = World(), small.take(20, 10)
    options = dict(kind="cpu", data=data, seed=4, algorithm="naive", report=lines.append, world=ranks)
    options.update(
        checkpoint=tmp_path / "kept", checkpoint_every=2, draw=lambda *what: drawn.append([*map(list, what)])
    )
    options.update(net=mlp, loss=twice, params=initial(9), momentum=0.5, shard_optimizer=False)
    history = train(2, 7, 0.25, 3, **options)
    assert arguments_of(train) == {"num_devices", "batch_size", "lr", "num_epochs", *options}
    del given["between"], given["begin"]
    assert given.pop("data") is data.train
    assert given.pop("world") is ranks
    assert given.pop("device_params") == history.device_params
    assert given == {
        "devices": [mx.cpu(0), mx.cpu(1)], "batch_size": 7, "lr": 0.25, "seed": 4, "algorithm": "naive",
        "start": (0, 0), "net": mlp, "loss": twice, "momentum": 0.5, "shard_optimizer": False,
    }  # fmt: skip
    assert [param.shape for param in history.device_params[1]] == [(784, 9), (9,), (9, 10), (10,)]
    assert [epoch.number for epoch in history.epochs] == [1, 2, 3]
    assert drawn == [[list("2 x cpu"), history.test_accuracies[:number]] for number in (1, 2, 3)]
    for line, epoch, accuracy in zip(lines, history.epochs, history.test_accuracies):
        assert line == (
            f"epoch {epoch.number}: {epoch.seconds:.2f} s, {20 / epoch.seconds:,.0f} samples/s, loss {epoch.loss:.3f}, "
            f"test accuracy {accuracy:.4f}"
        )
    assert len(list((tmp_path / "kept").glob("*.npz"))) == 2, "after the second epoch, and at the end"


def test_each_argument_of_train_epochs_arrives(monkeypatch):
    made = {}

    def spied(name, whole):
        def make(*arguments, **more):
            made[name] = (arguments, more)
            return whole(*arguments, **more)

        monkeypatch.setattr(epochs_module, name, make)

    spied("Stream", epochs_module.Stream)
    spied("GradientSync", GradientSync)
    monkeypatch.setattr(epochs_module, "TrainStep", Steps)
    devices, device_params = replicas(2)
    data, ranks, places, begun = Split(*batch(6)), Ranks(1, 2), [], []
    options = dict(samples=11, seed=8, algorithm="tree", world=ranks, start=(3, 2))
    options.update(between=lambda *place: places.append((place, len(Steps.last.calls))), net=mlp, loss=twice)
    options.update(momentum=0.5, shard_optimizer=False, begin=begun.append)
    epoch = next(train_epochs(data, device_params, devices, 4, 0.3, **options))
    assert arguments_of(train_epochs) == {"data", "device_params", "devices", "batch_size", "lr", *options}
    assert made == {
        "Stream": ((data, 4, 8), dict(epoch=3, position=2)),
        "GradientSync": ((device_params, "tree"), dict(world=ranks)),
    }
    assert Steps.last.made[:3] == (device_params, devices, 0.3)
    assert isinstance(Steps.last.made[3], GradientSync)
    assert (Steps.last.made[4:], Steps.last.more, begun) == ((mlp, twice), {"momentum": 0.5}, [Steps.last])
    done = 3 * 6 + 2
    assert epoch.samples == 11 - done % 11
    assert [len(X) for X, _, samples in Steps.last.calls] == [samples // 2 for _, _, samples in Steps.last.calls]
    assert ranks.gathered[1:] == [["tree"], [1.0] * len(Steps.last.calls[-1][0])]


@pytest.mark.parametrize("interactive", [True, False])
def test_ctrl_c_on_one_of_several_ranks_is_raised_at_once(small, monkeypatch, interactive):
    if interactive:
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    ranks, lines = Ranks(0, 2), []

    class Interrupted(Steps):
        def __call__(self, X, y, samples):
            if len(self.calls) == 3:
                raise KeyboardInterrupt
            return super().__call__(X, y, samples)

    monkeypatch.setattr(epochs_module, "TrainStep", Interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        train(1, 50, 0.5, 3, "cpu", small.take(100, 10), report=lines.append, world=ranks)
    assert caught.type is KeyboardInterrupt
    assert [line.split(":")[0] for line in lines] == ["epoch 1"], "no word of an end, and nothing exchanged after it"


EACH_RANK_ITS_OWN = {"kind", "report", "world", "draw"}


def test_ranks_compare_all_that_must_be_equal(small, monkeypatch, tmp_path):
    """Two settings that differ in one argument give other facts."""

    class Compared(Exception):
        pass

    class Comparing(Ranks):
        def agree(self, facts):
            super().agree(facts)
            raise Compared

    def facts(**changed):
        ranks = Comparing(0, 2)
        settings = dict(num_devices=1, batch_size=50, lr=0.5, num_epochs=2, data=small, seed=0, algorithm="auto")
        settings.update(checkpoint=tmp_path / "kept", checkpoint_every=1, net=mlp, loss=twice, params=initial(9))
        settings.update(momentum=0.5)
        with pytest.raises(Compared):
            train(kind="cpu", world=ranks, **{**settings, **changed})
        return ranks.agreed

    other = dict(num_devices=2, batch_size=51, lr=0.4, num_epochs=3, data=small.take(299), seed=1, algorithm="ring")
    other.update(checkpoint=None, checkpoint_every=0.5, net=lambda *given: mlp(*given), loss=cross_entropy)
    other.update(params=initial(8), momentum=0.4, shard_optimizer=True)
    assert set(other) | EACH_RANK_ITS_OWN == arguments_of(train)
    same = facts()
    assert facts() == same
    for name, value in other.items():
        assert [key for key, fact in facts(**{name: value}).items() if fact != same[key]] != [], name
    assert list(tmp_path.iterdir()) == [], "before a checkpoint is opened"


@pytest.mark.parametrize("samples", [1, 2, 7, 10])
def test_the_ranks_parts_of_the_test_accuracy_make_the_whole(samples):
    X, y = batch(samples)
    _, device_params = replicas(2, scale=0.3)
    test, ranks = Split(X, y), [Ranks(rank, 3) for rank in range(3)]
    for each in ranks:
        epochs_module.accuracy_of_ranks(test, device_params, each, lenet)
    right = sum(each.gathered[0] for each in ranks)
    assert right / samples == pytest.approx(evaluate(test, device_params), abs=1e-12)
    assert epochs_module.accuracy_of_ranks(test, device_params, World(), lenet) == evaluate(test, device_params)
