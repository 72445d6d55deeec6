"""Where a result comes from."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mxdp
from mxdp import process
from mxdp.experiments.lab import provenance

REFERENCE = Path(__file__).parents[2] / "experiments" / "reference"


def test_the_record_is_json_and_complete():
    found = json.loads(
        json.dumps(provenance.environment({"MXNET_HOME": "/a"}, ["cpu(0)", "gpu(1)", "cuda:0", "gpu(1)"]))
    )
    assert (found["variables"], found["gpus"]) == ({"MXNET_HOME": "set"}, ["cuda:0", "gpu(1)"])
    assert (found["versions"]["mxdp"], found["versions"]["numpy"]) == (mxdp.__version__, numpy.__version__)
    assert (found["cores"], found["memory_bytes"]) == (process.cores(), psutil.virtual_memory().total)
    assert (found["python"], found["commit"]) == (platform.python_version(), provenance.commit())
    assert found["cpu_model"]


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


SECONDS = st.integers(0, 3)


@given(st.integers(1, 4), st.integers(0, 4), st.integers(0, 9), SECONDS, SECONDS, st.lists(SECONDS, min_size=4))
def test_what_is_neither_idle_nor_ours_went_to_other_programs(processors, cores, passed, idle, waiting, ours):
    """Known only where all processors are ours, and after a while; a difference of clocks makes no share above 1."""
    now = [0]

    def times():
        return SimpleNamespace(idle=5.0 + idle * now[0], iowait=7.0 + waiting * now[0])

    stand_ins = dict(cpu_times=times, cpu_count=lambda: processors)
    with mock.patch.multiple(provenance.psutil, **stand_ins), mock.patch.object(
        provenance, "time", SimpleNamespace(monotonic=lambda: 3.0 + passed * now[0])
    ), mock.patch.object(provenance.process, "cores", return_value=cores), mock.patch.object(
        provenance.os, "times", side_effect=lambda: [100 + own * now[0] for own in ours]
    ):
        elsewhere = provenance.since_now()
        now[0] = 1
        found = elsewhere()
    if not passed or cores < processors:
        assert found is None
    else:
        share = 1 - (idle + waiting + sum(ours[:4])) / (processors * passed)
        assert found == pytest.approx(min(1, max(0, share)), abs=6e-5)
