"""Ranks that would give their parameters in another order than rank 0 are refused, on every rank."""

from __future__ import annotations

import fake_mpi
import numpy as onp
from hypothesis import given, settings
from hypothesis import strategies as st

import mxdp
from mxdp.backend import gluon, mx, np
from mxdp.collectives import GradientSync
from mxdp.errors import MxdpError
from mxdp.gluon import Store
from mxdp.processes.order import agree_names
from mxdp.scratch import get_params

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


NAMES = [f"dense{number}_{kind}" for number in range(6) for kind in ("bias", "weight")][:11]


@given(counts=st.lists(st.integers(9, 11), min_size=2, max_size=3))
def test_a_rank_with_fewer_names_is_told_which_it_lacks(counts):
    """(Which names agree: the doctest of ``without_counts``.)"""
    errors, _ = fake_mpi.outcomes(len(counts), lambda world: agree_names(world, NAMES[: counts[world.rank]]))
    other = next((rank for rank, count in enumerate(counts) if count != counts[0]), None)
    if refused(errors, "another place in the network"):
        number = min(counts[0], counts[other])
        here, there = ("missing", NAMES[number])[:: 1 if counts[other] < counts[0] else -1]
        assert f"parameter {number} is {here} on rank {other} and {there} on rank 0, which" in str(errors[0])
    else:
        assert other is None


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
