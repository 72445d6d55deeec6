"""Can three devices compute and communicate at once? They train the figure's two-layer net, cut into tasks.

The keeper (the figure's CPU) hands out the batch, sums the gradients, updates the weights and copies them back. The
workers (its GPUs) run the layers, each on its share of the batch::

    keeper     batch ┬─────────────────────── fc2 sum, update, copy ── fc1 sum, update, copy ──┐ (next step)
    worker 0         ├─ fc1, fc2, loss, fc2 backward ┴ fc1 backward ────────┴
    worker 1         └─ fc1, fc2, loss, fc2 backward ┴ fc1 backward ────────┴

While the workers compute the first layer's gradient, the keeper already sums the second layer's. The program only lists
the tasks; MXNet's engine finds this order. The cost model simulates it with the tasks' times on this machine's cores.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

from mxdp import process
from mxdp.errors import plural
from mxdp.experiments.automatic_parallelism import task_picture
from mxdp.experiments.automatic_parallelism.task_graph import (
    GraphTask,
    from_ends,
    length,
    measured,
    one_by_one,
    side_by_side,
)
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find, find_all
from mxdp.experiments.report import style
from mxdp.plans.cost.simulate import simulate

PRODUCTS = {"fc1 forward": 1.0, "fc2 forward": 1.0, "loss": 0.02, "fc2 backward": 2.0, "fc1 backward": 1.0}
"""A worker's tasks. The costs are in matrix products of the worker's share."""
SMALL = 0.05
"""The cost of each of the keeper's tasks, in such products of the whole batch."""


def plan(workers: int, steps: int) -> List[GraphTask]:
    """The tasks of ``steps`` steps, in the program's order. Lane 0 is the keeper, lane 1 + rank a worker. Without
    workers, lane 0 does everything."""
    ranks = range(max(1, workers))
    tasks: List[GraphTask] = []
    for step in range(steps):
        before = {name: (f"{name} {step - 1}",) if step else () for name in ("fc1 copy", "fc2 copy")}
        tasks.append(GraphTask(f"batch {step}", 0, (), SMALL))
        for rank in ranks:
            needs: Dict[str, Tuple[str, ...]] = {
                "fc1 forward": (f"batch {step}", *before["fc1 copy"]),
                "fc2 forward": (f"fc1 forward {step} @{rank}", *before["fc2 copy"]),
                "loss": (f"fc2 forward {step} @{rank}", f"batch {step}"),
                "fc2 backward": (f"loss {step} @{rank}", f"fc1 forward {step} @{rank}", *before["fc2 copy"]),
                "fc1 backward": (f"fc2 backward {step} @{rank}", f"batch {step}"),
            }
            tasks += [
                GraphTask(f"{name} {step} @{rank}", 1 + rank if workers else 0, needs[name], products / len(ranks))
                for name, products in PRODUCTS.items()
            ]
        for name in ("fc2", "fc1"):
            gradients = tuple(f"{name} backward {step} @{rank}" for rank in ranks)
            weights = (f"{name} update {step - 1}",) if step else ()
            tasks += [
                GraphTask(f"{name} sum {step}", 0, gradients, SMALL),
                GraphTask(f"{name} update {step}", 0, (f"{name} sum {step}", *weights), SMALL),
                GraphTask(f"{name} copy {step}", 0, (f"{name} update {step}",), SMALL),
            ]
    return tasks


