"""Where a result comes from, and what makes it older than the code."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

import pytest

from mxdp.experiments.lab import provenance, result

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "experiments" / "reference"


def test_the_record_is_json_and_complete():
    found = json.loads(json.dumps(provenance.environment({"OMP_NUM_THREADS": "2"}, ["cpu(0)", "gpu(0)"])))
    assert (found["threads"], found["gpus"]) == (2, ["gpu(0)"])
    assert found["cpu_model"]
    assert found["cores"] >= 1
    assert {"mxnet", "numpy"} <= set(found["versions"]) or {"mxnet-cu112", "numpy"} <= set(found["versions"])


def git(folder, *words):
    name = ["-c", "user.name=x", "-c", "user.email=x@x"]
    return subprocess.run(["git", *name, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def test_the_commit_is_that_of_the_checkout_and_marks_changes(tmp_path, monkeypatch):
    file, measured = tmp_path / "machine.py", tmp_path / "experiments" / "reference" / "x.json"
    measured.parent.mkdir(parents=True)
    for path in (file, measured):
        path.write_text("x")
    monkeypatch.setattr(provenance, "__file__", str(file))
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    assert provenance.commit() is None
    git(tmp_path, "init", "-q")
    assert provenance.commit() is None
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "x")
    head = git(tmp_path, "rev-parse", "HEAD").strip()
    assert provenance.commit() == head[:12]
    measured.write_text("measured again")
    assert provenance.commit() == head[:12]
    file.write_text("y")
    assert provenance.commit() == head[:12] + "+"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance.commit() is None


@pytest.fixture
def code(tmp_path, monkeypatch):
    """A copy of mxdp to be edited, whose fingerprints are today's."""
    shutil.copytree(provenance.ROOT / "mxdp", tmp_path / "mxdp", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    return tmp_path / "mxdp"


@pytest.mark.parametrize(
    ("name", "uses_it"), [("epochs", True), ("peers", True), ("run-ahead", True), ("links", False)]
)
def test_a_change_of_the_training_step_ages_the_results_that_ran_it(name, uses_it, measured, code):
    _, found = measured(name)
    step = code / "training" / "step.py"
    assert provenance.changes(found) == []
    step.write_text(step.read_text().replace('"""', '"""In other words: ', 1) + "\n# a comment\n")
    assert provenance.changes(found) == []
    step.write_text(step.read_text() + "\nAHEAD = 1\n")
    assert provenance.changes(found) == ["mxdp.training.step"] * uses_it


def test_what_else_ages_a_result_and_what_does_not(measured, code, monkeypatch):
    _, found = measured("tiles")
    (code / "experiments" / "show" / "style.py").unlink()
    assert provenance.changes(found) == []
    (code / "parallel" / "tile.py").unlink()
    assert provenance.changes(found) == ["mxdp.parallel.tile"]
    monkeypatch.setattr(provenance, "versions", lambda: {**found["environment"]["versions"], "numpy": "9.9"})
    assert provenance.changes(found) == ["mxdp.parallel.tile", "numpy"]
    assert provenance.changes({**found, "sources": {}})[0] == "the code (it was not recorded)"


def test_a_change_that_is_held_to_be_without_effect_ages_nothing_until_the_next(measured, code, tmp_path, monkeypatch):
    _, found = measured("epochs")
    name, step, path, held = "mxdp.training.step", code / "training" / "step.py", tmp_path / "held.json", []
    monkeypatch.setattr(provenance, "HELD", path)
    for reason in ("one", "two"):
        step.write_text(f"{step.read_text()}\n{reason} = 1\n")
        assert provenance.changes(found) == [name]
        was = provenance.carried(found["sources"])[0][name]
        held.append({"reason": reason, "changes": [[name, was, provenance.today(name)]]})
        path.write_text(json.dumps(held))
        assert provenance.changes(found) == []
    assert provenance.carried(found["sources"])[1] == ["one", "two"]
    gone = {**found["sources"], "mxdp.gone": "1"}
    path.write_text(json.dumps([*held, {"reason": "three", "changes": [["mxdp.gone", "1", ""]]}]))
    assert provenance.changes({**found, "sources": gone}) == []
    other = {**found["sources"], name: "0"}
    assert provenance.changes({**found, "sources": other}) == [name]
    assert provenance.carried(other) == (other, [])
    assert len(result.together([found, {**found, "sources": provenance.carried(found["sources"])[0]}])) == 2


def test_each_held_change_follows_a_recorded_hash():
    known = {item for path in committed() for item in result.read(path)["sources"].items()}
    path = ROOT / provenance.HELD
    for held in json.loads(path.read_text()) if path.exists() else ():
        assert known.issuperset((name, old) for name, old, _ in held["changes"])
        known.update((name, new) for name, _, new in held["changes"])


def test_a_file_that_was_edited_during_the_run_counts_as_changed(code):
    modules, edited = ["mxdp.timing", "mxdp.errors", "mxdp.experiments.show.style"], code / "timing.py"
    written = edited.stat().st_mtime
    assert provenance.sources(modules, written) == {"mxdp.timing": provenance.fingerprint(edited.read_text())}
    assert provenance.sources(modules, written - 1) == {"mxdp.timing": ""}


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('"""Another."""\ndef f(x):\n    """Two\n    lines."""\n    return f"{x}#"\n', True),
        ('# first\ndef f(x):  # so\n\n    # why\n    return f"{x}#"', True),
        ('def f(x):\n    return f"{x}"\n', False),
        ('def f(x):\n    "a" "b"\n    return f"{x}#"\n', True),
        ('def f(x):\n    print("a")\n    return f"{x}#"\n', False),
    ],
)
def test_comments_and_docstrings_are_no_code(text, same):
    code = 'def f(x):\n    return f"{x}#"\n'
    assert (provenance.fingerprint(text) == provenance.fingerprint(code)) is same


