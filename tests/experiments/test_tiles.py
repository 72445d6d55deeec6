from __future__ import annotations

import numpy as onp
import pytest
from matplotlib.figure import Figure

from mxdp.backend import devices
from mxdp.experiments.harness import claims
from mxdp.experiments.harness.experiment import find
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.measure.child import one_round
from mxdp.experiments.measure.oracle import count
from mxdp.experiments.other_splits.split import ONE_DEVICE
from mxdp.experiments.other_splits.tiles import Tiles
from mxdp.experiments.other_splits.work import tiles as work
from mxdp.experiments.other_splits.work.split import SplitNet
from mxdp.experiments.other_splits.work.tiles import ODD, SHAPE, Seams, seams

SETTINGS = {**Tiles.presets["quick"], **Tiles.little, "devices": [2], "kind": "cpu"}
CASES = {case.label: case for case in Tiles().cases(SETTINGS)}


@pytest.mark.parametrize("grid", [(2, 2), (2, 1), (1, 3)])
def test_errors_are_at_the_seams_alone(grid):
    found = seams(devices(grid[0] * grid[1], "cpu"), grid, halo=False, seed=0)
    assert found.error.max() > 0
    assert found.error[found.inside].max() == 0
    assert found.error.shape == found.inside.shape == SHAPE[1:]
    # All but two rows or columns on each side of a seam are inside.
    rows, columns = SHAPE[1] - 4 * (grid[0] - 1), SHAPE[2] - 4 * (grid[1] - 1)
    assert found.inside.sum() == rows * columns
    # Right up to there it is wrong.
    assert {int(y) for y in onp.flatnonzero(found.error[:, 0])} == set(onp.flatnonzero(~found.inside[:, 0]))


def test_with_halos_there_are_none():
    assert seams(devices(4, "cpu"), (2, 2), halo=True, seed=0).error.max() == 0


def test_an_error_inside_is_found(monkeypatch):
    monkeypatch.setattr(work, "REACH", 1)
    found = seams(devices(4, "cpu"), (2, 2), halo=False, seed=0)
    assert found.error[found.inside].max() > 0
    assert count(work.oracle(CASES["2 x 1, no halo"], SETTINGS))[1] > 0


def test_the_oracle_compares_pixels_and_with_halos_the_training(monkeypatch):
    monkeypatch.setattr(SplitNet, "compare", lambda self, samples: [(onp.zeros(samples), onp.ones(samples))])
    pixels = SHAPE[1] * SHAPE[2]
    for label, checked in (("whole pictures", pixels + ODD), ("2 x 1 tiles", pixels + ODD)):
        assert count(work.oracle(CASES[label], SETTINGS)) == (checked, ODD)
    assert count(work.oracle(CASES["2 x 1, no halo"], SETTINGS)) == (pixels - 4 * SHAPE[2], 0)


@pytest.mark.parametrize(("label", "wrong"), [("2 x 1 tiles", 2), ("2 x 1, no halo", 1)])
def test_one_wrong_pixel_is_caught(label, wrong, monkeypatch):
    monkeypatch.setattr(SplitNet, "compare", lambda self, samples: [])
    error, inside = onp.zeros((2, 2)), onp.array([[True, True], [False, False]])
    error[:, 0] = 1e-30, onp.nan
    monkeypatch.setattr(work, "seams", lambda *more: Seams(error, inside))
    assert count(work.oracle(CASES[label], SETTINGS))[1] == wrong


def test_a_row_has_its_errors():
    without = one_round(work.set_up(CASES["2 x 1, no halo"], SETTINGS)).last
    assert without["worst_error"] == onp.max(without["error_map"]) > without["worst_error_inside"] == 0


def rows(*errors):
    return [
        Row(
            label="2 x 2 tiles",
            case={"strategy": "tile", "grid": [2, 2], "halo": halo},
            samples=[1.0],
            metrics={"worst_error": worst, "worst_error_inside": inside, "bytes_moved": 3e6 if halo else 1e6},
            rounds={"worst_error": [worst], "worst_error_inside": [inside], "predicted_seconds": [1.0]},
        )
        for halo, worst, inside in errors
    ]


@pytest.mark.parametrize(
    ("errors", "wrong"),
    [
        ([(True, 0, 0), (False, 7, 0)], {}),
        ([(True, 1, 0), (False, 7, 0)], {"error_with_halos": False}),
        ([(True, float("nan"), 0), (False, 7, 0)], {"error_with_halos": False}),
        ([(True, 0, 0), (False, 7, 1)], {"error_inside": False}),
        ([(True, 0, 0), (False, 0, 0)], {"error_without_halos": False}),
        ([(True, 0, 0)], {"error_without_halos": None, "error_inside": None}),
    ],
)
def test_the_claims(errors, wrong):
    given, tiles = rows(*errors), find("tiles")
    tiles.finish(given, [], {})
    held = {name: claims.judged(name, claim, given)["holds"] for name, claim in tiles.claims.items()}
    assert held == {**dict.fromkeys(tiles.claims, True), **wrong}


def test_the_answer_says_where_pixels_are_wrong():
    case = {"strategy": "serial", "grid": [1, 1], "halo": True}
    whole = Row("whole pictures", case, [2.0], {"worst_error": 0, "bytes_moved": 0})
    whole.rounds = {"predicted_seconds": [2.0]}
    given, tiles = [whole, *rows((True, 0, 0), (False, 7, 1))], find("tiles")
    tiles.finish(given, [], {})
    assert tiles.answer(given, [], {"devices": [4]}) == (
        "At the seams, pixels are right with halos and wrong without; training with 2 x 2 tiles is 2.00 times as fast "
        "as with whole pictures."
    )
    explained = tiles.explanation(given, [], {"devices": [4]})
    assert explained == "Of the 3.00 MB that 2 x 2 tiles move in a step, 2.00 MB are halos."
    given[1].metrics["worst_error"] = 1
    assert "wrong with halos" in tiles.answer(given, [], {"devices": [4]})
    assert tiles.answer(given[:1], [], {"devices": [1]}) == ONE_DEVICE
    assert tiles.explanation(given[:1], [], {"devices": [1]}) == ""


def test_the_picture_has_every_row(measured):
    _, result = measured("tiles")
    figure = Figure(layout="constrained")
    Tiles().draw(result, figure)
    bars = figure.axes[-2] if figure.axes[-1].get_label() == "<colorbar>" else figure.axes[-1]
    labels = [text.get_text() for text in bars.texts]
    assert {row.label for row in result["rows"]} <= set(labels)
    assert any("no halo" in label for label in labels)
