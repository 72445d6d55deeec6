"""One network, split in every way: which is the fastest, which moves least, which needs least memory?

Data parallelism cuts the batch, a pipeline the list of layers, layerwise partitioning each layer, and tiles the
pictures. All divide the work; they differ in what they send. Data parallelism sends the gradients of all parameters,
whatever the batch. The others send activations, which grow with the batch, and at most the gradients of the parameters
that devices share. So the cost model (:mod:`mxdp.experiments.other_splits.work.split`) recommends data parallelism for
few parameters and a large batch (LeNet: 129,000 parameters, 256 samples), and layerwise partitioning for many
parameters and a small batch (three dense layers: 2.9 million parameters, 32 samples).
"""

from __future__ import annotations

from typing import List

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim, estimate, unsure
from mxdp.experiments.harness.experiment import Case, Result, Row, Settings, experiment
from mxdp.experiments.other_splits.split import COLUMNS, FULL, QUICK, SERIAL, SplitExperiment, wide_numbers
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import contenders, either, fastest, find_all, keep, ratios

NETS = {"lenet": "LeNet", "wide": "Wide net"}
LENET_NUMBERS = 129_068, 4_860
"""As :func:`mxdp.experiments.other_splits.split.wide_numbers`."""
STRATEGIES = {
    "lenet": (SERIAL, "data", "pipeline", "layerwise", "tile"),
    "wide": (SERIAL, "data", "pipeline", "layerwise"),  # it has no pictures to cut into tiles
}
MICRO_BATCHES = 4
PANELS = (
    ("ms a step", "seconds_per_step", "predicted_seconds", 1e3),
    ("MB moved", "bytes_moved", "", 1e-6),
    ("MB a device", "peak_bytes", "predicted_peak_bytes", 1e-6),
)
"""Of the picture: a heading, a metric, its prediction, and what both are multiplied by."""
ROOM = 1.75
"""The length of an axis over its longest bar: the number behind the bar needs room."""


@experiment
class Strategies(SplitExperiment):
    """Serial, data, pipeline, layerwise and tile, on two networks."""

    name = "strategies"
    question = "Which way to split a network is the fastest, and what does each move and keep?"
    source = "Dive into Deep Learning, 'Training on Multiple GPUs', the figure of the ways to split"
    how_to_read = (
        f"{COLUMNS} The pipeline is GPipe with {MICRO_BATCHES} micro-batches. The wide net has three dense layers and "
        "an eighth of the batch."
    )
    claims = {
        "expected_of_fastest": Claim(
            "The cost model knows the fastest way to split each network: the one it expects takes at most 1.1 times as "
            "long as the fastest measured, which is chosen on the odd rounds and compared on the even ones.",
            "the cost model",
            1.1,
        )
    }
    alike = ("net",)
    presets = {
        "quick": dict(QUICK, rounds=12, repeats=1, batch_size=256, units=1024, steps=2),
        "full": dict(FULL, rounds=1, repeats=12, batch_size=256, units=2048, steps=8),
    }
    little = dict(batch_size=40, units=16, steps=2)

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(
                f"{title}, {strategy}" + (f" x {n}" if strategy != SERIAL else ""),
                n,
                settings={"net": net, "strategy": strategy, "batch": _batch(net, settings)},
            )
            for net, title in NETS.items()
            for strategy in STRATEGIES[net]
            for n in ([1] if strategy == SERIAL else [n for n in settings["devices"] if n > 1])
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        said = []
        for net, title in NETS.items():
            samples = _batch(net, settings)
            params, sums = wide_numbers(settings["units"]) if net == "wide" else LENET_NUMBERS
            data, layers = 8 * params / 1e6, 8 * sums * samples / 1e6
            less = "data parallelism" if data < layers else "layerwise partitioning"
            said.append(
                f"{title}, batch {samples}: {less} sends less. On two devices the gradients are {style.number(data)} "
                f"MB, and the sums of layerwise partitioning {style.number(layers)} MB."
            )
        return f"{' '.join(said)} All divide the work alike, by at most {plural(cores, 'core')}."

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        super().finish(rows, references, settings)
        for net in NETS:
            own = find_all(rows, net=net)
            if len(own) > 1:
                best, reported = fastest(own)
                for row, name in ((_expected(own), "expected_of_fastest"), (own[0], "serial_of_fastest")):
                    values = zip(ratios(row, best), reported)
                    keep(row, name, [value if known else None for value, known in values])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        if max(settings["devices"]) == 1:
            return "One device has nothing to split: run it with --devices 2."
        first, detail = [], []
        for net, title in NETS.items():
            own = sorted(find_all(rows, net=net), key=lambda row: float(row["seconds"]["median"]))
            (best, reported), expected = fastest(own), _expected(own)
            close = contenders(own, best, reported)
            sure = close == [best] and not best.get("busy")
            advice = f"use {_named(best)}"
            if not sure:
                why, names = unsure(expected, "expected_of_fastest"), either(map(_named, close))
                advice = f"the fastest may be {names}; the run can't tell which ({why})"
            elif best["case"]["strategy"] != SERIAL:
                serial = find_all(own, strategy=SERIAL)[0]
                advice += f", {estimate(serial, 'serial_of_fastest'):.2f} times as fast as one device"
            first.append(f"{title}, batch {best['case']['batch']}: {advice}")
            times = ", ".join(f"{_strategy(row)} {style.number(row['seconds']['median'] * 1e3)}" for row in own)
            peaks = [(row["metrics"]["peak_bytes"], _strategy(row)) for row in own if row["metrics"]["peak_bytes"]]
            least = [f"; least memory a device: {name} ({style.number(peak / 1e6)} MB)" for peak, name in sorted(peaks)]
            of_fastest = f"which takes {estimate(expected, 'expected_of_fastest'):.2f} of the fastest one's time"
            said = f"{_named(expected)}, {of_fastest}"
            if expected in close:  # if it is sure, only the best is close
                said = "it, too" if sure else "one of these"
            detail.append(f"{title}: the cost model expected {said} (ms a step: {times}){''.join(least[:1])}.")
        return (
            f"{'. '.join(first)}. {' '.join(detail)} A pipeline and layerwise partitioning also divide the parameters, "
            "for a network that does not fit on one device; tiles divide a single picture, which nothing else does."
        )

    def draw(self, result: Result, figure: style.Figure) -> None:
        found = [(title, find_all(result["rows"], net=net)) for net, title in NETS.items()]
        blocks = [(title, rows) for title, rows in found if rows]
        heights = [0.34 * len(rows) + 1.0 for _, rows in blocks]  # inches
        figure.set_size_inches(style.WIDTH, sum(heights) + 0.35)
        parts = figure.subfigures(len(blocks), 1, height_ratios=heights, squeeze=False)[:, 0]
        for (title, rows), part in zip(blocks, parts):
            part.suptitle(f"{title}, batch {rows[0]['case']['batch']}", x=0.01, ha="left", weight="bold", size=13)
            labels = [_strategy(row) for row in rows]
            for axes, panel in zip(part.subplots(1, len(PANELS)), PANELS):
                _draw_panel(axes, rows, *panel)
                axes.set_yticks(range(len(rows)), labels)
                labels = []
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center")


