"""A process of a measurement: fences around the clock, what of it counts, and what becomes of the others."""

import json
import math
import sys
import types
from functools import partial
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.experiments.lab import Skipped, Work, child, ranks

WRONG, UNCHECKED, RAISES, SKIPS, EXITS = "wrong", "unchecked", "raises", "skips", "exits"
DOING = {
    "oracle": "comparing with the serial run",
    "set_up": "setting up and warming up",
    "round": "measuring round",
    "record": "recording one more run",
}
ANSWERED = {"oracle": "oracle", "set_up": "ready", "round": "round", "record": "timeline"}


class Left(BaseException):
    """What stands in for the end of the process."""


class Asked(types.ModuleType):
    """A question of these ``cases``, each ``(what goes wrong, where, how often it goes well before, what a round
    returns)``; and its ``events``: what happened, in order."""

    def __init__(self, cases):
        super().__init__("asked")
        self.cases, self.events = cases, []

    def met(self, where, case):
        self.events.append((where, case.index))
        how, at, after, _ = self.cases[case.index]
        if where == at and self.events.count((where, case.index)) > after:
            if how == RAISES:
                raise ValueError("broken")
            if how == SKIPS:
                raise Skipped("buy one")
            if how == EXITS:
                sys.exit(3)

    def oracle(self, case, s):
        self.met("oracle", case)
        how = self.cases[case.index][0]
        if how != UNCHECKED:
            yield [1.0, 2.0, 3.0], [1.0, 5.0 if how == WRONG else 2.0, 3.0], 0.0

    def set_up(self, case, s):
        self.met("set_up", case)

        def one_round():
            self.met("round", case)
            return self.cases[case.index][3]

        def record():
            self.met("record", case)

        facts = dict(index=case.index, number=case.number, draw=case.draw, process=case.process, kind=s.kind)
        recorded = record if case.index % 2 else None
        return Work(one_round, ["a"], record=recorded, prepare=lambda: self.met("prepare", case), **facts)

    def answered(self, folder, size=1, **order):
        """What process 0 of ``size`` answers to this order."""
        cases = [dict(label=f"case {n}", processes=size, index=n) for n in range(len(self.cases))]
        folders = [str(folder / f"kept-{n}") for n in range(len(cases))]
        asked = dict(module="asked", settings={"kind": "cpu"}, number=5, draw=7, compare=True, rounds=1)
        asked = {**asked, "cases": cases, "folders": folders, **order}

        def happens(*event):
            self.events.append((event[0], None) if len(event) == 1 else event)
            return float(self.events.count(("clock", None)))

        stand_ins = dict(wait=lambda: happens("fence"), recorded=lambda do, devices: {"of": devices, "did": do()})
        with mock.patch.dict(sys.modules, asked=self), mock.patch.multiple(child, **stand_ins), mock.patch.object(
            child.time, "perf_counter", side_effect=partial(happens, "clock")
        ), mock.patch.object(
            ranks, "sharing", side_effect=lambda folder, *who: partial(happens, *who)
        ), mock.patch.object(child.os, "_exit", side_effect=Left):
            child.Child(asked, folder / "order.json").measure()
        return answers(folder)


def answers(folder):
    return [json.loads(line) for line in (folder / "answer-0").read_text().splitlines()]


def said(lines):
    """Of each answer the case, the kind, and what is known of it beforehand."""
    kinds = [(line["case"], *(set(line) - {"case"})) for line in lines]
    return [(case, kind, line[kind] if kind in ("doing", "round", "oracle") else None)
            for (case, kind), line in zip(kinds, lines)]  # fmt: skip


CASES = st.lists(
    st.tuples(
        st.sampled_from(["", WRONG, UNCHECKED, RAISES, SKIPS, EXITS]),
        st.sampled_from(list(DOING)),
        st.integers(0, 2),
        st.sampled_from([None, 0, 0.5, (2.0, {"loss": 3.0}), math.nan, math.inf, -1.0, (math.nan, {})]),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60)
@given(CASES, st.integers(0, 3), st.booleans())
def test_cases_take_turns_and_one_that_fails_is_left_out(tmp_path_factory, cases, rounds, compare):
    """The answers are those of a model of the process."""
    expected = []

    def does(index, where, count=1):
        how, at, after, returned = cases[index]
        seconds, more = returned if isinstance(returned, tuple) else (1.0 if returned is None else returned, {})
        raises = how in (RAISES, SKIPS, EXITS) and where == at and count > after
        right = {"oracle": how not in (WRONG, UNCHECKED), "round": 0 <= seconds < math.inf}.get(where, True)
        numbers = {"checked": 3 * (how != UNCHECKED), "wrong": int(how == WRONG)}
        known = {"oracle": numbers, "round": {**more, "seconds": seconds}}.get(where)
        expected.append((index, "doing", DOING[where] + f" {count}" * (where == "round")))
        if not raises and (right or where == "oracle"):
            expected.append((index, ANSWERED[where], known))
        if raises or not right:
            expected.append((index, "skipped" if raises and how == SKIPS else "failed", None))
        return right and not raises

    left = [n for n in range(len(cases)) if (not compare or does(n, "oracle")) and does(n, "set_up")]
    for count in range(1, rounds + 1):
        left = [index for index in left if does(index, "round", count)]
    for index in left:
        if compare and index % 2:
            does(index, "record")
    # All are compared and set up one after the other, so a case's answers stand together until the rounds.
    lines = Asked(cases).answered(tmp_path_factory.mktemp("asked"), rounds=rounds, compare=compare)
    assert said(lines) == expected
    for line in lines:
        if "ready" in line:
            facts = dict(index=line["case"], number=5, draw=7, process=0, kind="cpu")
            assert (line["ready"]["devices"], line["ready"]["facts"]) == (["a"], facts)
        assert line.get("timeline", {"of": ["a"], "did": None}) == {"of": ["a"], "did": None}
        assert line.get("skipped", "buy one") == "buy one"


def test_what_happens_around_a_round_and_a_recording(tmp_path):
    asked = Asked([("", "", 0, None)] * 2)
    asked.answered(tmp_path, size=2)
    turns = []
    for index in (0, 1):
        turns += [("fence", None), (0, 2), ("clock", None), ("round", index), ("fence", None)]
        turns += [("clock", None)]
    begun = [(where, index) for index in (0, 1) for where in ("oracle", "set_up")]
    assert asked.events == [*begun, *turns, ("prepare", 1), ("record", 1)]
    assert (tmp_path / "kept-1").is_dir()


def test_of_several_processes_one_that_fails_ends_at_once(tmp_path):
    """At a usual end it might wait for the others, whom its end ends."""
    asked = Asked([(RAISES, "round", 0, None)])
    with pytest.raises(Left):
        asked.answered(tmp_path, size=2)
    assert asked.events[-1] == ("round", 0)
    assert answers(tmp_path)[-1]["failed"][1].startswith("process 0 of 2: ValueError: broken (while ")
