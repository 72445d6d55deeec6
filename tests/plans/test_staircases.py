from __future__ import annotations

import json

import pytest

from mxdp.plans import pipeline as pipelines
from mxdp.plans.__main__ import main
from mxdp.plans.pipeline import gpipe, one_f_one_b
from mxdp.plans.show.staircases import headline, staircase


@pytest.fixture
def run(monkeypatch, capsys):
    """The output of a call that succeeds."""

    def call(line, columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(line.split()) == 0
        said = capsys.readouterr()
        assert said.err == ""
        return said.out

    return call


@pytest.mark.parametrize(
    ("docstring", "line"),
    [(pipelines.__doc__, "gpipe 3 --micro-batches 4"), (pipelines.one_f_one_b.__doc__, "1f1b 3")],
)
def test_what_is_printed_is_what_is_drawn_in_the_docstring(docstring, line, run):
    drawn = [each.strip() for each in docstring.splitlines() if each.strip().startswith(("cycle ", "stage 0 "))]
    printed = [each.strip() for each in run(line).splitlines()]
    assert len(drawn) == 2
    assert [each for each in printed if each in drawn] == drawn


def test_the_default_is_four_stages_and_four_micro_batches(run):
    for schedule, plan in (("gpipe", gpipe(4, 4)), ("1f1b", one_f_one_b(4, 4))):
        printed = json.loads(run(f"{schedule} --json"))
        assert printed["stages"] == printed["micro_batches"] == 4
        assert printed["tasks"] == [
            [{"kind": task.kind, "micro_batch": task.micro_batch} for task in own] for own in plan.tasks
        ]
        assert " ".join(run(schedule).split()).startswith(" ".join(headline(plan).split()))


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_a_narrow_terminal_gets_the_staircase_in_pieces(columns, run):
    plan = gpipe(3, 12)
    blocks = staircase(plan, columns)
    assert max(len(line) for block in blocks for line in block.splitlines()) <= columns
    for stage in range(3):
        lines = [block.splitlines()[1 + stage].split()[2:] for block in blocks]
        assert [task for line in lines for task in line] == [str(task) for task in plan.tasks[stage]]
    assert max(map(len, run("gpipe 3 --micro-batches 12", columns).splitlines())) <= columns


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("gpip", "no plan is called 'gpip'; did you mean 'gpipe'?"),
        ("1f1b 0", "DEVICES is a whole number from 1 to 64, not '0'"),
        ("1f1b 2 --micro-batches 0", "--micro-batches is a whole number from 1 to 256, not '0'"),
        ("1f1b 2 --micro-batches", "expected one argument"),
        ("ring --micro-batches 2", "--micro-batches is for 1f1b and gpipe alone, not for ring"),
        ("--micro-batches 2", "--micro-batches is for 1f1b and gpipe alone, not for the list of plans"),
        ("gpipe --sizes 1,2", "--sizes is for sharded alone, not for gpipe"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(line, sentence, capsys):
    assert main(line.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("mxdp: ")
    assert sentence in said.err
