"""How fast do devices talk? A copy's start-up time and bandwidth, between every two devices and for all at once.

The cost model of :mod:`mxdp.plans.cost.link` gives every link the same alpha and beta. That is right where all links
are alike. Between GPUs they often are not: some pairs are joined by NVLink or a PCIe
switch, others only through the processors. CPU devices share one memory, and so one link.

On CPU devices the source's worker makes the copy, on one of the machine's cores. Copies at the same time share the
cores and the memory's bandwidth. The rows "at once" measure that. They also carry what
:func:`mxdp.collectives.calibrate` finds out about this machine, with which ``auto`` and the experiment ``allreduce``
plan.
"""

from __future__ import annotations

import math
import statistics
from typing import Dict, List, Mapping

from mxdp.experiments.harness.claims import at_most, estimate, unsure
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Row, Settings, experiment
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import keep, ratios, size
from mxdp.plans.cost.link import fit_link
from mxdp.plans.cost.machine import CPU

ALIKE = 1.5
"""Links count as alike while the slowest pair of different devices takes at most 1.5 times as long as the fastest, for
the largest size. Twelve pairs of equal CPU devices came out 1.05 times apart, and 1.4 times while others worked on the
machine. The book's NVLink (100 GB/s) and PCIe 3.0 (16 GB/s) are 6 times apart."""


