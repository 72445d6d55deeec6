"""What of the possible speed-up is lost to what: an account that adds up.

k devices with a core each could be k times as fast as one; CPU devices that share p cores, p times. A part that takes
the share s of their step costs s k (or s p) of that. The machine's part is what as many processes that share nothing
lose as well. The shares of the all-reduce, of waiting, of Python and
of the input are seen in a few recorded steps; what these parts take in the processes that share nothing is taken off.
"""

from __future__ import annotations

from typing import Optional

from mxdp import process
from mxdp.errors import plural
from mxdp.experiments.harness.claims import estimate
from mxdp.experiments.harness.experiment import Row
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import keep, ratios

UNEXPLAINED = "unexplained"
LOST = {
    "lost_machine": (
        "the machine",
        "processes that share nothing lose it too, by memory, clock or other programs: only another machine, or a "
        "quieter hour, changes that",
    ),
    "lost_all_reduce": ("the all-reduce", "a larger batch needs fewer of them in an epoch"),
    "lost_waiting": (
        "waiting",
        "one device waits for a slower one; another program may take its core",
    ),
    "lost_python": ("Python", "a larger batch gives the devices more to do in each step"),
    "lost_input": ("the input", "batches are made more slowly than the devices train on them: a larger batch may help"),
    "lost_rest": (
        UNEXPLAINED,
        "compute that is slower than in processes of their own, and what nothing explains (`where-the-time-went` shows "
        "more)",
    ),
}
"""What of the possible speed-up is lost, by metric: to what, and what to change."""
RECORDED = {
    "lost_all_reduce": "exposed_communication",
    "lost_waiting": "waiting",
    "lost_python": "front_end",
    "lost_input": "input",
}
"""Where that is seen in the recorded steps: a part of :class:`mxdp.tracing.Parts`."""
BRINGS_SOMETHING = 1.1
"""A speed-up below this is called none."""
NOTABLE = 0.05
"""Share of the possible speed-up from which on what is lost gets a word of advice."""
HEIGHT = 0.3 * (len(LOST) + 2) + 1.2
"""Inches of the picture."""


def account(row: Row, ceiling: Row, devices: int) -> None:
    """What of the speed-up that ``devices`` could give on this machine is lost to what; with what is reached it adds
    up."""
    metrics, rounds, seconds = row["metrics"], row["rounds"], ratios(ceiling, row)
    possible = min(devices, process.cores()) if row["case"]["devices"][0].startswith("cpu") else devices
    keep(row, "lost_machine", [possible * of - got for of, got in zip(seconds, rounds["speedup"])])
    for name, part in RECORDED.items():
        shares = rounds.get(part), ceiling["rounds"].get(part)
        if all(shares):
            keep(row, name, [possible * (own - its * of) for own, its, of in zip(*shares, seconds)])
    metrics.update(possible=possible, reached=metrics["speedup"])
    found = sum(metrics[name] for name in LOST if name in metrics and name != "lost_rest")
    metrics["lost_rest"] = possible - metrics["reached"] - found


def losses(row: Row) -> str:
    """The account of ``row`` in words, the largest part first, and what to do about that."""
    metrics = row["metrics"]
    if "reached" not in metrics:
        return ""
    possible, reached = metrics["possible"], metrics["reached"]
    lost = sorted(((metrics[name], name) for name in LOST if name in metrics), reverse=True)
    parts = {name: what if what == UNEXPLAINED else f"to {what}" for name, (what, _) in LOST.items()}
    said = ", ".join(f"{value:.2f} {parts[name]}" for value, name in lost).replace("-0.00", "0.00")
    text = f"Of the {possible:.2f} times that are possible, {possible - reached:.2f} is lost: {said}."
    if (estimate(row, "speedup").high or reached) < BRINGS_SOMETHING:
        text += " More devices bring nothing here."
    if possible - reached <= NOTABLE * possible and possible == len(row["case"]["devices"]):
        return text
    hindrance, most, advice = _hindrance(row), parts[lost[0][1]], LOST[lost[0][1]][1]
    return f"{text} The reason: {hindrance}." if hindrance else f"{text} The largest part, {most}: {advice}."


def _hindrance(row: Row) -> Optional[str]:
    """A setting, or a lack of cores, because of which the devices can't work at the same time; None without one."""
    devices, cores = row["case"]["devices"], process.cores()
    if not devices[0].startswith("cpu"):
        return None
    found = [*process.prepare().warnings, *process.concurrency_warnings()]
    if found:
        return found[0].rstrip(".")
    if cores < len(devices):
        return f"{plural(len(devices), 'device')} share {plural(cores, 'core')}; ask for at most one device a core"
    return None


def draw(axes: style.Axes, row: Row) -> None:
    """From the possible speed-up down to the one that is reached, a floating bar for each part that takes something."""
    metrics = row["metrics"]
    possible, reached = metrics["possible"], metrics["reached"]
    bars = [("possible", 0.0, possible, style.LIGHT_GREY, f"{possible:.2f}")]
    right = float(possible)
    for name, colour in zip(LOST, style.COLOURS[1:]):
        if name in metrics:
            lost = metrics[name]
            bars.append((LOST[name][0], right - lost, lost, colour, f"{-lost:+.2f}"))
            right -= lost
    bars.append(("reached", 0.0, reached, style.COLOURS[0], f"{reached:.2f}"))
    for y, (_, left, width, colour, text) in enumerate(bars):
        axes.barh(y, width, left=left, height=0.7, color=colour)
        axes.annotate(
            text.replace("-0.00", "0.00"),
            (max(left, left + width), y),
            (5, 0),
            textcoords="offset points",
            va="center",
            size=10.5,
        )
    axes.set_yticks(range(len(bars)), [name.replace("the ", "") for name, *_ in bars])
    most = max(max(left, left + width) for _, left, width, *_ in bars)
    axes.set(ylim=(len(bars) - 0.4, -0.6), xlim=(0, 1.15 * most), xlabel="times as fast as one device")
    axes.set_title(f"What {row['label']} lose")
    axes.grid(axis="y", visible=False)
