"""``mxdp/plans/__main__.py``. (Test files need names of their own: there is a test_main.py in tests/experiments.)"""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from mxdp.plans.__main__ import NAMES, OPTIONS, collective, main
from mxdp.plans.collective import trees
from mxdp.plans.collective.algorithms import ALGORITHMS, plan
from mxdp.plans.layers.fully_sharded import fully_sharded
from mxdp.plans.layers.halo import exchange
from mxdp.plans.layers.halo_axis import Window
from mxdp.plans.pipeline import one_f_one_b
from mxdp.plans.show.contents import vectors_sent
from mxdp.plans.show.text import as_text


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
