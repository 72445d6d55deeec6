"""Many tiny independent operators: does it help to run them side by side, and if not, what does?

The exercise says that for a sufficiently small workload parallelization can help even on a single CPU or GPU. The cost
model: an operator of n bytes costs its call, c, in Python and in MXNet's engine, one after the other for all; and its
work, w(n), which k workers or devices share. So it takes max(c, w(n) / k): side by side pays once w(n) is more than c,
and below that only cheaper calls do.

Four ways to call are compared (see ``mxdp/experiments/additions.py``), on one device and on two, by one worker and by
two, and without an engine.
"""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence, Tuple

from mxdp.experiments.harness.environments import NAIVE, workers
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
from mxdp.experiments.report.rows import find, find_all, metric, plural, size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAYS = 0.75
"""Side by side pays where it takes at most this part of the time."""
ONE, TWO, NONE, SINGLE = "1 worker", "2 workers", "no engine", "bulk 1"
BOTH = "_two_devices"
COMPARED = 1 << 18
"""Bytes of an array, at most, where sums are compared with NumPy's: there are 30 in a group, and many groups."""
SIDE_BY_SIDE = ("calls", "ready")
WAYS = ("calls", "bulk", "ready", "graph", f"calls{BOTH}", f"ready{BOTH}")
ENGINES: Dict[str, Tuple[Dict[str, Optional[str]], Sequence[str]]] = {
    ONE: (workers(1), WAYS),
    TWO: (workers(2), WAYS[:4]),
    NONE: (NAIVE, ("calls", "ready", "graph")),
    # A graph's operators are otherwise handed to the engine in bulks of 15.
    SINGLE: ({**workers(1), "MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN": "1"}, ("calls", "graph")),
}
RECORDED, LARGE = (ONE, TWO, NONE), 1 << 18
"""Engines of which a group of operators, in every way, is recorded: at the smallest size, and at this or the nearest to
it."""


