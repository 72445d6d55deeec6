"""``mxdp.train`` and ``mxdp.train_batch``: what each argument does, Ctrl-C, ranks."""

import inspect
import itertools
import math
import sys
import tempfile
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as onp
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from small_networks import mlp, parameters

from mxdp import timing
from mxdp.backend import mx, np
from mxdp.collectives import GradientSync
from mxdp.collectives.shards import ShardedSync
from mxdp.datasets import load, permutation
from mxdp.processes import CheckpointFolder, World
from mxdp.scratch import cross_entropy, evaluate, get_params, in_sync
from mxdp.training import loop, setup, update
from mxdp.training.loop import Interrupted, mean_loss, train
from mxdp.training.update import prepare_update

SMALL = load("synthetic").take(300, 100)


def quiet(*arguments, **more):
    return train(*arguments, **{"kind": "cpu", "report": lambda line: None, **more})


def test_the_mean_loss_is_that_of_all_samples_of_all_devices():
    assert mean_loss([np.array([1.0, 2.0, 3.0]), np.array([8.0, 9.0], ctx=mx.cpu(1))]) == 4.6


def test_ctrl_c_while_an_epoch_is_reported_keeps_it():
    def report(line):
        if line.startswith("epoch 2"):
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        train(1, 50, 0.5, num_epochs=3, kind="cpu", data=SMALL.take(100, 10), report=report)
    history = caught.value.history
    assert [epoch.number for epoch in history.epochs] == [1, 2]
    assert history.test_accuracies[1] == evaluate(SMALL.take(100, 10).test, history.device_params)


class Ranks(World):
    """One of several ranks. The others do nothing; ``gather`` keeps what this one gives, and ``agree`` its facts."""

    def __init__(self, rank, size):
        super().__init__()
        self.rank, self.size, self.gathered = rank, size, []
        self.sum = self.broadcast = lambda *given: None

    def gather(self, value):
        self.gathered.append(value)
        return [value] * self.size

    def agree(self, facts):
        self.agreed = facts


class Steps:
    """In place of :class:`TrainStep`: what each of its steps is given, and a loss of 1."""

    def __init__(self, *arguments, **more):
        self.calls = []
        self.update = SimpleNamespace(load=lambda state: None, state=list)
        Steps.last = self

    def __call__(self, X, y, samples):
        self.calls.append((X, y, samples))
        return [np.ones(len(X))]


@settings(max_examples=15)
@given(
    samples=st.integers(1, 30),
    batch_size=st.integers(1, 8),
    epochs=st.integers(1, 5),
    every=st.sampled_from([1, 2, 3, 0.5, 0.25, 0.75, 0.125, 2**-7]),
)
def test_each_epoch_has_each_sample_once_and_checkpoints_come_when_they_are_due(samples, batch_size, epochs, every):
    data = SMALL.take(samples, 2)
    steps = math.ceil(samples / batch_size)
    written = []
    evaluated = []
    # A step takes a second, in the second epoch two, and so on; an evaluation takes long.
    clock = SimpleNamespace(perf_counter=lambda: len(Steps.last.calls) * (1 + len(evaluated)))
    with pytest.MonkeyPatch.context() as patched, tempfile.TemporaryDirectory() as folder:
        patched.setattr(loop, "TrainStep", Steps)
        patched.setattr(loop, "time", clock)
        patched.setattr(loop, "evaluate", lambda *given, net: evaluated.append(net) or 0.5)
        patched.setattr(timing, "time", clock)
        patched.setattr(CheckpointFolder, "write", lambda self, header, arrays, facts: written.append(facts))
        options = dict(net=mlp, params=initial(2), checkpoint=folder, checkpoint_every=every)
        history = quiet(1, batch_size, 0.1, epochs, data=data, seed=5, **options)
    Xs, ys, whole = zip(*Steps.last.calls)
    order = onp.concatenate([permutation(samples, 5, epoch) for epoch in range(epochs)])
    onp.testing.assert_array_equal(onp.concatenate(Xs), data.train.X[order])
    onp.testing.assert_array_equal(onp.concatenate(ys), data.train.y[order])
    assert [len(X) for X in Xs] == list(whole)
    assert list(whole) == [*[batch_size] * (steps - 1), samples - batch_size * (steps - 1)] * epochs
    # The first step at or after each multiple of the part; after whole epochs, and at the end.
    inside = sorted({math.ceil(part * every * steps) for part in range(1, math.ceil(1 / every))} - {steps})
    due = [(epoch, step) for epoch in range(epochs) for step in inside]
    due += [(epoch, steps) for epoch in range(epochs) if (epoch + 1) % max(1, every) == 0 or epoch + 1 == epochs]
    assert [(facts["epoch"], facts["position"], facts["step"]) for facts in written] == [
        (epoch, min(samples, step * batch_size), epoch * steps + step) for epoch, step in sorted(due)
    ]
    for facts in written:
        ended = facts["position"] == samples
        assert len(facts["finished"]) == facts["epoch"] + ended
        assert facts["seconds"] == (0 if ended else (facts["step"] - facts["epoch"] * steps) * (1 + facts["epoch"]))
    assert history.test_accuracies == [0.5] * epochs
    assert history.epochs == [setup.Epoch(number, number * steps, samples, 1.0) for number in range(1, epochs + 1)]


