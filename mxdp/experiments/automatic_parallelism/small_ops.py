"""Many tiny independent operators: does it help to run them side by side, and if not, what does?

The exercise says that for a sufficiently small workload parallelization can help even on a single CPU or GPU. The cost
model: an operator of n bytes costs its call, c, in Python and in MXNet's engine, one call after the other; and its
work, w(n), which k workers or devices share. So it takes max(c, w(n) / k). Side by side pays once w(n) is more than c;
below that only cheaper calls pay.

Four ways to call are compared, on one device and on two, with one worker and with two, and without an engine.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

from mxdp.errors import plural, size
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.environments import NAIVE, workers
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find, find_all
from mxdp.experiments.report import style

PAYS = 0.75
"""Side by side helps where it takes at most this part of the time."""
ONE, TWO, NONE, SINGLE = "1 worker", "2 workers", "no engine", "bulk 1"
BOTH = "_two_devices"
SIDE_BY_SIDE = ("calls", "ready")
WAYS = ("calls", "bulk", "ready", "graph", f"calls{BOTH}", f"ready{BOTH}")
ENVIRONMENTS: Dict[str, Tuple[Dict[str, Optional[str]], Sequence[str]]] = {
    ONE: (workers(1), WAYS),
    TWO: (workers(2), WAYS[:4]),
    NONE: (NAIVE, ("calls", "ready", "graph")),
    # By default a graph hands its operators to the engine in bulks of 15.
    SINGLE: ({**workers(1), "MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN": "1"}, ("calls", "graph")),
}


@experiment
class SmallOps(Experiment):
    """Additions to arrays of several sizes, by environment and by the way they are called."""

    name = "small-ops"
    question = "Does it help to run many tiny operators side by side?"
    source = "Dive into Deep Learning, 'Automatic Parallelism', exercise 2"
    how_to_read = (
        "µs an operator (x + i, into an array of its own; the size is its bytes). calls: MXNet's function; 'push' is "
        "the part of it until the call returns, the front end's. bulk: the same within mx.engine.bulk(15). ready: "
        "calls prepared once (mxdp.engine). graph: 30 operators in one hybrid call. '+': every second operator on "
        "another device. Rows: the device's workers; MXNet's NaiveEngine ('no engine'); graphs in bulks of 1 "
        "('bulk 1'), not of 15."
    )
    slide_panel = 1
    claims = {
        f"{way}_{more}": Claim(
            f"On {on}, the smallest additions by {what} take at most {PAYS} of the time.",
            "the book, exercise 2",
            PAYS,
        )
        for more, on in (("two_devices", "two devices"), ("two_workers", "two workers of one device"))
        for way, what in (("calls", "MXNet's calls"), ("ready", "prepared calls"))
    }
    compared = "every way's sums, against NumPy's, exactly"
    together = True
    presets = {
        "quick": dict(
            kind="auto", seed=0, timeout=120.0, round_seconds=0.0125,
            sizes=[4, 1 << 12, 1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 21],
        ),
        "full": dict(
            kind="auto", seed=0, timeout=1800.0, round_seconds=0.025,
            sizes=[4, 1 << 8, 1 << 12, *[1 << power for power in range(15, 22)]],
        ),
    }  # fmt: skip
    little = dict(sizes=[4, 4096], round_seconds=0.001)
    checks = {
        "sizes": (lambda sizes: all(type(n) is int and n % 4 == 0 for n in sizes), "multiples of 4, a float32's bytes")
    }

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(f"{engine}, {size(nbytes)}", 2, 1, {"engine": engine, "bytes": nbytes}, environment)
            for engine, (environment, _) in ENVIRONMENTS.items()
            for nbytes in sorted(settings["sizes"])
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        return (
            f"On {plural(cores, 'core')} an operator takes the longer of two times: of its call, and of its work over "
            f"{plural(min(2, cores), 'worker')}. If a call takes 10 to 20 µs and memory gives 20 GB/s, two devices "
            "help from about 100 to 200 KB on, and prepared calls, at half the cost, from half of that."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        smallest = min(settings["sizes"])
        for row in rows:
            case, one = row.case, find(rows, engine=ONE, bytes=row.case["bytes"])
            if case["engine"] == TWO and one:
                for way in SIDE_BY_SIDE:
                    row.keep(f"{way}_two_workers_over_one", row.ratios(one, f"{way}_us"))
            for claim in self.claims:
                if case["bytes"] == smallest and f"{claim}_over_one" in row.rounds:
                    row.keep(claim, row.rounds[f"{claim}_over_one"])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        nbytes = min(settings["sizes"])
        one, two = (find_all(rows, engine=engine, bytes=nbytes)[0] for engine in (ONE, TWO))
        return (
            f"Spread over two devices, additions of {size(nbytes)} take "
            f"{one.estimate('calls_two_devices_over_one'):.2f} times as long as on one; over two workers of one "
            f"device, {two.estimate('calls_two_workers_over_one'):.2f} times."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        least, most = min(settings["sizes"]), max(settings["sizes"])
        tiny, large, shared = (
            find_all(rows, engine=engine, bytes=nbytes)[0]
            for engine, nbytes in ((ONE, least), (ONE, most), (TWO, most))
        )
        return (
            "A second device or worker makes the work shorter, not the call: an addition of "
            f"{size(least)} takes {tiny.metrics['calls_us']:.1f} µs, {tiny.metrics['calls_push_us']:.1f} of them for "
            f"the call. With a prepared call it takes {tiny.metrics['ready_us']:.1f} µs. Additions of {size(most)} "
            f"take {large.estimate('calls_two_devices_over_one'):.2f} times as long on two devices, and "
            f"{shared.estimate('calls_two_workers_over_one'):.2f} times with two workers."
        )

    def columns(self) -> List[Column]:
        calls, *others = [Column(f"{way}_us", way.replace(BOTH, "+"), ".1f") for way in WAYS]
        push = Column("calls_push_us", "push", ".1f")
        return [Column("ops_per_sec", "ops/s", ",.0f"), calls, push, *others]

    def answering(self, rows: List[Row]) -> List[Row]:
        """The smallest arrays, and the largest for comparison."""
        ends = [end(row.case["bytes"] for row in rows) for end in (min, max)]
        return [row for row in rows if row.case["bytes"] in ends]

    def draw(self, result: Result, figure: style.Figure) -> None:
        figure.set_size_inches(style.WIDTH, 2.2 * style.HEIGHT)
        upper, lower = figure.subplots(2, 1)
        one, two, none = (find_all(result["rows"], engine=engine) for engine in (ONE, TWO, NONE))
        for axes, label, rows, way, colour, dashes in (
            (upper, "calls", one, "calls", 0, "-"),
            (upper, "no engine", none, "calls", 1, "-"),
            (upper, "in bulks", one, "bulk", 2, "-"),
            (upper, "in a graph", one, "graph", 3, "-"),
            (upper, "prepared", one, "ready", 4, "-"),
            (lower, "calls", one, "calls", 0, "-"),
            (lower, "calls, 2 devices", one, f"calls{BOTH}", 5, "--"),
            (lower, "prepared", one, "ready", 4, "-"),
            (lower, "prepared, 2 devices", one, f"ready{BOTH}", 6, "--"),
            (lower, "prepared, 2 workers", two, "ready", 7, ":"),
        ):
            x, y = zip(*[(row.case["bytes"], row.metrics[f"{way}_us"]) for row in rows])
            axes.plot(x, y, style.MARKERS[colour], linestyle=dashes, color=style.COLOURS[colour], label=label)
        for axes, title in ((upper, "Cheaper calls"), (lower, "Side by side")):
            axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="µs an operator", title=title)
            style.plain_logarithmic(axes.yaxis)
            axes.legend()
