from __future__ import annotations

import numpy as onp
import pytest

from mxdp.backend import gluon
from mxdp.experiments.data_parallel.stock_loop import StockLoop
from mxdp.experiments.data_parallel.work import stock_loop as work
from mxdp.experiments.harness import claims
from mxdp.experiments.harness.experiment import Case
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


@pytest.mark.parametrize("loop", ["mxdp", "book"])
def test_a_process_goes_on_with_the_training_of_the_one_before(tmp_path, monkeypatch, loop):
    settings = {**StockLoop.presets["quick"], **StockLoop.little, "data": "synthetic"}
    # The book's loader forks, which takes seconds in a process that has run other tests.
    monkeypatch.setattr(
        work.book_loop,
        "data_loader",
        lambda train, test, batch_size: gluon.data.DataLoader(gluon.data.ArrayDataset(train.X, train.y), batch_size),
    )

    def accuracies(rounds, folder):
        case = Case("x", 2, settings={"loop": loop, "num_devices": 2}, folder=folder)
        own = work.set_up(case, settings)
        return [own.round().last["test_accuracy"] for _ in range(rounds)]

    split = accuracies(1, str(tmp_path)) + accuracies(1, str(tmp_path))
    if loop == "mxdp":
        assert split == accuracies(2, "")
    with onp.load(tmp_path / "0.npz") as kept:
        assert int(kept["rounds"]) == 2


def test_the_answer_begins_with_the_most_devices():
    assert StockLoop().answer(finished(4.0), [], {}) == (
        "mxdp trains an epoch in 0.50 (0.50 to 0.50) of the time that the book's loop takes on 2 devices and in 0.70 "
        "(0.70 to 0.70) of the time that the book's loop takes on 1 device."
    )
