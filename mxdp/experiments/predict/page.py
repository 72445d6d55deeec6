"""A prediction's pictures, and all of it as one HTML file, which asks nothing of any network."""

from __future__ import annotations

import base64
from typing import Sequence

import jinja2

from mxdp.errors import UsageError, either
from mxdp.experiments.predict.ways import HEADINGS, Predicted
from mxdp.experiments.show import style
from mxdp.experiments.show.pictures import FORMATS, saved
from mxdp.plans.collective.algorithms import plan as schedule
from mxdp.plans.cost.step import COMPUTE, LINKS, Busy
from mxdp.plans.pipeline import gpipe
from mxdp.plans.show.moving import moving

MOST_SHOWN = 8
"""Devices, or micro-batches, of the plan that moves."""
WORDS = {"weak": "each device has its batch", "strong": "all share one batch"}


def page(predicted: Predicted) -> str:
    """The whole page: the answer, the ways as a table, how far each scales, the fastest one's step, and its plan."""
    best = min(predicted.rows, key=lambda row: row.step.seconds / row.step.samples)
    way = best.way
    if way.stages > 1:
        parts = min(way.micro_batches, MOST_SHOWN)
        plan = moving(gpipe(way.stages, parts))
        words = f"The pipeline with {parts} of its {way.micro_batches} micro-batches"
    else:
        name = "ring" if way.allreduce == "two-level" else way.allreduce
        devices = min(predicted.cluster.count, MOST_SHOWN)
        plan = moving(schedule(name, devices))
        words = f"{name}, on {devices} of {predicted.cluster.count} devices"
    spans = saved(lambda figure: _draw_spans(best.step.spans, figure), "predict-timeline", "svg")
    loader = jinja2.PackageLoader("mxdp.experiments.show")
    environment = jinja2.Environment(loader=loader, autoescape=True)
    return environment.get_template("predict.html.j2").render(
        predicted=predicted,
        headings=HEADINGS,
        best=best,
        scaling=_address(scaling_picture(predicted, "svg")),
        timeline=_address(spans),
        plan=plan,
        words=words,
    )


def _address(svg: bytes) -> str:
    """An address that holds the picture."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def scaling_picture(predicted: Predicted, form: str) -> bytes:
    """Speed-up over the number of devices, as a file of that format. Raises a UsageError if there is no such format."""
    if form not in FORMATS:
        raise UsageError(f"--picture ends in {either(f'.{name}' for name in FORMATS)}, not .{form}")
    return saved(lambda figure: _draw_scaling(predicted, figure), "predict", form)


def _draw_scaling(predicted: Predicted, figure: style.Figure) -> None:
    figure.set_figheight(6.4)
    name = predicted.network.name
    for axes, (kind, points) in zip(figure.subplots(2), predicted.curves.items()):
        counts, speedups = zip(*points)
        axes.plot(counts, counts, color=style.GREY, linestyle="--", linewidth=1.5, label="linear")
        axes.plot(counts, speedups, "o-", color=style.COLOURS[0], label=name)
        title = f"{kind.capitalize()} scaling: {WORDS[kind]}"
        axes.set(xscale="log", yscale="log", ylabel="speed-up", title=title)
        if len(counts) > 1:
            style.plain_logarithmic(axes.xaxis, axes.yaxis)
            axes.set_xticks(counts[:: 1 + len(counts) // 7])
        axes.legend(loc="upper left")
    axes.set_xlabel("devices")


def _draw_spans(spans: Sequence[Busy], figure: style.Figure) -> None:
    """What a device and its links do, a lane each."""
    lanes = list(dict.fromkeys(span.lane for span in spans))
    figure.set_figheight(0.9 + 0.5 * len(lanes))
    axes = figure.subplots()
    for span in spans:
        colour = style.COLOURS[4 if span.lane == LINKS else 0]
        if span.name.startswith(("F", "forward")):
            colour = style.COLOURS[5]
        elif span.lane == COMPUTE and not span.name.startswith("backward"):
            colour = style.GREY
        axes.barh(
            lanes.index(span.lane),
            left=1e3 * span.start,
            width=1e3 * (span.stop - span.start),
            height=0.7,
            color=colour,
            edgecolor="white",
            linewidth=0.4,
        )
    axes.set_yticks(range(len(lanes)), lanes)
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("ms")
