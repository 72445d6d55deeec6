from __future__ import annotations

import pytest

from mxdp.experiments.data_parallel.epochs import Epochs
from mxdp.experiments.harness import claims

SETTINGS = dict(devices=[1, 2])


def row(devices, seconds, in_sync=True, **case):
    metrics = dict(round_samples=100, in_sync=in_sync, test_accuracy=0.8)
    return {
        "label": f"{devices} devices",
        "case": {"devices": [f"cpu({rank})" for rank in range(devices)], "epoch_samples": 600, **case},
        "seconds": {"median": seconds, "samples": [seconds * drift for drift in (1, 2, 3, 4, 5, 6)]},
        "metrics": metrics,
        "rounds": {"in_sync": [in_sync] * 6},
    }


def finished(two=1.05, ceiling=1.02, in_sync=True):
    rows, references = [row(1, 2.0), row(2, two, in_sync)], [row(1, ceiling, processes=2)]
    Epochs().finish(rows, references, SETTINGS)
    return rows, references


@pytest.mark.parametrize(
    ("changes", "fails"),
    [
        ({}, []),
        ({"two": 1.15, "ceiling": 1.11}, ["halves"]),
        ({"ceiling": 0.99}, ["of_ceiling"]),
        ({"in_sync": False}, ["in_sync"]),
    ],
)
def test_an_epoch_must_halve_near_the_ceiling_and_in_step(changes, fails):
    rows, references = finished(**changes)
    held = {name: claims.judged(name, claim, rows + references)["holds"] for name, claim in Epochs.claims.items()}
    assert held == {name: name not in fails for name in Epochs.claims}


def test_the_answer_compares_with_one_device_and_the_ceiling():
    said = Epochs().answer(*finished(), SETTINGS)
    assert "An epoch is 1.90 (1.90 to 1.90) times as fast on 2 devices. That is 0.97 (0.97 to 0.97) of" in said
    assert "fell out of step on 2 devices" in Epochs().answer(*finished(in_sync=False), SETTINGS)
    one = [row(1, 2.0)]
    Epochs().finish(one, [], SETTINGS)
    assert "--devices 1,2" in Epochs().answer(one, [], SETTINGS)


def test_its_rows_carry_what_other_programs_read(measured):
    _, result = measured("epochs")
    names = {"sec_per_epoch", "samples_per_sec", "test_accuracy", "speedup", "in_sync"}
    assert [row["case"]["devices"] for row in result["rows"]] == [["cpu(0)"], ["cpu(0)", "cpu(1)"]]
    assert all(names <= set(row["metrics"]) for row in result["rows"])
    assert all(row["metrics"]["in_sync"] is True for row in result["rows"])
    one = result["rows"][0]["metrics"]
    assert one["speedup"] == 1.0
    assert one["sec_per_epoch"] == pytest.approx(6000 / one["samples_per_sec"])


def test_accuracy_and_loss_of_every_round_are_kept(measured):
    _, result = measured("epochs")
    for row in result["rows"]:
        assert len(row["rounds"]["test_accuracy"]) == len(row["rounds"]["loss"]) == 2
        assert row["metrics"]["test_accuracy"] == row["rounds"]["test_accuracy"][-1]
