from __future__ import annotations

import json
import subprocess
from pathlib import Path

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
    file = tmp_path / "machine.py"
    file.write_text("x")
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
    copy = tmp_path / "site-packages" / "machine.py"  # an installed mxdp inside somebody's repository
    copy.parent.mkdir()
    copy.write_text("x")
    monkeypatch.setattr(machine, "__file__", str(copy))
    assert machine.commit() is None


def test_without_git(monkeypatch):
    monkeypatch.setenv("PATH", str(Path(__file__).parent))
    assert machine.commit() is None
