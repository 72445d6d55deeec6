from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from mxdp.experiments.harness.experiment import Column
from mxdp.experiments.harness.rows import Row, contenders, fastest, find, find_all
from mxdp.experiments.report.style import row_bars
from mxdp.experiments.report.tables import cell

ROWS = [
    Row("a", {"loop": "book", "n": 1}, samples=[4.0, 6.0, 5.0], metrics={"x": 1.5}),
    Row("b", {"loop": "mxdp", "n": 1}, samples=[2.0, 1.0, 2.5], metrics={"x": True}),
]


def test_rows_are_found_by_their_case():
    assert find_all(ROWS, n=1) == ROWS
    assert find(ROWS, loop="mxdp", n=1) is ROWS[1]
    assert find(ROWS, loop="mxdp", n=2) is None


def test_a_ratio_is_of_rounds_that_ran_one_after_the_other():
    assert ROWS[0].ratios(ROWS[1]) == [2.0, 6.0, 2.0]
    assert ROWS[0].ratios(Row("longer", samples=[1.0] * 9)) == [4.0, 6.0, 5.0]


def test_what_is_kept_has_its_median_and_says_nothing_of_rounds_that_are_not_reported():
    row = Row("a")
    row.keep("x", [1.0, 5.0, 2.0])
    row.keep("y", iter([1.0, 5.0, 2.0, 7.0]), [False, True, False, True])
    row.keep("z", ())
    row.keep_ratios("none", None)
    assert (row.rounds["x"], row.metrics["x"]) == ([1.0, 5.0, 2.0], 2.0)
    assert (row.rounds["y"], row.metrics["y"]) == ([None, 5.0, None, 7.0], 6.0)
    assert row.rounds["z"] == []
    assert "none" not in {**row.rounds, **row.metrics}
    ROWS[0].keep_ratios("ratio", ROWS[1])
    assert (ROWS[0].rounds.pop("ratio"), ROWS[0].metrics.pop("ratio")) == ([2.0, 6.0, 2.0], 2.0)


def test_a_file_gives_the_row_back():
    row = Row("a", {"devices": ["cpu(0)"]}, [2.0, 1.0, 4.0], {"x": 1}, {"x": [1, 1, 1]}, {"checked": 1}, 0.2, 0.9)
    record = json.loads(json.dumps(row.to_json()))
    assert record["seconds"] == {"median": 2.0, "min": 1.0, "max": 4.0, "samples": [2.0, 1.0, 4.0]}
    assert vars(Row.from_json(record)) == vars(row)


def test_the_fastest_is_chosen_on_odd_rounds_or_odd_processes_and_reported_on_the_others():
    first, second = Row("first", samples=[1.0, 9.0, 1.0, 9.0]), Row("second", samples=[3.0] * 4)
    best, reported = fastest([second, first])
    assert best is first
    assert reported == [False, True, False, True]
    for row in (first, second):
        row.rounds["repeat"] = [1, 0, 1, 0]
    best, reported = fastest([second, first])
    assert best is second
    assert reported == [True, False, True, False]


@pytest.mark.parametrize(
    ("even", "may_be"),
    [(1.0, True), (1.2, False), (0.9, True)],
)
def test_what_may_be_as_fast_is_seen_in_the_rounds_that_are_reported(even, may_be):
    best = Row("best", samples=[0.5, 1.0] * 6)
    other = Row("other", samples=[2.0, even] * 6)
    assert contenders([best, other], *fastest([best, other])) == [best, other][: 1 + may_be]


def test_too_few_rounds_leave_every_row_a_contender():
    rows = [Row("best", samples=[1.0] * 4), Row("other", samples=[9.0] * 4)]
    assert contenders(rows, *fastest(rows)) == rows


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
    first, second = copy.deepcopy(ROWS)
    first.metrics.update(z=None, shares={"a": 0.5, "b": 1.0})
    second.metrics.update(y=False, shares={})
    second.samples = [1.0, 1.5, 1.5, 2.5, 2.5, 3.0]
    first.keep("kept", Row("other", samples=[8.0, 12.0, 5.0]).ratios(first))
    assert [cell(column, row) for row in (first, second)] == expected


def test_disturbed_rounds_are_crosses():
    figure = Figure()
    row_bars(figure, [replace(ROWS[0], disturbed=[False, True, False, True]), ROWS[1]], "s")
    (axes,) = figure.axes
    _, dots, crosses, _, others = axes.lines
    assert [list(line.get_xdata()) for line in (dots, crosses, others)] == [[4.0, 5.0], [6.0], [2.0, 1.0, 2.5]]
    assert [line.get_marker() for line in (dots, crosses, others)] == ["o", "X", "o"]
    assert axes.get_xlabel() == "s; crosses: disturbed rounds"
