"""What fails on one rank alone, or would part the ranks, is an error on all before one of them leaves a call. So are
parameters in another order than rank 0's."""

from pathlib import Path

import fake_mpi
import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mxdp
from mxdp.backend import gluon, mx, np, npx
from mxdp.collectives import GradientSync
from mxdp.errors import MxdpError
from mxdp.gluon import Checkpoint, Store
from mxdp.processes import CheckpointFolder
from mxdp.processes.order import agree_names
from mxdp.scratch import get_params
from mxdp.training import train

N = 3
LOCAL = type("Local", (mx.lr_scheduler.FactorScheduler,), {})


def square():
    net = gluon.nn.Sequential()
    net.add(gluon.nn.Dense(4, in_units=4))
    return net


def trained(world, kind=mxdp.Trainer, optimizer="adam", **options):
    net = square()
    net.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    more = dict(world=world) if kind is mxdp.Trainer else dict(kvstore=Store(world=world))
    shard = {"shard_optimizer": True} if kind is mxdp.Trainer else {}
    trainer = kind(net.collect_params(), optimizer, options, **more, **shard)
    npx.waitall()  # all ranks have rank 0's parameters before one may fail
    return net, trainer


def checkpointed(world, folder, **options):
    kept = Checkpoint(folder, world=world)
    kept.save(*trained(world, **options))
    kept.wait()


def uninitialised(world, folder, save, rank, known):
    kept, (net, trainer) = Checkpoint(folder, world=world), trained(world)
    if world.rank == rank:
        net = gluon.nn.Dense(4, in_units=4 if known else 0)
        _ = known or net.initialize()
    (kept.save if save else kept.load)(net, trainer)


