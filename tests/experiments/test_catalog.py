"""Every registered experiment, whole: in its quick size's shape, but with as little work as its settings allow."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ElementTree

import pytest

from mxdp.experiments.harness import results, runner
from mxdp.experiments.harness.experiment import discover
from mxdp.experiments.report import page as report

LITTLE = {
    "rounds": 2,
    "samples": 200,
    "size": 64,
    "products": 2,
    "data": "synthetic",
    "batch_size": 40,
    "images": 1,
    "bucket_mb": [1.0],
    "sizes": [4, 4096],
    "nbytes": 65536,
    "sides": [8, 32],
    "run_seconds": 0.001,
    "round_seconds": 0.001,
    "units": 16,
    "batch_sizes": [4, 16],
    "pictures": 1,
    "steps": 2,
    "limit_bytes": 80000,
    "additions": 20,
    "micro_batches": [1, 4],
    "batches": [1, 2],
    "stream": 2,
}
TIMELINES = {
    "copy-overlap": 6,
    "graph": 4,
    "memory-guard": 1,
    "mixed-devices": 2,
    "operators": 2,
    "profile": 5,
    "run-ahead": 4,
    "small-ops": 6,
    "two-jobs": 2,
    "where-the-time-went": 3,
}
"""How many rows and references of each experiment of the laboratory are recorded."""
CATALOG = [each for each in discover().values() if type(each).__module__.startswith("mxdp.")]


def by_name(experiment):
    return experiment.name


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Results by name; each experiment runs once for all tests."""
    folder, done = tmp_path_factory.mktemp("catalog"), {}

    def measure(experiment):
        if experiment.name not in done:
            quick = experiment.presets["quick"]
            settings = {**quick, **{key: value for key, value in LITTLE.items() if key in quick}}
            done[experiment.name] = runner.run(experiment, "quick", settings, folder)
        return folder, done[experiment.name]

    return measure


@pytest.mark.parametrize("experiment", CATALOG, ids=by_name)
def test_runs_meets_its_oracle_and_is_complete(experiment, measured):
    folder, result = measured(experiment)
    assert (result["status"], result["error"]) == ("ok", None)
    assert result["oracle"]["checked"] > 0
    assert result["oracle"]["wrong"] == 0
    assert results.read(folder / f"{experiment.name}.json") == json.loads(json.dumps(result))
    for row in result["rows"] + result["references"]:
        assert len(row["seconds"]["samples"]) == 2
        assert row["case"]["devices"]
    cells = report.table(result, experiment)
    assert all(cell not in ("?", report.NOTHING) for row in cells.rows for cell in row[1:2])
    assert "?" not in [cell for row in cells.rows + cells.references for cell in row]
    assert isinstance(result["verdict"]["holds"], bool)
    assert any(character.isdigit() for character in result["verdict"]["text"])


@pytest.mark.parametrize("experiment", CATALOG, ids=by_name)
def test_is_drawn_from_its_json_with_its_timelines(experiment, measured, tmp_path):
    folder, result = measured(experiment)
    shutil.copy(folder / f"{experiment.name}.json", tmp_path)
    report.write_report(tmp_path)
    picture = ElementTree.parse(tmp_path / f"{experiment.name}.svg").getroot()
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}path"))) > 10
    assert "could not be drawn" not in (tmp_path / "report.html").read_text()
    recorded = [row for row in result["rows"] + result["references"] if "timeline" in row["metrics"]]
    assert len(recorded) == len(list(tmp_path.glob("timelines/*.svg")))
    assert len(recorded) == TIMELINES.get(experiment.name, len(recorded))


@pytest.mark.parametrize("experiment", CATALOG, ids=by_name)
def test_is_well_described(experiment):
    quick, full = experiment.presets["quick"], experiment.presets["full"]
    assert list(quick) == list(full)
    assert {"rounds", "timeout", "seed"} <= set(quick)
    assert quick["rounds"] >= 5
    assert full["rounds"] >= 5
    assert experiment.question.endswith("?")
    for cores in (1, 2, 16):
        assert experiment.predict(dict(quick), cores)
    labels = [case.label for case in experiment.cases(dict(quick))]
    assert len(set(labels)) == len(labels)


def test_epochs_rows_carry_what_other_programs_read(measured):
    _, result = measured(discover()["epochs"])
    names = {"sec_per_epoch", "samples_per_sec", "test_accuracy", "speedup", "in_sync"}
    assert [row["case"]["devices"] for row in result["rows"]] == [["cpu(0)"], ["cpu(0)", "cpu(1)"]]
    assert all(names <= set(row["metrics"]) for row in result["rows"])
    assert all(row["metrics"]["in_sync"] is True for row in result["rows"])
    one = result["rows"][0]["metrics"]
    assert one["speedup"] == 1.0
    assert one["sec_per_epoch"] == pytest.approx(6000 / one["samples_per_sec"])


def test_two_jobs_compares_three_products_of_every_job(measured):
    _, result = measured(discover()["two-jobs"])
    jobs = 1 + 1 + 2 + 2 + 2  # two alone, in turn, at once, and the reference
    assert result["oracle"]["checked"] == 3 * 257 * 257 * jobs


def test_two_jobs_has_both_over_one(measured):
    _, result = measured(discover()["two-jobs"])
    assert [row["case"]["run"] for row in result["rows"] if "both_over_one" in row["metrics"]] == ["at once"]


def test_stock_loop_runs_the_book_without_our_settings(measured):
    _, result = measured(discover()["stock-loop"])
    by_loop = {loop: [row for row in result["rows"] if row["case"]["loop"] == loop] for loop in ("book", "mxdp")}
    assert [row["metrics"]["of_book"] for row in by_loop["book"]] == [1.0, 1.0]
    book = next(each for each in discover()["stock-loop"].cases(result["settings"]) if each.settings["loop"] == "book")
    assert book.environment["MXDP_PREPARE"] == "0"
    assert book.environment["MXNET_CPU_TEMP_COPY"] is None
