from __future__ import annotations

import pytest


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