FAILS = {
    "no folder": lambda world, folder: CheckpointFolder(Path(__file__, "file"), 3, world),
    "another training's": lambda world, folder: [
        checkpointed(world, folder, optimizer=name) for name in ("adam", "adamax")
    ],
    "a scheduler's local class": lambda world, folder: checkpointed(world, folder, lr_scheduler=LOCAL(step=3)),
    "no values": lambda world, folder: uninitialised(world, folder, True, 2, True),
    "no shape": lambda world, folder: uninitialised(world, folder, True, 1, False),
    "not initialised": lambda world, folder: uninitialised(world, folder, False, 1, True),
    "no device": lambda world, folder: quick(world, num_devices=0 if world.rank == 1 else 1),
    "no net": lambda world, folder: quick(world, net=(lambda X, params: 1 // 0) if world.rank == 1 else None),
}


def quick(world, num_devices=1, net=None):
    more = {"net": net} if net else {}
    train(num_devices, 10, 0.1, 1, kind="cpu", data="synthetic", world=world, report=lambda line: None, **more)


@pytest.mark.parametrize("what", FAILS)
def test_what_fails_on_one_rank_is_an_error_on_all(what, tmp_path):
    """None waits for the one that has left (``fake_mpi.Alone``), and none goes on."""
    errors, aborted = fake_mpi.outcomes(N, lambda world: FAILS[what](world, tmp_path))
    assert aborted == []
    assert not any(isinstance(error, (fake_mpi.Alone, type(None))) for error in errors), errors
    assert sum(isinstance(error, MxdpError) for error in errors) >= N - 1, errors
    assert all(str(error).count("\n") == 0 for error in errors if isinstance(error, MxdpError))


def test_a_trainer_whose_ranks_could_start_with_other_values_is_refused():
    def work(world):
        net = gluon.nn.Dense(2)
        net.initialize()
        mxdp.Trainer(net.collect_params(), "sgd", world=world)

    assert all("run a forward pass first" in str(error) for error in fake_mpi.outcomes(2, work)[0])


@pytest.mark.parametrize("kind", [mxdp.Trainer, gluon.Trainer])
def test_each_device_of_each_rank_gets_its_running_means_back(kind, tmp_path):
    """And rank 0's parameters; whatever it had, and though the other ranks have no such folder."""

    def work(world, save):
        net, trainer = trained(world, kind)
        means = gluon.nn.BatchNorm(in_channels=1)
        net.add(means)
        means.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
        values = [2.0 * world.rank + device for device in range(2)] if save else [9.0, 9.0]
        for array, value in zip(means.running_mean.list_data(), values):
            array[:] = value
        kept = Checkpoint(tmp_path / str(world.rank), world=world, report=lambda line: None)
        (kept.save if save else kept.load)(net, trainer)
        kept.wait()
        return [array.item() for array in means.running_mean.list_data()], net[0].weight.data().tolist()

    saved, back = (fake_mpi.run(2, lambda world, save=save: work(world, save)) for save in (True, False))
    assert [means for means, _ in back] == [[0, 1], [2, 3]]
    assert back == saved
    assert saved[0][1] == saved[1][1]


MAKERS = {
    "mxdp.Trainer": lambda net, world: mxdp.Trainer(net.collect_params(), "sgd", world=world),
    "shards": lambda net, world: mxdp.Trainer(net.collect_params(), "adam", world=world, shard_optimizer=True),
    "gluon.Trainer": lambda net, world: gluon.Trainer(net.collect_params(), "sgd", kvstore=Store(world=world)),
}


def refused(errors, sentence):
    """Whether all ranks are refused with this sentence; or none is."""
    are = [isinstance(error, MxdpError) and sentence in str(error) for error in errors]
    assert are == [are[0]] * len(errors), errors
    assert are[0] or errors == [None] * len(errors)
    return are[0]


@settings(max_examples=20)
@given(
    make=st.sampled_from(sorted(MAKERS)),
    layers=st.integers(2, 11),
    before=st.lists(st.sampled_from([0, 5, 8, 9, 98]), min_size=2, max_size=3),
)
def test_layers_that_sort_otherwise_on_a_rank_are_refused(make, layers, before):
    """gluon sorts names, and counts layers in each process: ``dense10`` stands before ``dense9``."""
    orders = [sorted(range(layers), key=lambda layer: f"dense{made + layer}_") for made in before]

    def work(world):
        net = gluon.nn.HybridSequential(prefix="")
        with mx.name.NameManager():
            for _ in range(before[world.rank]):
                gluon.nn.Dense(4, in_units=4)
            net.add(*(gluon.nn.Dense(4, in_units=4) for _ in range(layers)))
        net.initialize(ctx=mx.cpu())
        trainer = MAKERS[make](net, world)
        trainer._init_kvstore()
        trainer._init_params()

    errors, _ = fake_mpi.outcomes(len(before), work)
    assert refused(errors, "another place in the network") == any(order != orders[0] for order in orders)


@pytest.mark.parametrize("counts", [(3, 2, 3), (2, 2, 3), (3, 3, 3)])
def test_a_rank_with_fewer_names_is_told_which_it_lacks(counts):
    """(Which names agree: the doctest of ``without_counts``.)"""
    errors, _ = fake_mpi.outcomes(3, lambda world: agree_names(world, ["a0", "b0", "c0"][: counts[world.rank]]))
    told = {(3, 2, 3): "missing on rank 1 and c0 on rank 0,", (2, 2, 3): "c0 on rank 2 and missing on rank 0,"}
    assert refused(errors, f"parameter 2 is {told.get(counts)} which is another place") == (counts in told)


@settings(max_examples=40)
@given(data=st.data(), ranks=st.integers(2, 4), same=st.booleans())
def test_arrays_in_another_order_are_refused_and_other_initial_values_are_not(data, ranks, same):
    """Values that are the same, or a rank's own. Two of the arrays are equal, and may change places."""
    orders = [range(11)] * ranks
    other = data.draw(st.integers(1, ranks - 1))
    orders[other] = data.draw(st.permutations(range(11)))

    def work(world):
        values = onp.random.RandomState(0 if same else world.rank).rand(11, 2, 2)
        values[3] = values[7]
        params = [np.array(values[number]) for number in orders[world.rank]]
        GradientSync([get_params(params, mx.cpu())], world=world)

    errors, _ = fake_mpi.outcomes(ranks, work)
    ours = [3 if number == 7 else number for number in range(11)]
    moved = [place for place, number in enumerate(orders[other]) if ours[number] != ours[place]]
    assert refused(errors, "has rank 0's parameters in another order") == bool(same and moved)
    if same and moved:
        assert f"rank {other} has rank 0's parameters in another order (from parameter {moved[0]} on)" in str(errors[0])


def test_ranks_whose_buckets_are_divided_otherwise_are_refused():
    """By "sharded", over as many devices as a rank has. (Of other buckets: tests/collectives.)"""

    def work(world):
        params = [np.zeros((size,)) for size in (12, 6, 70)]
        devices = [mx.cpu(number) for number in range(2 + world.rank // 2)]
        GradientSync([get_params(params, device) for device in devices], "sharded", world=world)

    for error in fake_mpi.outcomes(3, work)[0]:
        assert "rank 2 has buckets' vectors of length " in str(error)
