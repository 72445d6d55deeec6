"""How fast do devices talk? A copy's start-up time and bandwidth, between every two devices and for all at once.

The cost model of :mod:`mxdp.plans.cost.link` gives every link the same alpha and beta. Between GPUs links often differ:
NVLink or a PCIe switch joins some pairs, the processors join the others. CPU devices share one memory, and so one link.

On CPU devices the source's worker makes the copy, on one of the machine's cores. Copies at the same time share the
cores and the memory's bandwidth, which the rows "at once" measure. They also hold what
:func:`mxdp.calibrate` measures here, from which ``auto`` and the experiment ``allreduce`` plan.
"""

from __future__ import annotations

import itertools
import math
import statistics
from typing import Any, Dict, List, Mapping

from mxdp.errors import plural, size
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.report import style
from mxdp.plans.cost.link import fit_link
from mxdp.plans.cost.machine import CPU

ALIKE = 1.5
"""Links are alike if the slowest pair of different devices takes at most 1.5 times as long as the fastest, for the
largest size. Twelve pairs of equal CPU devices came out 1.05 times apart, and 1.4 times while others worked on the
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
        "median error (caches bend the line). At once: every device copies to the next; the numbers are those of one "
        "device. CPU devices share one memory: if their links differ, the cause is other work on the machine, or NUMA."
    )
    compared = "what arrived, against what was sent"
    together = True
    full = dict(devices=[4], kind="auto", seed=0, timeout=3600.0, sizes=[4**k for k in range(1, 14)])
    presets = {
        "quick": dict(full, timeout=120.0, sizes=[4**k for k in (1, 3, 5, 7, 9, 10, 11, 12)]),
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
            Case(f"{i} to {'itself' if i == j else j}", n, settings={"pairs": [[i, j]]})
            for i, j in itertools.product(range(n), repeat=2)
        ]
        at_once = [
            Case(f"all {each} at once", each, settings={"pairs": [[i, (i + 1) % each] for i in range(each)]})
            for each in settings["devices"]
            if each > 1
        ]
        return pairs + at_once

    def predict(self, settings: Settings, cores: int) -> str:
        machine, largest, n = CPU.with_cores(cores), max(settings["sizes"]), max(settings["devices"])
        alone, running = machine.copy.seconds(largest, 2 * largest, others=False), min(n, cores)
        together = machine.copy.seconds(largest, 2 * largest * n, others=running > 1) * n / running
        return (
            "At the reference machine's speeds, all links of CPU devices are alike: "
            f"{max(machine.push, machine.copy.start) * 1e6:.1f} µs for a small copy, {largest / alone / 1e9:.1f} GB/s "
            f"for {size(largest)}. If {n} devices copy at once, on {plural(cores, 'core')}, each copy takes "
            f"{together / alone:.1f} times as long."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        alone = _between_different(rows)
        for row in rows:
            row.metrics.update(describe(row.metrics["seconds_by_bytes"]))
            if len(row.case["pairs"]) > 1 and alone:
                rounds = zip(row.samples, *(each.samples for each in alone))
                row.keep("over_alone", [mine / statistics.median(pairs) for mine, *pairs in rounds])
        if alone:
            fast, slow = (end(alone, key=lambda row: row.median) for end in (min, max))
            slow.keep("over_fastest", slow.ratios(fast))

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        alone = _between_different(rows)
        if not alone:
            return "There is no link to measure: that takes two devices."
        speeds = sorted(row.metrics["bandwidth_gbs"] for row in alone)
        together = next(row for row in reversed(rows) if "over_alone" in row.rounds)
        return (
            f"A copy of {size(max(settings['sizes']))} between two devices runs at {speeds[0]:.1f} to {speeds[-1]:.1f} "
            f"GB/s, depending on the pair; if all {len(together.devices)} devices copy at once, each copy takes "
            f"{together.estimate('over_alone'):.1f} times as long."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        alone = _between_different(rows)
        if not alone:
            return "Run it with --devices 4."
        slow = next(row for row in alone if "over_fastest" in row.rounds)
        alike = {True: ", so one link will do for all", False: ", so one link does not do for all", None: ""}
        alpha, beta = (statistics.median(row.metrics[name] for row in alone) for name in ("alpha", "beta"))
        return (
            f"The slowest pair takes {slow.estimate('over_fastest'):.2f} times as long as the fastest"
            f"{alike[slow.at_most('over_fastest', ALIKE)]}. A copy costs alpha = {alpha * 1e6:.1f} µs and beta = "
            f"{beta * 1e12:.0f} ps a byte (medians over the pairs)."
        )

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
        _matrix(upper, [row for row in result["rows"] if len(row.case["pairs"]) == 1])
        _times(lower, result["rows"])


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
    return [row for row in rows if len(row.case["pairs"]) == 1 and len(row.devices) == 2]


def _matrix(axes: style.Axes, rows: List[Row]) -> None:
    """GB/s from each device to each device; each of ``rows`` is of one pair."""
    speeds = {tuple(row.case["pairs"][0]): row.metrics["bandwidth_gbs"] for row in rows}
    n, most = 1 + max(itertools.chain(*speeds)), max(speeds.values())
    lines = [[speeds.get((source, target), math.nan) for target in range(n)] for source in range(n)]
    axes.imshow(lines, cmap="Blues", vmin=0, vmax=most, aspect="auto")
    for (source, target), value in speeds.items():
        colour, text = "white" if value > most / 2 else style.INK, style.number(value, 3 if n <= 6 else 2)
        axes.text(target, source, text, ha="center", va="center", color=colour)
    axes.grid(visible=False)
    axes.set(xticks=range(n), yticks=range(n), xlabel="to device", ylabel="from device", title="GB/s, largest copy")


def _times(axes: style.Axes, rows: List[Row]) -> None:
    """Time by bytes: a thin line for every pair of different devices, their medians with the line fitted to these, and
    the rows in which all copy at once."""

    def plot(seconds_by_bytes: Mapping[str, float], look: str, **more: Any) -> None:
        times = {int(nbytes): seconds * 1e6 for nbytes, seconds in seconds_by_bytes.items()}
        axes.plot(list(times), list(times.values()), look, **more)

    pairs = [row.metrics["seconds_by_bytes"] for row in _between_different(rows) or rows]
    for number, own in enumerate(pairs):
        plot(own, "-", color=style.GREY, linewidth=0.6, label="" if number else "each pair")
    medians = {nbytes: statistics.median(own[nbytes] for own in pairs) for nbytes in pairs[0]}
    plot(medians, "o", label="median of the pairs")
    for row in rows:
        if len(row.case["pairs"]) > 1:
            plot(row.metrics["seconds_by_bytes"], "^", label=row.label)
    link = fit_link([(int(nbytes), seconds) for nbytes, seconds in medians.items()])
    fitted = {nbytes: link.seconds(int(nbytes)) for nbytes in medians}
    plot(fitted, "-", color=style.COLOURS[0], label="alpha + bytes x beta")
    axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="µs", title="Time of a copy")
    axes.legend(loc="upper left")
