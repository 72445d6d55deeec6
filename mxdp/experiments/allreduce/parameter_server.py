"""Where should gradients be added up? The book's arithmetic, done again with measured links, and the plans run.

The book has four GPUs with 160 MB of gradients each, on links of 16 GB/s, over which 160 MB take 10 ms. Added up on one
of the GPUs that is three transfers there and three back, 60 ms; on the CPU four and four, 80 ms; in four parts, each on
another GPU and all at the same time, a quarter of the 60 ms, 15 ms. (It gives 6 ms for the ring, but of eight GPUs on
NVLink.) Its conclusion: how gradients are synchronised decides between 15 and 80 ms.

Each row has that arithmetic three times: with the book's link, with the link that was measured in the same process, and
the plan played through (:mod:`mxdp.plans.cost.simulate`) on the machine as calibrated there.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Tuple

from mxdp import cuda, process
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
from mxdp.experiments.report.rows import metric, plural, row_bars, size
from mxdp.plans.collective import one_hop
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.collective.schedule import Schedule
from mxdp.plans.cost.link import Link, allreduce_seconds
from mxdp.plans.cost.machine import CPU, Machine
from mxdp.plans.cost.simulate import predict
from mxdp.plans.partition import bounds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BOOK_LINK = Link(alpha=0.0, beta=1 / 16e9)
BOOK_MS = {"server": 80.0, "naive": 60.0, "sharded": 15.0}
"""The book's own results, the slowest first."""
ODD = 10_007
"""Elements that the oracle sums: a prime, so that no number of devices gets equal chunks."""
CLAIM = 1.1
"""The order is the book's if each takes at least so many times as long as the next; less is noise."""
LABELS = {
    "server": "on a server (CPU)",
    "naive": "on one device",
    "sharded": "an array on each",
    "ring": "ring",
    "direct": "direct",
    "shared-memory": "shared memory",
}


