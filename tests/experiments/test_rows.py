from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from mxdp.experiments.harness.results import summary
from mxdp.experiments.report.rows import find, find_all, metric, plural, ratio, row_bars, seconds

ROWS = [
    {"label": "a", "case": {"loop": "book", "n": 1}, "seconds": summary([4.0, 6.0, 5.0]), "metrics": {"x": 1.5}},
    {"label": "b", "case": {"loop": "mxdp", "n": 1}, "seconds": summary([2.0, 1.0, 2.5]), "metrics": {"x": True}},
]


def test_rows_are_found_by_their_case():
    assert find_all(ROWS, n=1) == ROWS
    assert find(ROWS, loop="mxdp", n=1) is ROWS[1]
    assert find(ROWS, loop="mxdp", n=2) is None


def test_the_ratio_is_of_rounds_that_ran_one_after_the_other():
    assert ratio(ROWS[0], ROWS[1]) == 2.0
    longer = {"seconds": summary([1.0] * 9)}
    assert ratio(ROWS[0], longer) == 5.0


@pytest.mark.parametrize(("count", "expected"), [(0, "0 processes"), (1, "1 process"), (3, "3 processes")])
def test_plural(count, expected):
    assert plural(count, "process") == expected


def test_cells():
    assert metric("x", "").cell(ROWS[0]) == "1.50"
    assert metric("x", "").cell(ROWS[1]) == "yes"
    assert metric("x", "").cell({"metrics": {"x": False}}) == "no"
    assert metric("x", "", "{:,.0f}").cell({"metrics": {"x": 12345.6}}) == "12,346"
    with pytest.raises(KeyError):  # shown as a dash, as registry.Column says
        metric("missing", "").cell(ROWS[0])
    with pytest.raises(TypeError):
        metric("x", "").cell({"metrics": {"x": None}})
    assert seconds().cell(ROWS[0]) == "5.00 (4.00-6.00)"


def test_bars_show_medians_and_samples_in_scale():
    figure = Figure()
    row_bars(figure, ROWS, "s", ["red", "blue"], scale=[10.0, 3.0])
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == [50.0, 6.0]
    whiskers, dots = axes.lines[0::2], axes.lines[1::2]
    assert [list(line.get_xdata()) for line in whiskers] == [[40.0, 60.0], [3.0, 7.5]]
    assert [list(line.get_xdata()) for line in dots] == [[40.0, 60.0, 50.0], [6.0, 3.0, 7.5]]
