"""What is drawn is what is given: bars, whiskers, numbers and predictions."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from mxdp.experiments.other_splits.split_pictures import ROOM, Block, Panel, side_by_side


@pytest.fixture
def axes():
    figure = Figure(layout="constrained")
    panels = [
        Panel("ms", [10.0, 4.0], low=[9.0, 3.0], high=[12.0, 8.0], predicted=[11.0, 30.0]),
        Panel("MB", [0, None]),
    ]
    block = Block("LeNet", ["serial", "data x 2"], ["#000000", "#FFFFFF"], panels)
    side_by_side(figure, [block, block])
    return figure.axes


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_each_block_has_its_panels_with_one_set_of_labels(axes):
    assert [each.get_title(loc="left") or each.get_title() for each in axes] == ["ms", "MB"] * 2
    assert [[label.get_text() for label in each.get_yticklabels()] for each in axes[:2]] == [
        ["serial", "data x 2"],
        ["", ""],
    ]


def test_bars_are_as_long_as_their_numbers(axes):
    assert [bar.get_width() for bar in axes[0].patches] == [10.0, 4.0]
    assert texts(axes[0]) == ["10.0", "4.00"]
    assert texts(axes[1]) == ["0", "?"]


def test_whiskers_and_predictions_are_where_they_belong(axes):
    *whiskers, predicted = [list(line.get_xdata()) for line in axes[0].lines]
    assert whiskers == [[9.0, 12.0], [3.0, 8.0]]
    assert predicted == [11.0, 30.0]
    assert axes[0].get_xlim() == (0, 30.0)
    assert axes[0].get_xlim()[1] >= ROOM * 12.0
    assert axes[1].get_xlim() == (0, ROOM)