@experiment
class ParameterServer(Experiment):
    """Gradients of all devices added up on one, on a server, in parts on all, around the ring."""

    name = "parameter-server"
    question = "Where should gradients be added up: on one device, on a server, or in parts on all?"
    source = "Dive into Deep Learning, 'Parameter Servers'"
    how_to_read = (
        "Milliseconds to sum one vector a device. Replayed: the plan played through on this machine's measured speeds, "
        "and how far 'off' that is. Formula: transfers times the measured link; book's: times its link of 16 GB/s. "
        "'Sent': MB that leave the busiest device. The server is a further CPU device, with no gradients of its own."
    )
    together = True
    presets = {
        "quick": dict(devices=[4], kind="auto", seed=0, rounds=7, timeout=120.0, nbytes=1 << 24),
        "full": dict(devices=[4], kind="auto", seed=0, rounds=9, timeout=3600.0, nbytes=160_000_000),
    }

    def __init__(self) -> None:
        self._speeds: Dict[int, Tuple[Machine, Link]] = {}

    def cases(self, settings: Settings) -> List[Case]:
        counts = [n for n in settings["devices"] if n > 1]
        names = [name for name in LABELS if name != "shared-memory" or _on_cpu(settings)]
        return [
            Case(
                (f"{n}: " if len(counts) > 1 else "") + LABELS[name],
                n,
                settings={"algorithm": name, "bytes": settings["nbytes"], "replicas": n},
            )
            for n in counts
            for name in names
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        nbytes, machine, said = settings["nbytes"], CPU.with_cores(cores), []
        for case in self.cases(settings):
            schedule = _plan(case, nbytes // 4)
            here, book = predict(schedule, nbytes, machine), allreduce_seconds(schedule, nbytes, BOOK_LINK)
            said.append(f"{case.label} {style.number(here * 1e3)} ({style.number(book * 1e3)})")
        return (
            f"ms for {size(nbytes)} at the reference machine's speeds on {plural(cores, 'core')}, and by the formula "
            f"over the book's 16 GB/s: {', '.join(said) or 'nothing to add up on one device'}."
        )

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        from mxdp.experiments.allreduce.work.gradient_sums import summed

        schedule = _plan(case, ODD)
        _, checked, wrong = summed(schedule, _devices(case, settings), case.devices, ODD, settings["seed"])
        return Oracle(checked, wrong, "every element of every replica after three sums, exactly")

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        from mxdp.experiments.allreduce.work.gradient_sums import summed

        devices, elements, wrong = _devices(case, settings), settings["nbytes"] // 4, 0
        schedule = _plan(case, elements)
        machine, link = self._measured(devices[: case.devices], settings)
        expected = {
            "predicted_ms": predict(schedule, 4 * elements, machine) * 1e3,
            "textbook_ms": allreduce_seconds(schedule, 4 * elements, link) * 1e3,
            "book_ms": allreduce_seconds(schedule, 4 * elements, BOOK_LINK) * 1e3,
            "sent_bytes_busiest": 4 * max(schedule.sent(elements)),
        }
        yield Ready([str(device) for device in devices])
        while True:
            seconds, _, differing = summed(schedule, devices, case.devices, elements, settings["seed"])
            wrong += differing
            yield Round(seconds, {**expected, "wrong": wrong})

    def _measured(self, devices: List[Any], settings: Settings) -> Tuple[Machine, Link]:
        """This machine's speeds, and the link from the first device to the second: once in a child."""
        from mxdp.collectives import calibrate
        from mxdp.experiments.measure.links import measured_link

        if len(devices) not in self._speeds:
            link = measured_link(devices[0], devices[1], settings["nbytes"], settings["seed"])
            self._speeds[len(devices)] = calibrate(devices), link
        return self._speeds[len(devices)]

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            metrics = row["metrics"]
            metrics["ms"] = row["seconds"]["median"] * 1e3
            metrics["prediction_error"] = metrics["predicted_ms"] / metrics["ms"] - 1

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        if not rows:
            return Verdict(None, "One device has nothing to add up: run it with --devices 4.")
        wrong = [row["label"] for row in rows if row["metrics"]["wrong"]]
        if wrong:
            return Verdict(
                False, f"Wrong sums came out while it was timed ({', '.join(wrong)}): the times mean nothing."
            )
        counts = [n for n in settings["devices"] if n > 1]
        said = [_compared(rows, n) for n in counts]
        book = ", ".join(f"{ms:.0f}" for ms in BOOK_MS.values())
        said.append(f"The book's arithmetic, 160 MB on four GPUs: {book} ms, 5.3 times apart.")
        errors = [abs(row["metrics"]["prediction_error"]) for row in rows]
        said.append(f"The plans played through are off by {statistics.median(errors):.0%} (median).")
        if rows[0]["case"]["devices"][0].startswith("cpu"):
            said.append(
                "The book's factors need links that work side by side. CPU devices have one memory and share the "
                "cores: a copy is work for its source's worker, a sum for its device's. In parts, as many bytes go "
                "through that memory as on one device; only more cores take part."
            )
        return Verdict(all(_in_order(rows, n) for n in counts), " ".join(said))

    def columns(self) -> List[Column]:
        return [
            metric("ms", "ms"),
            metric("predicted_ms", "replayed"),
            metric("prediction_error", "off", "{:+.0%}"),
            metric("textbook_ms", "formula"),
            metric("book_ms", "book's"),
            Column("sent MB", lambda row: style.number(row["metrics"]["sent_bytes_busiest"] / 1e6)),
            metric("wrong", "wrong", "{:d}"),
        ]

    def draw(self, result: Result, figure: Figure) -> None:
        rows = result["rows"]
        axes = figure.add_subplot()
        row_bars(figure, rows, "ms", [style.COLOURS[0]] * len(rows), [1e3] * len(rows), axes)
        marks = (("predicted_ms", "^", "replayed"), ("textbook_ms", "D", "formula, measured link"))
        most = axes.get_xlim()[1]
        for number, (name, marker, label) in enumerate(marks, 1):
            values = [row["metrics"][name] for row in rows]
            below = [y + style.THICK / 2 + 0.09 for y in range(len(rows))]
            axes.plot(values, below, marker, color=style.COLOURS[number], markersize=7, label=label, clip_on=False)
            most = max(most, max(values) * 1.05)
        axes.set_xlim(0, most)
        axes.set_ylim(len(rows) - 0.5, axes.get_ylim()[1])
        figure.legend(loc="outside lower center", ncols=2)


def _plan(case: Case, elements: int) -> Schedule:
    """The case's plan; ``sharded`` gets as many equal arrays as there are devices, as in the book."""
    name, n = case.settings["algorithm"], case.devices
    if name == "server":
        return one_hop.server(n + 1)
    return plan(name, n, [stop - start for start, stop in bounds(elements, n)])


def _devices(case: Case, settings: Settings) -> List[Any]:
    """Those that hold gradients, and for a server another CPU device: beside GPUs that is the book's own plan."""
    from mxdp.backend import mx
    from mxdp.experiments.measure.devices import devices_of

    found = devices_of(case, settings)
    return [*found, mx.cpu(case.devices)] if case.settings["algorithm"] == "server" else found


def _on_cpu(settings: Settings) -> bool:
    """Will the devices be CPU devices? Asked in the parent, which has no MXNet."""
    if settings["kind"] != "auto":
        return bool(settings["kind"] == "cpu")
    for_cuda = any("-cu" in name for name in process.installed_backends())
    return not for_cuda or sum(gpu.usable for gpu in cuda.query_driver().gpus) < max(settings["devices"])


def _times(rows: List[Row], replicas: int) -> Dict[str, float]:
    """Milliseconds by plan."""
    return {row["case"]["algorithm"]: row["metrics"]["ms"] for row in rows if row["case"]["replicas"] == replicas}


def _in_order(rows: List[Row], replicas: int) -> bool:
    times = [_times(rows, replicas)[name] for name in BOOK_MS]
    return all(slower >= CLAIM * faster for slower, faster in zip(times, times[1:]))


def _compared(rows: List[Row], replicas: int) -> str:
    """The book's three beside ours, and where the others come."""
    times = _times(rows, replicas)
    server, naive, sharded = (times[name] for name in BOOK_MS)
    others = ", ".join(f"{name} {style.number(ms)}" for name, ms in times.items() if name not in BOOK_MS)
    return (
        f"{plural(replicas, 'device')}, {size(rows[0]['case']['bytes'])}: {style.number(server)} ms on a server, "
        f"{style.number(naive)} on one device, {style.number(sharded)} in parts, {server / sharded:.1f} times apart "
        f"(others: {others})."
    )
