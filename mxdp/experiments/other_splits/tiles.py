"""Pictures in tiles: are they right at the seams, and are they faster?

Each device has a tile of every picture. A window of a convolution or pooling that reaches over a seam needs the border
of the neighbour's tile: the halo. Without halos a tile sees zeros there, and its output is wrong at the seams. How far
the error reaches depends on the windows: two 3 x 3 convolutions reach two pixels. With batch normalisation the error is
everywhere, because the wrong pixels count in the statistics.

A halo grows with the side of a tile, and the work with its area: the larger the picture, the less tiles cost. For
square pictures of side s in r x c tiles, a layer with 3 x 3 windows sends 2 (r - 1 + c - 1) s of the s^2 pixels of each
channel. Each device holds its part of all activations. Data parallelism can't split a batch of one; tiles can.
"""

from __future__ import annotations

from typing import Any, List

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find_all
from mxdp.experiments.other_splits.split import (
    COLUMNS,
    COMPARED,
    FULL,
    ONE_DEVICE,
    QUICK,
    SERIAL,
    SplitExperiment,
    several,
)
from mxdp.experiments.report import style
from mxdp.plans.layers.halo import squarest
from mxdp.plans.partition import cuts

TILE = "tile"


@experiment
class Tiles(SplitExperiment):
    """The slides' stack on whole pictures and in tiles, with and without halos."""

    name = "tiles"
    question = "Are tiled pictures right at the seams, and are they faster?"
    source = "Slides on tiled processing: boundary conditions"
    how_to_read = (
        f"Convolution, batch normalisation, relu and pooling, twice, then a dense layer. {COLUMNS} 'Error' is the "
        "largest error of two convolutions of other pictures (25 x 31), compared with whole pictures, and 'inside' the "
        "largest one more than two pixels from the seams. All numbers there are whole: 0 is exactly 0. Tiles without "
        "halos see zeros where halos would be: they show the error, and are not meant to be fast. For a batch of many "
        "pictures, data parallelism sends less."
    )
    claims = {
        "error_with_halos": Claim(
            "With halos, tiled pictures are right at the seams: no pixel differs.", "the slides", 0, exact=True
        ),
        "error_without_halos": Claim(
            "Without halos, pixels at the seams are wrong: the largest error is at least 1 (numbers are whole).",
            "the slides",
            1,
            least=True,
            exact=True,
        ),
        "error_inside": Claim(
            "Without halos, no pixel is wrong that is more than two pixels from the seams.", "the slides", 0, exact=True
        ),
    }
    compared = f"{COMPARED}; pixels of tiled pictures, exactly: without halos those away from the seams"
    presets = {
        "quick": dict(QUICK, rounds=1, devices=[2, 4], size=192, pictures=2, steps=2),
        "full": dict(FULL, rounds=1, size=256, pictures=2, steps=2),
    }
    little = dict(size=64, pictures=1, steps=2)

    def cases(self, settings: Settings) -> List[Case]:
        cases = [Case("whole pictures", 1, settings={"strategy": SERIAL, "grid": [1, 1], "halo": True})]
        for n in several(settings):
            grids = sorted({squarest(n), (n, 1), (1, n)}, reverse=True) if n < 4 else [squarest(n)]
            for (r, c), halo in [*((grid, True) for grid in grids), (squarest(n), False)]:
                label = f"{r} x {c}" + (" tiles" if halo else ", no halo")
                cases.append(Case(label, n, settings={"strategy": TILE, "grid": [r, c], "halo": halo}))
        return cases

    def predict(self, settings: Settings, cores: int) -> str:
        side, said = settings["size"], []
        for n in several(settings):
            rows, columns = squarest(n)
            said.append(f"{2 * (rows + columns - 2) / side:.1%} of them in {rows} x {columns} tiles")
        sent = f" A layer of 3 x 3 windows on {side} x {side} pixels sends {', '.join(said)}." if said else ""
        return (
            f"With halos there is no error; without, errors reach two pixels from the seams.{sent} The work of the "
            f"layers before the dense one is divided by at most {plural(cores, 'core')}."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        super().finish(rows, references, settings)
        for row in find_all(rows, halo=True):
            for without in find_all(rows, grid=row.case["grid"], halo=False):
                row.metrics["halo_bytes"] = row.metrics["bytes_moved"] - without.metrics["bytes_moved"]
        for row in find_all(rows, strategy=TILE):
            row.keep("error_with_halos" if row.case["halo"] else "error_without_halos", row.rounds["worst_error"])
            if not row.case["halo"]:
                row.keep("error_inside", row.rounds["worst_error_inside"])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        tiles = _with_known_halos(rows)
        if not tiles:
            return ONE_DEVICE
        right, wrong = (
            "right" if all(row.metrics["worst_error"] == 0 for row in find_all(rows, halo=halo)) else "wrong"
            for halo in (True, False)
        )
        return (
            f"At the seams, pixels are {right} with halos and {wrong} without; training with {tiles[-1].label} is "
            f"{tiles[-1].estimate('speedup'):.2f} times as fast as with whole pictures."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        tiles = _with_known_halos(rows)
        if not tiles:
            return ""
        moved, halos = (style.number(tiles[-1].metrics[name] / 1e6) for name in ("bytes_moved", "halo_bytes"))
        return f"Of the {moved} MB that {tiles[-1].label} move in a step, {halos} MB are halos."

    def columns(self) -> List[Column]:
        errors = [Column("worst_error", "error", "g"), Column("worst_error_inside", "inside", "g")]
        return super().columns() + errors

    def draw(self, result: Result, figure: style.Figure) -> None:
        rows = result["rows"]
        maps = find_all(rows, grid=rows[-1].case["grid"])[::-1]  # the errors without halos first
        heights = [3.1, len(rows) * style.BAR_HEIGHT + 0.9]  # inches for the maps of errors, and for the bars
        grid = figure.add_gridspec(2, len(maps), height_ratios=heights)
        worst = max(row.metrics["worst_error"] for row in maps) or 1.0
        above = [figure.add_subplot(grid[0, column]) for column in range(len(maps))]
        images = [_draw_map(axes, row, worst) for axes, row in zip(above, maps)]
        figure.colorbar(images[0], ax=above, label="error (dashed: the seams)", location="bottom", shrink=0.7)
        colours = [
            style.GREY if row.case["strategy"] == SERIAL else style.COLOURS[0 if row.case["halo"] else 1]
            for row in rows
        ]
        style.row_bars(figure, rows, "ms a step", colours, [1e3] * len(rows), figure.add_subplot(grid[1, :]))
        figure.set_figheight(sum(heights))


def _with_known_halos(rows: List[Row]) -> List[Row]:
    return [row for row in rows if "halo_bytes" in row.metrics]


def _draw_map(axes: style.Axes, row: Row, worst: float) -> Any:
    """The error of each pixel, from white (none) to red (``worst``)."""
    errors = row.metrics["error_map"]
    axes.set(title=f"{row.label}:\nlargest error {row.metrics['worst_error']:g}", xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.spines[:].set_visible(True)
    for line, length, parts in zip((axes.axhline, axes.axvline), (len(errors), len(errors[0])), row.case["grid"]):
        for seam in cuts(length, parts):
            line(seam - 0.5, color=style.GREY, linestyle="--", linewidth=1)
    return axes.imshow(errors, cmap="Reds", vmin=0, vmax=worst)
