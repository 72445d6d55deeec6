"""Ranks agree before one of them leaves a call: on the order of parameters, and on what fails on one rank alone."""

from __future__ import annotations

import tempfile

import fake_mpi
import numpy as onp
import pytest

import mxdp
from mxdp.backend import gluon, mx, np, npx
from mxdp.collectives import GradientSync
from mxdp.errors import MxdpError
from mxdp.gluon import Checkpoint, Store
from mxdp.processes import CheckpointFolder, Ranks, World, agree_names
from mxdp.scratch import get_params
from mxdp.training import train

N = 3


def on_one(rank, do):
    """``do()`` if this is the rank."""
    return do() if fake_mpi.rank() == rank else None


def square():
    return gluon.nn.Dense(4, in_units=4)


def counted(before):
    """Two layers of one shape, made after ``before`` others."""
    net = gluon.nn.HybridSequential(prefix="")
    with mx.name.NameManager():
        for _ in range(before):
            square()
        net.add(square(), square())
    net.initialize(ctx=mx.cpu())
    return net


MAKERS = {
    "mxdp.Trainer": lambda net, world: mxdp.Trainer(net.collect_params(), "sgd", world=world),
    "shards": lambda net, world: mxdp.Trainer(net.collect_params(), "adam", world=world, shard_optimizer=True),
    "gluon.Trainer": lambda net, world: gluon.Trainer(net.collect_params(), "sgd", kvstore=Store(world=world)),
}


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("other", [0, 1, 2])
@pytest.mark.parametrize(("before", "same"), [(5, True), (99, False), (100, True), (9, False)])
def test_layers_that_sort_otherwise_on_a_rank_are_refused(make, other, before, same):
    """gluon sorts names: ``dense10`` stands before ``dense9``, and with them the two layers change places."""

    def work(world):
        trainer = MAKERS[make](counted(before if world.rank == other else 0), world)
        trainer._init_kvstore()
        trainer._init_params()

    errors, _ = fake_mpi.outcomes(N, work)
    refused = [isinstance(error, MxdpError) and "another place in the network" in str(error) for error in errors]
    assert refused == [not same] * N, errors


def test_a_rank_with_fewer_parameters_is_refused():
    """(Which names agree: the doctest of ``without_counts``.)"""
    names = ["dense0_weight", "dense1_weight"]
    for fewer in (0, 1):
        errors, _ = fake_mpi.outcomes(2, lambda world, fewer=fewer: agree_names(world, names[world.rank == fewer :]))
        assert all("another place in the network" in str(error) for error in errors), errors


@pytest.mark.parametrize(("other", "order"), [(1, [0, 2, 1]), (2, [1, 2, 0]), (2, [2, 1, 0])])
def test_arrays_in_another_order_are_refused_and_other_initial_values_are_not(other, order):
    def work(world, seed):
        values = onp.random.RandomState(seed(world.rank)).rand(3, 2, 2)
        numbers = order if world.rank == other else range(3)
        GradientSync([get_params([np.array(values[i]) for i in numbers], mx.cpu())], world=world)

    errors, _ = fake_mpi.outcomes(N, lambda world: work(world, lambda rank: 0))
    assert all(f"rank {other} has rank 0's parameters in another order" in str(error) for error in errors)
    assert fake_mpi.outcomes(N, lambda world: work(world, lambda rank: rank))[0] == [None] * N


def broken(*_, **__):
    raise OSError(5, "Input/output error")


def local_class():
    class Scheduler(mx.lr_scheduler.FactorScheduler):
        pass

    return Scheduler(step=3)


def trained(world, kind=mxdp.Trainer, optimizer="adam", **options):
    net = square()
    net.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    more = dict(world=world) if kind is mxdp.Trainer else dict(kvstore=Store(world=world))
    shard = {"shard_optimizer": True} if kind is mxdp.Trainer else {}
    trainer = kind(net.collect_params(), optimizer, options, **more, **shard)
    npx.waitall()  # all ranks have rank 0's parameters before one may fail
    return net, trainer


def checkpointed(world, folder, kind=mxdp.Trainer, save=True, **options):
    """Save, or load what was saved."""
    kept, (net, trainer) = Checkpoint(folder, world=world, report=lambda line: None), trained(world, kind, **options)
    (kept.save if save else kept.load)(net, trainer)
    kept.wait()


