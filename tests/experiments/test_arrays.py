from __future__ import annotations

import itertools
from functools import partial

import numpy as onp
import pytest

from mxdp.backend import mx, npx
from mxdp.collectives import AllReduce
from mxdp.experiments.allreduce.arrays import (
    LEAD,
    SPELLS,
    TURNS,
    exact_sums,
    numbers,
    replicas,
    seconds_a_call,
    seconds_in_turn,
    store_sync,
)
from mxdp.experiments.allreduce.common import STORES
from mxdp.experiments.oracle import count

SHAPES = [(3, 300), (5,), ()]
SEED = 3
DEVICES = [mx.cpu(rank) for rank in range(3)]


def filled():
    return replicas(SHAPES, DEVICES, SEED)


def one_by_one(arrays, op="sum"):
    for same in zip(*arrays):
        AllReduce(same, op=op)()


def test_numbers_depend_on_rank_index_and_seed():
    one = numbers((4, 2), 0, SEED)
    assert one.shape == (4, 2)
    assert (one == one.astype(int)).all()
    assert len(set(one.ravel())) > 4
    assert not (one == numbers((4, 2), 1, SEED)).all()
    assert not (one == numbers((4, 2), 0, SEED + 1)).all()


@pytest.mark.parametrize("name", STORES)
def test_a_store_sums_in_place(name):
    arrays = filled()
    sync = store_sync(name, arrays)
    sync()
    npx.waitall()
    assert count(exact_sums(arrays, SEED)) == (3 * (900 + 5 + 1), 0)


def test_wrong_sums_are_counted():
    arrays = filled()
    one_by_one(arrays)
    assert count(exact_sums(arrays, SEED)) == (2718, 0)
    arrays[1][1][2] += 1
    assert count(exact_sums(arrays, SEED)) == (2718, 1)
    arrays[2][0][0, :2] = float("nan"), float("inf")
    assert count(exact_sums(arrays, SEED)) == (2718, 3)

    means = filled()
    one_by_one(means, op="mean")
    assert count(exact_sums(means, SEED))[1] > 2000

    one_left_out = filled()
    one_by_one([own[:-1] for own in one_left_out])
    assert count(exact_sums(one_left_out, SEED))[1] == 3

    swapped = filled()
    one_by_one(swapped)
    swapped[2][0][:] = swapped[2][0][:, ::-1]
    assert count(exact_sums(swapped, SEED))[1] > 0


def test_zeros_stay_zeros_however_often_they_are_summed():
    arrays = replicas(SHAPES, DEVICES, seed=None)
    assert seconds_a_call(lambda: one_by_one(arrays)) > 0
    assert all(not array.asnumpy().any() for own in arrays for array in own)


@pytest.mark.parametrize(("spell", "repeats"), [(1e6, SPELLS * 500), (0, 0)])
def test_a_call_is_repeated_unless_it_outlasts_a_spell_and_each_is_waited_for(monkeypatch, spell, repeats):
    monkeypatch.setattr("mxdp.experiments.allreduce.arrays.SPELL_SECONDS", spell)
    calls = []
    x = mx.np.zeros((10,))

    def action():
        calls.append(x.asnumpy().tolist())
        onp.testing.assert_array_equal(x.asnumpy(), len(calls) - 1)
        x.__iadd__(1)

    seconds_a_call(action)
    assert len(calls) == 2 + repeats


def test_syncs_take_turns_and_each_runs_for_a_while_before_its_spell_counts(monkeypatch):
    """The first calls of each visit are slow, as if the threads were still where another sync had left them."""
    now, order = [0.0], []
    monkeypatch.setattr("mxdp.experiments.allreduce.arrays.time.perf_counter", lambda: now[0])

    def taking(name, seconds):
        def sync():
            order.append(name)
            visit = len(list(itertools.takewhile(name.__eq__, reversed(order))))
            now[0] += seconds * (1 if visit > 2 else 1.5)

        return sync

    times = {"a": 0.001, "b": 0.002, "long": 1.0}
    found = seconds_in_turn({name: partial(taking, name, own) for name, own in times.items()})
    assert [found["a"], found["b"], found["long"]] == pytest.approx([0.001, 0.002, 1.5])
    assert order.count("long") == 2  # warmed up and timed once
    visits = [len(list(own)) for _, own in itertools.groupby(order[6:])]
    assert sum(visits) == TURNS * (1 + LEAD) * (8 + 4)
    assert len(visits) > 2


def test_no_sync_has_always_the_same_before_it():
    before, last, names = {name: set() for name in "abcdefgh"}, [""], "abcdefgh"

    def noting(name):
        def sync():
            if last[0] != name:
                before[name].add(last[0])
            last[0] = name

        return sync

    seconds_in_turn({name: partial(noting, name) for name in names})
    assert min(map(len, before.values())) >= 2