EPOCHS, STEPS = 3, 4


@settings(max_examples=10, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    devices=st.tuples(*[st.integers(1, 3)] * 2),
    shards=st.tuples(st.booleans(), st.booleans()),
    momentum=st.sampled_from([0.0, 0.5]),
    every=st.sampled_from([1, 2, 0.5, 0.25]),
    stop=st.integers(0, 2 * EPOCHS * STEPS),
    interactive=st.booleans(),
)
def test_a_training_that_is_stopped_anywhere_continues_as_if_it_were_not(
    devices, shards, momentum, every, stop, interactive
):
    """Ctrl-C comes before an update of one device: at once, or between two replicas, which then become equal. A script
    is ended, a notebook goes on. Bit for bit with as many devices, if the sums have one order; else nearly. To
    make a failing example smaller takes minutes."""
    data = SMALL.take(26, 9)
    given_ = initial(5)
    before = [param.asnumpy() for param in given_]
    done = min(stop // devices[0] // STEPS, EPOCHS)
    calls = itertools.count()
    lines = []

    def in_order(n, cut):
        return n < 3 or not cut or not momentum

    def run(n, cut, epochs=EPOCHS, **more):
        options = dict(net=mlp, params=given_, momentum=momentum, shard_optimizer=cut and momentum > 0)
        return quiet(n, 7, 0.05, epochs, data=data, **options, **more)

    def interrupted(*arguments):
        one = prepare_update(*arguments)

        def call():
            if next(calls) == stop:
                raise KeyboardInterrupt
            one()

        return call

    undisturbed = run(devices[0], False)
    with pytest.MonkeyPatch.context() as patched, tempfile.TemporaryDirectory() as folder:
        kept = dict(checkpoint=folder, checkpoint_every=every, report=lines.append)
        patched.setattr(update, "prepare_update", interrupted)
        patched.setattr(sys, "ps1", ">>> ", raising=False)
        if not interactive:
            patched.delattr(sys, "ps1")
        try:
            history = run(devices[0], shards[0], **kept)
            assert interactive or done == EPOCHS
        except Interrupted as error:
            assert not interactive
            history, text = error.history, str(error)
            assert f"training stopped by Ctrl-C after {done} epoch" in text
        if done < EPOCHS:
            assert lines[-2] == f"stopped by Ctrl-C after {done} of {EPOCHS} epochs"
            assert in_sync([history.device_params[0], given_]) == (stop == 0)
        assert in_sync(history.device_params)
        assert [epoch.number for epoch in history.epochs] == [*range(1, done + 1)]
        if in_order(devices[0], shards[0]):
            assert history.test_accuracies == undisturbed.test_accuracies[:done]
        again = run(devices[1], shards[1], **kept)
        told = [*lines]
        lines.clear()
        for epochs in (EPOCHS, EPOCHS - 1):
            run(devices[1], shards[1], epochs, **kept)
    assert devices[0] != devices[1] or not any("the checkpoint is of" in line for line in told)
    for epochs in (EPOCHS, EPOCHS - 1):
        assert f"nothing is left to train: {EPOCHS} epochs of {epochs} are finished" in lines
    assert [epoch.number for epoch in again.epochs] == [*range(1, EPOCHS + 1)]
    exact = devices[0] == devices[1] and in_order(devices[0], any(shards))
    tolerances = dict(rtol=0, atol=0) if exact else dict(rtol=1e-4, atol=1e-5)
    for one, other in zip(undisturbed.device_params[0], again.device_params[0]):
        onp.testing.assert_allclose(one.asnumpy(), other.asnumpy(), **tolerances)
    assert [param.asnumpy().tolist() for param in given_] == [values.tolist() for values in before]


def initial(hidden):
    return parameters(784, hidden, 10, scale=0.1)


def twice(y_hat, y):
    return 2 * cross_entropy(y_hat, y)


ARGUMENTS = set(inspect.signature(train).parameters)


def test_each_argument_of_train_arrives(monkeypatch, tmp_path):
    made, drawn, lines = {}, [], []

    def spied(name, whole, *given, **more):
        made[name] = given, more
        return whole(*given, **more)

    for home, name in [(setup, "init_lenet"), *[(loop, name) for name in ("Stream", "GradientSync", "TrainStep")]]:
        monkeypatch.setattr(home, name, partial(spied, name, getattr(home, name)))
    ranks, data = World(), SMALL.take(20, 10)
    options = dict(kind="cpu", data=data, seed=4, algorithm="naive", report=lines.append, world=ranks)
    options.update(checkpoint=tmp_path / "kept", draw=lambda *what: drawn.append([*map(list, what)]))
    options.update(checkpoint_every=2, net=mlp, loss=twice, params=initial(9), momentum=0.5, shard_optimizer=False)
    history = train(2, 7, 0.25, 3, **options)
    assert {"num_devices", "batch_size", "lr", "num_epochs", *options} == ARGUMENTS
    (*places, sync, net, loss), more = made.pop("TrainStep")
    assert (places, net, loss) == ([history.device_params, [mx.cpu(0), mx.cpu(1)], 0.25], mlp, twice)
    assert (type(sync), more) == (GradientSync, {"momentum": 0.5})
    assert made == {
        "Stream": ((data.train, 7, 4, 0, 0), {}),
        "GradientSync": ((history.device_params, "naive"), {"world": ranks}),
    }
    assert [param.shape for param in history.device_params[1]] == [(784, 9), (9,), (9, 10), (10,)]
    assert [epoch.number for epoch in history.epochs] == [1, 2, 3]
    assert drawn == [[list("2 x cpu"), history.test_accuracies[:number]] for number in (1, 2, 3)]
    for line, epoch, accuracy in zip(lines, history.epochs, history.test_accuracies):
        assert line.startswith(f"epoch {epoch.number}: {epoch.seconds:.2f} s, {20 / epoch.seconds:,.0f} samples/s, ")
        assert line.endswith(f"loss {epoch.loss:.3f}, test accuracy {accuracy:.4f}")
    assert lines[-1] == "trained on cpu(0), cpu(1); replicas in sync: True"
    history = replace(history, test_accuracies=[0.1, 0.2, 0.3])
    assert repr(history) == "<History: 3 epochs on cpu(0), cpu(1), the last with test accuracy 0.3000>"
    assert len(list((tmp_path / "kept").glob("*.npz"))) == 2, "after the second epoch, and at the end"
    quiet(1, 7, 0.25, 1, data=data, seed=6, momentum=0.5, shard_optimizer=True)
    assert made["init_lenet"] == ((6,), {})
    assert type(made["TrainStep"][0][3]) is ShardedSync


@pytest.mark.parametrize("interactive", [True, False])
def test_ctrl_c_on_one_of_several_ranks_is_raised_at_once(monkeypatch, interactive):
    if interactive:
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    ranks, lines = Ranks(0, 2), []
    ranks.step_done = lambda: lines and stop()
    monkeypatch.setattr(loop, "TrainStep", Steps)

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        train(1, 50, 0.5, 3, "cpu", SMALL.take(100, 10), report=lines.append, world=ranks)
    assert caught.type is KeyboardInterrupt
    assert [line.split(":")[0] for line in lines] == ["epoch 1"], "no word of an end, and nothing exchanged after it"


EACH_RANK_ITS_OWN = {"kind", "report", "world", "draw"}


def test_ranks_compare_all_that_must_be_equal(monkeypatch, tmp_path):
    """Two settings that differ in one argument give other facts."""

    class Compared(Exception):
        pass

    class Comparing(Ranks):
        def agree(self, facts):
            super().agree(facts)
            raise Compared

    def facts(**changed):
        ranks = Comparing(0, 2)
        settings = dict(num_devices=1, batch_size=50, lr=0.5, num_epochs=2, data=SMALL, seed=0, algorithm="auto")
        settings.update(checkpoint=tmp_path / "kept", checkpoint_every=1, net=mlp, loss=twice, params=initial(9))
        settings.update(momentum=0.5)
        with pytest.raises(Compared):
            train(kind="cpu", world=ranks, **{**settings, **changed})
        return ranks.agreed

    other = dict(num_devices=2, batch_size=51, lr=0.4, num_epochs=3, data=SMALL.take(299), seed=1, algorithm="ring")
    other.update(checkpoint=None, checkpoint_every=0.5, net=lambda *given: mlp(*given), loss=cross_entropy)
    other.update(params=initial(8), momentum=0.4, shard_optimizer=True)
    assert set(other) | EACH_RANK_ITS_OWN == ARGUMENTS
    same = facts()
    assert facts() == same
    for name, value in other.items():
        assert [key for key, fact in facts(**{name: value}).items() if fact != same[key]] != [], name
    assert list(tmp_path.iterdir()) == [], "before a checkpoint is opened"


@pytest.mark.parametrize("samples", [1, 2, 7, 10])
def test_the_ranks_parts_of_the_test_accuracy_make_the_whole(samples):
    test, ranks = SMALL.take(1, samples).test, [Ranks(rank, 3) for rank in range(3)]
    replicas = [get_params(initial(5), mx.cpu(device)) for device in range(2)]
    for one in ranks:
        loop.accuracy_of_ranks(test, replicas, one, mlp)
    whole = evaluate(test, replicas, net=mlp)
    assert sum(one.gathered[0] for one in ranks) / samples == pytest.approx(whole, abs=1e-12)
    assert loop.accuracy_of_ranks(test, replicas, World(), mlp) == whole