def uninitialised(world, folder, save, rank, known):
    kept, (net, trainer) = Checkpoint(folder, world=world), trained(world)
    if world.rank == rank:
        net = gluon.nn.Dense(4, in_units=4 if known else 0)
        _ = known or net.initialize()
    (kept.save if save else kept.load)(net, trainer)


FAILS = {
    "no folder": lambda world, folder: (
        on_one(0, (folder / "file").touch) or CheckpointFolder(folder / "file", 3, world)
    ),
    "another training's": lambda world, folder: [
        checkpointed(world, folder, optimizer=name) for name in ("adam", "adamax")
    ],
    "a scheduler's local class": lambda world, folder: checkpointed(world, folder, lr_scheduler=local_class()),
    "no values": lambda world, folder: uninitialised(world, folder, True, 2, True),
    "no shape": lambda world, folder: uninitialised(world, folder, True, 1, False),
    "not initialised": lambda world, folder: uninitialised(world, folder, False, 1, True),
    "no data": lambda world, folder: quick(world, data="mnist of mine" if world.rank == 2 else "synthetic"),
    "no device": lambda world, folder: quick(world, num_devices=0 if world.rank == 1 else 1),
    "no net": lambda world, folder: quick(world, net=(lambda X, params: broken()) if world.rank == 1 else None),
}


def quick(world, num_devices=1, data="synthetic", net=None):
    more = {"net": net} if net else {}
    train(num_devices, 10, 0.1, 1, kind="cpu", data=data, world=world, report=lambda line: None, **more)


@pytest.mark.parametrize("what", FAILS)
def test_what_fails_on_one_rank_is_an_error_on_all(what, tmp_path):
    """None waits for the one that has left (``fake_mpi.Alone``), and none goes on."""
    errors, aborted = fake_mpi.outcomes(N, lambda world: FAILS[what](world, tmp_path))
    assert aborted == []
    assert not any(isinstance(error, (fake_mpi.Alone, type(None))) for error in errors), errors
    assert sum(isinstance(error, MxdpError) for error in errors) >= N - 1, errors
    assert all(str(error).count("\n") == 0 for error in errors if isinstance(error, MxdpError))


@pytest.mark.parametrize("kind", [mxdp.Trainer, gluon.Trainer])
def test_a_checkpoint_needs_no_temporary_folder(kind, tmp_path, monkeypatch):
    """Where rank 0 could make none, the others waited inside the sum for ever."""
    monkeypatch.setattr(tempfile, "mkdtemp", lambda *a, real=tempfile.mkdtemp: on_one(0, broken) or real(*a))
    for save in (True, False):
        fake_mpi.run(2, lambda world, save=save: checkpointed(world, tmp_path, kind, save))
    assert len(list(tmp_path.glob("*.npz"))) == 1


EXCHANGES = {
    **{call: ((lambda: [[np.ones((4,)), np.ones((2,))]]), [2, 0]) for call in ("sum", "broadcast")},
    **{call: ((lambda: [np.ones((4,))]), [1, 0]) for call in ("reduce_scatter", "all_gather")},
    "gather": ((lambda: [1]), [0, 1]),
    "barrier": (list, [0, 1]),
    "together": ((lambda: [int]), [0, 1]),
}


@pytest.mark.parametrize("call", EXCHANGES)
def test_every_exchange_is_counted(call):
    """By its count a rank that has ended knows that another one waits (:mod:`mxdp.processes.leaving`)."""
    arguments, counted = EXCHANGES[call]

    def work(world):
        getattr(world, call)(*arguments())
        npx.waitall()
        return world.begun

    assert fake_mpi.run(2, work) == [counted] * 2


def test_seeds_of_ranks_are_far_apart_and_rank_0s_is_the_users(monkeypatch):
    seeds = []
    monkeypatch.setattr(mx.random, "seed", seeds.append)
    for size in (1, 40):
        for rank in range(size):
            Ranks(rank, size).seed(5)
    one, *several = seeds
    assert one == several[0] == 5
    assert min(abs(a - b) for i, a in enumerate(several) for b in several[:i]) > 127 * 100 + 1024
    World().seed()
    assert len(seeds) == 41, "a single rank draws as MXNet does"
