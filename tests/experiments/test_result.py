"""A result's file: written once, whole or not at all; what can't be read is named. And where a result comes from."""

import json
import math
import operator
import platform
import re
import subprocess
from functools import reduce
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as onp
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from littles import record

import mxdp
from mxdp import process, processor
from mxdp.errors import MxdpError
from mxdp.experiments.lab import provenance, result


def test_what_is_written_is_read_back_and_a_run_of_the_same_second_overwrites_nothing(tmp_path):
    paths = [result.write(record(preset=preset, question="Süße?"), tmp_path) for preset in ("quick", "full", "mine")]
    assert paths[0] == tmp_path / "fake" / "2025-01-02T030405.json"
    assert result.read(paths[0]) == record(question="Süße?")
    assert [run["preset"] for run in result.read_folder(tmp_path)["fake"]] == ["quick", "full", "mine"]


def test_what_json_lacks_is_null_and_numpy_is_plain():
    values = [math.nan, math.inf, onp.float32(0.5), onp.int64(3), onp.bool_(True), onp.array([1.0, onp.nan]), (1,)]
    assert result.plain(values) == [None, None, 0.5, 3, True, [1.0, None], [1]]
    assert result.plain({1: "\udc80"}) == {"1": "\\udc80"}


def parts(shape, where=()):
    """The places of all that a record must have."""
    if where:
        yield where
    inner = shape.items() if isinstance(shape, dict) else enumerate(shape[:1]) if isinstance(shape, list) else ()
    for key, part in inner:
        yield from parts(part, (*where, key))


@pytest.mark.parametrize("where", list(parts(result.RESULT)), ids=lambda where: ".".join(map(str, where)))
def test_a_record_with_a_part_that_is_missing_or_of_another_kind_is_not_read(where, tmp_path):
    place = re.sub(r"\.(\d+)", r"[\1]", ".".join(map(str, where)))
    for wrong in (..., "../evil", True, {}, [{}]):
        found = record()
        inner = reduce(operator.getitem, where[:-1], found)
        right = inner[where[-1]]
        right_text = (
            wrong == "../evil" and where[-1] not in ("experiment", "status") and isinstance(right, (str, type(None)))
        )
        unsaid = wrong is ... and (isinstance(inner, list) or where == ("experiment",))
        if right_text or unsaid or type(wrong) is type(right) is not str:
            continue
        inner[where[-1]] = wrong
        if wrong is ...:
            del inner[where[-1]]
        (tmp_path / "x.json").write_text(json.dumps(found))
        said = "missing" if wrong is ... else repr(wrong)
        with pytest.raises(MxdpError, match=re.escape(f"x.json is damaged ({place} is {said})")):
            result.read(tmp_path / "x.json")


DAMAGED = r"wrong\.json is damaged .*; move it away or run its experiment again\."
OTHER = r"wrong\.json is of schema_version {!r} and this mxdp reads 4 and 5;"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, r"wrong\.json is no result of mxdp") for text in ("[]", '{"experiment": "fake"}')),
        *((text, DAMAGED) for text in ("", "{", '{"experiment"', "[" * 100_000, '{"x": NaN}', "\udcff")),
        *((json.dumps(dict(experiment="fake", schema_version=at)), OTHER.format(at)) for at in (3, 6, "4", None)),
    ],
)
def test_what_is_wrong_with_a_file_is_said(text, said, tmp_path):
    (tmp_path / "wrong.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(MxdpError, match=said):
        result.read(tmp_path / "wrong.json")
    if "no result" not in said:  # others may lie there
        with pytest.raises(MxdpError, match=said):
            result.read_folder(tmp_path)


def test_missing_file_and_folder(tmp_path):
    for action, words in (
        (lambda: result.read(tmp_path / "gone.json"), "there is no file"),
        (lambda: result.read(tmp_path), "can't be read"),
        (lambda: result.read_folder(tmp_path / "gone"), "there is no folder"),
        (lambda: result.read_folder(tmp_path), "there is no result in"),
    ):
        with pytest.raises(MxdpError, match=words):
            action()


def test_a_folder_gives_all_runs_by_name_the_oldest_first_and_names_foreign_files(tmp_path, capsys):
    times = [f"2025-01-0{day}T03:04:05+00:00" for day in (2, 1)]
    for found in [record(started=times[0]), record(started=times[1]), record("b"), record("B")]:
        result.write(found, tmp_path)
    (tmp_path / "trace.json").write_text("[]")
    (tmp_path / "._a.json").write_text("not even JSON")
    runs = result.read_folder(tmp_path)
    assert list(runs) == ["B", "b", "fake"]
    assert [run["started"] for run in runs["fake"]] == times[::-1]
    assert f"{tmp_path / 'trace.json'} is no result of mxdp" in capsys.readouterr().err


def test_a_result_of_the_version_before_is_read(tmp_path):
    old = record(schema_version=4, sources={"mxdp.timing": "0"}, bounds={})
    del old["environment"]["processor"]
    result.write(old, tmp_path)
    assert result.read_folder(tmp_path)["fake"] == [old]


# Where it comes from

REFERENCE = Path(__file__).parents[2] / "experiments" / "reference"


def test_the_record_is_json_and_complete():
    found = json.loads(
        json.dumps(provenance.environment({"MXNET_HOME": "/a"}, ["cpu(0)", "gpu(1)", "cuda:0", "gpu(1)"]))
    )
    assert (found["variables"], found["gpus"]) == ({"MXNET_HOME": "set"}, ["cuda:0", "gpu(1)"])
    assert (found["versions"]["mxdp"], found["versions"]["numpy"]) == (mxdp.__version__, onp.__version__)
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
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
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
