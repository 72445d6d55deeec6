"""Reads the drawings in docstrings and compares them with the plans; checks that a plan is an all-reduce."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from mxdp.plans.show.contents import contents, sends, written

ROW = re.compile(r"^\s*(start|step \d+)\s+(.*)$", re.MULTILINE)
SEND = re.compile(r"\d+ (?:-\w->|->|<->) \d+|\d+ reads \w\d+")


@dataclass
class Row:
    """A line of a drawing: ``held``: the contents of all devices; ``sends``; ``words`` after them."""

    label: str
    held: list
    sends: list
    words: str


def drawing(docstring):
    rows = []
    for label, rest in ROW.findall(docstring):
        held, *words = SEND.split(rest)
        rows.append(Row(label, held.split(), SEND.findall(rest), "".join(words)))
    return rows


def check_drawing(docstring, schedule):
    """Check that every row of the drawing is what the plan does, and that no row is missing."""
    rows = drawing(docstring)
    if rows[0].label == "start":
        assert [row.held for row in rows] == [
            [written(schedule, chunk, parts) for (_, chunk), parts in held.items()] for held in contents(schedule)
        ]
        assert rows.pop(0).sends == []
    assert [row.label for row in rows] == [f"step {number}" for number in range(1, len(schedule.steps) + 1)]
    for row, step in zip(rows, schedule.steps):
        planned = sends(step, schedule.chunks)
        more = re.search(r"and (\d+) more", row.words)
        assert row.sends == planned[: len(row.sends)]
        assert len(planned) - len(row.sends) == (int(more.group(1)) if more else 0)
        for action in ("add", "copy"):
            if re.search(rf"\b{action}\b", row.words):
                assert {send.action for send in step} == {action}


def is_allreduce(schedule):
    """Does every device end with each device's part of each chunk, exactly once?"""
    complete = tuple(range(schedule.devices))
    return all(parts == complete for parts in contents(schedule)[-1].values())


def with_step(schedule, number, step):
    """The plan with another step at this place; without it if ``step`` is ``()``."""
    steps = [*schedule.steps[:number], step, *schedule.steps[number + 1 :]]
    return replace(schedule, steps=tuple(filter(None, steps)))
