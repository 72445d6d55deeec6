"""Three devices that work and talk at once: the two-layer network of the book's figure, trained as the graph it is.

One device (the figure's CPU) has the data and the weights: it hands out the batch, sums the gradients, updates and
copies the weights back. The others (its GPUs) run the layers, each on its share of the batch::

    keeper     batch ┬─────────────────────── fc2 sum, update, copy ── fc1 sum, update, copy ──┐ (next step)
    worker 0         ├─ fc1, fc2, loss, fc2 backward ┴ fc1 backward ────────┴
    worker 1         └─ fc1, fc2, loss, fc2 backward ┴ fc1 backward ────────┴

While the first layer's gradient is computed, the second layer's is already summed. Nobody says so: the program lists
the tasks, and MXNet's engine finds out. The cost model plays the tasks' own times through on the cores there are.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, Tuple

from mxdp import process
from mxdp.experiments.automatic_parallelism import task_picture as graph_pictures
from mxdp.experiments.automatic_parallelism.mlp_plan import SMALL, label, plan
from mxdp.experiments.automatic_parallelism.task_graph import from_ends, length, one_by_one, side_by_side
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
from mxdp.experiments.report.rows import find, find_all, metric, plural, ratio, row_bars
from mxdp.plans.cost.simulate import simulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = 0.8
"""Time without waits over time with waits, from which on leaving it to the engine pays."""
RECORDED_STEPS = 3


@experiment
class MixedDevices(Experiment):
    """Steps of the network: on one device, and over several with a wait after each task and without."""

    name = "mixed-devices"
    question = "Can three devices compute and talk at once, with nobody scheduling them?"
    source = "Dive into Deep Learning, 'Automatic Parallelism', figure and exercise 3"
    how_to_read = (
        "A task is one box of the picture. 'Of one' is the time over that of everything on one device, the median over "
        "the rounds. 'Model' plays the tasks' own times (measured with waits) through without waits. 'Both busy' is "
        "the share of the time in which two devices or more were at work. The picture is the second step, no waits: "
        "its batch is handed out long before it is needed. Orange arrows cross devices."
    )
    together = True
    presets = {
        "quick": dict(devices=[3], kind="auto", seed=0, rounds=7, timeout=120.0, batch_size=512, size=1024, steps=4),
        "full": dict(devices=[3], kind="auto", seed=0, rounds=11, timeout=900.0, batch_size=1024, size=2048, steps=8),
    }

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
            f"{n} devices without waits over {n} devices with waits: {free / waits:.2f} on {plural(cores, 'core')}, "
            f"if each thing the keeper does takes {SMALL:.0%} of a product of the whole batch."
        )

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        from mxdp.experiments.automatic_parallelism.work.mlp_tasks import mlp_work, whole_numbers_run
        from mxdp.experiments.automatic_parallelism.work.task_runs import run
        from mxdp.experiments.measure.oracle import count_wrong

        batches, weights, serial = whole_numbers_run(settings["seed"])
        tasks = plan(case.devices - 1, len(batches))
        groups = one_by_one(tasks) if case.settings["run"] == "waits" else [tasks]
        done = run(groups, mlp_work(_lanes(case, settings), batches, weights, lr=1.0))
        counts: List[Tuple[int, int]] = []
        for step, expected in enumerate(serial):
            for layer in (1, 2):
                counts.append(
                    count_wrong(done[f"fc{layer} sum {step}"][0].asnumpy(), expected.gradients[layer - 1], 0.0)
                )
                counts += [
                    count_wrong(weight.asnumpy(), expected.weights[layer - 1], 0.0)
                    for weight in done[f"fc{layer} update {step}"] + done[f"fc{layer} copy {step}"]
                ]
        text = "gradients and all copies of the weights after two steps, against NumPy's integers, exactly"
        return Oracle(sum(checked for checked, _ in counts), sum(wrong for _, wrong in counts), text)

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        from mxdp.backend import npx
        from mxdp.experiments.automatic_parallelism.work.mlp_tasks import mlp_work, random_floats
        from mxdp.experiments.automatic_parallelism.work.task_runs import Medians, alone, ends, run
        from mxdp.experiments.measure.timelines import recorded
        from mxdp.timing import Timer

        found, steps = _lanes(case, settings), settings["steps"]
        batches, weights = random_floats(settings["seed"], settings["batch_size"], settings["size"], steps)
        tasks = plan(case.devices - 1, steps)
        work = mlp_work(found, batches, weights, lr=0.1 / settings["batch_size"])
        run([tasks], work)
        npx.waitall()
        yield Ready([str(device) for device in found])
        few = plan(case.devices - 1, min(RECORDED_STEPS, steps))
        groups = one_by_one(few) if case.settings["run"] == "waits" else [few]
        timer, looked = Timer(), Medians()
        for number in itertools.count(1):
            if case.settings["run"] == "waits":
                with timer:
                    seconds = alone(tasks, work)
            else:
                with timer:
                    run([tasks], work)
                seconds = ends([tasks], work)
            last = number == settings["rounds"] and case.settings["run"] != "one"
            timeline = recorded(partial(run, groups, work), found) if last else {}
            yield Round(timer.times[-1], {**timeline, **looked.add(seconds)})

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        one, steps = find(rows, run="one"), settings["steps"]
        for row in rows:
            metrics, devices = row["metrics"], row["case"]["devices"]
            metrics["ms_a_step"] = row["seconds"]["median"] * 1e3 / steps
            metrics["of_one"] = ratio(row, one) if one else None
            tasks = plan(len(devices) - 1, steps)
            if row["case"]["run"] != "waits":
                metrics["both_busy"] = side_by_side(tasks, from_ends(tasks, metrics["tasks"]))
            waits = next((each for each in find_all(rows, run="waits") if each["case"]["devices"] == devices), None)
            if row["case"]["run"] == "free" and waits:
                own = [replace(task, cost=waits["metrics"]["tasks"][task.name]) for task in tasks]
                metrics["model_ms"] = length(simulate([own], process.cores())) * 1e3 / steps
                metrics["of_waits"] = ratio(row, waits)

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        free = find_all(rows, run="free")
        if not free:
            return Verdict(None, "Nothing to compare on 1 device: run it with --devices 3.")
        said, holds = [], True
        for row in free:
            metrics, n = row["metrics"], len(row["case"]["devices"])
            holds = holds and metrics["of_waits"] <= CLAIM and metrics["of_one"] < 1
            said.append(
                f"Without a wait {n} devices take {metrics['ms_a_step']:.1f} ms a step, {metrics['of_waits']:.2f} of "
                f"the time with waits (the tasks' own times allow {metrics['model_ms']:.1f} ms) and "
                f"{metrics['of_one']:.2f} of one device's. For {metrics['both_busy']:.0%} of the time two or more of "
                f"them are busy{_recorded(metrics)}."
            )
        said.append(
            "The book: to schedule this by hand would be painful, and the engine does it. The program without waits "
            f"lists the same tasks in the same order. Asked for: at most {CLAIM} of the time with waits."
        )
        return Verdict(holds, " ".join(said))

    def columns(self) -> List[Column]:
        return [
            metric("ms_a_step", "ms a step", "{:.1f}"),
            metric("of_one", "of one"),
            metric("model_ms", "model ms", "{:.1f}"),
            metric("both_busy", "both busy", "{:.0%}"),
        ]

    def draw(self, result: Result, figure: Figure) -> None:
        rows = result["rows"]
        shown = (find_all(rows, run="free") or rows)[-1]
        lanes, steps = shown["case"]["devices"], result["settings"]["steps"]
        every, second = plan(len(lanes) - 1, steps), min(1, steps - 1)
        weights = (f"fc1 copy {second - 1}", f"fc2 copy {second - 1}")
        tasks = [task for task in every if str(second) in task.name.split() or task.name in weights]
        colours = [style.COLOURS[{"one": 0, "waits": 4, "free": 2}[row["case"]["run"]]] for row in rows]
        upper, lower = figure.subplots(2, 1)
        row_bars(figure, rows, "ms a step", colours, [1e3 / steps] * len(rows), lower)
        # The keeper in the middle, as in the book's figure.
        half = (len(lanes) + 1) // 2
        middle = [*range(1, half), 0, *range(half, len(lanes))]
        graph_pictures.graph(upper, tasks, from_ends(every, shown["metrics"]["tasks"]), lanes, label, middle)
        graph_pictures.fit(figure, len(rows), 1.3 * style.WIDTH)


def _recorded(metrics: Mapping[str, Any]) -> str:
    """The same from the timeline, where there is one."""
    return f" (in the recorded steps {metrics['together']:.0%})" if "together" in metrics else ""


def _lanes(case: Case, settings: Settings) -> Any:
    from mxdp.experiments.automatic_parallelism.work.mlp_tasks import lanes

    return lanes(case.devices, max(settings["devices"]), settings["kind"])