def _draw_panel(axes: style.Axes, rows: List[Row], heading: str, name: str, predicted: str, scale: float) -> None:
    """A bar a row. Times have whiskers from the shortest to the longest; a triangle under a bar is the prediction, and
    a line through it its interval."""
    limit = 0.0
    for y, row in enumerate(rows):
        known = row["metrics"][name]
        value = end = (known or 0.0) * scale
        axes.barh(y, value, height=0.5, color=style.COLOURS[STRATEGIES["lenet"].index(row["case"]["strategy"])])
        if name == "seconds_per_step":
            low, end = (row["seconds"][which] * scale for which in ("min", "max"))
            axes.plot([low, end], [y, y], color=style.INK, linewidth=1.2, marker="|", markersize=7)
        text = "?" if known is None else style.number(value)
        axes.annotate(text, (end, y), (5, 0), textcoords="offset points", va="center", size=10.5, weight="bold")
        limit = max(limit, ROOM * end)
    if predicted:
        values = [row["metrics"][predicted] * scale for row in rows]
        below = [y + 0.38 for y in range(len(rows))]
        axes.plot(values, below, "^", color=style.INK, markersize=5, label="predicted", clip_on=False)
        limit = max(limit, *values)
        for height, row in zip(below, rows):
            _, low, high = estimate(row, predicted) if predicted in row["rounds"] else (0, None, None)
            if low is not None and high is not None:
                limit = max(limit, high * scale)
                axes.plot([low * scale, high * scale], [height, height], color=style.INK, linewidth=1)
    axes.set_title(heading, weight="normal", size=11.5)
    axes.set(xlim=(0, limit or ROOM), ylim=(len(rows) - 0.4, -0.6), xticks=[])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)


def _expected(rows: List[Row]) -> Row:
    """The one that the cost model expects to be the fastest."""
    return min(rows, key=lambda row: float(row["metrics"]["predicted_seconds"]))


def _strategy(row: Row) -> str:
    return str(row["label"]).split(", ")[-1]


def _batch(net: str, settings: Settings) -> int:
    return int(settings["batch_size"]) if net == "lenet" else max(1, settings["batch_size"] // 8)


def _named(row: Row) -> str:
    strategy, n = row["case"]["strategy"], len(row["case"]["devices"])
    return "one device" if strategy == SERIAL else f"{strategy} on {n} devices"
