"""The questions on all-reduces: what the catalogue, with its little settings, doesn't see."""

import itertools
from collections import Counter
from functools import lru_cache, partial
from types import SimpleNamespace

import numpy as onp
import pytest
from littles import little

from mxdp.backend import mx, upload
from mxdp.collectives import AllReduce
from mxdp.collectives.tuning import choose
from mxdp.errors import MxdpError
from mxdp.experiments import links as copies
from mxdp.experiments.allreduce import allreduce, arrays, parameter_server
from mxdp.experiments.allreduce.arrays import LEAD, TURNS, exact_sums, numbers, seconds_in_turn
from mxdp.experiments.lab.module import find
from mxdp.experiments.oracle import count
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.cost.machine import CPU
from mxdp.plans.cost.simulate import predict

SHAPES = [(3, 300), (5,), ()]
SEED = 3
CPUS = [mx.cpu(rank) for rank in range(4)]


def test_wrong_sums_are_counted():
    arrays = [[upload(numbers(shape, device.device_id, SEED), device) for shape in SHAPES] for device in CPUS[:3]]
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
    monkeypatch.setattr(arrays, "SPELL_SECONDS", spell)
    calls = []
    x = mx.np.zeros((10,))

    def action():
        calls.append(x.asnumpy().tolist())
        onp.testing.assert_array_equal(x.asnumpy(), len(calls) - 1)
        x.__iadd__(1)

    seconds_in_turn({"": lambda: action})
    assert len(calls) == 2 + repeats


def test_syncs_take_turns_and_each_runs_for_a_while_before_its_spell_counts(monkeypatch):
    """The first calls of each visit are slow, as if the threads were still where another sync had left them. And no
    sync has always the same before it."""
    now, order = [0.0], []
    monkeypatch.setattr(arrays.time, "perf_counter", lambda: now[0])

    def taking(name, seconds):
        def sync():
            order.append(name)
            visit = len(list(itertools.takewhile(name.__eq__, reversed(order))))
            now[0] += seconds * (1 if visit > 2 else 1.5)

        return sync

    times = {**dict.fromkeys("abcdefgh", 0.002), "quick": 0.001, "long": 1.0}
    found = seconds_in_turn({name: partial(taking, name, own) for name, own in times.items()})
    assert found == pytest.approx({**times, "long": 1.5})
    assert order.count("long") == 2  # warmed up and timed once
    visits = [(name, len(list(own))) for name, own in itertools.groupby(order[20:])]
    assert sum(length for _, length in visits) == TURNS * (1 + LEAD) * (8 * 4 + 8)
    names = [name for name, _ in visits]
    before = Counter(name for _, name in set(zip(names, names[1:])))
    assert min(before[name] for name in "abcdefgh") >= 2


def test_every_call_is_waited_for(virtual):
    x = mx.np.ones(1)
    arrays.npx.waitall()
    assert arrays._timed(lambda: x + 1, 3) == 2


def test_the_machine_is_measured_once_and_auto_chooses_by_that(monkeypatch):
    asked, given, machine, right = [], [], CPU.with_cores(4), allreduce._sync
    monkeypatch.setattr(allreduce, "calibrated", lambda devices: asked.append(devices) or machine)
    monkeypatch.setattr(allreduce, "_sync", lambda *call: given.append(call[2]) or right(*call))
    for cached in (allreduce._cases, allreduce._times):
        monkeypatch.setattr(allreduce, cached.__name__, lru_cache(maxsize=None)(cached.__wrapped__))
    s = little(find("allreduce"), devices=[1, 2, 3], kind="cpu", sizes=[4])
    cases = {case.label: case for case in allreduce.cases(s)}
    labels = ("2 arrays of 4 bytes, auto", "3 arrays of 4 bytes, ring", "1 arrays of 4 bytes, ring")
    auto, ring, alone = [work.round()[1] for work in [allreduce.set_up(cases[label], s) for label in labels]]
    assert set(asked) == {tuple(CPUS[:2])}
    assert given == [machine] * 3
    assert allreduce.NAMES[auto["choice"]] == auto["chosen"]
    assert allreduce.NAMES[auto["default_choice"]] == choose(CPUS[:2], [1], 4)
    assert ring == {"chosen": "ring", "predicted_ms": predict(plan("ring", 3, [1]), 4, machine) * 1e3}
    assert alone == {"chosen": "ring"}  # one device is not measured against a model


def test_a_link_is_measured_in_its_direction_with_messages_of_several_sizes(monkeypatch):
    made, pairs = [], [(mx.cpu(1), mx.cpu(0))]
    monkeypatch.setattr(copies, "Copies", lambda *given: made.append(given) or SimpleNamespace(seconds=lambda: 1e-3))
    copies.measured_link(*pairs[0], 1 << 22, seed=3)
    assert made == [(pairs, nbytes, 3) for nbytes in (4, 1 << 16, 1 << 18, 1 << 20, 1 << 22)]


def test_a_prediction_is_by_the_devices_that_have_gradients_and_a_round_whose_sums_are_wrong_fails(monkeypatch):
    s = little(find("parameter-server"), kind="cpu")
    server, *_ = parameter_server.cases(s)
    asked = []
    monkeypatch.setattr(parameter_server, "calibrated", lambda devices: asked.append(devices) or CPU)
    monkeypatch.setattr(parameter_server, "summed", lambda *_: (1.0, iter([([1, 2, 3], [1, 5, 6], 0.0)])))
    with pytest.raises(MxdpError, match="2 of 3 numbers of the sums that were timed are wrong"):
        parameter_server.set_up(server, s).round()
    assert asked == [tuple(CPUS)]
