"""What quotes the reference results is what they give: ``tools/tables.py``."""

import importlib.util
import json
import runpy
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

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
    """A run of ``epochs`` with enough processes for an interval."""
    run = result.read_folder(tables.MACHINES[0] / "0.1.0")["epochs"][-1]
    rows = []
    for row in run["rows"]:
        others = [{**process, "seconds": 1.01 * process["seconds"]} for process in row["processes"]]
        rows.append({**row, "processes": row["processes"] + others})
    return {**run, "rows": rows}


def test_what_quotes_the_results_is_neither_edited_by_hand_nor_older_than_they_are():
    """And every comment in a page is of a table."""
    made = tables.written()
    assert set(made) == {tables.LISTED, *tables.PAGES}
    texts = {path: path.read_text(encoding="utf-8") for path in made}
    wrong = [str(path) for path, text in made.items() if texts[path] != text]
    assert not wrong, "these are not what the reference results give: run `python tools/tables.py`"
    assert [
        path for path in tables.PAGES if texts[path].count("<!--") != 2 * len(tables.BLOCK.findall(texts[path]))
    ] == []


def test_results_change_every_file_and_what_was_not_measured_says_so(measured, tmp_path, monkeypatch):
    def tell(t, s):
        t.claim("An epoch is fast.", t.one(label="2 devices").seconds, at_most=0.1)
        t.answer("An epoch is 7 times as fast.")

    monkeypatch.setattr(epochs, "tell", tell)
    result.write(measured, tmp_path / "1.0.0")
    made = tables.written([tmp_path])
    line = "at 0.1.0 (7bd0176), AMD EPYC, 2 cores, 2026-11-28: 1 run."
    listed = {"measured": line, "answers": {"epochs": "An epoch is 7 times as fast."}}
    assert json.loads(made[tables.LISTED]) == listed
    for path in (README, EXPERIMENTS):
        assert "An epoch is 7 times as fast. |" in made[path]
    assert "| An epoch is fast. | ours: otherwise it is a defect | does not hold: 2 devices " in made[EXPERIMENTS]
    assert "`buckets` was not measured yet." in made[DOCS / "pieces.md"]
    result.write({**measured, "status": "timeout", "error": "it hung", "started": "2999-01-01"}, tmp_path / "1.0.0")
    made = tables.written([tmp_path])[EXPERIMENTS]
    assert "Left out of epochs: 1 run with status=ok." in made
    assert "run epochs` | No answer: it hung. |" in made


def test_what_one_machine_could_not_answer_is_another_s(tmp_path):
    """Also if its result is the older one, and of another NumPy."""
    (gpu,) = result.read_folder(tables.together.release(tables.MACHINES[1]))["torch-two-jobs"]
    machine = gpu["environment"]
    other = {**machine, "gpus": [], "cpu_model": "A", "versions": {**machine["versions"], "numpy": "9.9"}}
    skipped = {**gpu, "status": "skipped", "error": "there is no GPU", "rows": [], "environment": other}
    result.write({**skipped, "started": "2999-01-01T00:00:00+00:00"}, tmp_path / "a" / "0.1.0")
    result.write(gpu, tmp_path / "b" / "0.1.0")
    alone, both = (listed(*machines)["answers"] for machines in ([tmp_path / "a"], [tmp_path / "a", tmp_path / "b"]))
    assert alone == {"torch-two-jobs": "No answer: there is no GPU."}
    assert both["torch-two-jobs"].startswith("On 1 GPU (NVIDIA H200), two jobs at once take ")


def listed(*machines):
    return json.loads(tables.written(machines)[tables.LISTED])


def test_the_newest_release_is_shown_and_its_commits_together(measured, tmp_path):
    later = {**measured, "environment": {**measured["environment"], "commit": "feedfacecafe"}}
    result.write({**measured, "started": "2999-01-01T00:00:00+00:00"}, tmp_path / "0.9.0")
    result.write(measured, tmp_path / "0.10.0")
    result.write({**later, "started": "2027-01-01T00:00:00+00:00"}, tmp_path / "0.10.0")
    (tmp_path / "speed.md").touch()
    line = "at 2 commits, 7bd0176 to feedfac, AMD EPYC, 2 cores, 2026-11-28 to 2027-01-01: 2 runs."
    assert listed(tmp_path)["measured"] == line


