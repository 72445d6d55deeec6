"""``mxdp.Trainer`` beside another one, with other ranks, without samples, with a store of one's own. (That it trains
right: ``test_any_gluon_training.py``.)"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as onp
import pytest
from small_training import SGD, assert_equal, backward, by_devices, devices, parameters, weights

from mxdp.backend import gluon
from mxdp.collectives.tuning import choose
from mxdp.gluon import Store, Trainer
from mxdp.plans.cost.machine import CPU
from mxdp.processes import World


@pytest.mark.parametrize("shared", [False, True])
def test_two_trainers_at_once(shared):
    def run(make):
        params = parameters(2)
        parts = (params[:3], params[1:]) if shared else (params[:2], params[2:])
        trainers = [make(part, *SGD) for part in parts]
        for step in range(4):
            backward(params, step)
            trainers[step % 2].step(2)
            backward(params, step + 1)
            trainers[1 - step % 2].step(2, ignore_stale_grad=True)
        return weights(params)

    expected = run(by_devices)
    for kvstore in ("mxdpring", Store("ring")):
        for kind in (Trainer, gluon.Trainer):
            assert_equal(run(partial(kind, kvstore=kvstore)), expected)


class OfTwoRanks(World):
    """A world whose other rank has gradients of 1, and has used all parameters."""

    size, rank = 2, 0

    def __init__(self):
        self.broadcast = lambda arrays: None
        self.gather = lambda value: [value, value]
        self.step_done = lambda: None

    def sum(self, arrays, note):
        for array in arrays:
            array += 1
        mine = note.told()
        note.theirs = [mine, mine[:4] + b"\1" * (len(note.mine) - 4) + mine[len(note.mine) :]]
        note.carrier = arrays[0]


def test_a_rank_without_a_sample_steps_with_the_others():
    params = parameters(2)
    trainer = Trainer(params, "sgd", {"learning_rate": 0.5}, world=OfTwoRanks())
    for step in range(1, 4):
        trainer.step(4)
        assert_equal(weights(params), [[onp.full(param.shape, 1 - step / 8)] * 2 for param in params])


@pytest.mark.parametrize(
    ("kind", "n", "used", "of_devices"),
    [(gluon.Trainer, 2, 4, [0]), (Trainer, 1, 4, []), (Trainer, 2, 4, []), (Trainer, 2, 2, [0, 1])],
)
def test_a_step_without_any_backward_is_refused_as_by_mxnet(kind, n, used, of_devices):
    """gluon's own trainer refuses a device without a sample, so README names ours."""
    params = parameters(n)
    trainer = kind(params, *SGD, kvstore="mxdpring")
    backward(params)
    trainer.step(4)
    if of_devices:
        backward(params[:used], ranks=of_devices)
    with pytest.raises(UserWarning, match="been updated by backward"):
        trainer.step(4)


def test_buckets_follow_the_order_of_the_network(semantics):
    params = dict(zip("zyxw", parameters(2)))
    trainer = Trainer(params, *SGD, kvstore="mxdpdirect")
    (bucket,) = trainer._replicas.buckets.buckets
    assert (bucket.params, bucket.algorithm) == ((3, 2, 1, 0), "direct")
    assert [trainer._params[number] for number in trainer._replicas.trained] == list(params.values())


def test_no_sync_refuses_what_would_part_the_replicas():
    params = parameters(2)
    trainer = Trainer(params, *SGD)
    before = weights(params)
    with trainer.no_sync():
        backward(params)
        with pytest.raises(RuntimeError, match="after no_sync"):
            trainer.step(1)
    assert_equal(weights(params), before)
    params[0].cast("float64")
    with pytest.raises(RuntimeError, match="gradients added up inside no_sync are lost"):
        trainer.step(1)
    backward(params)
    trainer.step(1)
    assert_equal([arrays[:1] for arrays in weights(params)], [arrays[1:] for arrays in weights(params)])


def test_a_store_is_taken_with_its_options():
    trainer = Trainer(parameters(2), *SGD, kvstore=Store("tree"))
    assert trainer._replicas.buckets.buckets[0].algorithm == "tree"
    chosen = []
    for machine in (replace(CPU, push=1.0), CPU):
        trainer = Trainer(parameters(4, [(1 << 18,)]), *SGD, kvstore=Store("auto", machine=machine))
        chosen.append(trainer._replicas.buckets.buckets[0].algorithm)
    assert chosen == [choose(devices(4), [1 << 18], 4, machine) for machine in (replace(CPU, push=1.0), CPU)]
    assert chosen[0] != chosen[1]
