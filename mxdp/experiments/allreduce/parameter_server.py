"""Where should gradients be added up? The book's arithmetic, repeated with measured links; and its plans, carried out.

The book has four GPUs with 160 MB of gradients each, on links of 16 GB/s, over which 160 MB take 10 ms. Added up on one
GPU that is three transfers there and three back: 60 ms. On the CPU it is four and four: 80 ms. In four parts, each on
another GPU and all at the same time, it is a quarter of the 60 ms: 15 ms. (For the ring the book gives 6 ms, but of
eight GPUs on NVLink.) Its conclusion: how gradients are synchronised decides between 15 and 80 ms.

Each row has three predictions: the arithmetic with the book's link, the arithmetic with the link measured in the same
process, and the plan simulated (:mod:`mxdp.plans.cost.simulate`) on the machine as calibrated there.
"""

from __future__ import annotations

from typing import List

from mxdp import cuda, process
from mxdp.errors import plural, size
from mxdp.experiments.allreduce.common import draw_times
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find, find_all
from mxdp.experiments.report import style
from mxdp.plans.collective import one_hop
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.collective.schedule import Schedule
from mxdp.plans.cost.link import Link, allreduce_seconds
from mxdp.plans.cost.machine import CPU
from mxdp.plans.cost.simulate import predict
from mxdp.plans.partition import bounds

BOOK_LINK = Link(alpha=0.0, beta=1 / 16e9)
BOOK_MS = {"server": 80.0, "naive": 60.0, "sharded": 15.0}
"""The book's own results, the slowest first."""
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
    """Gradients of all devices added up on one of them, on a server, in parts on all, or around the ring."""

    name = "parameter-server"
    question = "Where should gradients be added up: on one device, on a server, or in parts on all?"
    source = "Dive into Deep Learning, 'Parameter Servers'"
    how_to_read = (
        "Milliseconds to sum one vector a device. Simulated: the plan's time at this machine's measured speeds; "
        "'off': its distance from the time. Formula: transfers times the measured link; book's: times its link of "
        "16 GB/s. 'Sent': MB that leave the busiest device. The server is a further CPU device without gradients."
    )
    claims = {
        "server_over_one": Claim(
            "Adding up on a server takes at least 1.1 times as long as on one device.",
            "the book's arithmetic: 80 ms and 60 ms",
            1.1,
            least=True,
        ),
        "one_over_parts": Claim(
            "Adding up on one device takes at least 1.1 times as long as in parts on all.",
            "the book's arithmetic: 60 ms and 15 ms",
            1.1,
            least=True,
        ),
        "wrong": Claim("Every number of every timed sum is right.", "ours", 0, exact=True),
    }
    compared = "every element of every replica after three sums, exactly"
    together = True
    presets = {
        "quick": dict(devices=[4], kind="auto", seed=0, rounds=3, timeout=120.0, nbytes=1 << 24),
        "full": dict(devices=[4], kind="auto", seed=0, rounds=1, timeout=900.0, nbytes=160_000_000),
    }
    little = dict(nbytes=65536)

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
            schedule = schedule_of(case, nbytes // 4)
            here, book = predict(schedule, nbytes, machine), allreduce_seconds(schedule, nbytes, BOOK_LINK)
            said.append(f"{case.label} {style.number(here * 1e3)} ({style.number(book * 1e3)})")
        return (
            f"For {size(nbytes)} on {plural(cores, 'core')}, in ms at the reference machine's speeds (and by the "
            f"formula, with the book's 16 GB/s): {', '.join(said) or 'nothing to add up on one device'}."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            error = row.off("predicted_ms", 1e-3)
            row.metrics.update(wrong=sum(row.rounds["wrong"]), ms=row.median * 1e3, prediction_error=error)
        for n in settings["devices"]:
            server, one, parts = (find(rows, replicas=n, algorithm=name) for name in BOOK_MS)
            if server:
                server.keep_ratios("server_over_one", one)
                server.keep_ratios("over_parts", parts)
            if one:
                one.keep_ratios("one_over_parts", parts)

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        if not rows:
            return "One device has nothing to add up."
        wrong = [row.label for row in rows if row.metrics["wrong"]]
        if wrong:
            return f"The timed sums were wrong for {', '.join(wrong)}, so the times mean nothing."
        most = rows[-1].case["replicas"]
        server, one = (find_all(rows, replicas=most, algorithm=name)[0] for name in ("server", "naive"))
        return (
            f"With {size(one.case['bytes'])} on each of {most} devices, adding up on one device takes "
            f"{one.estimate('one_over_parts'):.2f} times as long as in parts on all, and on a server "
            f"{server.estimate('over_parts'):.2f} times."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        if not rows:
            return "Run it with --devices 4."
        server, one, parts = BOOK_MS.values()
        said = (
            f"By the book's arithmetic for four GPUs, whose links work side by side, it is {one / parts:.0f} times "
            f"({one:.0f} ms and {parts:.0f} ms) and {server / parts:.1f} times ({server:.0f} ms)."
        )
        if not rows[0].devices[0].startswith("cpu"):
            return said
        return (
            f"{said} CPU devices share one memory and the cores: in parts, as many bytes go through that memory as on "
            "one device, and only more cores take part."
        )

    def columns(self) -> List[Column]:
        return [
            Column("ms", "ms", ".2f"),
            Column("predicted_ms", "simulated", ".2f"),
            Column("prediction_error", "off", "+.0%"),
            Column("textbook_ms", "formula", ".2f"),
            Column("book_ms", "book's", ".2f"),
            Column("sent_bytes_busiest", "sent MB", "", 1e-6),
            Column("wrong", "wrong", "d"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        labels = [row.label.replace(": ", " devices: ") for row in result["rows"]]
        axes = figure.add_subplot(title=f"Adding up {size(result['rows'][0].case['bytes'])} on each device")
        draw_times(axes, result["rows"], labels, predicted_ms="simulated", textbook_ms="formula")


def schedule_of(case: Case, elements: int) -> Schedule:
    """The case's plan. As in the book, ``sharded`` gets one array for each device, all of nearly one size."""
    name, n = case.settings["algorithm"], case.devices
    if name == "server":
        return one_hop.server(n + 1)
    return plan(name, n, [stop - start for start, stop in bounds(elements, n)])


def _on_cpu(settings: Settings) -> bool:
    """Will the devices be CPU devices? The parent asks, without MXNet."""
    if settings["kind"] != "auto":
        return bool(settings["kind"] == "cpu")
    for_cuda = any("-cu" in name for name in process.installed_backends())
    return not for_cuda or sum(gpu.usable for gpu in cuda.query_driver().gpus) < max(settings["devices"])