def test_a_result_of_a_busy_machine_is_marked_wherever_it_is_shown(measured, tmp_path):
    for elsewhere in (0.0, 0.3):
        result.write({**measured, "elsewhere": [elsewhere]}, tmp_path / str(elsewhere) / "0.1.0")
        made = tables.written([tmp_path / str(elsewhere)])
        for path in (tables.LISTED, README, EXPERIMENTS):
            assert ("(measured on a busy machine)" in made[path]) is bool(elsewhere)


def test_check_compares_the_code_of_the_results_with_todays_and_writes_the_table(tmp_path, monkeypatch):
    asked = []
    row = {"label": "1 device", "ratio": {"median": 1.5, "low": 1.25, "high": 2.0}, "verdict": "slower"}
    found = [{"experiment": "epochs", "rows": [row], "errors": {}}]
    done = lambda command, **how: asked.append(command[4:]) or SimpleNamespace(stdout=json.dumps(found))  # noqa: E731
    monkeypatch.setattr(tables, "COMPARED", tmp_path / "compared.json")
    monkeypatch.setattr(tables.subprocess, "run", done)
    monkeypatch.setattr(tables.provenance, "commit", lambda: "feedfacecafe+")
    tables.check()
    [(old, *others)] = asked
    runs = result.read_folder(tables.together.release(tables.MACHINES[0]))["epochs"]
    assert old in [run["environment"]["commit"] for run in runs]
    assert others == ["feedfacecafe", "epochs", "two-jobs", *tables.HOW, "--json"]
    page = tables.written()[DOCS / "experiments.md"]
    assert f"| experiment | | time at feedfac over that at {old[:7]} | feedfac is |" in page
    assert "| `epochs` | 1 device | 1.50 (1.25 to 2.00) | slower |" in page
    found[0]["errors"] = {"A": "1 device: it fell"}
    with pytest.raises(MxdpError, match="1 device: it fell"):
        tables.check()


def test_a_table_has_the_rows_and_columns_that_say_something(measured):
    known = {"epochs": tables.Known(words.shown([measured]), "")}
    _, _, headings, _, *lines = tables.table(known, "epochs 2 processes.*", README)
    assert headings == "| | s/epoch | samples/s | speed-up |"
    assert [line.split(" | ")[0] for line in lines] == ["| 2 processes, nothing shared"]
    with pytest.raises(MxdpError, match=r"no row of epochs matches '3 devices'; the first one is '1 device'\."):
        tables.table(known, "epochs 3 devices", README)


def test_the_tool_writes_what_differs_and_names_it(tmp_path, monkeypatch, capsys):
    for path in ("README.md", "docs", "experiments", "tools/tables.py", "mxdp/experiments/reference.json"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / path).is_dir() else shutil.copy)(ROOT / path, tmp_path / path)
    folder = tmp_path / tables.together.release(tables.MACHINES[0]).relative_to(ROOT) / "epochs"
    path = max(folder.glob("*.json"))
    changed = {**result.read(path), "elsewhere": [1.0] * 100}
    path.unlink()
    result.write(changed, folder.parent)

    def tool():
        monkeypatch.setattr(sys, "argv", ["tables.py"])
        runpy.run_path(str(tmp_path / "tools" / "tables.py"), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    page = tmp_path / "README.md"
    page.write_text(page.read_text(encoding="utf-8").replace("## Answers", "## Asked"), encoding="utf-8")
    assert tool()[:2] == ["written: mxdp/experiments/reference.json", "written: README.md"]
    assert "## Asked" in page.read_text(encoding="utf-8")
    assert tool() == []
    path.write_text("{", encoding="utf-8")
    with pytest.raises(SystemExit, match=f"^mxdp: .*{path.name} is damaged"):
        tool()
