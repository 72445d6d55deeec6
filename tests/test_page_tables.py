"""What quotes the reference results is what they give: ``tools/tables.py``."""

from __future__ import annotations

import importlib.util
import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest

from mxdp.errors import MxdpError
from mxdp.experiments.data_parallel import epochs
from mxdp.experiments.lab import result
from mxdp.experiments.show import words

ROOT = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("tables", ROOT / "tools" / "tables.py")
tables = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tables)
README, EXPERIMENTS, *_ = tables.PAGES
DOCS = ROOT / "docs"


@pytest.fixture
def measured():
    """A run of ``epochs``, of code that is today's, with enough processes for an interval."""
    run = result.read_folder(tables.FOLDERS[0])["epochs"][-1]
    rows = []
    for row in run["rows"]:
        others = [{**process, "seconds": 1.01 * process["seconds"]} for process in row["processes"]]
        rows.append({**row, "processes": row["processes"] + others})
    return {
        **run,
        "rows": rows,
        "sources": {"mxdp.timing": tables.provenance.sources(["mxdp.timing"], 1e12)["mxdp.timing"]},
    }


def test_what_quotes_the_results_is_neither_edited_by_hand_nor_older_than_they_are():
    made = tables.written()
    assert set(made) == {tables.LISTED, *tables.PAGES}
    wrong = [str(path) for path, text in made.items() if path.read_text(encoding="utf-8") != text]
    assert not wrong, "these are not what the reference results give: run `python tools/tables.py`"


def test_every_comment_in_a_page_is_of_a_table():
    kinds = []
    for path in tables.PAGES:
        text = path.read_text(encoding="utf-8")
        blocks = [block[2] for block in tables.BLOCK.finditer(text)]
        assert text.count("<!--") == 2 * len(blocks), path
        kinds += blocks
    assert set(kinds) == set(tables.KINDS)


def test_a_number_edited_by_hand_is_put_right_and_the_text_around_it_stays(tmp_path, monkeypatch):
    copy, text = tmp_path / "README.md", README.read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("| 2 devices |"))
    copy.write_text(text.replace(line, "| 2 devices | 1 |").replace("## Answers", "## Asked"), encoding="utf-8")
    monkeypatch.setattr(tables, "PAGES", [copy])
    assert tables.written()[copy] == text.replace("## Answers", "## Asked")


def test_results_change_every_file_and_what_was_not_measured_says_so(measured, tmp_path, monkeypatch):
    def tell(t, s):
        t.claim("An epoch is fast.", t.one(label="2 devices").seconds, at_most=0.1)
        t.answer("An epoch is 7 times as fast.")

    monkeypatch.setattr(epochs, "tell", tell)
    processes = len(measured["rows"][0]["processes"])
    measured["settings"] = {**measured["settings"], "processes": processes}
    result.write({**measured, "elapsed_seconds": 42.0 * processes}, tmp_path)
    made = tables.written([tmp_path], quick=tmp_path)
    listed = json.loads(made[tables.LISTED])
    assert listed["answers"] == {"epochs": "An epoch is 7 times as fast. (one run)"}
    assert listed["seconds"] == {"full": {"epochs": 42.0}, "quick": {"epochs": 42.0}}
    for path in (README, EXPERIMENTS):
        assert "An epoch is 7 times as fast. (one run) |" in made[path]
    assert (
        "| An epoch is fast. | ours: otherwise it is a defect | does not hold (one run): 2 devices "
        in made[EXPERIMENTS]
    )
    assert "`buckets` was not measured yet." in made[DOCS / "pieces.md"]
    result.write({**measured, "status": "timeout", "error": "it hung"}, tmp_path)
    made = tables.written([tmp_path])
    assert json.loads(made[tables.LISTED])["seconds"]["full"] == {}
    assert "run epochs` | No answer: it hung. (one run) |" in made[EXPERIMENTS]


