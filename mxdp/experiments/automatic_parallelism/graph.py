"""A net with branches on two devices: is the engine's order as good as one made by hand?

::

    device 0   stem ─┬─ short 1 ... short 5 ───────────────── mid 2 ─┬─ join
                     │                               ┌───────────┘   │
    device 1         ├─ mid 1 ───────────────────────┘               │
                     └─ long 1, long 2, ... long 6 ──────────────────┘

Each of the 15 tasks is a matrix product; a copy is added where a line crosses devices. The program decides where a task
runs, the engine only when. An order made by hand has phases: each gives work to both devices and ends with a wait.
Here it takes the time of 9 products, and no order takes less: the stem, all seven on device 1, and the join.

The engine runs the task that became ready first; of several, the one that was pushed first. On CPU devices a copy waits
in the queue of its source. With the long branch listed first the engine should also take 9. With the long branch last,
the copy of the stem's result waits behind all short branches: 13. Two workers a device let the copy overtake.
"""

from __future__ import annotations

from typing import Dict, List, Sequence

from mxdp import process
from mxdp.errors import plural
from mxdp.experiments.automatic_parallelism import task_picture
from mxdp.experiments.automatic_parallelism.task_graph import GraphTask, Groups, from_ends, length, measured, one_by_one
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find
from mxdp.experiments.report import style
from mxdp.plans.cost.simulate import simulate

COPY = 0.02
"""The cost of a copy, in products."""
LONG = [
    GraphTask("copy for long 1", 0, ("stem",), COPY),
    GraphTask("long 1", 1, ("copy for long 1",)),
    *(GraphTask(f"long {number}", 1, (f"long {number - 1}",)) for number in range(2, 7)),
    GraphTask("copy for join", 1, ("long 6",), COPY),
]
MID = [
    GraphTask("copy for mid 1", 0, ("stem",), COPY),
    GraphTask("mid 1", 1, ("copy for mid 1",)),
    GraphTask("copy for mid 2", 1, ("mid 1",), COPY),
    GraphTask("mid 2", 0, ("copy for mid 2",)),
]
SHORT = [GraphTask(f"short {number}", 0, ("stem",)) for number in range(1, 6)]
STEM, JOIN = GraphTask("stem", 0), GraphTask("join", 0, ("copy for join", "mid 2", *(task.name for task in SHORT)))
TASKS = [STEM, *LONG, *MID, *SHORT, JOIN]
LONG_LAST = [STEM, *MID, *SHORT, *LONG, JOIN]
PHASES = [
    [STEM],
    [LONG[0], MID[0], *LONG[1:2], *MID[1:2], *SHORT[:2]],
    [*LONG[2:6], *MID[2:], *SHORT[2:]],
    LONG[6:],
    [JOIN],
]
WAYS: Dict[str, Groups] = {
    "one": [TASKS],
    "waits": one_by_one(TASKS),
    "by hand": PHASES,
    "engine": [TASKS],
    "long last": [LONG_LAST],
    "2 workers": [LONG_LAST],
}
LABELS = {
    "waits": "a wait after each task",
    "by hand": "by hand: 5 phases",
    "engine": "engine, long branch first",
    "long last": "engine, long branch last",
    "2 workers": "the same, 2 workers a CPU device",
}


def modelled(way: str, cores: int, tasks: Sequence[GraphTask]) -> float:
    """The length of a pass in this way, in the unit of the tasks' costs."""
    by_name = {task.name: task for task in tasks}
    groups = [[by_name[task.name] for task in group] for group in WAYS[way]]
    return length(simulate(groups, cores, workers=2 if way == "2 workers" else 1))


