"""Plans as text. The terminal has 80 columns by default."""

from __future__ import annotations

import re

import pytest
from drawn import ROW, SEND
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.errors import plural
from mxdp.plans import pipeline as pipelines
from mxdp.plans.__main__ import NAMES, collective
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.collective.one_hop import sharded
from mxdp.plans.collective.rings import ring
from mxdp.plans.collective.schedule import ADD, COPY, Schedule, Send
from mxdp.plans.layers.fully_sharded import fully_sharded
from mxdp.plans.pipeline import gpipe, one_f_one_b
from mxdp.plans.show.contents import contents, sends, written
from mxdp.plans.show.text import as_text, list_as_text, lives, staircase

RING = """\
ring: 3 devices, 3 chunks, 4 steps
Each device sends 1.33 vectors.

step   what  sends                           device 0   device 1   device 2
start                                        a0 b0  c0  a1 b1 c1   a2  b2 c2
1      add   0 -c-> 1   1 -a-> 2   2 -b-> 0  a0 b02 c0  a1 b1 c01  a12 b2 c2
2      add   0 -b-> 1   1 -c-> 2   2 -a-> 0  A  b02 c0  a1 B  c01  a12 b2 C
3      copy  0 -a-> 1   1 -b-> 2   2 -c-> 0  A  b02 C   A  B  c01  a12 B  C
4      copy  0 -c-> 1   1 -a-> 2   2 -b-> 0  A  B   C   A  B  C    A   B  C

a0: device 0's chunk a; a01: devices 0 and 1 added up; A: all devices added up."""


def text_of(shown, columns=80):
    text = as_text(shown, columns)
    assert max(map(len, text.splitlines())) <= columns
    return text


def test_one_table_where_there_is_room_else_two():
    assert text_of(ring(3)) == RING
    assert "device 0 " not in text_of(ring(3), columns=75)
    chunks = "5 chunks (whole arrays, elements: 5, 4, 3, 3, 1), 2 steps"
    numbers = "Devices 0 to 2 send 1.31, 1.31, 1.38 vectors."
    assert text_of(sharded(3, [5, 4, 3, 3, 1])).startswith(f"sharded: 3 devices, {chunks}\n{numbers}\n\nstep  what")
    assert "device 0" in text_of(sharded(3, [5, 4, 3, 3, 1]), columns=170)


def cells(text):
    """For both kinds of table: the contents of all devices, sorted, row by row."""
    if "device 0 " in text:
        start = text.split("\n\n")[1].index("device 0")
        rows = [line[start:] for line in text.split("\n\n")[1].splitlines()[1:]]
    else:
        rows = re.split(r"^(?:start|step \d+) ", text.split("\n\n")[2], flags=re.MULTILINE)[1:]
    return [sorted(row.split()) for row in rows]


@settings(max_examples=40)
@given(name=st.sampled_from(NAMES), devices=st.integers(2, 8))
def test_all_is_shown_or_it_says_how_to_see_what_does_not_fit(name, devices):
    schedule = collective(name, devices)
    text = text_of(schedule)
    assert SEND.findall(text) == [send for step in schedule.steps for send in sends(step, schedule.chunks)]
    message = r"needs (\d+) columns, and the terminal has 80: make it wider, or set COLUMNS=\1\."
    needed = re.search(message, " ".join(text.split()))
    if needed:
        assert devices > 4
        columns = int(needed.group(1))
        assert "COLUMNS=" in text_of(schedule, columns - 1)
        text = text_of(schedule, columns)
        assert "COLUMNS=" not in text
    after = contents(schedule)
    assert cells(text) == [
        sorted(written(schedule, chunk, parts) for (_, chunk), parts in now.items()) for now in after
    ]


@settings(max_examples=50)
@given(st.integers(20, 120), st.integers(1, 8))
def test_the_list_has_each_plan_with_its_sentence_and_20_columns_for_it(width, devices):
    rows = [{"name": name, "steps": 10, "sent": 1.25, "what": f"{name} sends all it has. " * 3} for name in NAMES]
    heading, table, below = list_as_text(rows, devices, width).split("\n\n")
    assert " ".join(heading.split()).startswith(plural(devices, "device"))
    assert f"python -m mxdp.plans NAME {devices}" in " ".join(below.split())
    assert max(map(len, table.splitlines())) <= max(width, len("bidirectional-ring  steps  sent  ") + 20)
    words = [word for row in rows for word in (row["name"], "10", "1.25", *row["what"].split())]
    assert table.split()[-len(words) :] == words


def test_more_devices_than_are_drawn_and_one():
    text = text_of(ring(9))
    assert text.endswith("\nWhat each device holds is shown for up to 8 devices.")
    assert len(SEND.findall(text)) == 16 * 9
    assert not ROW.search(text)
    assert text_of(ring(1)) == (
        "ring: 1 device, 1 chunk, 0 steps\nEach device sends 0 vectors.\n\nThere is nothing to send."
    )


@pytest.mark.parametrize(
    ("schedule", "legend"),
    [
        (plan("tree", 3), "0+1: the vectors of devices 0 and 1 added up."),
        (plan("ring", 2), "a0: device 0's chunk a; A: all devices added up."),
        (collective("all-gather", 3), "a0: device 0's chunk a."),
        (collective("broadcast", 3), "0: device 0's vector."),
    ],
)
def test_the_last_line_says_how_to_read_it(schedule, legend):
    assert text_of(schedule).splitlines()[-1] == legend


def test_each_action_of_a_step_is_named_once():
    step = (Send(1, 0, 0, ADD), Send(2, 0, 0, ADD), Send(0, 1, 0, COPY))
    assert "\n1       add, copy   1 -> 0   2 -> 0   0 -> 1   0+1+2 " in text_of(Schedule("mixed", 3, 1, (step,)))


@pytest.mark.parametrize(
    ("docstring", "shown"), [(pipelines.__doc__, gpipe(3, 4)), (one_f_one_b.__doc__, one_f_one_b(3, 4))]
)
def test_a_staircase_is_what_is_drawn_in_the_docstring(docstring, shown):
    drawn = [line.strip() for line in docstring.splitlines() if re.match(r"\s+(cycle|stage \d)\s", line)]
    assert staircase(shown)[0].splitlines() == drawn
    assert text_of(shown).count("\n\n") == 2


@pytest.mark.parametrize(("drawn", "plan"), [(staircase, gpipe(3, 12)), (lives, fully_sharded(3, 2))])
@given(columns=st.integers(20, 90))
def test_a_narrow_terminal_gets_a_drawing_in_pieces(drawn, plan, columns):
    (whole,), pieces = drawn(plan, 500), drawn(plan, columns)
    assert "\n\n".join(pieces) in text_of(plan, columns)
    for row, line in enumerate(whole.splitlines()):
        cut = [piece.splitlines()[row] for piece in pieces]
        assert [text for part in cut for text in part[10:].split()] == line[10:].split()
