"""The pictures of a prediction: weak and strong scaling, and the step as a timeline."""

from __future__ import annotations

from functools import partial
from typing import Dict, List, Sequence, Tuple

from mxdp.errors import UsageError, either
from mxdp.experiments.show import style
from mxdp.experiments.show.pictures import FORMATS, saved
from mxdp.plans.scaling.step import COMPUTE, LINKS, Network, Span

Curves = Dict[str, List[Tuple[int, float]]]
SAID = {"weak": "each device has its batch", "strong": "all share one batch"}


def draw(network: Network, curves: Curves, form: str) -> bytes:
    """Speed-up over the number of devices.

    Raises:
        UsageError: there is no such format.
    """
    if form not in FORMATS:
        raise UsageError(f"--picture ends in {either(f'.{each}' for each in FORMATS)}, not .{form}")
    return saved(partial(_scaling, network.name, curves), "predict", form)


def timeline(spans: Sequence[Span]) -> bytes:
    """What a device and its links do, as an SVG."""
    return saved(partial(_timeline, spans), "predict-timeline", "svg")


def _scaling(name: str, curves: Curves, figure: style.Figure) -> None:
    figure.set_figheight(6.4)
    for axes, (kind, points) in zip(figure.subplots(2), curves.items()):
        counts = [count for count, _ in points]
        axes.plot(counts, counts, color=style.GREY, linestyle="--", linewidth=1.5, label="linear")
        axes.plot(counts, [value for _, value in points], "o-", color=style.COLOURS[0], label=name)
        axes.set(xscale="log", yscale="log", ylabel="speed-up", title=f"{kind.capitalize()} scaling: {SAID[kind]}")
        if len(counts) > 1:
            style.plain_logarithmic(axes.xaxis, axes.yaxis)
            axes.set_xticks(counts[:: 1 + len(counts) // 7])
        axes.legend(loc="upper left")
    axes.set_xlabel("devices")


def _timeline(spans: Sequence[Span], figure: style.Figure) -> None:
    lanes = list(dict.fromkeys(span.lane for span in spans))
    figure.set_figheight(0.9 + 0.5 * len(lanes))
    axes = figure.subplots()
    for span in spans:
        colour = style.COLOURS[4 if span.lane == LINKS else 0]
        if span.lane == COMPUTE and not span.name.startswith(("forward", "backward")):
            colour = style.GREY
        if span.name.startswith(("F", "forward")):
            colour = style.COLOURS[5]
        axes.barh(
            lanes.index(span.lane),
            1e3 * (span.stop - span.start),
            left=1e3 * span.start,
            height=0.7,
            color=colour,
            edgecolor="white",
            linewidth=0.4,
        )
    axes.set_yticks(range(len(lanes)), lanes)
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("ms")
