"""The pictures' common look: what is drawn is what was given."""

from __future__ import annotations

import subprocess
import sys

import pytest
from matplotlib.figure import Figure

from mxdp.experiments.report import style


def test_importing_it_does_not_load_matplotlib() -> None:
    code = "import sys, mxdp.experiments.report.style; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


NUMBERS = [
    (0, "0"),
    (0.0, "0"),
    (7, "7"),
    (60000, "60,000"),
    (2.0, "2.00"),
    (9.999, "10.0"),
    (0.051234, "0.0512"),
    (-17.84, "-17.8"),
    (12345.6, "12,346"),
    (3e-7, "3e-07"),
    (float("nan"), "nan"),
    (float("inf"), "inf"),
]


@pytest.mark.parametrize(("value", "text"), NUMBERS)
def test_number(value: float, text: str) -> None:
    assert style.number(value) == text


def test_bars_show_values_whiskers_samples_and_labels() -> None:
    figure = Figure()
    axes = figure.subplots()
    style.bars(
        axes, ["one", "two"], [2.0, 1.0], [1.5, 0.5], [3.0, 1.25], "s", samples=[[1.5, 2.0, 3.0], [0.5, 1.0, 1.25]]
    )
    assert [patch.get_width() for patch in axes.patches] == [2.0, 1.0]
    whiskers, dots = axes.lines[0::2], axes.lines[1::2]
    assert [list(line.get_xdata()) for line in whiskers] == [[1.5, 3.0], [0.5, 1.25]]
    assert [list(line.get_xdata()) for line in dots] == [[1.5, 2.0, 3.0], [0.5, 1.0, 1.25]]
    assert [text.get_text() for text in axes.texts] == ["one", "2.00 s", "two", "1.00 s"]
    assert len({patch.get_facecolor() for patch in axes.patches}) == 2
    bottom, top = axes.get_ylim()
    assert bottom > top, "the first bar must be the upper one"
    left, right = axes.get_xlim()
    assert left == 0
    assert right > 3.0


def test_bars_refuse() -> None:
    axes = Figure().subplots()
    with pytest.raises(ValueError, match=r"must be as many; got \[2, 1, 1, 1, 2, 2\]"):
        style.bars(axes, ["a", "b"], [1.0])
    with pytest.raises(ValueError, match=r"'a': 1\.0 is not between 2\.0 and 3\.0"):
        style.bars(axes, ["a"], [1.0], [2.0], [3.0])


def test_no_colour_comes_twice_and_all_can_be_seen_on_white() -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    every = [*style.COLOURS, style.GREY, style.LIGHT_GREY, style.INK]
    assert len({colour.upper() for colour in every}) == len(every)
    assert max(map(luminance, every)) < 0.5
    assert len(style.MARKERS) == len(style.COLOURS)