QUESTION = """
SOURCE = "ours"
PRESETS = {"quick": dict(steps=3)}

def cases(s):
    yield Case("a")

def expect(s, cores):
    return "1"

def _draw_bars(axes):
    axes.bar()

def tell(t, s):
    t.claim("x", at_most=1)
"""


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("at_most=1", "at_most=2", True), ('"ours"', '"mine"', True), ('return "1"', 'return "2"', True),
        ("axes.bar()", "axes.barh()", True), ("steps=3", "steps=4", False), ('Case("a")', 'Case("b")', False),
        ("def expect", "def set_up", False), ("def tell", "def told", False),
    ],
)  # fmt: skip
def test_what_a_question_tells_and_expects_ages_no_result(old, new, same):
    assert (provenance.fingerprint(QUESTION.replace(old, new)) == provenance.fingerprint(QUESTION)) is same


@lru_cache(maxsize=None)  # many results are of one commit
def fingerprint_at(commit, name):
    file = name.replace(".", "/")
    (place,) = git(ROOT, "ls-tree", "--name-only", commit, f"{file}.py", f"{file}/__init__.py").split()
    return provenance.fingerprint(git(ROOT, "show", f"{commit}:{place}"))


def committed():
    runs = [path for path in sorted(REFERENCE.glob("*/*/*.json")) if path.parent.name != "timelines"]
    return [path for path in runs if any(result.read(path)["sources"].values())]


@pytest.mark.parametrize("path", committed() or [None])
def test_each_recorded_hash_is_of_the_code_of_the_results_own_commit(path):
    """Only the program writes hashes. Results that were converted from the format before have none."""
    if path is None:
        pytest.skip("no committed result has hashes of this laboratory yet")
    found = result.read(path)
    commit = found["environment"]["commit"]
    assert commit
    assert not commit.endswith("+"), "measured on a checkout with changes"
    if git(ROOT, "rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("this clone has no history: `git fetch --unshallow`")
    for name, recorded in found["sources"].items():
        assert fingerprint_at(commit, name) == recorded, name


def test_the_share_of_other_programs_is_between_0_and_1():
    elsewhere = provenance.since_now()
    sum(range(10**6))
    assert 0 <= (elsewhere() or 0.0) <= 1
