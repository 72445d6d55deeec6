"""What quotes the reference results is what they give: ``tools/tables.py``."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mxdp.experiments.harness import results
from mxdp.experiments.harness.measurement import NO_ANSWER

from mxdp.errors import MxdpError
from mxdp.experiments.data_parallel.epochs import Epochs

ROOT = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("tables", ROOT / "tools" / "tables.py")
tables = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tables)
README, EXPERIMENTS, *_ = tables.PAGES
PIECES = ROOT / "docs" / "pieces.md"
SILENT = ROOT / "docs" / "silent-bugs.md"
PREDICT = ROOT / "docs" / "predict.md"


@pytest.fixture
def epochs():
    result = results.read(tables.FOLDER / "epochs.json")
    result["verdict"].update(holds=None, claims=[], busy=None)
    return {**result, "sources": {}}


@pytest.mark.parametrize("path", [tables.LISTED, *tables.PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_what_quotes_the_results_is_neither_edited_by_hand_nor_older_than_they_are(path):
    same = path.read_text(encoding="utf-8") == tables.written()[path]
    assert same, f"{path} is not what the reference results give: run `python tools/tables.py`"


def test_every_comment_in_a_page_is_of_a_table():
    found = {}
    for path in tables.PAGES:
        text = path.read_text(encoding="utf-8")
        found[path] = [block[2] for block in tables.BLOCK.finditer(text)]
        assert text.count("<!--") == 2 * len(found[path])
    expected = {
        README: ["answers", "table"],
        EXPERIMENTS: ["experiments", "claims"],
        PIECES: ["table"],
        SILENT: ["bugs"],
        PREDICT: ["published", "table", "table"],
        ROOT / "docs" / "gpus.md": ["table", "table"],
    }
    assert {path: kinds for path, kinds in found.items() if kinds} == expected


def test_a_number_edited_by_hand_is_put_right_and_the_text_around_it_stays(tmp_path, monkeypatch):
    copy, text = tmp_path / "README.md", README.read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("| 2 devices |"))
    copy.write_text(text.replace(line, "| 2 devices | 1 |").replace("## Answers", "## Asked"), encoding="utf-8")
    monkeypatch.setattr(tables, "PAGES", [copy])
    assert tables.written()[copy] == text.replace("## Answers", "## Asked")


def test_newer_results_change_every_file(epochs, tmp_path, monkeypatch):
    folder = Path(shutil.copytree(tables.FOLDER, tmp_path / "reference", ignore=shutil.ignore_patterns("quick")))
    epochs.update(elapsed_seconds=5000.4)
    monkeypatch.setattr(Epochs, "finish", lambda *_: None)
    monkeypatch.setattr(Epochs, "answer", lambda *_: "An epoch is 7 times as fast.")
    epochs["rows"][0].metrics["sec_per_epoch"] = 123.456
    results.write(epochs, folder)
    made = tables.written(folder)
    before, after = (json.loads(texts[tables.LISTED]) for texts in (tables.written(tables.FOLDER), made))
    assert after["full"] == {**before["full"], "epochs": 5000}
    assert after["answers"]["epochs"] == "An epoch is 7 times as fast."
    assert "| 123.46 |" in made[README]
    for path in (README, EXPERIMENTS):
        assert "An epoch is 7 times as fast. |" in made[path]
    assert "run epochs` | – | 1 h 20 |" in made[EXPERIMENTS]


def test_results_of_quick_stand_in_and_claims_have_marks(epochs, tmp_path, monkeypatch):
    monkeypatch.setattr(Epochs, "answer", lambda *_: "It is slow.")
    for method in ("finish", "explanation"):
        monkeypatch.setattr(Epochs, method, lambda *_: None)
    two = next(row for row in epochs["rows"] if row.label == "2 devices")
    for row in epochs["rows"] + epochs["references"]:
        row.rounds = {"repeat": [*range(6)]}
    two.rounds.update(halves=[0.4, 0.45, 0.5, 0.5, 0.55, 0.6], of_ceiling=[0.5] * 4)
    epochs.update(preset="quick", elapsed_seconds=42)
    results.write(epochs, tmp_path / "quick")
    made = tables.written(tmp_path)
    listed = json.loads(made[tables.LISTED])
    assert (listed["full"], listed["quick"]) == ({}, {"epochs": 42})
    assert listed["answers"] == {"epochs": "It is slow. (quick)"}
    assert listed["machine"].endswith(" cores")
    assert "run epochs` | 42 s | – | It is slow. (quick) |" in made[EXPERIMENTS]
    assert "| does not hold (quick): 2 devices 0.5 (0.4 to 0.6) |" in made[EXPERIMENTS]
    assert "| undecided (quick): 2 devices 0.5; about 2 more processes (21 s) would decide it" in made[EXPERIMENTS]
    assert "| not judged here (quick) |" in made[EXPERIMENTS]
    assert made[EXPERIMENTS].count("does not hold (") == 1
    assert "What does a second device bring to an epoch?** (quick)" in made[README]
    results.write({**epochs, "preset": "full", "verdict": {**epochs["verdict"], "text": NO_ANSWER}}, tmp_path)
    in_full = tables.written(tmp_path)[EXPERIMENTS]
    assert f"{NO_ANSWER} |" in in_full
    assert "| does not hold (quick): 2 devices 0.5 (0.4 to 0.6) |" in in_full
    assert "`buckets` was not measured yet." in made[PIECES]
    assert "Gradients one by one" not in made[README] + made[PIECES]


def test_what_one_machine_could_not_answer_is_another_s(tmp_path, monkeypatch):
    """Also if its result is the older one, and of another NumPy."""
    monkeypatch.setattr(tables.provenance, "changes", lambda *_: [])
    gpu = results.read(tables.WITH_GPU / "torch-two-jobs.json")
    skipped = {
        **gpu,
        "status": "skipped",
        "error": "there is no GPU",
        "rows": [],
        "started": "2999-01-01T00:00:00+00:00",
    }
    own = skipped["environment"]
    skipped["environment"] = {**own, "gpus": [], "cpu_model": "A", "versions": {**own["versions"], "numpy": "9.9"}}
    results.write(skipped, tmp_path / "a")
    results.write(gpu, tmp_path / "b")
    alone, both = (
        json.loads(tables.written(*folders)[tables.LISTED])
        for folders in [(tmp_path / "a",), (tmp_path / "a", tmp_path / "b")]
    )
    assert alone["answers"] == {"torch-two-jobs": "No answer: there is no GPU."}
    answer = both["answers"]["torch-two-jobs"]
    assert answer.startswith("On 1 GPU (NVIDIA H200), two jobs at once take ")
    assert answer.endswith(" (on Intel(R) Xeon(R) Processor, 16 cores, NVIDIA H200)")  # the first folder is another
    assert (alone["machine"], both["machine"]) == ("A, 16 cores", "Intel(R) Xeon(R) Processor, 16 cores, NVIDIA H200")


def test_a_failed_run_says_why_and_its_time_is_none(epochs, tmp_path):
    epochs.update(status="timeout", error="it hung")
    results.write(epochs, tmp_path)
    made = tables.written(tmp_path)
    assert json.loads(made[tables.LISTED])["full"] == {}
    assert "run epochs` | – | – | No answer: it hung. |" in made[EXPERIMENTS]


def test_a_result_whose_code_has_changed_is_marked_wherever_it_is_shown(epochs, tmp_path, monkeypatch):
    def marked(**changed):
        results.write({**epochs, **changed}, tmp_path / "quick")
        made = tables.written(tmp_path)
        shown = ["(quick, older)" in made[path] for path in (tables.LISTED, README, EXPERIMENTS)]
        assert shown[1:] == ["Older: measured before a change" in made[path] for path in (README, EXPERIMENTS)]
        return shown

    monkeypatch.setattr(tables.provenance, "ROOT", tmp_path)
    (tmp_path / "mxdp").mkdir()
    (tmp_path / "mxdp" / "timing.py").write_text("SECONDS = 1\n")
    sources = {"mxdp.timing": tables.provenance.fingerprint("SECONDS = 1\n")}
    epochs["preset"] = "quick"
    assert marked(sources=sources) == [False] * 3
    (tmp_path / "mxdp" / "timing.py").write_text("SECONDS = 2\n")
    assert marked(sources=sources) == [True] * 3
    assert marked(sources={}) == [False] * 3
    own = epochs["environment"]
    newest = {**epochs, "experiment": "tiles", "started": "2999-01-01T00:00:00+00:00"}
    results.write({**newest, "environment": {**own, "versions": {**own["versions"], "numpy": "9.9"}}}, tmp_path)
    assert marked(sources={}) == [True] * 3


def test_a_table_has_the_rows_and_columns_that_say_something(epochs):
    known = {("full", "epochs"): {**epochs, "older": False, "elsewhere": ""}}
    _, _, headings, _, *lines = tables.table(known, "epochs 2 processes.*", README)
    assert headings == "| | s/epoch | samples/s | speed-up |"
    assert [line.split(" | ")[0] for line in lines] == ["| 2 processes, nothing shared"]
    with pytest.raises(MxdpError, match=r"no row of epochs matches '3 devices'; the first one is '1 device'\."):
        tables.table(known, "epochs 3 devices", README)


def test_the_tool_writes_what_differs_and_names_it(tmp_path):
    for name in ("README.md", "docs", "experiments", "mxdp", "tools"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, tmp_path / name)
    folder = tmp_path / tables.FOLDER.relative_to(ROOT)
    results.write({**results.read(folder / "epochs.json"), "elapsed_seconds": 1}, folder)

    def tool():
        command = [sys.executable, "tools/tables.py"]
        return subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)

    done = tool()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["written: mxdp/experiments/reference.json", "written: experiments/README.md"]
    assert tool().stdout == ""
    (folder / "epochs.json").write_text("{", encoding="utf-8")
    done = tool()
    assert done.returncode == 1
    assert done.stderr.startswith("mxdp: ")
    assert "epochs.json is damaged" in done.stderr
