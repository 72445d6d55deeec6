"""How far should Python run ahead of the devices?

Python pushes a step in a fraction of the time that the devices need for it. If it never waits, the engine's records and
each batch's pictures, which Python writes itself, pile up. Results don't, since MXNet allocates them when they are
computed. If Python waits at each step, the devices stand still while it pushes the next. The book's exercise lies
between: up to two steps ahead. The model: never waiting piles up all steps but the first, a wait each epoch those of an
epoch, a wait each step none, and a bound of two steps three. A wait at each step adds the time of pushing the step.

``wait_to_read`` is no good bound: on CPU devices it queues behind all work on ``cpu(0)``, so it waits for the last step
and not only for an earlier one. A completion event does not (see ``mxdp.experiments.measure.completion``).

The last rows are additions. One costs t1 to push, t2 to compute, and t3 until Python hears of its end. The book: n of
them with a wait for each take n (t1 + t2 + t3). Pushed at once they take t1 + n t2 + t3, *if* n t2 > (n - 1) t1;
otherwise pushing takes the time.
"""

from __future__ import annotations

from typing import Any, List, Mapping

from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Row, Settings, Verdict, experiment
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find_all, over, row_bars

POLICIES = ("never", "each epoch", "each step", "2 ahead", "2 ahead, events")
WAITS = {"waitall": "waitall", "wait_to_read": "the first: wait_to_read", "event": "the first: completion event"}
EPOCHS = 2
CLAIM = 1.1
"""The best bounded way may take this many times as long as never waiting."""
PICTURE_BYTES = 28 * 28 * 4
OWN_CHILD = "RUN_AHEAD_CHILD"
"""An environment variable that nothing reads. Cases of equal environment share a child, and a child that has trained
before already holds memory that a fresh one has to get."""


@experiment
class RunAhead(Experiment):
    """Training steps with five ways to wait; products with three; additions with two."""

    name = "run-ahead"
    question = "How far should Python run ahead of the devices?"
    source = "Dive into Deep Learning, 'Asynchronous Computation', exercises 1 and 2; '... Multiple GPUs', exercise 3"
    how_to_read = (
        "The first rows: a round is two epochs of LeNet. 'Of first' is a row's time over that of the first row of its "
        "kind, the median over the rounds. 'Peak' is the most that the process grew in a round, 'ahead' the most steps "
        "pushed and not done. The next rows: the time until Python goes on after it has pushed several products to "
        "each device. The last rows: y = x + 1, many times."
    )
    compared = (
        "parameters after 6 steps, bit for bit with a wait at each and against one device's; products and sums, exactly"
    )
    together = True
    common = dict(devices=[2], kind="auto", seed=0, additions=10_000)
    presets = {
        "quick": dict(common, rounds=5, timeout=120.0, batch_size=64, samples=1024, size=768, products=10),
        "full": dict(common, rounds=7, timeout=1800.0, batch_size=256, samples=12800, size=1000, products=20),
    }
    little = dict(batch_size=40, samples=200, size=64, products=2, additions=20)

    def cases(self, settings: Settings) -> List[Case]:
        n, count = max(settings["devices"]), settings["additions"]
        labels = {name: f"wait {name}" if name.startswith("each") else name for name in POLICIES}
        return [
            *(Case(label, n, 1, {"wait": name}, {OWN_CHILD: name}) for name, label in labels.items()),
            *(Case(label, n, settings={"products": name}) for name, label in WAITS.items()),
            Case(f"{count:,} additions", 1, settings={"each": False}),
            Case(f"{count:,}, a wait for each", 1, settings={"each": True}),
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        steps = -(-settings["samples"] // settings["batch_size"])
        batch = settings["batch_size"] * PICTURE_BYTES / 1e6
        return (
            f"Beside what a step needs, never waiting keeps up to {EPOCHS * steps - 1} batches of {batch:.1f} MB, each "
            f"epoch {steps - 1}, a bound of two steps 3. {settings['additions']:,} additions pushed at once take as "
            "long as the slower of Python and the back end."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        first = {"wait": "never", "products": "waitall", "each": False}
        for row in rows:
            metrics, median = row["metrics"], row["seconds"]["median"]
            key = next(key for key in first if key in row["case"])
            metrics["of_first"] = over(rows, row, **{key: first[key]})
            if key == "wait":
                metrics["ms_a_step"] = median * 1e3 / metrics["steps"]
            if key == "each":
                metrics["us_an_op"] = median * 1e6 / settings["additions"]

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        way = {row["case"]["wait"]: row["metrics"] for row in rows if "wait" in row["case"]}
        first = {row["case"]["products"]: row["metrics"]["of_first"] for row in rows if "products" in row["case"]}
        pushed, waited = (find_all(rows, each=each)[0]["metrics"] for each in (False, True))
        name = min(POLICIES[3:], key=lambda name: way[name]["of_first"])
        best, never, step = way[name], way["never"], way["each step"]
        t1, t2 = pushed["front_us"], pushed["back_us"]
        holds = (
            best["of_first"] <= CLAIM
            and best["peak_bytes"] < never["peak_bytes"]
            and waited["us_an_op"] > pushed["us_an_op"]
        )
        bound = "wait_to_read" if name == "2 ahead" else "completion events"
        slower, met = ("Python", "is not") if t1 > t2 else ("the back end", "is")
        text = (
            f"Two steps ahead, bounded by {bound}, training takes {best['of_first']:.2f} times as long as without any "
            f"wait, and {_mb(best)} instead of {_mb(never)}. Asked for: at most {CLAIM} times, with less memory. "
            f"Without any wait a step takes {never['ms_a_step']:.1f} ms, and Python is up to {never['ahead']:.0f} "
            f"steps ahead. With a wait at each step training takes {step['of_first']:.2f} times as long, and "
            f"{_mb(step)}. A wait for the first product takes {first['wait_to_read']:.2f} of waitall's time by "
            f"wait_to_read, and {first['event']:.2f} by a completion event. An addition takes {pushed['us_an_op']:.1f} "
            f"µs pushed and {waited['us_an_op']:.1f} µs with a wait for each. Python needs {t1:.1f} µs to push it, and "
            f"the back end {t2:.1f} µs to do it once it is queued: {slower} is slower, so the book's condition {met} "
            f"met."
        )
        return Verdict(holds, text)

    def columns(self) -> List[Column]:
        return [
            Column("seconds", "ms", scale=1e3),
            Column("of_first", "of first", ".2f"),
            Column("peak_bytes", "peak MB", ".1f", 1e-6),
            Column("ahead", "ahead", ".0f"),
            Column("us_an_op", "µs an op", ".1f"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        rows = [row for row in result["rows"] if "wait" in row["case"]]
        upper, lower = figure.subplots(2, 1)
        row_bars(figure, rows, "ms", scale=[1e3 / row["metrics"]["steps"] for row in rows], axes=upper)
        upper.set_title("Time of a step")
        peaks = [row["metrics"]["peak_bytes"] / 1e6 for row in rows]
        style.bars(lower, [row["label"] for row in rows], peaks, unit="MB", colours=[style.COLOURS[1]] * len(rows))
        lower.set_title("Memory at the worst moment")


def _mb(metrics: Mapping[str, Any]) -> str:
    return f"{metrics['peak_bytes'] / 1e6:.0f} MB"
