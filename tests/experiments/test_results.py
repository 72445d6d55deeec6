"""A result survives its file exactly, and nothing else is taken for one."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any, Dict

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxdp.errors import MxdpError, UsageError
from mxdp.experiments.harness import results
from mxdp.plans.show import files


def record(name: str = "fake") -> Dict[str, Any]:
    """The hand-made result of ``result.json`` as it stands in its file, under another name."""
    result: Dict[str, Any] = json.loads((Path(__file__).parent / "result.json").read_text(encoding="utf-8"))
    return {**result, "experiment": name}


def make(name: str = "fake") -> Dict[str, Any]:
    """The same, with its rows as rows."""
    return results.loaded(record(name))


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("samples", [[], [1.0, math.nan], [math.inf], [-0.1]])
def test_times_that_can_not_be_are_not_written(samples: Any, tmp_path: Path) -> None:
    result = make()
    result["rows"][0].samples = samples
    with pytest.raises(ValueError, match=r"rows\[0\]\.seconds|no median"):
        results.write(result, tmp_path)
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.floats(0, 1e300), min_size=1))
def test_any_other_times_are_a_valid_row(samples: Any) -> None:
    result = make()
    result["rows"][0].samples = samples
    assert results.problem(json.loads(json.dumps(results.plain(result)))) is None


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    result = make()
    result["question"] = "Grüße: “≤ 2”?"
    path = results.write(result, tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "fake.json"
    assert results.plain(results.read(path)) == results.plain(result)
    assert [file.name for file in path.parent.iterdir()] == ["fake.json"]
    assert "Grüße" in path.read_text(encoding="utf-8")


def test_what_is_not_a_number_is_null_in_the_file_and_stays_in_the_record(tmp_path: Path) -> None:
    result = make()
    result["rows"][0].metrics = {"loss": math.nan, "all": [1.0, -math.inf], "deep": {"x": (math.inf,)}}
    metrics = results.read(results.write(result, tmp_path))["rows"][0].metrics
    assert metrics == {"loss": None, "all": [1.0, None], "deep": {"x": [None]}}
    assert math.isnan(result["rows"][0].metrics["loss"])


def test_numpy_numbers_become_plain(tmp_path: Path) -> None:
    result = make()
    result["rows"][0].metrics = {
        "a": numpy.float32(0.5),
        "b": numpy.int64(3),
        "c": numpy.bool_(True),
        "d": numpy.array([1.0, numpy.nan]),
    }
    metrics = results.read(results.write(result, tmp_path))["rows"][0].metrics
    assert metrics == {"a": 0.5, "b": 3, "c": True, "d": [1.0, None]}
    assert metrics["c"] is True


def test_what_a_row_has_besides_is_passed_over(tmp_path: Path) -> None:
    path = results.write(record(), tmp_path)
    changed = json.loads(path.read_text())
    for part in (changed, changed["rows"][0], changed["rows"][0]["seconds"], changed["verdict"]):
        part["later"] = 1
    path.write_text(json.dumps(changed))
    assert vars(results.read(path)["rows"][0]) == vars(results.loaded(results.plain(record()))["rows"][0])


BROKEN = [
    (("question",), None, "question is missing"),
    (("rows", 0, "seconds", "median"), None, "rows[0].seconds.median is missing"),
    (("oracle", "checked"), True, "oracle.checked is True, not int"),
    (("oracle", "checked"), 1.5, "oracle.checked is 1.5, not int"),
    (("verdict", "holds"), "yes", "verdict.holds is 'yes', not bool or null"),
    (("verdict",), "yes", "verdict is not an object"),
    (("rows",), {}, "rows is not a list"),
    (("rows", 0, "seconds", "samples"), [], "rows[0].seconds.samples is empty"),
    (("rows", 0, "seconds", "samples"), [2.0, 9.0], "rows[0].seconds is not 0 <= min <= median <= max"),
    (("references", 0, "seconds", "min"), 3.0, "references[0].seconds is not 0 <= min <= median <= max"),
    (("rows", 0, "seconds", "max"), math.nan, "rows[0].seconds.max is None, not int or float"),
    (("rows", 0, "seconds", "max"), math.inf, "rows[0].seconds.max is None, not int or float"),
    (("environment", "cores"), "2", "environment.cores is '2', not int"),
    (("status",), "fine", "status 'fine' is none of ok, failed, timeout, skipped"),
    (("experiment",), "../evil", "experiment '../evil' is not a name"),
    (("schema_version",), 4, "its schema_version is 4, and this mxdp knows 3"),
    (("verdict", "claims", 0, "bound"), None, "verdict.claims[0].bound is missing"),
    (("sources",), ["mxdp.timing"], "sources is not an object whose values are texts"),
    (("sources",), {"mxdp.timing": 1}, "sources is not an object whose values are texts"),
]


@pytest.mark.parametrize(("where", "value", "words"), BROKEN, ids=[words for _, _, words in BROKEN])
def test_an_incomplete_record_is_not_written(tmp_path: Path, where: Any, value: Any, words: str) -> None:
    result = record()
    inner: Any = result
    for key in where[:-1]:
        inner = inner[key]
    if value is None:
        del inner[where[-1]]
    else:
        inner[where[-1]] = value
    with pytest.raises(ValueError, match=re.escape(f"not a result: {words}")):
        results.write(result, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results.write(make(), tmp_path)
    before = (tmp_path / "fake.json").read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(MxdpError, match=r"fake\.json can't be written \(No space left on device\)"):
        results.write({**make(), "question": "Another?"}, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["fake.json"]
    assert (tmp_path / "fake.json").read_bytes() == before


def test_two_processes_that_write_the_same_result_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = files.os.replace

    def meanwhile(source: Any, target: Any) -> None:
        monkeypatch.setattr(files.os, "replace", replace)
        monkeypatch.setattr(files.os, "getpid", lambda: 7)
        results.write({**make(), "question": "The other's?"}, tmp_path)
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", meanwhile)
    results.write(make(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["fake.json"]
    assert results.plain(results.read(tmp_path / "fake.json")) == results.plain(make())


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    put(tmp_path, "taken", "")
    with pytest.raises(MxdpError, match="can't be written"):
        results.write(make(), tmp_path / "taken")


def test_foreign_json_is_no_result(tmp_path: Path) -> None:
    for text in ("[]", "3", "{}", '{"experiment": "fake"}'):
        path = put(tmp_path, "trace.json", text)
        with pytest.raises(UsageError, match=r"trace\.json is no result of mxdp"):
            results.read(path)


@pytest.mark.parametrize("keep", [0, 1, 40, -2])
def test_a_truncated_file_is_named(tmp_path: Path, keep: int) -> None:
    path = results.write(make(), tmp_path)
    path.write_text(path.read_text(encoding="utf-8").rstrip("\n")[:keep], encoding="utf-8")
    for action in (lambda: results.read(path), lambda: results.read_folder(tmp_path)):
        with pytest.raises(MxdpError, match=r"fake\.json is damaged .*; move it away or run its experiment again\."):
            action()


def test_other_damage_is_named(tmp_path: Path) -> None:
    path = put(tmp_path, "fake.json", json.dumps({**record(), "elapsed_seconds": math.nan}))
    with pytest.raises(MxdpError, match=r"fake\.json is damaged \(NaN is not JSON\)"):
        results.read(path)
    path.write_bytes(b"\xff\xfe{")
    with pytest.raises(MxdpError, match=r"fake\.json is damaged"):
        results.read(path)
    put(tmp_path, "fake.json", json.dumps({**record(), "rows": [{}]}))
    with pytest.raises(MxdpError, match=r"fake\.json is damaged \(rows\[0\]\.label is missing\)"):
        results.read(path)


def test_a_metric_over_the_rounds() -> None:
    assert results.combined([1.0, None, 4.0]) == 2.5
    assert results.combined([None, None]) is None
    assert math.isnan(results.combined([1.0, math.nan]))
    for place in range(4):
        assert math.isnan(results.combined([*[1.0, 2.0, 3.0][:place], math.nan, *[1.0, 2.0, 3.0][place:]]))
    assert results.combined([{"a": {"b": 1}}, {"a": {"b": 3}, "c": "x"}]) == {"a": {"b": 2}, "c": "x"}
    assert results.combined([[1], [2]]) == [2]


@pytest.mark.parametrize("version", [0, 1, 2, 4, "3", None])
def test_another_version_is_named(tmp_path: Path, version: Any) -> None:
    # All else may have changed with the version, so only the version may be complained of.
    path = put(tmp_path, "fake.json", json.dumps({"experiment": "fake", "schema_version": version}))
    with pytest.raises(MxdpError) as caught:
        results.read(path)
    assert f"fake.json is of schema_version {version!r} and this mxdp reads 3;" in str(caught.value)


def test_a_renamed_file_is_named(tmp_path: Path) -> None:
    path = results.write(make(), tmp_path).rename(tmp_path / "old.json")
    with pytest.raises(MxdpError, match=r"old\.json holds the experiment 'fake'; rename it to fake\.json"):
        results.read(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no file .*gone\.json"):
        results.read(tmp_path / "gone.json")
    with pytest.raises(MxdpError, match="can't be read"):
        results.read(tmp_path)
    with pytest.raises(UsageError, match=r"there is no folder .*gone"):
        results.read_folder(tmp_path / "gone")
    with pytest.raises(UsageError, match="there is no result in"):
        results.read_folder(tmp_path)


def test_a_folder_is_sorted_and_foreign_files_are_passed_over(tmp_path: Path, capsys: Any) -> None:
    for name in ("b", "a-2", "a", "B"):
        results.write(make(name), tmp_path)
    put(tmp_path, "trace.json", "[]")
    put(tmp_path, "._a.json", "not even JSON")
    put(tmp_path, "notes.txt", "not even JSON")
    notes = []
    found = results.read_folder(tmp_path, notes.append)
    assert [result["experiment"] for result in found] == ["B", "a", "a-2", "b"]
    assert notes == [f"{tmp_path / 'trace.json'} is no result of mxdp and is passed over."]
    assert capsys.readouterr() == ("", "")
    results.read_folder(tmp_path)
    assert capsys.readouterr() == ("", notes[0] + "\n")
