"""A training that is stopped and started again on ranks, with other cores or twice; what another one has left. (Where
it may be stopped, and when checkpoints are due: tests/training/test_train.py.)"""

import json
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import fake_mpi
import numpy as onp
import pytest
from test_checkpoint_file import names

from mxdp import process, scratch
from mxdp.backend import np
from mxdp.collectives import GradientSync
from mxdp.datasets import load
from mxdp.errors import MxdpError
from mxdp.processes import checkpoint_file
from mxdp.processes.checkpoint import CheckpointFolder
from mxdp.scratch import in_sync
from mxdp.training import TrainStep, train

SMALL = load("synthetic").take(100, 50)


def linear(X, params):
    return X.reshape(len(X), -1) @ params[0] + params[1]


def own(seed=0):
    """A reader's own network, which is faster than LeNet."""
    weight = np.array(onp.random.RandomState(seed).normal(scale=0.1, size=(784, 10)), dtype="float32")
    return dict(net=linear, params=[weight, np.zeros((10,))])


def run(devices, folder=None, stop=None, **settings):
    """Two epochs of seven steps, of ten seconds by the clock, stopped by an error before step ``stop``. Returns the
    history, or None, and the reported lines."""
    pushed, original, lines = [], TrainStep.__call__, []

    def until_stop(*args, **more):
        if len(pushed) == stop:
            raise ZeroDivisionError
        pushed.append(1)
        return original(*args, **more)

    options = {"lr": 0.5, "num_epochs": 2, "checkpoint_every": 0.25, "data": SMALL, "seed": 3, **own(), **settings}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TrainStep, "__call__", until_stop)
        for module in (train.__module__, "mxdp.timing"):
            clock = SimpleNamespace(perf_counter=lambda: 10 * len(pushed))
            patched.setattr(sys.modules[module], "time", clock)
        try:
            return train(devices, 16, kind="cpu", checkpoint=folder, report=lines.append, **options), lines
        except ZeroDivisionError:
            written()
    return None, lines


def written():
    """Wait for the writing thread of a training that was stopped."""
    for thread in threading.enumerate():
        if thread.name == "mxdp checkpoint":
            thread.join()


def same(history, other):
    assert in_sync([history.device_params[0], *other.device_params])
    assert in_sync(history.device_params)
    assert [replace(epoch, seconds=70) for epoch in history.epochs] == other.epochs
    assert (len(other.epochs), history.test_accuracies) == (2, other.test_accuracies)


def test_ranks_have_the_bits_of_devices_also_after_a_stop_and_rank_0s_parameters_count(tmp_path):
    """The newest checkpoint that is left stands in the midst of an epoch."""
    lines = []
    options = dict(kind="cpu", data=SMALL, seed=3, checkpoint_every=0.25, report=lines.append)

    def work(world, folder=None, epochs=2):
        folder = folder and folder / f"{world.rank}"
        return train(1, 16, 0.5, epochs, checkpoint=folder, world=world, **options, **own(world.rank))

    two, _ = run(2)
    for history in fake_mpi.run(2, work):
        same(history, two)
    fake_mpi.run(2, lambda world: work(world, tmp_path, 1))
    (tmp_path / "0" / names(tmp_path / "0")[-1]).unlink()
    assert not (tmp_path / "1").exists()
    (tmp_path / "1").mkdir()
    lines.clear()
    for history in fake_mpi.run(2, lambda world: work(world, tmp_path)):
        same(history, two)
    assert [line.split()[0] for line in lines[:-1]] == ["continuing", "epoch", "epoch"], "of rank 0"
    assert not any((tmp_path / "1").iterdir()), "only rank 0 writes"


def test_the_choice_of_an_all_reduce_is_the_checkpoints_with_other_cores_too(tmp_path, monkeypatch):
    """On four devices, "auto" is "naive" with one core and "shared-memory" with more."""
    made = []

    class Spy(GradientSync):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            made.append([bucket.algorithm for bucket in self.buckets])

    monkeypatch.setattr(sys.modules[train.__module__], "GradientSync", Spy)
    monkeypatch.setattr(process, "cores", lambda: 1)
    lenet = dict(net=scratch.lenet, params=None)
    whole, _ = run(4, **lenet)
    run(4, tmp_path, 3, **lenet)
    monkeypatch.setattr(process, "cores", lambda: 4)
    continued, lines = run(4, tmp_path, **lenet)
    assert not any("last bits" in line for line in lines)
    same(continued, whole)
    run(4, tmp_path, 1, **lenet, num_epochs=3)  # the checkpoints of the continued training, too
    run(2, tmp_path, 1, **lenet, num_epochs=4)  # other replicas choose anew
    assert made == [["naive"]] * 4 + [["shared-memory"]]


def test_the_time_before_the_stop_counts_also_of_a_training_stopped_again(tmp_path):
    for stop in (4, 2, None):
        history, _ = run(1, tmp_path, stop)
    assert [epoch.seconds for epoch in history.epochs] == [70, 70]
    same(history, run(1)[0])


CHANGES = {
    "a parameter is missing": lambda arrays, facts: arrays.pop("parameters/0"),
    "another shape": lambda arrays, facts: arrays.update({"parameters/0": onp.zeros((2, 10**6), "float32")}),
    "another dtype": lambda arrays, facts: arrays.update({"parameters/0": arrays["parameters/0"].astype("float64")}),
    "part of a momentum": lambda arrays, facts: arrays.update({"momentum/0": arrays["parameters/0"]}),
    "another array": lambda arrays, facts: arrays.update(x=onp.ones(3)),
    "no epoch": lambda arrays, facts: facts.pop("epoch"),
    "an epoch before the first": lambda arrays, facts: facts.update(epoch=-1),
    "a place behind the end": lambda arrays, facts: facts.update(position=101),
    "finished epochs of another kind": lambda arrays, facts: facts.update(finished=[[{"number": 1}, 0.5]]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_checkpoint_that_this_training_can_not_have_written_is_named_and_the_one_before_it_taken(change, tmp_path):
    run(1, tmp_path, 7)
    before, newest = (tmp_path / name for name in names(tmp_path)[-2:])
    arrays, was = checkpoint_file.read_checkpoint(newest)
    CHANGES[change](arrays, was["facts"])
    checkpoint_file.write_checkpoint(newest, arrays, json.dumps(was))
    history, lines = run(1, tmp_path)
    assert lines[0].startswith(f"{newest} is not used (")
    assert lines[1] == f"continuing from {before}"
    same(history, run(1)[0])


def test_a_training_in_the_folder_of_another_process_is_refused_before_the_first_step(tmp_path, monkeypatch):
    monkeypatch.setattr(CheckpointFolder, "_take", lambda self: "another training writes")
    with pytest.raises(MxdpError, match="another training writes"):
        run(1, tmp_path, stop=0)
    assert names(tmp_path) == []
