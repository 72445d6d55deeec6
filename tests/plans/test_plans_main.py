"""``mxdp/plans/__main__.py``. (Test files need names of their own: there is a test_main.py in tests/experiments.)"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict

import pytest

from mxdp.plans.__main__ import NAMES, main
from mxdp.plans.collective import trees
from mxdp.plans.collective.algorithms import ALGORITHMS, plan
from mxdp.plans.collective.rings import all_gather, reduce_scatter
from mxdp.plans.layers.fully_sharded import fully_sharded
from mxdp.plans.layers.halo import exchange
from mxdp.plans.layers.halo_axis import Window
from mxdp.plans.pipeline import gpipe, one_f_one_b
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
        ("shared-memory 3", plan("shared-memory", 3)),
        ("sharded 3", plan("sharded", 3, [1, 1, 1])),
        ("sharded 3 --sizes 5,4,3,3,1", plan("sharded", 3, [5, 4, 3, 3, 1])),
        ("reduce-scatter 5", reduce_scatter(5)),
        ("all-gather 64", all_gather(64)),
        ("broadcast 4 --source 3", trees.broadcast(4, 3)),
        ("broadcast 4", trees.broadcast(4)),
        ("naive 1", plan("naive", 1)),
        ("gpipe", gpipe(4, 4)),
        ("1f1b 2 --micro-batches 3", one_f_one_b(2, 3)),
        ("fully-sharded", fully_sharded(3, 4, 3)),
        ("fully-sharded 2 --layers 5 --stage 0", fully_sharded(5, 2, 0)),
        ("tiles 6", exchange(8, 8, (3, 2), Window(3, padding=1))),
        ("tiles 2 --picture 9 --window 5", exchange(9, 9, (2, 1), Window(5, padding=2))),
        ("tiles --picture 2", exchange(2, 2, (2, 2), Window(3, padding=1))),
    ],
)
def test_the_plan_that_is_asked_for(line, shown, run):
    assert json.loads(run(line + " --json")) == json.loads(json.dumps(asdict(shown)))
    assert run(line) == as_text(shown, 80) + "\n"


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
    assert sent["sharded"] == sent["ring"] == max(vectors_sent(plan("ring", devices)))
    assert sent["naive"] == devices - 1


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("rign", "no plan is called 'rign'; did you mean 'ring'?"),
        ("ring 0", "DEVICES is a whole number from 1 to 64, not '0'"),
        ("ring 65", "DEVICES is a whole number from 1 to 64, not '65'"),
        ("--list 65", "DEVICES is a whole number from 1 to 64, not '65'"),
        ("ring 4 --list", "--list shows all plans and 'ring' names one: give one of the two"),
        ("ring --sizes 1,2", "--sizes is for sharded alone, not for ring"),
        ("--sizes 1,2", "--sizes is for sharded alone, not for the list of plans"),
        ("tree --source 1", "--source is for broadcast alone, not for tree"),
        ("sharded --sizes 5,x", "as in 5,4,3,3,1: each is a whole number from 1 to 1000000000, not 'x'"),
        ("sharded --sizes 5,0", "each is a whole number from 1 to 1000000000, not '0'"),
        ("broadcast 4 --source 4", "there is no device 4 among 4: source is 0 to 3"),
        ("broadcast 4 --source=-1", "--source is a whole number from 0 to 63, not '-1'"),
        ("ring ", "DEVICES is a whole number from 1 to 64, not ''"),
        ("1f1b 2 --micro-batches 0", "--micro-batches is a whole number from 1 to 256, not '0'"),
        ("1f1b 2 --micro-batches", "expected one argument"),
        ("ring --micro-batches 2", "--micro-batches is for 1f1b and gpipe alone, not for ring"),
        ("ring 4 --picture 3", "--picture is for tiles alone"),
        ("fully-sharded --stage 4", "--stage is a whole number from 0 to 3, not '4'"),
        ("fully-sharded 2 --layers 0", "--layers is a whole number from 1 to 64, not '0'"),
        ("ring --stage 1", "--stage is for fully-sharded alone, not for ring"),
        ("tiles --window 4", "--window is an odd number from 1 to 27, not '4'"),
        ("tiles --picture 99", "--picture is a whole number from 1 to 28"),
        ("tiles 64 --picture 3", "use fewer"),
        ("--html", "--html makes a page of one plan: give its name"),
        ("ring 4 --json --html", "and no --json"),
        ("ring 4 5", "unrecognized arguments: 5 (see --help)"),
        ("ring --jason", "unrecognized arguments: --jason (see --help)"),
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


def child(*arguments):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)


def test_the_exit_status_is_the_processs():
    well = child("-m", "mxdp.plans", "ring", "2", "--json")
    assert (well.returncode, json.loads(well.stdout)["name"], well.stderr) == (0, "ring", "")
    refused = child("-m", "mxdp.plans", "rign")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "Traceback" not in refused.stderr
