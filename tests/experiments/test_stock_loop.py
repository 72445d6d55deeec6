from __future__ import annotations

import pytest

from mxdp.experiments.data_parallel.stock_loop import StockLoop
from mxdp.experiments.harness import claims
from mxdp.experiments.harness.rows import Row


def finished(two):
    """The book's loop takes 10 s and 8 s, mxdp's 7 s on one device."""
    rows = [
        Row(
            f"{loop}, {devices}",
            {"loop": loop, "num_devices": devices, "epoch_samples": 100},
            samples=[seconds * drift for drift in (1, 2, 3, 4, 5, 6)],
        )
        for loop, devices, seconds in (("book", 1, 10.0), ("mxdp", 1, 7.0), ("book", 2, 8.0), ("mxdp", 2, two))
    ]
    StockLoop().finish(rows, [], {})
    return rows


@pytest.mark.parametrize(("two", "holds"), [(4.3, True), (4.5, False)])
def test_on_several_devices_it_must_take_about_half_of_the_books_time(two, holds):
    rows = finished(two)
    found = claims.judged("halves", StockLoop.claims["halves"], rows)
    assert (found["holds"], [each["label"] for each in found["measured"]]) == (holds, ["mxdp, 2"])
    assert [row.metrics["of_book"] for row in rows] == [1.0, pytest.approx(0.7), 1.0, pytest.approx(two / 8)]


def test_accuracy_is_compared_with_the_books_seed_by_seed():
    rows = finished(4.0)
    for row, accuracies in zip(rows, ((0.80, 0.82), (0.81, 0.82), (0.80, 0.81), (0.83, 0.80))):
        row.rounds.update(repeat=[0, 0, 1, 1], test_accuracy=[0.5, accuracies[0], 0.6, accuracies[1]])
    StockLoop().finish(rows, [], {})
    assert [row.metrics["test_accuracy"] for row in rows] == pytest.approx([0.81, 0.815, 0.805, 0.815])
    assert rows[1].metrics["accuracy_gain"] == pytest.approx(0.005)
    said = StockLoop().explanation(rows, [], {})
    assert said.endswith(" Its test accuracy differs by +0.0100, seed by seed.")


def test_the_answer_begins_with_the_most_devices():
    assert StockLoop().answer(finished(4.0), [], {}) == (
        "mxdp trains an epoch in 0.50 (0.50 to 0.50) of the time that the book's loop takes on 2 devices and in 0.70 "
        "(0.70 to 0.70) of the time that the book's loop takes on 1 device."
    )
    assert "accuracy" not in StockLoop().explanation(finished(4.0), [], {})
