"""How far should Python run ahead of the devices?

Python pushes a step in a fraction of the time that the devices need for it. If it never waits, the engine's records and
each batch's pictures, which Python writes itself, pile up. Results don't, since MXNet allocates them when they are
computed. If Python waits at each step, the devices stand still while it pushes the next. The book's exercise lies
between: up to two steps ahead. The model: never waiting piles up all steps but the first, a wait each epoch those of an
epoch, a wait each step none, and a bound of two steps three. A wait at each step adds the time of pushing the step.

``wait_to_read`` is no good bound: on CPU devices it queues behind all work on ``cpu(0)``, so it waits for the last step
and not only for an earlier one. A completion event does not (see ``mxdp.engine``).

The last rows are additions. One costs t1 to push, t2 to compute, and t3 until Python hears of its end. The book: n of
them with a wait for each take n (t1 + t2 + t3). Pushed at once they take t1 + n t2 + t3, *if* n t2 > (n - 1) t1;
otherwise pushing takes the time.
"""

from __future__ import annotations

from typing import Any, List, Mapping

from mxdp.experiments.harness.claims import Claim, at_most, estimate, unsure
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Row, Settings, experiment
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find, keep, ratios, row_bars

POLICIES = ("never", "each epoch", "each step", "2 ahead", "2 ahead, events")
BOUNDED = POLICIES[-1]
"""The bound that is judged."""
WAITS = {"waitall": "waitall", "wait_to_read": "the first: wait_to_read", "event": "the first: completion event"}
EPOCHS = 2
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
        "kind, round by round. 'Peak' is the most that the process grew in a round, 'ahead' the most steps "
        "pushed and not done. The next rows: the time until Python goes on after it has pushed several products to "
        "each device. The last rows: y = x + 1, many times."
    )
    claims = {
        "of_never": Claim(
            "Python may be bounded to two steps ahead, by completion events: training takes at most 1.1 times as long "
            "as without any wait.",
            "the book's exercise 3; the bound is ours",
            1.1,
        ),
        "peak_of_never": Claim(
            "Bounded in this way, training needs less memory: its peak is at most 1 times that without any wait.",
            "the book's exercise 3",
            1,
        ),
        "of_pushed": Claim(
            "A wait for each addition costs time: at least 1 times that of pushing all of them.",
            "the book's exercise 1",
            1,
            least=True,
        ),
    }
    compared = (
        "parameters after 6 steps, bit for bit with a wait at each and against one device's; products and sums, exactly"
    )
    together = True
    common = dict(devices=[2], kind="auto", seed=0, additions=10_000)
    presets = {
        "quick": dict(common, rounds=6, timeout=120.0, batch_size=64, samples=896, size=768, products=10),
        "full": dict(common, rounds=2, timeout=1800.0, batch_size=256, samples=12800, size=1000, products=20),
    }
    little = dict(batch_size=20, samples=100, size=64, products=2, additions=20)

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
            rounds, metrics, median = row["rounds"], row["metrics"], row["seconds"]["median"]
            key = next(key for key in first if key in row["case"])
            base = find(rows, **{key: first[key]})
            if base:
                keep(row, "of_first", ratios(row, base))
                if row["case"][key] == BOUNDED:
                    rounds["of_never"] = rounds["of_first"]
                    peaks = zip(rounds["peak_bytes"], base["rounds"]["peak_bytes"])
                    keep(row, "peak_of_never", [mine / its if its else None for mine, its in peaks])
                if row["case"][key] is True:
                    rounds["of_pushed"] = rounds["of_first"]
            if key == "wait":
                metrics["ms_a_step"] = median * 1e3 / metrics["steps"]
            if row["case"].get(key) is False:
                both = zip(rounds["front_us"], rounds["back_us"])
                keep(row, "front_over_back", [front / back for front, back in both])
            if key == "each":
                metrics["us_an_op"] = median * 1e6 / settings["additions"]

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        way = {row["case"][key]: row for row in rows for key in ("wait", "products", "each") if key in row["case"]}
        metrics = {name: row["metrics"] for name, row in way.items()}
        never, step = metrics["never"], metrics["each step"]
        of_first = {name: f"{estimate(row, 'of_first'):.2f}" for name, row in way.items()}
        t1, t2 = metrics[False]["front_us"], metrics[False]["back_us"]
        judged = {
            True: "the back end is slower, so the book's condition is met",
            False: "Python is slower, so the book's condition is not met",
            None: f"which is slower one can't tell ({unsure(way[False], 'front_over_back')})",
        }[at_most(way[False], "front_over_back", 1.0)]
        return (
            f"Two steps: bounded by completion events, training takes {of_first[BOUNDED]} times as long as without any "
            f"wait, and {_mb(metrics[BOUNDED])} instead of {_mb(never)}. Without any wait Python is up to "
            f"{never['ahead']:.0f} steps ahead and their batches pile up; with a wait at each step, training takes "
            f"{of_first['each step']} times as long, and {_mb(step)}. A wait for the first product takes "
            f"{of_first['wait_to_read']} of waitall's time by wait_to_read, and {of_first['event']} by a completion "
            f"event. Additions with a wait for each take {of_first[True]} times as long as pushed at once; Python "
            f"needs {t1:.1f} µs to push one and the back end {t2:.1f} µs to do it: {judged}."
        )

    def columns(self) -> List[Column]:
        return [
            Column("seconds", "ms", scale=1e3),
            Column("of_first", "of first", ".2f", spread=True),
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
