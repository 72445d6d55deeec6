"""Reads the drawings in docstrings and compares them with the plans."""

import re

from mxdp.plans.show.contents import contents, sends, written

ROW = re.compile(r"^\s*(start|step \d+)\s+(.*)$", re.MULTILINE)
SEND = re.compile(r"\d+ (?:-\w->|->|<->) \d+|\d+ reads \w\d+")


def drawing(docstring):
    """Of each line of a drawing: its label, the contents of all devices, the sends, and the words after them."""
    rows = []
    for label, rest in ROW.findall(docstring):
        held, *words = SEND.split(rest)
        rows.append((label, held.split(), SEND.findall(rest), "".join(words)))
    return rows


def check_drawing(docstring, schedule):
    """Check that every row of the drawing is what the plan does, and that no row is missing."""
    rows = drawing(docstring)
    if rows[0][0] == "start":
        after = contents(schedule)
        assert [held for _, held, *_ in rows] == [
            [written(schedule, chunk, parts) for (_, chunk), parts in now.items()] for now in after
        ]
        del rows[0]
    assert [label for label, *_ in rows] == [f"step {number}" for number in range(1, len(schedule.steps) + 1)]
    for (*_, drawn, words), step in zip(rows, schedule.steps):
        planned = sends(step, schedule.chunks)
        more = re.search(r"and (\d+) more", words)
        assert drawn == planned[: len(drawn)]
        assert len(planned) - len(drawn) == (int(more.group(1)) if more else 0)
        for action in ("add", "copy"):
            if re.search(rf"\b{action}\b", words):
                assert {send.action for send in step} == {action}
