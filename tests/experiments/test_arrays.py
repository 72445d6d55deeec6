from __future__ import annotations

import itertools
from functools import partial

import numpy as onp
import pytest

from mxdp.backend import mx, upload
from mxdp.collectives import AllReduce
from mxdp.experiments.allreduce import arrays
from mxdp.experiments.allreduce.arrays import LEAD, TURNS, exact_sums, numbers, seconds_in_turn
from mxdp.experiments.oracle import count

SHAPES = [(3, 300), (5,), ()]
SEED = 3
DEVICES = [mx.cpu(rank) for rank in range(3)]


def test_wrong_sums_are_counted():
    arrays = [[upload(numbers(shape, device.device_id, SEED), device) for shape in SHAPES] for device in DEVICES]
    for same in zip(*arrays):
        AllReduce(same)()
    assert count(exact_sums(arrays, lambda: None, SEED)) == (2718, 0)
    arrays[1][1][2] += 1
    assert count(exact_sums(arrays, lambda: None, SEED)) == (2718, 1)
    arrays[2][0][0, :2] = float("nan"), float("inf")
    assert count(exact_sums(arrays, lambda: None, SEED)) == (2718, 3)
    arrays[0][0][:] = arrays[0][0][:, ::-1]
    assert count(exact_sums(arrays, lambda: None, SEED))[1] > 800  # numbers that changed places


@pytest.mark.parametrize(("spell", "repeats"), [(1e6, TURNS * (1 + LEAD) * 500), (0, 0)])
def test_a_call_is_repeated_unless_it_outlasts_a_spell_and_each_is_waited_for(monkeypatch, spell, repeats):
    monkeypatch.setattr("mxdp.experiments.allreduce.arrays.SPELL_SECONDS", spell)
    calls = []
    x = mx.np.zeros((10,))

    def action():
        calls.append(x.asnumpy().tolist())
        onp.testing.assert_array_equal(x.asnumpy(), len(calls) - 1)
        x.__iadd__(1)

    seconds_in_turn({"": lambda: action})
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


def test_every_call_is_waited_for(virtual):
    x = mx.np.ones(1)
    arrays.npx.waitall()
    assert arrays._timed(lambda: x + 1, 3) == 2
