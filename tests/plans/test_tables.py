"""The printed tables. The terminal has 80 columns by default."""

from __future__ import annotations

import re

import pytest
from drawn import ROW, SEND

from mxdp.plans.__main__ import NAMES, _with_defaults
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.collective.one_hop import sharded
from mxdp.plans.collective.rings import ring
from mxdp.plans.collective.schedule import ADD, COPY, Schedule, Send
from mxdp.plans.show.contents import contents, written
from mxdp.plans.show.tables import print_plan, sends

RING = """\
ring: 3 devices, 3 chunks, 4 steps
Each device sends 1.33 vectors.

step   what  sends                           device 0   device 1   device 2
start                                        a0 b0  c0  a1 b1 c1   a2  b2 c2
1      add   0 -c-> 1   1 -a-> 2   2 -b-> 0  a0 b02 c0  a1 b1 c01  a12 b2 c2
2      add   0 -b-> 1   1 -c-> 2   2 -a-> 0  A  b02 c0  a1 B  c01  a12 b2 C
3      copy  0 -a-> 1   1 -b-> 2   2 -c-> 0  A  b02 C   A  B  c01  a12 B  C
4      copy  0 -c-> 1   1 -a-> 2   2 -b-> 0  A  B   C   A  B  C    A   B  C

a0: device 0's chunk a; a01: devices 0 and 1 added up; A: all devices added up.
"""

SHARDED = """\
sharded: 3 devices, 5 chunks (whole arrays, elements: 5, 4, 3, 3, 1), 2 steps
Devices 0 to 2 send 1.31, 1.31, 1.38 vectors.

step  what  sends
1     add   1 -a-> 0   2 -b-> 1   0 -c-> 2   0 -d-> 2   2 -e-> 1
            2 -a-> 0   0 -b-> 1   1 -c-> 2   1 -d-> 2   0 -e-> 1
2     copy  0 -a-> 1   1 -b-> 2   2 -c-> 0   2 -d-> 0   1 -e-> 2
            0 -a-> 2   1 -b-> 0   2 -c-> 1   2 -d-> 1   1 -e-> 0

device   0                1                2
start    a0 b0 c0 d0 e0   a1 b1 c1 d1 e1   a2 b2 c2 d2 e2
step 1   A  b0 c0 d0 e0   a1 B  c1 d1 E    a2 b2 C  D  e2
step 2   A  B  C  D  E    A  B  C  D  E    A  B  C  D  E

a0: device 0's chunk a; a01: devices 0 and 1 added up; A: all devices added up.
"""


@pytest.fixture
def printed(monkeypatch, capsys):
    def run(schedule, columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        print_plan(schedule)
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= columns
        return "".join(line.rstrip() + "\n" for line in lines)

    return run


def test_one_table_where_there_is_room(printed):
    assert printed(ring(3)) == RING


def test_else_two(printed):
    assert printed(sharded(3, [5, 4, 3, 3, 1])) == SHARDED
    assert "device 0" in printed(sharded(3, [5, 4, 3, 3, 1]), columns=170)
    assert "device 0 " not in printed(ring(3), columns=75)


def cells(text):
    """For both kinds of table: the contents of all devices, sorted, row by row."""
    if "device 0 " in text:
        start = text.split("\n\n")[1].index("device 0")
        rows = [line[start:] for line in text.split("\n\n")[1].splitlines()[1:]]
    else:
        rows = re.split(r"^(?:start|step \d+) ", text.split("\n\n")[2], flags=re.MULTILINE)[1:]
    return [sorted(row.split()) for row in rows]


def expected_cells(schedule):
    after = contents(schedule)
    return [sorted(text for chunks in held for text in written(chunks, schedule.devices)) for held in after]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("devices", range(2, 5))
def test_up_to_four_devices_all_is_shown_in_80_columns(name, devices, printed):
    schedule = _with_defaults(name, devices)
    text = printed(schedule)
    assert "…" not in text
    assert SEND.findall(text) == [send for step in schedule.steps for send in sends(step, schedule.chunks)]
    assert cells(text) == expected_cells(schedule)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("devices", range(5, 9))
def test_up_to_eight_it_says_how_to_see_what_does_not_fit(name, devices, printed):
    schedule = _with_defaults(name, devices)
    text = printed(schedule)
    assert "…" not in text
    assert SEND.findall(text) == [send for step in schedule.steps for send in sends(step, schedule.chunks)]
    message = r"needs (\d+) columns, and the terminal has 80: make it wider, or set COLUMNS=\1\."
    needed = re.search(message, " ".join(text.split()))
    if needed:
        columns = int(needed.group(1))
        assert "COLUMNS=" in printed(schedule, columns - 1)
        text = printed(schedule, columns)
        assert "COLUMNS=" not in text
    assert cells(text) == expected_cells(schedule)


def test_more_devices_than_are_drawn(printed):
    text = printed(ring(9))
    assert text.endswith("\nWhat each device holds is shown for up to 8 devices.\n")
    assert len(SEND.findall(text)) == 16 * 9
    assert not ROW.search(text)


def test_one_device(printed):
    assert (
        printed(ring(1))
        == "ring: 1 device, 1 chunk, 0 steps\nEach device sends 0 vectors.\n\nThere is nothing to send.\n"
    )


def test_sends_fold_where_a_turn_ends(printed):
    """Six would have room in a line."""
    lines = printed(plan("direct", 4)).splitlines()[4:7]
    assert [len(SEND.findall(line)) for line in lines] == [4, 4, 4]


@pytest.mark.parametrize(
    ("schedule", "legend"),
    [
        (plan("tree", 3), "0+1: the vectors of devices 0 and 1 added up."),
        (plan("ring", 2), "a0: device 0's chunk a; A: all devices added up."),
        (_with_defaults("all-gather", 3), "a0: device 0's chunk a."),
        (_with_defaults("broadcast", 3), "0: device 0's vector."),
    ],
)
def test_the_last_line_says_how_to_read_it(schedule, legend, printed):
    assert printed(schedule).splitlines()[-1] == legend


def test_each_action_of_a_step_is_named_once(printed):
    step = (Send(1, 0, 0, ADD), Send(2, 0, 0, ADD), Send(0, 1, 0, COPY))
    assert "\n1       add, copy   1 -> 0   2 -> 0   0 -> 1   0+1+2 " in printed(Schedule("mixed", 3, 1, (step,)))
