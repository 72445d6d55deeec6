"""``mxdp/plans/__main__.py``. (Test files need names of their own: there is a test_main.py in tests/experiments.)"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from mxdp.plans.__main__ import NAMES, main
from mxdp.plans.collective import trees
from mxdp.plans.collective.algorithms import ALGORITHMS, plan
from mxdp.plans.collective.rings import all_gather, reduce_scatter
from mxdp.plans.show.tables import headline, shares


@pytest.fixture
def run(monkeypatch, capsys):
    """The output of a call that succeeds."""
    monkeypatch.setenv("COLUMNS", "80")

    def call(line):
        assert main(line.split()) == 0
        said = capsys.readouterr()
        assert said.err == ""
        return said.out

    return call


def as_json(schedule):
    return {
        "name": schedule.name,
        "devices": schedule.devices,
        "chunks": schedule.chunks,
        "sizes": list(schedule.sizes),
        "steps": [
            [{"source": s.source, "target": s.target, "chunk": s.chunk, "action": s.action} for s in step]
            for step in schedule.steps
        ],
    }


@pytest.mark.parametrize(
    ("line", "schedule"),
    [
        ("ring", plan("ring", 4)),
        ("shared-memory 3", plan("shared-memory", 3)),
        ("sharded 3", plan("sharded", 3, [1, 1, 1])),
        ("sharded 3 --sizes 5,4,3,3,1", plan("sharded", 3, [5, 4, 3, 3, 1])),
        ("reduce-scatter 5", reduce_scatter(5)),
        ("all-gather 64", all_gather(64)),
        ("broadcast 4 --source 3", trees.broadcast(4, 3)),
        ("broadcast 4", trees.broadcast(4)),
        ("naive 1", plan("naive", 1)),
    ],
)
def test_the_plan_that_is_asked_for(line, schedule, run):
    assert json.loads(run(line + " --json")) == as_json(schedule)
    assert " ".join(run(line).split()).startswith(" ".join(headline(schedule).split()))


@pytest.mark.parametrize(("line", "devices"), [("", 4), ("--list", 4), ("--list 8", 8), ("--list 1", 1)])
def test_the_list_has_every_plan(line, devices, run):
    listed = json.loads(run(line + " --json"))
    assert listed["devices"] == devices
    assert (
        [row["name"] for row in listed["plans"]]
        == NAMES
        == sorted({*ALGORITHMS, "all-gather", "broadcast", "reduce-scatter"})
    )
    for row in listed["plans"]:
        schedule = json.loads(run(f"{row['name']} {devices} --json"))
        assert row["steps"] == len(schedule["steps"])
        assert row["what"].endswith(".")
        assert not set("`\n") & set(row["what"])
    sent = {row["name"]: row["sent"] for row in listed["plans"]}
    assert sent["sharded"] == sent["ring"] == max(shares(plan("ring", devices)))
    assert sent["naive"] == devices - 1


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("rign", "no plan is called 'rign'; did you mean 'ring'?"),
        ("reduce-scater", "did you mean 'reduce-scatter'?"),
        ("ring 0", "DEVICES is a whole number from 1 to 64, not '0'"),
        ("ring -3", "DEVICES is a whole number from 1 to 64, not '-3'"),
        ("ring 65", "DEVICES is a whole number from 1 to 64, not '65'"),
        ("ring two", "DEVICES is a whole number from 1 to 64, not 'two'"),
        ("--list 65", "DEVICES is a whole number from 1 to 64, not '65'"),
        ("ring 4 --list", "--list shows all plans and 'ring' names one: give one of the two"),
        ("ring --sizes 1,2", "--sizes is for sharded alone, not for ring"),
        ("--sizes 1,2", "--sizes is for sharded alone, not for the list of plans"),
        ("tree --source 1", "--source is for broadcast alone, not for tree"),
        ("sharded --sizes 5,x", "--sizes are whole numbers from 1 on with commas between, as in 5,4,3,3,1, not 'x'"),
        ("sharded --sizes 5,,1", "as in 5,4,3,3,1, not ''"),
        ("sharded --sizes 5,0", "as in 5,4,3,3,1, not '0'"),
        ("broadcast 4 --source 4", "--source is one of the 4 devices, a whole number from 0 to 3, not '4'"),
        ("broadcast 4 --source=-1", "a whole number from 0 to 3, not '-1'"),
        ("ring 4 5", "unrecognized arguments: 5 (see --help)"),
        ("ring --jason", "unrecognized arguments: --jason (see --help)"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(line, sentence, capsys):
    assert main(line.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("mxdp: ")
    assert said.err.count("\n") == 1
    assert sentence in said.err


def test_an_empty_number_is_not_the_default(capsys):
    assert main(["ring", ""]) == 2
    assert "not ''" in capsys.readouterr().err


def child(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)


def test_the_exit_status_is_the_processs():
    well = child("-m", "mxdp.plans", "ring", "2", "--json")
    assert (well.returncode, json.loads(well.stdout)["name"], well.stderr) == (0, "ring", "")
    refused = child("-m", "mxdp.plans", "rign")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "Traceback" not in refused.stderr
