"""A net with branches, on two devices: is the engine's order as good as one made by hand?

The net is drawn in ``mxdp.experiments.automatic_parallelism.branch_plan``: 15 matrix products, of which seven are on
the second device. The engine decides *when* a task runs, never *where*: placing is done by the program in all cases. By
hand means what a person does without an engine: in each phase something for both devices, and a wait at its end. Here
that makes 9 products' time, and no order makes less: the stem, all seven on the second device, and the join.

The engine takes what is ready in the order in which it became ready, and of what did so at once, what was pushed first.
On CPU devices a copy waits in its source's queue, too. So with the long branch listed first 9 should do for the engine,
and with the long branch last it sends the stem's result after all short branches: 13. Two workers a device let the copy
overtake.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional

from mxdp import process
from mxdp.experiments.automatic_parallelism import task_picture as graph_pictures
from mxdp.experiments.automatic_parallelism.branch_plan import TASKS, WAYS, modelled
from mxdp.experiments.automatic_parallelism.task_graph import from_ends
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
from mxdp.experiments.report.rows import find, metric, plural, ratio, row_bars

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = 1.05
"""The engine's time over that of the order made by hand, up to which it is as good."""
SIDE_BY_SIDE = 0.9
"""Time of two devices over that of one, above which they did not work side by side."""
LABELS = {
    "waits": "a wait after each task",
    "by hand": "by hand: 5 phases",
    "engine": "engine, long branch first",
    "long last": "engine, long branch last",
    "2 workers": "the same, 2 workers a CPU device",
}
RECORDED = ("by hand", "engine", "long last", "2 workers")
TWO_WORKERS: Dict[str, Optional[str]] = {"MXNET_CPU_WORKER_NTHREADS": "2"}


