"""``shard_optimizer`` over several ranks: each device of each rank holds a share, and rank 0 saves the whole."""

from __future__ import annotations

import threading
from collections import Counter

import fake_mpi
import numpy as onp
import pytest

from mxdp.backend import autograd, gluon, mx
from mxdp.errors import MxdpError
from mxdp.gluon import Trainer
from mxdp.gluon.updater import leaves

SHAPES = [(60, 10), (23,), (1,)]


def trainer_of(n, world, shard):
    params = [gluon.Parameter(f"p{number}", shape=shape) for number, shape in enumerate(SHAPES)]
    for param in params:
        param.initialize(init="ones", ctx=[mx.cpu(number) for number in range(n)])
    return params, Trainer(params, "adam", {"learning_rate": 0.5}, world=world, shard_optimizer=shard)


def train(params, trainer, world, steps):
    """Whole numbers as gradients, so that all orders of addition give the same bits."""
    for step in steps:
        for device in range(len(params[0].list_ctx())):
            with autograd.record():
                losses = [param.list_data()[device] * (1 + step + 2 * device + 5 * world.rank) for param in params]
            autograd.backward(losses)
        trainer.step(4)


@pytest.mark.parametrize(("ranks", "n"), [(2, 1), (2, 2), (3, 2)])
def test_ranks_share_the_state_and_rank_0_alone_writes_all_of_it(ranks, n, tmp_path):
    """(That their parameters and states are gluon's: test_random_trainings.)"""

    def work(world, shard):
        params, trainer = trainer_of(n, world, shard)
        train(params, trainer, world, range(5))
        file = tmp_path / f"{shard}-{world.rank}"
        if shard or world.rank == 0:
            trainer.save_states(str(file))
        held = Counter()
        for x in (x for state in trainer._updaters[0].states.values() for x in leaves(state)):
            held[str(x.ctx)] += x.size
        return list(held.values()), file.exists()

    ((whole, _), *_), sharded = (fake_mpi.run(ranks, lambda world, shard=shard: work(world, shard)) for shard in (0, 1))
    assert max(max(held) for held, _ in sharded) <= 1.05 * sum(whole) / (ranks * n)
    assert sum(sum(held) for held, _ in sharded) == sum(whole)
    assert [wrote for _, wrote in sharded] == [True] + [False] * (ranks - 1)


@pytest.mark.parametrize(("ranks", "n"), [(2, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize(
    ("shard", "step"), [(False, "step"), (False, "allreduce_grads"), (False, "update"), (True, "step")]
)
def test_a_backward_that_no_rank_has_run_is_refused_on_all(ranks, n, shard, step):
    """And changes nothing: the steps after it are those of ranks that never forgot."""

    def work(world, forgets):
        params, trainer = trainer_of(n, world, shard)
        for number in range(4):
            if forgets and number % 2:
                if step == "allreduce_grads":
                    trainer.allreduce_grads()
                with pytest.raises(UserWarning, match=r"no gradient .*: call backward"):
                    trainer.step(4) if step == "step" else trainer.update(4)
            train(params, trainer, world, [number])
        return [data.asnumpy() for param in params for data in param.list_data()]

    expected, actual = (fake_mpi.run(ranks, lambda world, it=it: work(world, it)) for it in (False, True))
    onp.testing.assert_equal(actual, expected)


class Drawing(mx.optimizer.Optimizer):
    """As SGLD: adds random numbers, which differ by rank."""

    def update(self, index, weight, grad, state):
        weight[:] += float(threading.get_ident() % 1000)


@pytest.mark.parametrize("n", [1, 2])
def test_an_optimiser_that_draws_keeps_ranks_equal(n):
    def work(world):
        params = [gluon.Parameter("x", shape=(5,))]
        params[0].initialize(init="ones", ctx=[mx.cpu(number) for number in range(n)])
        train(params, Trainer(params, Drawing(), world=world), world, range(2))
        return [data.asnumpy() for data in params[0].list_data()]

    replicas = [replica for of_rank in fake_mpi.run(3, work) for replica in of_rank]
    onp.testing.assert_equal(replicas, replicas[:1] * 3 * n)


@pytest.mark.parametrize("shard", [False, True])
def test_states_are_read_on_rank_0_and_missing_on_all(shard, tmp_path):
    def work(world):
        _, trainer = trainer_of(1, world, shard)
        if shard or world.rank == 0:
            trainer.save_states(str(tmp_path / "states"))
        world.barrier()
        trainer.load_states(str(tmp_path / ("states" if world.rank == 0 else "is not here")))
        with pytest.raises((OSError, MxdpError), match="nowhere"):
            trainer.load_states(str(tmp_path / "nowhere"))
        return True

    assert fake_mpi.run(2, work) == [True, True]
