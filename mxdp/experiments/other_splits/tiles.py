"""Pictures in tiles: are they right at the seams, and what does that cost?

Each device has a tile of every picture. A window of a convolution or pooling that reaches over a seam needs the
neighbour's border: the halo. Without it the tile sees zeros there, and its output is wrong at the seams; how far in
depends on the windows, two 3 x 3 convolutions reach two pixels. With batch normalisation the error is everywhere,
since the wrong pixels count in the statistics.

A halo grows with the tile's side, the work with its area: so the larger the picture, the less tiles cost. For square
pictures of side s in r x c tiles a layer with 3 x 3 windows sends 2 (r - 1 + c - 1) s pixels for each channel, of s^2.
Each device holds its part of all activations, and that is what tiles are for: single pictures that take too long, or
too much memory, on one device. (Data parallelism can't split a batch of one.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Tuple

from mxdp.experiments.harness.experiment import (
    Case,
    Column,
    Experiment,
    Oracle,
    Ready,
    Result,
    Round,
    Row,
    Settings,
    Verdict,
    experiment,
)
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find, find_all, metric, plural, ratio, row_bars
from mxdp.plans.layers.halo import squarest
from mxdp.plans.partition import cuts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from mxdp.experiments.other_splits.work.splits import Speeds, Split

SERIAL, TILE = "serial", "tile"
ODD = 5
"""Samples that the oracle compares."""
ODD_SIDE = 23
"""Pixels of a side in the oracle: no number of tiles divides it, nor what a pooling makes of it."""
MAP_HEIGHT = 2.9
"""Inches of the picture for the maps of errors."""


@experiment
class Tiles(Experiment):
    """The slides' stack on whole pictures and in tiles, with and without halos."""

    name = "tiles"
    question = "Are tiled pictures right at the seams, and what does that cost?"
    source = "Slides on tiled processing: boundary conditions"
    how_to_read = (
        "Two rounds of convolution, batch normalisation, relu and pooling, then a dense layer; milliseconds a step, "
        "and what it would be if no device waited for another. 'Faster': than whole pictures. Moved: MB between "
        "devices in a step, from the shapes. MB: of the device that needs most, as MXNet counts it, and predicted from "
        "the shapes. Errors are of two convolutions of other pictures (25 x 31) against the whole: the largest "
        "anywhere, and the largest more than two pixels from the seams. All numbers there are whole: 0 is exactly 0. "
        "Without halos tiles see zeros where halos would be: made to show the error, not to be fast."
    )
    together = True
    presets = {
        "quick": dict(
            devices=[2, 4], kind="auto", seed=0, rounds=7, timeout=120.0, size=192, pictures=2, steps=2,
        ),
        "full": dict(
            devices=[2, 4], kind="auto", seed=0, rounds=9, timeout=1200.0, size=512, pictures=2, steps=2,
        ),
    }  # fmt: skip

    def __init__(self) -> None:
        self._speeds: Dict[int, Speeds] = {}

    def cases(self, settings: Settings) -> List[Case]:
        cases = [Case("whole pictures", 1, settings={"strategy": SERIAL, "grid": [1, 1], "halo": True})]
        for n in [n for n in settings["devices"] if n > 1]:
            grids = sorted({squarest(n), (n, 1), (1, n)}, reverse=True) if n < 4 else [squarest(n)]
            cases += [_case(n, grid, halo=True) for grid in grids]
            cases.append(_case(n, squarest(n), halo=False))
        return cases

    def predict(self, settings: Settings, cores: int) -> str:
        side, said = settings["size"], []
        for n in [n for n in settings["devices"] if n > 1]:
            rows, columns = squarest(n)
            share = 2 * (rows + columns - 2) / side
            said.append(f"{rows} x {columns}: {share:.1%} of a layer's pixels are sent")
        return (
            f"With halos no error at all; without, errors up to two pixels from the seams. Pictures of {side} x "
            f"{side}, a layer of 3 x 3: {'; '.join(said) or 'nothing'}. The layers before the dense one are divided, "
            f"by up to {plural(cores, 'core')}."
        )

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        from mxdp.experiments.other_splits.work.seams import seams

        split = _split(case, settings, ODD_SIDE)
        found = seams(split.devices, _grid(case), case.settings["halo"], settings["seed"])
        if not case.settings["halo"]:
            # Wrong at the seams by intention; anywhere else it has to be right.
            inside = found.error[found.inside]
            return Oracle(int(inside.size), int((inside != 0).sum()), "pixels away from the seams")
        checked, wrong = split.check(ODD)
        return Oracle(
            checked + int(found.error.size),
            wrong + int((found.error != 0).sum()),
            "losses, scores, each gradient and, after three steps, each parameter; pixels of tiled pictures, exactly",
        )

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        from mxdp.experiments.other_splits.work.seams import seams
        from mxdp.experiments.other_splits.work.splits import Steps, measure_speeds, predict_step

        samples = settings["pictures"]
        split = _split(case, settings, settings["size"])
        steps = Steps(split, samples)
        if case.devices not in self._speeds:
            self._speeds[case.devices] = measure_speeds(
                split.net, split.shape, split.devices, samples, settings["seed"]
            )
        metrics = steps.metrics()
        metrics["predicted_seconds"] = predict_step(split, steps.made, samples, self._speeds[case.devices])
        found = seams(split.devices, _grid(case), case.settings["halo"], settings["seed"])
        metrics["worst_error"], metrics["worst_error_inside"] = found.worst, found.worst_inside
        metrics["error_map"] = found.error.tolist()
        yield Ready([str(device) for device in split.devices])
        while True:
            yield Round(steps.seconds(settings["steps"]), metrics)

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        serial = find(rows, strategy=SERIAL)
        for row in rows:
            metrics = row["metrics"]
            metrics["seconds_per_step"] = row["seconds"]["median"]
            metrics["predicted_over_measured"] = metrics["predicted_seconds"] / metrics["seconds_per_step"]
            metrics["speedup"] = ratio(serial, row) if serial else None
            without = find(rows, grid=row["case"]["grid"], halo=False)
            if row["case"]["halo"] and without:
                metrics["halo_bytes"] = metrics["bytes_moved"] - without["metrics"]["bytes_moved"]

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        without = find_all(rows, halo=False)
        if not without:
            return Verdict(None, "One device has one tile, and no seams: run it with --devices 2,4.")
        right = all(row["metrics"]["worst_error"] == 0 for row in find_all(rows, halo=True))
        shown = all(row["metrics"]["worst_error"] > 0 and row["metrics"]["worst_error_inside"] == 0 for row in without)
        said = [
            f"With halos the largest error is {_worst(find_all(rows, halo=True))}; without, {_worst(without)} at the "
            f"seams and {max(row['metrics']['worst_error_inside'] for row in without):g} inside."
        ]
        serial = find(rows, strategy=SERIAL)
        for row in [row for row in rows if "halo_bytes" in row["metrics"]]:
            moved, halos = (style.number(row["metrics"][name] / 1e6) for name in ("bytes_moved", "halo_bytes"))
            said.append(
                f"{row['label'].capitalize()}: {row['metrics']['speedup']:.2f} times as fast as whole pictures"
                f"{_memory(row, serial)}; of {moved} MB moved {halos} are halos."
            )
        said.append(
            "Use tiles for few large pictures, where one takes too long or too much memory; for a batch of many, data "
            "parallelism sends less."
        )
        return Verdict(right and shown, " ".join(said))

    def columns(self) -> List[Column]:
        return [
            Column("ms", lambda row: style.number(row["seconds"]["median"] * 1e3)),
            Column("pred.", lambda row: style.number(row["metrics"]["predicted_seconds"] * 1e3)),
            metric("speedup", "faster", "{:.2f}x"),
            Column("moved MB", lambda row: style.number(row["metrics"]["bytes_moved"] / 1e6)),
            Column("MB", lambda row: style.number(row["metrics"]["peak_bytes"] / 1e6)),
            Column("pred.", lambda row: style.number(row["metrics"]["predicted_peak_bytes"] / 1e6)),
            metric("worst_error", "error", "{:g}"),
            metric("worst_error_inside", "inside", "{:g}"),
        ]

    def draw(self, result: Result, figure: Figure) -> None:
        rows = find_all(result["rows"], halo=True)
        maps = find_all(result["rows"], grid=rows[-1]["case"]["grid"])
        bar_height = len(rows) * style.BAR_HEIGHT + 0.9
        grid = figure.add_gridspec(2, len(maps), height_ratios=[MAP_HEIGHT, bar_height])
        worst = max(row["metrics"]["worst_error"] for row in maps) or 1.0
        above = [figure.add_subplot(grid[0, column]) for column in range(len(maps))]
        images = [_draw_map(axes, row, worst) for axes, row in zip(above, maps)]
        figure.colorbar(images[0], ax=above, label="error (dashed: the seams)", location="bottom", shrink=0.7)
        colours = [style.GREY if row["case"]["strategy"] == SERIAL else style.COLOURS[0] for row in rows]
        row_bars(figure, rows, "ms a step", colours, [1e3] * len(rows), figure.add_subplot(grid[1, :]))
        figure.set_figheight(MAP_HEIGHT + bar_height)


