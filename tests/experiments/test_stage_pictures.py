"""A staircase shows every task where and when it ran."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from mxdp.experiments.other_splits.stage_pictures import Panel, staircase

SPANS = [(0, "F0", 0.0, 0.1), (1, "F0", 0.1, 0.101), (1, "B0", 0.101, 0.15), (0, "B0", 0.15, 0.2)]


def test_boxes_are_the_tasks():
    figure = Figure(layout="constrained")
    staircase(figure, [Panel("first", SPANS, 0.25), Panel("second", SPANS[:1], 0.1)])
    first, second = figure.axes
    assert [each.get_title(loc=place) for each, place in ((first, "center"), (second, "center"))] == ["first", "second"]
    boxes = [(round(box.get_y() + 0.4), box.get_x(), box.get_width()) for box in first.patches]
    assert boxes == [(stage, 1e3 * start, pytest.approx(1e3 * (stop - start))) for stage, _, start, stop in SPANS]
    assert [text.get_text() for text in first.texts] == ["F0", "B0", "B0"], "a box too narrow has no name"
    assert [axes.lines[0].get_xdata()[0] for axes in figure.axes] == [250.0, 100.0]
    assert len({box.get_facecolor() for box in first.patches}) == 2
    assert first.get_xlim() == second.get_xlim()
