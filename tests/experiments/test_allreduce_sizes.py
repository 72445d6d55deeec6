from __future__ import annotations

from functools import lru_cache

import pytest
from littles import little

from mxdp.backend import mx
from mxdp.collectives import AllReduce
from mxdp.collectives.tuning import choose
from mxdp.experiments.allreduce import allreduce
from mxdp.experiments.allreduce.allreduce import NAMES
from mxdp.experiments.allreduce.arrays import STORES
from mxdp.experiments.lab import Number, Row, Told
from mxdp.experiments.lab.module import find
from mxdp.experiments.oracle import count
from mxdp.plans.collective.algorithms import ALGORITHMS, AUTO, plan
from mxdp.plans.cost.machine import CPU
from mxdp.plans.cost.simulate import predict

S = little(find("allreduce"), devices=[2, 3], kind="cpu", sizes=[4, 1 << 20])
CASES = {case.label: case for case in allreduce.cases(S)}


def test_the_oracle_catches_a_device_that_is_left_out(monkeypatch):
    class Fewer(AllReduce):
        def __init__(self, data, *more, **named):
            super().__init__(data[:-1], *more, **named)

    monkeypatch.setattr(allreduce, "AllReduce", Fewer)
    assert count(allreduce.oracle(CASES["3 arrays of 1 MiB, ring"], S)) == (3 << 18, 3 << 18)


def test_the_machine_is_measured_once_and_auto_chooses_by_that(monkeypatch):
    asked, given, machine, right = [], [], CPU.with_cores(4), allreduce._sync
    monkeypatch.setattr(allreduce, "calibrated", lambda devices: asked.append(devices) or machine)
    monkeypatch.setattr(allreduce, "_sync", lambda *call: given.append(call[2]) or right(*call))
    for cached in (allreduce._cases, allreduce._times):
        monkeypatch.setattr(allreduce, cached.__name__, lru_cache(maxsize=None)(cached.__wrapped__))
    labels = ("2 arrays of 4 bytes, auto", "3 arrays of 1 MiB, ring", "3 arrays of 4 bytes, mxnet-local")
    auto, ring, store = [work.round()[1] for work in [allreduce.set_up(CASES[label], S) for label in labels]]
    assert set(asked) == {(mx.cpu(0), mx.cpu(1))}
    assert given == [machine] * 3
    assert NAMES[auto["choice"]] == auto["chosen"]
    assert NAMES[auto["default_choice"]] == choose([mx.cpu(0), mx.cpu(1)], [1], 4)
    assert ring["chosen"] == "ring"
    for row, n, elements in ((auto, 2, 1), (ring, 3, 1 << 18)):
        seconds = predict(plan(row["chosen"], n, [elements]), 4 * elements, machine)
        assert row["predicted_ms"] == seconds * 1e3
    assert store == {}


def test_one_device_is_not_measured_against_a_model(monkeypatch):
    monkeypatch.setattr(allreduce, "calibrated", lambda devices: CPU)
    s = little(find("allreduce"), devices=[1, 2], sizes=[4])
    ring = next(case for case in allreduce.cases(s) if case.algorithm == "ring")
    assert allreduce.set_up(ring, s).round()[1] == {"chosen": "ring"}


def told(times, choice, default=None):
    """What is told of these times of algorithms for 1 MiB on two devices, in 12 processes, where ``auto`` chose
    ``choice[k % len(choice)]``; and what its choices take over each other algorithm. Predictions are right."""
    rows = []
    for name, seconds in times.items():
        known = {"algorithm": name, "devices": 2, "bytes": 1 << 20, "oracle": {"checked": 1, "wrong": 0}}
        one = Row(f"2 x 1 MiB, {name}", False, {**known, "seconds": Number(seconds)})
        rows.append(one)
        if name not in STORES:
            one.predicted_ms = Number([1e3 * value for value in seconds])
        if name == AUTO:
            one.choice, one.default_choice = (
                Number([NAMES.index(names[k % len(names)]) for k in range(len(seconds))])
                for names in (choice, default or choice)
            )
            one.chosen = choice[-1]
    found = Told(rows)
    allreduce.tell(found, S)
    return found, allreduce._tell_choices(found, found.find(algorithm=AUTO), "choice")


def times(**changes):
    seconds = {**dict.fromkeys(ALGORITHMS, 2.0), AUTO: 0.5, **dict.fromkeys(STORES, 1.0), "ring": 0.5, **changes}
    return {name: [one] * 12 if isinstance(one, float) else one * 6 for name, one in seconds.items()}


@pytest.mark.parametrize(
    ("changes", "choice", "default", "said"),
    [
        ({}, "ring", "ring", ["2.00 times as fast", "takes 0.25 times", "measures; with mxdp's own"]),
        ({}, "ring", "tree", ["2.00 times as fast", "an AMD EPYC, 4.00 times as long"]),
        ({AUTO: 2.0}, "tree", "ring", ["2.00 times as fast", "takes 4.00 times as long"]),
        ({"ring": 4.0, AUTO: 4.0}, "ring", "ring", ["takes 2.00 times as long as MXNet's"]),
        ({"direct": [0.4, 0.48]}, "ring", "ring", ["takes 1.15 (1.04, 1.25) times as long"]),
    ],
)
def test_each_choice_is_compared_with_all_others_and_the_worst_is_said(changes, choice, default, said):
    found, _ = told(times(**changes), [choice], [default])
    for text in said:
        assert text in f"{found.sentence} {found.explanation}"
    assert "off by a factor of 1.00 on 2 devices" in found.explanation


def test_each_process_has_its_own_choice():
    _, choices = told(times(direct=1.0, **{AUTO: [0.5, 1.0]}), ["ring", "direct"])
    over = {number.label.rpartition(" ")[2]: number.values for number in choices}
    assert over["ring"] == [1.0, 2.0] * 6
    assert over["direct"] == [0.5, 1.0] * 6


def test_algorithms_that_do_the_same_are_one():
    """One array of many elements on two devices: naive, sharded and tree are one plan, of which auto chose one. So its
    own row counts among them, and a right choice isn't judged by how much measurements of it differ."""
    _, choices = told(times(naive=0.1, sharded=0.3, tree=0.2, **{AUTO: 0.4}), ["tree"])
    assert {number.median for number in choices} == {0.25 / 2, 0.25 / 0.5}


def test_elements_that_are_missing_are_no_work():
    """With one element, a plan of two chunks does what a plan of one does."""
    few, more = (
        [allreduce._tell_operations(name, 2, n) for name in ("direct", "naive", "shared-memory")] for n in (1, 2)
    )
    assert few[0] == few[1] != few[2]
    assert len({*more}) == 3
