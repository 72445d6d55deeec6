from __future__ import annotations

import pytest
from littles import little

from mxdp.backend import gluon
from mxdp.datasets import load
from mxdp.experiments.data_parallel import epochs, stock_loop
from mxdp.experiments.lab import Case
from mxdp.experiments.lab.module import Question


def in_memory(train, test, batch_size):
    """The book's loader forks, which takes seconds in a process that has run other tests."""
    return gluon.data.DataLoader(gluon.data.ArrayDataset(train.X, train.y), batch_size)


@pytest.mark.parametrize(
    ("question", "case"),
    [
        (epochs, Case("one device")),
        (epochs, Case("two devices", 2)),
        (epochs, Case("the second process of a ceiling", processes=2)),
        (stock_loop, Case("mxdp", 2, loop="mxdp")),
        (stock_loop, Case("the book", 2, loop="book")),
    ],
    ids=lambda value: getattr(value, "label", None),
)
def test_a_process_goes_on_with_the_training_of_the_one_before(tmp_path, monkeypatch, question, case):
    """Over the end of an epoch, too: 1000 pictures are one."""
    data, case.process = load("synthetic").take(1000, 100), case.processes - 1
    monkeypatch.setattr(question, "pictures", lambda s: data)
    monkeypatch.setattr(stock_loop.book_loop, "data_loader", in_memory)

    def measured(rounds, folder):
        case.folder = folder
        work = question.set_up(case, little(Question(question), samples=600))
        kept = [work.round()[1] for _ in range(rounds)]
        return [(more.get("loss"), more.get("test_accuracy")) for more in kept]

    assert measured(2, str(tmp_path)) + measured(1, str(tmp_path)) == measured(3, "")