@experiment
class MixedDevices(Experiment):
    """Steps of the network: on one device, and over several with a wait after each task and without."""

    name = "mixed-devices"
    question = "Can three devices compute and communicate at once, without a schedule made by hand?"
    source = "Dive into Deep Learning, 'Automatic Parallelism', figure and exercise 3"
    how_to_read = (
        "A task is one box of the picture. 'Of one' is a row's time over that of everything on one device, round by "
        "round. 'Model' simulates the order without waits, with each task's own time, measured with waits. "
        "'Both busy' is the share of the time in which two or more devices worked. The program lists the same tasks in "
        "the same order with waits and without. The picture is the second step without waits: its batch is handed out "
        "long before it is needed. Orange arrows cross devices."
    )
    slide_panel = 1
    claims = {
        "of_waits": Claim(
            "The engine finds the order by itself: several devices without waits take at most 0.8 of the time with a "
            "wait after each task.",
            "the book, which gives no number; the bound is ours",
            0.8,
        ),
        "free_of_one": Claim(
            "Several devices without waits are faster than one: they take at most 1.00 of its time.", "ours", 1.0
        ),
    }
    compared = "gradients and all copies of the weights after two steps, against NumPy's integers, exactly"
    together = True
    presets = {
        "quick": dict(devices=[3], kind="auto", seed=0, timeout=120.0, batch_size=512, size=1024, steps=4),
        "full": dict(devices=[3], kind="auto", seed=0, timeout=900.0, batch_size=1024, size=1536, steps=4),
    }
    little = dict(batch_size=40, size=64, steps=2)

    def cases(self, settings: Settings) -> List[Case]:
        cases = [Case("everything on one device", 1, settings={"run": "one"})]
        for n in settings["devices"]:
            if n > 1:
                cases.append(Case(f"{n} devices, a wait after each task", n, settings={"run": "waits"}))
                cases.append(Case(f"{n} devices, no waits", n, settings={"run": "free"}))
        return cases

    def predict(self, settings: Settings, cores: int) -> str:
        n = max(settings["devices"])
        if n < 2:
            return "Nothing to compare on one device."
        tasks = plan(n - 1, settings["steps"])
        free, waits = (length(simulate(groups, cores)) for groups in ([tasks], one_by_one(tasks)))
        return (
            f"On {plural(cores, 'core')} {n} devices without waits take {free / waits:.2f} of the time with waits, if "
            f"each task of the keeper takes {SMALL:.0%} of a product of the whole batch."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        steps, one = settings["steps"], find(rows, run="one")
        for row in rows:
            devices, run, metrics = row.case["devices"], row.case["run"], row.metrics
            metrics["ms_a_step"] = row.median * 1e3 / steps
            if one:
                row.keep("free_of_one" if run == "free" else "of_one", row.ratios(one))
            tasks = plan(len(devices) - 1, steps)
            if run != "waits":
                metrics["both_busy"] = side_by_side(tasks, from_ends(tasks, metrics["tasks"]))
            waits = find(rows, run="waits", devices=devices)
            if run == "free" and waits:
                own = measured(tasks, waits.metrics["tasks"])
                metrics["model_ms"] = length(simulate([own], process.cores())) * 1e3 / steps
                row.keep("of_waits", row.ratios(waits))

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        free = find_all(rows, run="free")
        if not free:
            return "Nothing to compare on 1 device: run it with --devices 3."
        most = free[-1]
        return (
            f"Left to MXNet's engine, a step on {len(most.devices)} devices takes {most.estimate('of_waits'):.2f} of "
            f"its time with a wait after each task, and {most.estimate('free_of_one'):.2f} of its time on one device."
        )

    def columns(self) -> List[Column]:
        return [
            Column("ms_a_step", "ms a step", ".1f"),
            Column(("free_of_one", "of_one"), "of one", ".2f"),
            Column("model_ms", "model ms", ".1f"),
            Column("both_busy", "both busy", ".0%"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        rows, steps = result["rows"], result["settings"]["steps"]
        upper, lower = figure.subplots(2, 1)
        style.row_bars(figure, rows, "ms", scale=[1e3 / steps] * len(rows), axes=lower)
        lower.set_title("Time of a step")
        shown = (find_all(rows, run="free") or rows)[-1]
        lanes = shown.case["devices"]
        every, second = plan(len(lanes) - 1, steps), min(1, steps - 1)
        weights = (f"fc1 copy {second - 1}", f"fc2 copy {second - 1}")
        tasks = [task for task in every if str(second) in task.name.split() or task.name in weights]
        # The keeper in the middle, as in the book's figure.
        half = (len(lanes) + 1) // 2
        middle = [*range(1, half), 0, *range(half, len(lanes))]
        spans = from_ends(every, shown.metrics["tasks"])
        # "fc2 backward 1 @0" is shown as "fc2 backward".
        task_picture.graph(upper, tasks, spans, lanes, lambda name: name.split(" @")[0].rpartition(" ")[0], middle)
        upper.set_title(f"A step: {shown.label}")
        task_picture.fit(figure, len(rows), 1.3 * style.WIDTH)
