from __future__ import annotations

import numpy as onp
import pytest

from mxdp.backend import gluon
from mxdp.experiments.data_parallel.stock_loop import StockLoop
from mxdp.experiments.data_parallel.work import stock_loop as work
from mxdp.experiments.harness.experiment import Case


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
