from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from mxdp.experiments.harness import provenance as machine


def test_the_record_is_json_and_complete():
    found = json.loads(json.dumps(machine.describe()))
    assert set(found) == {"cpu_model", "cores", "memory_bytes", "platform", "python", "versions", "commit"}
    assert found["cpu_model"]
    assert found["cores"] >= 1
    assert found["memory_bytes"] > 1 << 28
    assert {"mxnet", "numpy"} <= set(found["versions"]) or {"mxnet-cu112", "numpy"} <= set(found["versions"])


def git(folder, *words):
    name = ["-c", "user.name=x", "-c", "user.email=x@x"]
    return subprocess.run(["git", *name, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def test_the_commit_is_that_of_the_checkout_and_marks_changes(tmp_path, monkeypatch):
    file, result = tmp_path / "machine.py", tmp_path / "experiments" / "reference" / "x.json"
    result.parent.mkdir(parents=True)
    for each in (file, result):
        each.write_text("x")
    monkeypatch.setattr(machine, "__file__", str(file))
    assert machine.commit() is None
    git(tmp_path, "init", "-q")
    assert machine.commit() is None
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "x")
    head = git(tmp_path, "rev-parse", "HEAD").strip()
    assert machine.commit() == head[:12]
    file.write_text("y")
    assert machine.commit() == head[:12] + "+"
    git(tmp_path, "commit", "-qam", "y")
    head = git(tmp_path, "rev-parse", "HEAD")
    result.write_text("measured again")
    assert machine.commit() == head[:12]
    copy = tmp_path / "site-packages" / "machine.py"  # an installed mxdp inside somebody's repository
    copy.parent.mkdir()
    copy.write_text("x")
    monkeypatch.setattr(machine, "__file__", str(copy))
    assert machine.commit() is None


def test_without_git(monkeypatch):
    monkeypatch.setenv("PATH", str(Path(__file__).parent))
    assert machine.commit() is None


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A copy of mxdp to be edited, whose fingerprints are today's."""
    shutil.copytree(machine.ROOT / "mxdp", tmp_path / "mxdp", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    return tmp_path / "mxdp"


@pytest.mark.parametrize(
    ("name", "uses_it"),
    [("epochs", True), ("peers", True), ("stock-loop", True), ("run-ahead", True), ("tiles", False), ("links", False)],
)
def test_a_change_of_the_training_step_ages_the_results_that_ran_it(name, uses_it, measured, code):
    _, result = measured(name)
    step, versions = code / "training" / "step.py", result["environment"]["versions"]
    assert machine.changes(result, versions) == []
    step.write_text(step.read_text().replace('"""', '"""In other words: ', 1) + "\n# a comment\n")
    assert machine.changes(result, versions) == []
    step.write_text(step.read_text() + "\nAHEAD = 1\n")
    assert machine.changes(result, versions) == ["mxdp.training.step"] * uses_it


def test_what_else_ages_a_result_and_what_does_not(measured, code):
    _, result = measured("tiles")
    versions = result["environment"]["versions"]
    assert machine.changes(result, {**versions, "numpy": "9.9"}) == ["numpy"]
    assert machine.changes(result, {**versions, "matplotlib": "9.9"}) == []
    result["sources"]["mxdp.experiments.report.style"] = "another"
    assert machine.changes(result, versions) == []
    (code / "parallel" / "tile.py").unlink()
    assert machine.changes(result, versions) == ["mxdp.parallel.tile"]
    del result["sources"]
    assert machine.changes(result, versions) == ["the code (it was not recorded)"]


def test_a_file_that_was_edited_during_the_run_counts_as_changed(code):
    ready, edited = [{"modules": ["mxdp.timing", "mxdp.errors", "mxdp.experiments.report.style"]}], code / "timing.py"
    written = edited.stat().st_mtime
    assert machine.sources(ready, written) == {"mxdp.timing": machine.fingerprint(edited.read_text())}
    found = machine.sources(ready, written - 1)
    assert machine.changes({"sources": found, "environment": {"versions": {}}}, {}) == ["mxdp.timing"]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('"""Another."""\ndef f(x):\n    """Two\n    lines."""\n    return f"{x}#"\n', True),
        ('# first\ndef f(x):  # so\n\n    # why\n    return f"{x}#"', True),
        ('def f(x):\n    return f"{x}"\n', False),
        ('def f(x):\n    "a" "b"\n    return f"{x}#"\n', False),
        ('def f(x):\n    print("a")\n    return f"{x}#"\n', False),
        ('def f(x):\n  return f"{x}#"\n', False),
    ],
)
def test_comments_and_docstrings_are_no_code(text, same):
    code = 'def f(x):\n    return f"{x}#"\n'
    assert (machine.fingerprint(text) == machine.fingerprint(code)) is same


QUESTION = """
@experiment
class Question(Experiment):
    name = "question"
    claims = {"x": Claim("At most 1.", "ours", 1.0)}
    presets: ClassVar = {"quick": {"rounds": 3}}

    def cases(self, settings):
        return [Case("a")]

    def finish(self, rows, references, settings):
        for row in rows:
            row.keep("x", row.samples)
"""


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ('Claim("At most 1.", "ours", 1.0)', 'Claim(\n        "At most 2.", "ours", 2.0\n    )', True),
        ("row.samples)", "row.samples)\n        rows[0].keep('y', rows[0].samples)", True),
        ("    claims", "    checks: ClassVar = {}\n    claims", True),
        ("    claims", "    more = claims", False),
        ("3}", "4}", False),
        ('Case("a")', 'Case("a"), Case("b")', False),
        ("def finish", "def set_up", False),
        ("@experiment\n", "", False),
    ],
)
def test_what_says_and_judges_and_draws_ages_no_result(old, new, same):
    assert QUESTION.count(old) == 1
    assert (machine.fingerprint(QUESTION.replace(old, new)) == machine.fingerprint(QUESTION)) is same


def test_outside_of_an_experiment_the_same_names_count():
    plain = QUESTION.replace("@experiment\n", "")
    assert machine.fingerprint(plain.replace("1.0", "2.0")) != machine.fingerprint(plain)
