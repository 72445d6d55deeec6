"""How fast do devices talk? A copy's start-up time and bandwidth, between every two devices and all at once.

The cost model of :mod:`mxdp.plans.cost.link` gives every link the same alpha and beta. That is right where all links
are alike, and so the claim is that they are. Between GPUs they often are not: two may be joined by NVLink or a PCIe
switch, two others only through the processors. CPU devices have one memory between them, and so one link.

A copy on CPU devices is the work of its source's worker, on one of the machine's cores: copies at the same time share
the cores and the memory's bandwidth. The rows "at once" measure that, and carry what :func:`mxdp.collectives.calibrate`
finds out about this machine, with which ``auto`` and the experiment ``allreduce`` plan.
"""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping

from mxdp.experiments.allreduce import link_pictures
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
from mxdp.experiments.report.rows import metric, size
from mxdp.plans.cost.link import fit_link
from mxdp.plans.cost.machine import CPU

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALIKE = 1.5
"""Links count as alike while the slowest pair of different devices takes at most so many times as long as the fastest,
for the largest size. Twelve pairs of CPU devices, which are equal, came out 1.05 times apart, and 1.4 times while
others worked on the machine; the book's NVLink (100 GB/s) and PCIe 3.0 (16 GB/s) are 6 times apart."""


@experiment
class Links(Experiment):
    """Copies of several sizes for each ordered pair of devices, for a device with itself, and for all at once."""

    name = "links"
    question = "How fast do devices talk?"
    source = "Slides 'Multi-GPU', communications"
    how_to_read = (
        "Copies follow one another on one pair of arrays, so that no worker has to be woken. µs: of the smallest copy; "
        "GB/s: of the largest. A copy of m bytes takes alpha + m beta: fitted to all sizes, 'off' by so much (median; "
        "caches bend the line). At once: every device copies to the next one, and the numbers are of one device."
    )
    together = True
    presets = {
        "quick": dict(
            devices=[4], kind="auto", seed=0, rounds=5, timeout=120.0,
            sizes=[4, 64, 1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24],
        ),
        "full": dict(devices=[4], kind="auto", seed=0, rounds=9, timeout=3600.0, sizes=[4**k for k in range(1, 14)]),
    }  # fmt: skip

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

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        counts = [_copies(case, settings, nbytes).compare() for nbytes in settings["sizes"]]
        text = "what arrived, against what was sent"
        return Oracle(sum(checked for checked, _ in counts), sum(wrong for _, wrong in counts), text)

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        from mxdp.collectives import calibrate
        from mxdp.experiments.measure.devices import devices_of

        found, pairs, sizes = devices_of(case, settings), case.settings["pairs"], sorted(settings["sizes"])
        more = {"machine": asdict(calibrate(found))} if len(pairs) > 1 else {}
        times: Dict[int, List[float]] = {nbytes: [] for nbytes in sizes}
        _copies(case, settings, sizes[0]).seconds()
        yield Ready([str(found[rank]) for rank in sorted({rank for pair in pairs for rank in pair})])
        while True:
            for nbytes in sizes:
                times[nbytes].append(_copies(case, settings, nbytes).seconds())
            medians = {nbytes: statistics.median(each) for nbytes, each in times.items()}
            yield Round(times[sizes[-1]][-1], {**describe(medians), **more})

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        alone = _between_different(rows)
        for row in rows:
            if len(row["case"]["pairs"]) > 1 and alone:
                pairs = statistics.median(each["seconds"]["median"] for each in alone)
                row["metrics"]["over_alone"] = row["seconds"]["median"] / pairs

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        alone = _between_different(rows)
        if not alone:
            return Verdict(None, "A link needs two devices, and this was 1: run it with --devices 4.")
        speeds = sorted(row["metrics"]["bandwidth_gbs"] for row in alone)
        starts = sorted(row["metrics"]["latency_us"] for row in alone)
        apart = speeds[-1] / speeds[0]
        alpha, beta = (statistics.median(row["metrics"][name] for row in alone) for name in ("alpha", "beta"))
        link = f"alpha {alpha * 1e6:.1f} µs and beta {beta * 1e12:.0f} ps a byte"
        said = [
            f"The slowest pair copies {size(max(settings['sizes']))} at {speeds[0]:.1f} GB/s, the fastest at "
            f"{speeds[-1]:.1f}: {apart:.2f} times apart (alike: up to {ALIKE}). The smallest copy takes "
            f"{starts[0]:.1f} to {starts[-1]:.1f} µs.",
            f"One link will do for all: {link}." if apart <= ALIKE else f"Links differ: {link} are only their median.",
        ]
        said += [
            f"{row['label'].capitalize()}, each takes {row['metrics']['over_alone']:.1f} times as long as alone."
            for row in rows
            if "over_alone" in row["metrics"]
        ]
        if alone[0]["case"]["devices"][0].startswith("cpu"):
            said.append(
                "CPU devices share one memory: where their links differ, other work on the machine or NUMA is the "
                "reason; at once they share the cores and the caches, too. GPUs were not measured here; there the "
                "matrix would show which of them are joined directly."
            )
        return Verdict(apart <= ALIKE, " ".join(said))

    def columns(self) -> List[Column]:
        return [
            metric("latency_us", "µs", "{:.1f}"),
            metric("bandwidth_gbs", "GB/s", "{:.1f}"),
            Column("alpha µs", lambda row: f"{row['metrics']['alpha'] * 1e6:.1f}"),
            Column("beta ps/B", lambda row: f"{row['metrics']['beta'] * 1e12:.0f}"),
            metric("fit_error", "off", "{:.0%}"),
            metric("over_alone", "over alone", "{:.1f}"),
        ]

    def draw(self, result: Result, figure: Figure) -> None:
        figure.set_size_inches(style.WIDTH, 2 * style.HEIGHT)
        upper, lower = figure.subplots(2, 1)
        link_pictures.matrix(upper, [row for row in result["rows"] if len(row["case"]["pairs"]) == 1])
        link_pictures.times(lower, result["rows"], _between_different(result["rows"]) or result["rows"])


def describe(times: Mapping[int, float]) -> Dict[str, Any]:
    """A row's numbers, from the seconds of a copy by its bytes."""
    link = fit_link(list(times.items()))
    smallest, largest = min(times), max(times)
    return {
        "alpha": link.alpha,
        "beta": link.beta,
        "fit_error": statistics.median(abs(link.seconds(nbytes) / seconds - 1) for nbytes, seconds in times.items()),
        "latency_us": times[smallest] * 1e6,
        "bandwidth_gbs": largest / times[largest] / 1e9,
        "seconds_by_bytes": {str(nbytes): seconds for nbytes, seconds in times.items()},
    }


def _copies(case: Case, settings: Settings, nbytes: int) -> Any:
    """The case's copies of that size, on fresh arrays."""
    from mxdp.experiments.measure.devices import devices_of
    from mxdp.experiments.measure.links import Copies

    found = devices_of(case, settings)
    return Copies([(found[i], found[j]) for i, j in case.settings["pairs"]], nbytes, settings["seed"])


def _between_different(rows: List[Row]) -> List[Row]:
    """The rows of one pair of two different devices."""
    return [row for row in rows if len(row["case"]["pairs"]) == 1 and len(row["case"]["devices"]) == 2]