@experiment
class Graph(Experiment):
    """One pass through the net: on one device, and on two in five ways."""

    name = "graph"
    question = "Is the engine's order of a net with branches as good as one made by hand?"
    source = "Dive into Deep Learning, 'Automatic Parallelism', exercise 5"
    how_to_read = (
        "A pass is the net once. 'By hand' is the time over that of the phases made by hand, the median over the "
        "rounds. 'Model' plays the tasks' own times (measured with waits) through in the same order. The picture is a "
        "pass as the engine ran it, long branch first; orange arrows cross devices."
    )
    together = True
    presets = {
        "quick": dict(devices=[2], kind="auto", seed=0, rounds=9, timeout=120.0, size=768),
        "full": dict(devices=[2], kind="auto", seed=0, rounds=15, timeout=900.0, size=1536),
    }

    def cases(self, settings: Settings) -> List[Case]:
        one = Case("one device", 1, settings={"way": "one"})
        if max(settings["devices"]) < 2:
            return [one]
        return [one] + [
            Case(label, 2, 1, {"way": way}, TWO_WORKERS if way == "2 workers" else {}) for way, label in LABELS.items()
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        said = [f"{label} {modelled(way, cores, TASKS):.1f}" for way, label in LABELS.items()]
        return f"In products' times, on {plural(cores, 'core')}: one device 15; on two devices: {'; '.join(said)}."

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        from mxdp.experiments.automatic_parallelism.work.branches import Net, serial, whole_numbers
        from mxdp.experiments.automatic_parallelism.work.task_runs import run
        from mxdp.experiments.measure.devices import devices_of
        from mxdp.experiments.measure.oracle import count_wrong

        x, weights = whole_numbers(TASKS, settings["seed"])
        groups = WAYS[case.settings["way"]]
        done = run(groups, Net(TASKS, weights, x, devices_of(case, settings)).work)
        counts = [
            count_wrong(done[name][0].asnumpy(), expected, 0.0) for name, expected in serial(TASKS, weights, x).items()
        ]
        text = "what every task gives, against NumPy's, exactly"
        return Oracle(sum(checked for checked, _ in counts), sum(wrong for _, wrong in counts), text)

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        import numpy as onp

        from mxdp.backend import npx
        from mxdp.experiments.automatic_parallelism.work.branches import Net
        from mxdp.experiments.automatic_parallelism.work.task_runs import Medians, alone, ends, run
        from mxdp.experiments.measure.devices import devices_of
        from mxdp.experiments.measure.timelines import recorded
        from mxdp.timing import Timer

        random, size = onp.random.RandomState(settings["seed"]), settings["size"]
        x, *weights = random.uniform(-1, 1, size=(1 + len(TASKS), size, size)).astype("float32") * size**-0.5
        found = devices_of(case, settings)
        work = Net(TASKS, {task.name: each for task, each in zip(TASKS, weights)}, x, found).work
        groups = WAYS[case.settings["way"]]
        run(groups, work)
        npx.waitall()
        yield Ready([str(device) for device in found])
        timer, looked = Timer(), Medians()
        for number in itertools.count(1):
            with timer:
                run(groups, work)
            seconds = alone(TASKS, work) if case.settings["way"] == "waits" else ends(groups, work)
            last = number == settings["rounds"] and case.settings["way"] in RECORDED
            timeline = recorded(partial(run, groups, work), found) if last else {}
            yield Round(timer.times[-1], {**timeline, **looked.add(seconds)})

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        by_hand, waits = find(rows, way="by hand"), find(rows, way="waits")
        for row in rows:
            metrics, way = row["metrics"], row["case"]["way"]
            metrics["ms"] = row["seconds"]["median"] * 1e3
            metrics["of_by_hand"] = ratio(row, by_hand) if by_hand else None
            if waits and way != "one":
                own = [replace(task, cost=waits["metrics"]["tasks"][task.name]) for task in TASKS]
                metrics["model_ms"] = modelled(way, process.cores(), own) * 1e3

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        by_way = {row["case"]["way"]: row["metrics"] for row in rows}
        if "engine" not in by_way:
            return Verdict(None, "Nothing to compare on 1 device: run it with --devices 2.")
        engine, last = by_way["engine"]["of_by_hand"], by_way["long last"]["of_by_hand"]
        by_hand, one = by_way["by hand"]["ms"], by_way["one"]["ms"]
        if by_hand > SIDE_BY_SIDE * one:
            return Verdict(
                False,
                f"By hand, two devices take {by_hand:.1f} ms and one {one:.1f} ms: nothing ran side by side here (one "
                "core, or other work on the machine), so there was no order to choose.",
            )
        text = (
            f"Pushed in the order in which the net is drawn, the engine takes {engine:.2f} times as long as the phases "
            f"made by hand ({by_hand:.1f} ms), with the same results; a wait after each task takes "
            f"{by_way['waits']['of_by_hand']:.2f} times as long.{_seen(by_way)} With the longest branch listed last "
            f"it takes {last:.2f} times ({by_way['2 workers']['of_by_hand']:.2f} with two workers a device): the "
            "engine runs what is ready, in the order in which it became so, copies too, and can't see which branch is "
            f"long. So list the longest first. Asked for: at most {CLAIM} times."
        )
        return Verdict(engine <= CLAIM, text)

    def columns(self) -> List[Column]:
        return [metric("ms", "ms", "{:.1f}"), metric("of_by_hand", "by hand"), metric("model_ms", "model ms", "{:.1f}")]

    def draw(self, result: Result, figure: Figure) -> None:
        rows = result["rows"]
        colours = {"one": 0, "waits": 4, "by hand": 1, "engine": 2, "long last": 3, "2 workers": 5}
        bars = [style.COLOURS[colours[row["case"]["way"]]] for row in rows]
        upper, lower = figure.subplots(2, 1)
        row_bars(figure, rows, "ms", bars, [1e3] * len(rows), lower)
        shown = find(rows, way="engine") or rows[0]
        spans = from_ends(WAYS[shown["case"]["way"]][-1], shown["metrics"]["tasks"])
        graph_pictures.graph(upper, TASKS, spans, [f"device {lane}" for lane in (0, 1)])
        graph_pictures.fit(figure, len(rows))


def _seen(by_way: Mapping[str, Any]) -> str:
    """What the timelines show, where there are any."""
    shares = [by_way[way].get("together") for way in ("by hand", "engine")]
    if None in shares:
        return ""
    return (
        f" Recorded, both devices work for {shares[0]:.0%} of a pass by hand and {shares[1]:.0%} of one by the engine."
    )