def test_what_one_machine_could_not_answer_is_another_s(tmp_path, monkeypatch):
    """Also if its result is the older one, and of another NumPy."""
    monkeypatch.setattr(tables.provenance, "changes", lambda *_: [])
    (gpu,) = result.read_folder(tables.FOLDERS[1])["torch-two-jobs"]
    machine = gpu["environment"]
    other = {**machine, "gpus": [], "cpu_model": "A", "versions": {**machine["versions"], "numpy": "9.9"}}
    skipped = {**gpu, "status": "skipped", "error": "there is no GPU", "rows": [], "environment": other}
    result.write({**skipped, "started": "2999-01-01T00:00:00+00:00"}, tmp_path / "a")
    result.write(gpu, tmp_path / "b")
    alone, both = (
        json.loads(tables.written(folders)[tables.LISTED])
        for folders in [[tmp_path / "a"], [tmp_path / "a", tmp_path / "b"]]
    )
    assert alone["answers"] == {"torch-two-jobs": "No answer: there is no GPU. (one run)"}
    answer = both["answers"]["torch-two-jobs"]
    assert answer.startswith("On 1 GPU (NVIDIA H200), two jobs at once take ")
    assert answer.endswith(" (on Intel(R) Xeon(R) Processor, 16 cores, NVIDIA H200, one run)")


@pytest.mark.parametrize(("changed", "elsewhere"), [({}, 0.0), ({"mxdp.timing": "0"}, 0.0), ({}, 0.3)])
def test_a_result_of_other_code_or_of_a_busy_machine_is_marked_wherever_it_is_shown(
    changed, elsewhere, measured, tmp_path
):
    measured["sources"].update(changed)
    result.write({**measured, "elsewhere": [elsewhere]}, tmp_path)
    made = tables.written([tmp_path])
    for path in (tables.LISTED, README, EXPERIMENTS):
        assert ("(older, one run)" in made[path]) is bool(changed)
        assert ("Older: measured before a change" in made[path]) is (bool(changed) and path != tables.LISTED)
        assert ("(one run, measured on a busy machine)" in made[path]) is bool(elsewhere)


def test_a_change_that_is_held_to_be_without_effect_is_said_in_place_of_the_mark(measured, tmp_path, monkeypatch):
    measured["sources"]["mxdp.timing"] = "0"
    result.write(measured, tmp_path)
    monkeypatch.setattr(tables, "FOLDERS", [tmp_path])
    monkeypatch.setattr(tables.provenance, "HELD", tmp_path / "held" / "held.json")
    tables.hold("its steps are a name longer")
    made = tables.written([tmp_path])
    assert "(older)" not in made[README]
    assert "Held to be without effect: its steps are a name longer." in made[README]


def test_a_table_has_the_rows_and_columns_that_say_something(measured):
    known = {"epochs": tables.Known(words.shown([measured]), False, "")}
    _, _, headings, _, *lines = tables.table(known, "epochs 2 processes.*", README)
    assert headings == "| | s/epoch | samples/s | speed-up |"
    assert [line.split(" | ")[0] for line in lines] == ["| 2 processes, nothing shared"]
    with pytest.raises(MxdpError, match=r"no row of epochs matches '3 devices'; the first one is '1 device'\."):
        tables.table(known, "epochs 3 devices", README)


def test_the_tool_writes_what_differs_and_names_it(tmp_path, monkeypatch, capsys):
    for path in ("README.md", "docs", "experiments", "tools/tables.py", "mxdp/experiments/reference.json"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / path).is_dir() else shutil.copy)(ROOT / path, tmp_path / path)
    folder = tmp_path / tables.FOLDERS[0].relative_to(ROOT) / "epochs"
    path = max(folder.glob("*.json"))
    changed = {**result.read(path), "elapsed_seconds": 1}
    path.unlink()
    result.write(changed, folder.parent)

    def tool():
        monkeypatch.setattr(sys, "argv", ["tables.py"])
        runpy.run_path(str(tmp_path / "tools" / "tables.py"), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    assert tool() == ["written: mxdp/experiments/reference.json"]
    assert tool() == []
    path.write_text("{", encoding="utf-8")
    with pytest.raises(SystemExit, match=f"^mxdp: .*{path.name} is damaged"):
        tool()