@experiment
class Links(Experiment):
    """Copies of several sizes for each ordered pair of devices, for a device with itself, and for all at once."""

    name = "links"
    question = "How fast do devices talk?"
    source = "Slides 'Multi-GPU', communications"
    how_to_read = (
        "Copies follow one another on one pair of arrays, so that no worker has to be woken. µs: of the smallest copy; "
        "GB/s: of the largest. alpha + m beta: the time of a copy of m bytes, fitted to all sizes; 'off': the fit's "
        "median error (caches bend the line). At once: every device copies to the next; the numbers are of one device."
    )
    compared = "what arrived, against what was sent"
    together = True
    full = dict(devices=[4], kind="auto", seed=0, rounds=2, timeout=3600.0, sizes=[4**k for k in range(1, 14)])
    presets = {
        "quick": dict(full, rounds=6, timeout=120.0, sizes=[4**k for k in (1, 3, 5, 7, 9, 10, 11, 12)]),
        "full": full,
    }
    little = dict(sizes=[4, 4096])
    checks = {
        "sizes": (
            lambda sizes: len(set(sizes)) > 1 and all(type(each) is int and each % 4 == 0 for each in sizes),
            "two or more different multiples of 4, the bytes of a float32",
        )
    }

    def cases(self, settings: Settings) -> List[Case]:
        n = max(settings["devices"])
        pairs = [
            Case(f"{i} to {j}" if i != j else f"{i} to itself", n, settings={"pairs": [[i, j]]})
            for i in range(n)
            for j in range(n)
        ]
        at_once = [
            Case(f"all {each} at once", each, settings={"pairs": [[i, (i + 1) % each] for i in range(each)]})
            for each in settings["devices"]
            if each > 1
        ]
        return pairs + at_once

    def predict(self, settings: Settings, cores: int) -> str:
        machine, largest, n = CPU.with_cores(cores), max(settings["sizes"]), max(settings["devices"])
        alone = machine.copy.seconds(largest, 2 * largest, others=False)
        start = max(machine.push, machine.copy.start)
        text = (
            f"On CPU devices all links are alike: {start * 1e6:.1f} µs for a small copy, "
            f"{largest / alone / 1e9:.1f} GB/s for {size(largest)}"
        )
        if n > 1:
            running = min(n, cores)
            together = machine.copy.seconds(largest, 2 * largest * n, others=running > 1) * n / running
            text += f"; all {n} at once, on {cores} of its cores, {together / alone:.1f} times as long"
        return f"{text} (measured on the reference machine)."

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        alone = _between_different(rows)
        for row in rows:
            row["metrics"].update(describe(row["metrics"]["seconds_by_bytes"]))
            if len(row["case"]["pairs"]) > 1 and alone:
                rounds = zip(row["seconds"]["samples"], *(each["seconds"]["samples"] for each in alone))
                keep(row, "over_alone", [mine / statistics.median(pairs) for mine, *pairs in rounds])
        if alone:
            fast, slow = (end(alone, key=lambda row: row["seconds"]["median"]) for end in (min, max))
            keep(slow, "over_fastest", ratios(slow, fast))

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        alone = _between_different(rows)
        if not alone:
            return "A link needs two devices, and this was 1: run it with --devices 4."
        slow = next(row for row in alone if "over_fastest" in row["rounds"])
        speeds = sorted(row["metrics"]["bandwidth_gbs"] for row in alone)
        starts = sorted(row["metrics"]["latency_us"] for row in alone)
        apart = estimate(slow, "over_fastest")
        alpha, beta = (statistics.median(row["metrics"][name] for row in alone) for name in ("alpha", "beta"))
        link = f"alpha {alpha * 1e6:.1f} µs and beta {beta * 1e12:.0f} ps a byte"
        said = [
            f"The slowest pair copies {size(max(settings['sizes']))} at {speeds[0]:.1f} GB/s, the fastest at "
            f"{speeds[-1]:.1f}: {apart:.2f} times apart (alike: up to {ALIKE}).",
            {
                True: f"One link will do for all: {link}",
                False: f"Links differ: {link} are only their median",
                None: f"One can't tell if links differ ({unsure(slow, 'over_fastest')}): {link} are their median",
            }[at_most(slow, "over_fastest", ALIKE)]
            + f"; the smallest copy takes {starts[0]:.1f} to {starts[-1]:.1f} µs.",
        ]
        said += [
            f"{row['label'].capitalize()}, each takes {estimate(row, 'over_alone'):.1f} times as long as alone."
            for row in rows
            if "over_alone" in row["metrics"]
        ]
        if alone[0]["case"]["devices"][0].startswith("cpu"):
            said.append(
                "CPU devices share one memory, the cores and the caches: where their links differ, the reason is other "
                "work on the machine, or NUMA. GPUs were not measured."
            )
        return " ".join(said)

    def columns(self) -> List[Column]:
        return [
            Column("latency_us", "µs", ".1f"),
            Column("bandwidth_gbs", "GB/s", ".1f"),
            Column("alpha", "alpha µs", ".1f", 1e6),
            Column("beta", "beta ps/B", ".0f", 1e12),
            Column("fit_error", "off", ".0%"),
            Column("over_alone", "over alone", ".1f", spread=True),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        figure.set_size_inches(style.WIDTH, 2.25 * style.HEIGHT)
        upper, lower = figure.subplots(2, 1)
        _matrix(upper, [row for row in result["rows"] if len(row["case"]["pairs"]) == 1])
        _times(lower, result["rows"], _between_different(result["rows"]) or result["rows"])


def describe(seconds_by_bytes: Mapping[str, float]) -> Dict[str, float]:
    """A row's numbers, from the seconds of a copy by its bytes."""
    times = {int(nbytes): seconds for nbytes, seconds in seconds_by_bytes.items()}
    link = fit_link(list(times.items()))
    smallest, largest = min(times), max(times)
    return {
        "alpha": link.alpha,
        "beta": link.beta,
        "fit_error": statistics.median(abs(link.seconds(nbytes) / seconds - 1) for nbytes, seconds in times.items()),
        "latency_us": times[smallest] * 1e6,
        "bandwidth_gbs": largest / times[largest] / 1e9,
    }


def _between_different(rows: List[Row]) -> List[Row]:
    """The rows of one pair of two different devices."""
    return [row for row in rows if len(row["case"]["pairs"]) == 1 and len(row["case"]["devices"]) == 2]


def _matrix(axes: style.Axes, rows: List[Row]) -> None:
    """GB/s from each device to each device; each of ``rows`` is of one pair."""
    n = 1 + max(rank for row in rows for pair in row["case"]["pairs"] for rank in pair)
    speeds = [[math.nan] * n for _ in range(n)]
    for row in rows:
        ((source, target),) = row["case"]["pairs"]
        speeds[source][target] = row["metrics"]["bandwidth_gbs"]
    most = max(value for line in speeds for value in line if not math.isnan(value))
    axes.imshow(speeds, cmap="Blues", vmin=0, vmax=most, aspect="auto")
    for source, line in enumerate(speeds):
        for target, value in enumerate(line):
            text = "" if math.isnan(value) else style.number(value, 3 if n <= 6 else 2)
            axes.text(target, source, text, ha="center", va="center", color="white" if value > most / 2 else style.INK)
    axes.grid(visible=False)
    axes.set(xticks=range(n), yticks=range(n), xlabel="to device", ylabel="from device", title="GB/s, largest copy")


def _times(axes: style.Axes, rows: List[Row], alone: List[Row]) -> None:
    """Time by bytes: a thin line for every pair of ``alone``, their medians with the line fitted to these, and the
    ``rows`` in which all copy at once."""
    by_bytes = [{int(nbytes): t for nbytes, t in row["metrics"]["seconds_by_bytes"].items()} for row in alone]
    for number, each in enumerate(by_bytes):
        label = None if number else "each pair"
        axes.plot(list(each), [t * 1e6 for t in each.values()], color=style.GREY, linewidth=0.6, label=label)
    medians = {nbytes: statistics.median(each[nbytes] for each in by_bytes) for nbytes in by_bytes[0]}
    link = fit_link(list(medians.items()))
    axes.plot(list(medians), [t * 1e6 for t in medians.values()], "o", label="median of the pairs")
    for row in rows:
        if len(row["case"]["pairs"]) > 1:
            many = row["metrics"]["seconds_by_bytes"]
            axes.plot([int(nbytes) for nbytes in many], [t * 1e6 for t in many.values()], "^", label=row["label"])
    line = [min(medians) * (max(medians) / min(medians)) ** (k / 50) for k in range(51)]
    axes.plot(
        line,
        [link.seconds(nbytes) * 1e6 for nbytes in line],
        color=style.COLOURS[0],
        label="model: alpha + bytes x beta",
    )
    axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="µs")
    axes.figure.legend(loc="outside lower center", ncols=2)
