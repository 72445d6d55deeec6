"""Plans as text, and ``python -m mxdp.plans``. The terminal has 80 columns by default."""

import json
import re
from dataclasses import asdict

import pytest
from drawn import ROW, SEND
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.errors import plural
from mxdp.plans import pipeline as pipelines
from mxdp.plans.__main__ import NAMES, OPTIONS, collective, main
from mxdp.plans.collective import trees
from mxdp.plans.collective.algorithms import ALGORITHMS, plan
from mxdp.plans.collective.one_hop import sharded
from mxdp.plans.collective.rings import ring
from mxdp.plans.layers.fully_sharded import fully_sharded
from mxdp.plans.layers.halo import exchange
from mxdp.plans.layers.halo_axis import Window
from mxdp.plans.pipeline import gpipe, one_f_one_b
from mxdp.plans.show.contents import contents, sends, vectors_sent, written
from mxdp.plans.show.text import as_text, list_as_text, lives, staircase


def text_of(shown, columns=80):
    text = as_text(shown, columns)
    assert max(map(len, text.splitlines())) <= columns
    return text


def test_one_table_where_there_is_room_else_two():
    text = text_of(ring(3))
    assert text.startswith(
        "ring: 3 devices, 3 chunks, 4 steps\nEach device sends 1.33 vectors.\n\nstep   what  sends   "
    )
    assert text.endswith("\n\na0: device 0's chunk a; a01: devices 0 and 1 added up; A: all devices added up.")
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


@pytest.fixture
def run(monkeypatch, capsys):
    """The output of a call that succeeds."""
    monkeypatch.setenv("COLUMNS", "80")

    def call(line):
        assert main(line.split()) == 0
        output = capsys.readouterr()
        assert output.err == ""
        return output.out

    return call


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("ring", plan("ring", 4)),
        ("sharded 3", plan("sharded", 3, [1, 1, 1])),
        ("sharded 3 --sizes 5,4,3,3,1", plan("sharded", 3, [5, 4, 3, 3, 1])),
        ("broadcast 4 --source 3", trees.broadcast(4, 3)),
        ("1f1b 2 --micro-batches 3", one_f_one_b(2, 3)),
        ("fully-sharded", fully_sharded(3, 4, 3)),
        ("fully-sharded 2 --layers 5 --stage 0", fully_sharded(5, 2, 0)),
        ("tiles 2 --picture 9 --window 5", exchange(9, 9, (2, 1), Window(5, padding=2))),
    ],
)
def test_the_plan_that_is_asked_for(line, shown, run):
    assert json.loads(run(line + " --json")) == json.loads(json.dumps(asdict(shown)))
    assert run(line) == as_text(shown, 80) + "\n"


@pytest.mark.parametrize(("line", "devices"), [("", 4), ("--list 8", 8), ("--list 1", 1)])
def test_the_list_has_every_plan(line, devices, run):
    listed = json.loads(run(line + " --json"))
    assert listed["devices"] == devices
    assert [row["name"] for row in listed["plans"]] == NAMES
    assert {*NAMES} == {*ALGORITHMS, "all-gather", "broadcast", "reduce-scatter"}
    for row in listed["plans"]:
        schedule = collective(row["name"], devices)
        assert (row["steps"], row["sent"]) == (len(schedule.steps), max(vectors_sent(schedule)))
        assert row["what"].endswith(".")
        assert not set("`\n") & set(row["what"])


def of_options():
    """Every option with numbers just outside of what is allowed, and for another plan."""
    for name, option in OPTIONS.items():
        kind = "a whole" if option.allowed.step == 1 else "an odd"
        first, last = option.allowed[0], option.allowed[-1]
        for text in (first - 1, last + option.allowed.step, "x", ""):
            sentence = f"is {kind} number from {first} to {last}, not '{text}'"
            yield f"{option.plans[0]} 2 --{name}={text}", sentence
        yield f"{name}", f"no plan is called '{name}'"
        for other in ("ring", "the list of plans"):
            line = f"--{name}={last}" if " " in other else f"{other} --{name}={last}"
            yield line, f"--{name} is for {' and '.join(option.plans)} alone, not for {other}"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        *of_options(),
        ("rign", "no plan is called 'rign'; did you mean 'ring'?"),
        *((f"ring {text}", f"DEVICES is a whole number from 1 to 64, not '{text}'") for text in ("0", "65", "")),
        ("--list 65", "DEVICES is a whole number from 1 to 64, not '65'"),
        ("ring 4 --list", "--list shows all plans and 'ring' names one: give one of the two"),
        ("broadcast 4 --source 4", "there is no device 4 among 4: source is 0 to 3"),
        ("tiles 64 --picture 3", "use fewer"),
        ("--html", "--html makes a page of one plan: give its name"),
        ("ring 4 --json --html", "and no --json"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(line, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(line.split(" ")) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("mxdp: ")
    assert output.err.count("\n") == 1
    assert sentence in output.err
    assert not list(tmp_path.iterdir())
