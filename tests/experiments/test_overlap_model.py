from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from mxdp.experiments.automatic_parallelism.overlap_model import alike, describe, draw, expected_parts


@pytest.mark.parametrize(
    ("at_once", "chain", "one_landing", "expected"),
    [
        (1, True, True, (8.0, 4.0, 12.0)),
        (1, False, False, (8.0, 4.0, 12.0)),
        (2, False, True, (4.0, 4.0, 8.0)),  # the products side by side, then the copies in turn
        (2, False, False, (4.0, 2.0, 6.0)),
        (2, True, True, (8.0, 4.0, 2.0 + 3 * 2.0 + 1.0)),  # only the last copy has nothing to hide behind
    ],
)
def test_what_four_pieces_of_two_seconds_should_take(at_once, chain, one_landing, expected):
    assert expected_parts(4, 2.0, 1.0, at_once, chain, one_landing) == expected


def test_copies_that_take_longer_hide_the_work():
    assert expected_parts(4, 1.0, 2.0, 2, chain=True, one_landing=True) == (4.0, 8.0, 1.0 + 3 * 2.0 + 2.0)


def test_ratios_are_of_each_round():
    found = describe([(1.0, 3.0, 3.3), (4.0, 1.0, 4.0), (2.0, 2.0, 4.0)])
    assert found["run_seconds"] == 2.0
    assert found["copy_seconds"] == 2.0
    assert found["in_turn_seconds"] == 4.0
    assert found["overlapped_seconds"] == 4.0
    assert found["overlapped_over_longer"] == pytest.approx(1.1)  # of 1.1, 1.0 and 2.0
    assert found["overlapped_over_sum"] == pytest.approx(0.825)  # of 0.825, 0.8 and 1.0


def test_how_much_alike():
    row = {"metrics": {"run_seconds": 4.0, "copy_seconds": 3.0}}
    assert alike(row) == alike({"metrics": {"run_seconds": 3.0, "copy_seconds": 4.0}}) == 0.75


def test_two_bars_a_row_and_one_label_for_each_part():
    rows = [
        {"label": name, "metrics": describe([(1.0, 3.0, both)])} for name, both in (("hidden", 3.0), ("worse", 6.0))
    ]
    axes = Figure().add_subplot()
    draw(axes, rows)
    ends = [round(bar.get_x() + bar.get_width(), 6) for bar in axes.patches]
    assert ends == [0.25, 1.0, 0.75, 0.25, 1.0, 1.5]
    assert axes.get_legend_handles_labels()[1] == ["longer of the two", "products", "copies", "both, no wait"]
    assert [text.get_text() for text in axes.texts] == ["hidden", "0.75", "worse", "1.50"]
    assert axes.get_xlim()[1] > 1.5