@experiment
class Graph(Experiment):
    """One pass through the net: on one device, and on two in five ways."""

    name = "graph"
    question = "Is the engine's order of a net with branches as good as one made by hand?"
    source = "Dive into Deep Learning, 'Automatic Parallelism', exercise 5"
    how_to_read = (
        "A pass is the net once. 'By hand' is a row's time over that of the phases made by hand, round by round. "
        "'Model' simulates the same order with each task's own time, measured with waits. In the picture, orange "
        "arrows cross devices."
    )
    slide_panel = 1
    claims = {
        "engine": Claim(
            "With the long branch first, the engine's order is as good as one made by hand: a pass takes at most 1.1 "
            "times as long.",
            "the book's exercise, which asks for it; the bound is ours",
            1.1,
        ),
        "side_by_side": Claim(
            "There is an order to choose: by hand, two devices take at most 0.9 times as long as one.",
            "the cost model, which says 0.6",
            0.9,
        ),
    }
    compared = "the result of every task, against NumPy's, exactly"
    together = True
    presets = {
        "quick": dict(devices=[2], kind="auto", seed=0, rounds=1, timeout=120.0, size=768),
        "full": dict(devices=[2], kind="auto", seed=0, rounds=1, timeout=900.0, size=1024),
    }
    little = dict(size=64)

    def cases(self, settings: Settings) -> List[Case]:
        two_workers = {"2 workers": {"MXNET_CPU_WORKER_NTHREADS": "2"}}
        two = [Case(label, 2, 1, {"way": way}, two_workers.get(way, {})) for way, label in LABELS.items()]
        return [Case("one device", 1, settings={"way": "one"}), *(two if max(settings["devices"]) > 1 else [])]

    def predict(self, settings: Settings, cores: int) -> str:
        said = [f"{label} {modelled(way, cores, TASKS):.1f}" for way, label in LABELS.items()]
        return f"In products' times, on {plural(cores, 'core')}: one device 15; on two devices: {'; '.join(said)}."

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        by_way = {row.case["way"]: row for row in rows}
        one, waits, by_hand, engine, last = map(by_way.get, ("one", "waits", "by hand", "engine", "long last"))
        for row in rows:
            if by_hand:
                row.keep("of_by_hand", row.ratios(by_hand))
            if waits and row is not one:
                own = measured(TASKS, waits.metrics["tasks"])
                row.metrics["model_ms"] = modelled(row.case["way"], process.cores(), own) * 1e3
        if engine and by_hand:
            engine.rounds["engine"] = engine.rounds["of_by_hand"]
        if engine and last:
            last.keep("of_engine", last.ratios(engine))
        if one and by_hand:
            by_hand.keep("side_by_side", by_hand.ratios(one))

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        by_way = {row.case["way"]: row for row in rows}
        if "engine" not in by_way:
            return "Nothing to compare on 1 device: run it with --devices 2."
        by_hand = by_way["by hand"]
        if by_hand.at_most("side_by_side", self.claims["side_by_side"].bound) is False:
            return (
                f"Two devices by hand take {by_hand.estimate('side_by_side'):.2f} times as long as one device, so "
                "nothing ran side by side and there was no order to choose."
            )
        first, last = (by_way[way].estimate("of_by_hand") for way in ("engine", "long last"))
        return (
            f"With the longest branch listed first, MXNet's engine takes {first:.2f} times as long as an order made by "
            f"hand; with it listed last, {last:.2f} times."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        last = find(rows, way="long last")
        advice = " List the longest branch first." if last and last.at_most("of_engine", 1.0) is False else ""
        return f"The engine runs what became ready first, and does not know which branch is long.{advice}"

    def columns(self) -> List[Column]:
        return [
            Column("seconds", "ms", ".1f", 1e3),
            Column("of_by_hand", "by hand", ".2f", spread=True),
            Column("model_ms", "model ms", ".1f"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        rows = result["rows"]
        upper, lower = figure.subplots(2, 1)
        style.row_bars(figure, rows, "ms", scale=[1e3] * len(rows), axes=lower)
        lower.set_title("Time of a pass")
        shown = find(rows, way="engine") or rows[0]
        spans = from_ends(WAYS[shown.case["way"]][-1], shown.metrics["tasks"])
        task_picture.graph(upper, TASKS, spans, ["device 0", "device 1"])
        upper.set_title(f"A pass: {shown.label}")
        task_picture.fit(figure, len(rows))
