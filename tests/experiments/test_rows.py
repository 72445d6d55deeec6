from __future__ import annotations

import copy

import pytest
from matplotlib.figure import Figure

from mxdp.experiments.harness.experiment import Column
from mxdp.experiments.harness.results import summary
from mxdp.experiments.report.rows import cell, fastest, find, find_all, keep, over, ratio, ratios, row_bars, speedup

ROWS = [
    {
        "label": "a",
        "case": {"loop": "book", "n": 1},
        "seconds": summary([4.0, 6.0, 5.0]),
        "metrics": {"x": 1.5},
        "rounds": {},
    },
    {
        "label": "b",
        "case": {"loop": "mxdp", "n": 1},
        "seconds": summary([2.0, 1.0, 2.5]),
        "metrics": {"x": True},
        "rounds": {},
    },
]


def test_rows_are_found_by_their_case():
    assert find_all(ROWS, n=1) == ROWS
    assert find(ROWS, loop="mxdp", n=1) is ROWS[1]
    assert find(ROWS, loop="mxdp", n=2) is None


def test_the_ratio_is_of_rounds_that_ran_one_after_the_other():
    assert ratio(ROWS[0], ROWS[1]) == 2.0
    longer = {"seconds": summary([1.0] * 9)}
    assert ratio(ROWS[0], longer) == 5.0


def test_the_fastest_is_chosen_on_odd_rounds_or_odd_processes_and_reported_on_the_others():
    first, second = ({"seconds": summary(samples), "rounds": {}} for samples in ([1.0, 9.0, 1.0, 9.0], [3.0] * 4))
    best, reported = fastest([second, first])
    assert best is first
    assert reported == [False, True, False, True]
    for row in (first, second):
        row["rounds"]["repeat"] = [1, 0, 1, 0]
    best, reported = fastest([second, first])
    assert best is second
    assert reported == [True, False, True, False]


def test_a_ratio_needs_its_row():
    assert over(ROWS, ROWS[0], "n", loop="mxdp") == 2.0
    assert speedup(ROWS, ROWS[1], "n", loop="book") == 2.0
    assert over(ROWS, ROWS[0], "n", loop="none") is None
    assert speedup([{**ROWS[1], "case": {"loop": "mxdp", "n": 2}}], ROWS[0], "n", loop="mxdp") is None


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (Column("x", "", ".2f"), ["1.50", "yes"]),
        (Column("x", "", ".0f", 1000, " ms"), ["1500 ms", "yes"]),
        (Column(("y", "x"), ""), ["1.50", "no"]),
        (Column("loop", ""), ["book", "mxdp"]),
        (Column("missing", ""), [None, None]),
        (Column("z", ""), [None, None]),
        (Column("seconds", "", ".1f"), ["5.0", "2.0"]),
        (Column("seconds", "", ".2f", spread=True), ["5.00", "2.00 (1.00-3.00)"]),
        (Column("kept", "", ".1f", spread=True), ["2.0", None]),
        (Column("shares", "", ".0%"), ["50%, 100%", "none"]),
    ],
)
def test_cells(column, expected):
    first, second = ({**row, "rounds": {}} for row in copy.deepcopy(ROWS))
    first["metrics"].update(z=None, shares={"a": 0.5, "b": 1.0})
    second["metrics"].update(y=False, shares={})
    second["seconds"] = summary([1.0, 1.5, 1.5, 2.5, 2.5, 3.0])
    keep(first, "kept", ratios({"seconds": summary([8.0, 12.0, 5.0])}, first))
    assert [cell(column, row) for row in (first, second)] == expected


def test_bars_show_medians_and_samples_in_scale():
    figure = Figure()
    row_bars(figure, ROWS, "s", ["red", "blue"], scale=[10.0, 3.0])
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == [50.0, 6.0]
    whiskers, dots = axes.lines[0::2], axes.lines[1::2]
    assert [list(line.get_xdata()) for line in whiskers] == [[40.0, 60.0], [3.0, 7.5]]
    assert [list(line.get_xdata()) for line in dots] == [[40.0, 60.0, 50.0], [6.0, 3.0, 7.5]]


def test_disturbed_rounds_are_crosses():
    figure = Figure()
    row_bars(figure, [{**ROWS[0], "disturbed": [False, True, False, True]}, ROWS[1]], "s")
    (axes,) = figure.axes
    _, dots, crosses, _, others = axes.lines
    assert [list(line.get_xdata()) for line in (dots, crosses, others)] == [[4.0, 5.0], [6.0], [2.0, 1.0, 2.5]]
    assert [line.get_marker() for line in (dots, crosses, others)] == ["o", "X", "o"]
    assert axes.get_xlabel() == "s; crosses: disturbed rounds"
