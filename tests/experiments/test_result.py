"""A result's file: written once, whole or not at all; what can't be read is named."""

from __future__ import annotations

import json
import math
import operator
import re
from functools import reduce

import numpy as onp
import pytest
from littles import record

from mxdp.errors import MxdpError
from mxdp.experiments.lab import result


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


def test_a_failed_write_is_said(tmp_path):
    (tmp_path / "fake").write_text("in the way")
    with pytest.raises(MxdpError, match=r"030405\.json can't be written"):
        result.write(record(), tmp_path)


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
