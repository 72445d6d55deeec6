"""Where a result comes from."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

import mxdp
from mxdp.experiments.lab import provenance

REFERENCE = Path(__file__).parents[2] / "experiments" / "reference"


def test_the_record_is_json_and_complete():
    found = json.loads(json.dumps(provenance.environment({"MXNET_HOME": "/a"}, ["cpu(0)", "gpu(0)"])))
    assert (found["variables"], found["gpus"]) == ({"MXNET_HOME": "set"}, ["gpu(0)"])
    assert found["versions"]["mxdp"] == mxdp.__version__
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


CPUINFO = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: {model}
model name\t: AMD EPYC
flags\t\t: fpu sse2 {flags}
"""


@pytest.mark.parametrize(
    ("model", "flags", "vectors"), [("17", "avx2 avx512f", "AVX-512"), ("1", "avx2", "AVX2"), ("1", "avx", "")]
)
def test_two_processors_of_one_name_are_told_apart(model, flags, vectors, tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text(CPUINFO.format(model=model, flags=flags))
    monkeypatch.setattr(provenance, "CPUINFO", tmp_path / "cpuinfo")
    known = {"vendor": "AuthenticAMD", "family": "25", "model": model, "vectors": vectors}
    assert (provenance.cpu_model(), provenance.processor()) == ("AMD EPYC", known)
    (tmp_path / "cpuinfo").unlink()
    assert provenance.processor() == dict.fromkeys(known, "")


def test_a_path_is_recorded_as_set_and_nothing_else_of_it():
    given = {"MXDP_DATA_DIR": "/home/me", "MXNET_HOME": "here", "OMP_NUM_THREADS": "1", "data_dir": None, "sizes": [4]}
    found = {**given, "MXDP_DATA_DIR": "set", "MXNET_HOME": "set"}
    assert provenance.without_paths(given) == found


def test_no_committed_result_holds_a_path_of_a_machine():
    for path in REFERENCE.glob("**/*.json"):
        assert not re.search(r'"/[\w.-]+/', path.read_text(encoding="utf-8")), path


def test_the_share_of_other_programs_is_between_0_and_1():
    elsewhere = provenance.since_now()
    sum(range(10**6))
    assert 0 <= (elsewhere() or 0.0) <= 1
