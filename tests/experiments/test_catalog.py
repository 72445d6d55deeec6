"""Every registered experiment, whole: in its quick size's shape, but with as little work as its settings allow."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree

import pytest

from mxdp.experiments.harness import results
from mxdp.experiments.harness.experiment import discover
from mxdp.experiments.harness.settings import resolve
from mxdp.experiments.report import page as report

CATALOG = [each for each in discover().values() if type(each).__module__.startswith("mxdp.")]

ON_GPUS = ("torch-two-jobs", "torch-copy-overlap")
"""Whose one claim is judged on GPUs alone."""
TIMELINES = {
    "copy-overlap": 6, "graph": 4, "memory-guard": 1, "mixed-devices": 2, "operators": 2, "profile": 3, "run-ahead": 4,
    "small-ops": 6, "two-jobs": 2, "where-the-time-went": 3,
}  # fmt: skip
"""How many rows these record."""


def by_name(experiment):
    return experiment.name


@pytest.mark.parametrize("experiment", CATALOG, ids=by_name)
def test_runs_meets_its_oracle_and_is_complete(experiment, measured):
    folder, result = measured(experiment.name)
    if result["status"] == "skipped":
        pytest.skip(result["error"])
    assert (result["status"], result["error"]) == ("ok", None)
    assert result["oracle"]["checked"] > 0
    assert result["oracle"]["wrong"] == 0
    read = results.plain(results.read(folder / f"{experiment.name}.json"))
    assert read == json.loads(json.dumps(results.plain(result)))
    for row in result["rows"] + result["references"]:
        assert len(row.samples) == experiment.little.get("rounds", 2)
        assert row.case["devices"]
    cells = report.table(result, experiment)
    assert all(cell not in ("?", report.NOTHING) for row in cells.rows for cell in row[1:2])
    assert "?" not in [cell for row in cells.rows + cells.references for cell in row]
    judged = {each["name"] for each in result["verdict"]["claims"] if each["measured"]}
    if experiment.name not in ON_GPUS or any(row.case["devices"][0].startswith("cuda") for row in result["rows"]):
        assert judged == set(experiment.claims) or (judged and result["verdict"]["skipped"])
    assert any(character.isdigit() for character in result["verdict"]["text"])


@pytest.mark.parametrize("experiment", CATALOG, ids=by_name)
def test_is_drawn_from_its_json_with_its_timelines(experiment, measured, tmp_path):
    folder, result = measured(experiment.name)
    if result["status"] == "skipped":
        pytest.skip(result["error"])
    shutil.copy(folder / f"{experiment.name}.json", tmp_path)
    report.write_report(tmp_path)
    picture = ElementTree.parse(tmp_path / f"{experiment.name}.svg").getroot()
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}path"))) > 10
    assert "could not be drawn" not in (tmp_path / "report.html").read_text()
    recorded = [row for row in result["rows"] + result["references"] if results.TIMELINE in row.metrics]
    assert len(recorded) == len(list(tmp_path.glob("timelines/*.svg"))) == TIMELINES.get(experiment.name, len(recorded))


@pytest.mark.parametrize("experiment", CATALOG, ids=by_name)
def test_is_well_described(experiment):
    quick, full = experiment.presets["quick"], experiment.presets["full"]
    assert list(quick) == list(full)
    assert {"timeout", "seed"} <= set(quick)
    for preset in ("quick", "full"):
        settings = resolve([experiment], preset, {})[1][experiment.name]
        assert settings["repeats"] >= 6  # fewer give no interval
        assert settings["rounds"] % 2  # of an even number, skewed noise moves the median
    assert experiment.question.endswith("?")
    for cores in (1, 2, 16):
        assert experiment.predict(dict(quick), cores)
    labels = [case.label for case in experiment.cases(dict(quick))]
    assert len(set(labels)) == len(labels)