def _draw_map(axes: Axes, row: Row, worst: float) -> AxesImage:
    """Each pixel's error, from white (none) to red (``worst``)."""
    errors = row["metrics"]["error_map"]
    axes.set(title=row["label"], xticks=[], yticks=[])
    axes.grid(visible=False)
    axes.spines[:].set_visible(True)
    for line, length, parts in zip((axes.axhline, axes.axvline), (len(errors), len(errors[0])), row["case"]["grid"]):
        for seam in cuts(length, parts):
            line(seam - 0.5, color=style.GREY, linestyle="--", linewidth=1)
    return axes.imshow(errors, cmap="Reds", vmin=0, vmax=worst)


def _case(n: int, grid: Tuple[int, int], halo: bool) -> Case:
    label = f"{grid[0]} x {grid[1]}" + (" tiles" if halo else ", no halo")
    return Case(label, n, settings={"strategy": TILE, "grid": list(grid), "halo": halo})


def _grid(case: Case) -> Tuple[int, int]:
    rows, columns = case.settings["grid"]
    return rows, columns


def _split(case: Case, settings: Settings, side: int) -> Split:
    from mxdp.experiments.measure.devices import devices_of
    from mxdp.experiments.other_splits.work.splits import Split, network

    net, shape = network("pictures", side)
    strategy = case.settings["strategy"]
    options = {"grid": _grid(case), "halo": case.settings["halo"]} if strategy == TILE else {}
    return Split(strategy, net, shape, devices_of(case, settings), settings["seed"], options)


def _worst(rows: List[Row]) -> str:
    return f"{max(row['metrics']['worst_error'] for row in rows):g}"


def _memory(row: Row, serial: Any) -> str:
    """How much of the memory that one device needs for whole pictures."""
    if not serial or not serial["metrics"]["peak_bytes"] or not row["metrics"]["peak_bytes"]:
        return ""
    return f", with {row['metrics']['peak_bytes'] / serial['metrics']['peak_bytes']:.0%} of the memory on a device"