@experiment
class SmallOps(Experiment):
    """Additions to arrays of several sizes, by engine and by the way they are called."""

    name = "small-ops"
    question = "Many tiny operators: does it help to run them side by side?"
    source = "Dive into Deep Learning, 'Automatic Parallelism', exercise 2"
    how_to_read = (
        "µs an operator (x + i, into an array of its own; the size is its bytes). calls: MXNet's function; 'push' is "
        "the part of it until the call returns, the front end's. bulk: the same within mx.engine.bulk(15). ready: "
        "calls made ready once (mxdp.prepared). graph: 30 operators in one hybrid call. '+': every second on another "
        "device. Rows: the device's workers; NaiveEngine ('no engine'); graphs in bulks of 1 ('bulk 1'), not of 15."
    )
    together = True
    presets = {
        "quick": dict(
            kind="auto", seed=0, rounds=5, timeout=120.0, round_seconds=0.015,
            sizes=[4, 1 << 12, 1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 21],
        ),
        "full": dict(
            kind="auto", seed=0, rounds=15, timeout=1800.0, round_seconds=0.05,
            sizes=[4, 1 << 8, 1 << 12, *[1 << power for power in range(14, 23)]],
        ),
    }  # fmt: skip

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(f"{engine}, {size(nbytes)}", 2, 1, {"engine": engine, "bytes": nbytes}, environment)
            for engine, (environment, _) in ENGINES.items()
            for nbytes in sorted(settings["sizes"])
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        return (
            f"On {plural(cores, 'core')}: an operator takes the longer of its call and of its work over "
            f"{plural(min(2, cores), 'worker')}. At 10 to 20 µs a call, and 20 GB/s read and written, two devices pay "
            "from some 100 to 200 KB on; with calls made ready, at half the cost, from half of that."
        )

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        counts = []
        for way in _ways(case):
            additions, call = _additions(way, case, settings, largest=COMPARED)
            counts.append(additions.compare(call))
        text = "every way's sums, against NumPy's, exactly"
        return Oracle(sum(checked for checked, _ in counts), sum(wrong for _, wrong in counts), text)

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        from mxdp.backend import devices
        from mxdp.experiments.automatic_parallelism.work.additions import COUNT
        from mxdp.experiments.measure.clock import mean_seconds

        yield Ready([str(device) for device in devices(2, settings["kind"])])
        found: Dict[str, List[float]] = {}
        ways = _ways(case)
        for number in itertools.count(1):
            for way in ways:
                additions, call = _additions(way, case, settings)
                pushed, done = mean_seconds(additions.ways[call], settings["round_seconds"])
                del additions  # the cases share one process, so none may hold memory while another is measured
                found.setdefault(f"{way}_us", []).append(1e6 * done / COUNT)
                found.setdefault(f"{way}_push_us", []).append(1e6 * pushed / COUNT)
            for way in SIDE_BY_SIDE:
                if f"{way}{BOTH}" in ways:
                    both, one = (found[f"{each}_us"][-1] for each in (f"{way}{BOTH}", way))
                    found.setdefault(f"{way}_two_devices_over_one", []).append(both / one)
            medians = {name: statistics.median(each) for name, each in found.items()}
            shown = case.settings["engine"] in RECORDED and case.settings["bytes"] in _recorded_sizes(settings)
            timeline = _timeline(case, settings) if shown and number == settings["rounds"] else {}
            seconds = found["calls_us"][-1] / 1e6
            yield Round(seconds, {**timeline, **medians, "ops_per_sec": 1e6 / medians["calls_us"]})

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            numbers, one = row["metrics"], find(rows, engine=ONE, bytes=row["case"]["bytes"])
            if row["case"]["engine"] == TWO and one:
                for way in SIDE_BY_SIDE:
                    numbers[f"{way}_two_workers_over_one"] = numbers[f"{way}_us"] / one["metrics"][f"{way}_us"]

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        smallest = {engine: find_all(rows, engine=engine)[0]["metrics"] for engine in ENGINES}
        one, two = smallest[ONE], smallest[TWO]
        over_devices = [one[f"{way}_two_devices_over_one"] for way in SIDE_BY_SIDE]
        over_workers = [two[f"{way}_two_workers_over_one"] for way in SIDE_BY_SIDE]
        devices, on_workers = (
            {way: _pays_from(find_all(rows, engine=engine), f"{way}_{more}_over_one") for way in SIDE_BY_SIDE}
            for engine, more in ((ONE, "two_devices"), (TWO, "two_workers"))
        )
        text = (
            f"An addition of {size(min(settings['sizes']))} takes {one['calls_us']:.1f} µs, "
            f"{one['calls_push_us']:.1f} of them until its call returns: {one['ops_per_sec']:,.0f} a second. Two "
            f"devices take {over_devices[0]:.2f} times as long, two workers {over_workers[0]:.2f} times. What helps "
            f"tiny operators is a cheaper call: {one['bulk_us']:.1f} µs in bulks, {one['ready_us']:.1f} made ready, "
            f"{one['graph_us']:.1f} in a graph (in bulks of 1 {smallest[SINGLE]['graph_us']:.1f}); without an "
            f"engine, which hands nothing over to a worker, {smallest[NONE]['calls_us']:.1f} and "
            f"{smallest[NONE]['ready_us']:.1f}. Side by side pays (at most {PAYS} of the time) once the work is "
            f"longer than the call: over two devices {devices['calls']}, with calls made ready {devices['ready']}; "
            f"on two workers of one device {on_workers['calls']} and {on_workers['ready']}."
        )
        # Whichever way they are called: one low number of four may be chance.
        return Verdict(min(max(over_devices), max(over_workers)) <= PAYS, text)

    def columns(self) -> List[Column]:
        return [
            metric("ops_per_sec", "ops/s", "{:,.0f}"),
            metric("calls_us", "calls", "{:.1f}"),
            metric("calls_push_us", "push", "{:.1f}"),
            metric("bulk_us", "bulk", "{:.1f}"),
            metric("ready_us", "ready", "{:.1f}"),
            metric("graph_us", "graph", "{:.1f}"),
            metric(f"calls{BOTH}_us", "calls+", "{:.1f}"),
            metric(f"ready{BOTH}_us", "ready+", "{:.1f}"),
        ]

    def draw(self, result: Result, figure: Figure) -> None:
        figure.set_size_inches(style.WIDTH, 2.2 * style.HEIGHT)
        upper, lower = figure.subplots(2, 1, sharex=True)
        one, two, none = (find_all(result["rows"], engine=engine) for engine in (ONE, TWO, NONE))
        for axes, label, rows, way, colour, dashes in (
            (upper, "calls", one, "calls", 0, "-"),
            (upper, "no engine", none, "calls", 1, "-"),
            (upper, "in bulks", one, "bulk", 2, "-"),
            (upper, "in a graph", one, "graph", 3, "-"),
            (upper, "made ready", one, "ready", 4, "-"),
            (lower, "calls", one, "calls", 0, "-"),
            (lower, "on 2 devices", one, f"calls{BOTH}", 0, "--"),
            (lower, "made ready", one, "ready", 4, "-"),
            (lower, "on 2 devices", one, f"ready{BOTH}", 4, "--"),
            (lower, "by 2 workers", two, "ready", 4, ":"),
        ):
            x, y = zip(*[(row["case"]["bytes"], row["metrics"][f"{way}_us"]) for row in rows])
            axes.plot(x, y, "o", linestyle=dashes, color=style.COLOURS[colour], label=label)
        upper.set(xscale="log", yscale="log", ylabel="µs an operator", title="Cheaper calls")
        lower.set(yscale="log", xlabel="bytes", ylabel="µs an operator", title="Side by side")
        upper.legend()
        lower.legend()


def _ways(case: Case) -> Sequence[str]:
    return ENGINES[case.settings["engine"]][1]


def _additions(way: str, case: Case, settings: Settings, largest: Optional[int] = None) -> Tuple[Any, str]:
    """Fresh arrays on the devices of this way, of ``largest`` bytes at most, and the name of its call."""
    from mxdp.backend import devices
    from mxdp.experiments.automatic_parallelism.work.additions import Additions

    count = 2 if way.endswith(BOTH) else 1
    places = devices(2, settings["kind"])[:count]
    nbytes = min(case.settings["bytes"], largest or case.settings["bytes"])
    return Additions(places, nbytes, settings["seed"]), way.replace(BOTH, "")


def _recorded_sizes(settings: Settings) -> Sequence[int]:
    return min(settings["sizes"]), min(settings["sizes"], key=lambda nbytes: abs(nbytes - LARGE))


def _timeline(case: Case, settings: Settings) -> Dict[str, Any]:
    """A group of operators in each way, one way after the other: a section of its own, named as its column is."""
    from mxdp.backend import devices, npx
    from mxdp.experiments.measure.timelines import recorded
    from mxdp.tracing import section

    made = {way: _additions(way, case, settings) for way in _ways(case)}

    def push() -> None:
        for way, (additions, call) in made.items():
            with section(way.replace(BOTH, "+")):
                additions.ways[call]()
                npx.waitall()

    push()  # a graph is built at its first call
    return recorded(push, devices(2, settings["kind"]))


def _pays_from(rows: List[Row], name: str) -> str:
    """From which size on, in words: the smallest from which on all ratios are low enough."""
    found = None
    for row in reversed(rows):
        if row["metrics"][name] > PAYS:
            break
        found = row
    return f"from {size(found['case']['bytes'])} on" if found else f"not up to {size(rows[-1]['case']['bytes'])}"
