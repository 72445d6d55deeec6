"""How far should Python run ahead of the devices?

If Python never waits, each step's batch piles up; if it waits at each step, the devices stand still while it pushes the
next. All rows train by the step of ``mxdp.train``, whose own bound is the last of them; the other rows switch it off.
On CPU devices ``wait_to_read`` queues behind all work on ``cpu(0)``, later steps' too; a completion event does not.

An addition costs t1 to push, t2 to compute, and t3 until Python hears of its end. The book: n with a wait for each take
n (t1 + t2 + t3), pushed at once t1 + n t2 + t3, *if* n t2 > (n - 1) t1; otherwise pushing takes the time.
"""

from __future__ import annotations

from typing import List

from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find_all
from mxdp.experiments.report import style

POLICIES = ("never", "each epoch", "each step", "2 ahead", "2 ahead, events")
BOUNDED = POLICIES[-1]
WAITS = {"waitall": "waitall", "wait_to_read": "the first: wait_to_read", "event": "the first: completion event"}
EPOCHS = 2
OWN_CHILD = "RUN_AHEAD_CHILD"  # Nothing reads this variable: cases of equal environment would share a child's memory.


@experiment
class RunAhead(Experiment):
    """Training steps with five ways to wait; products with three; additions with two."""

    name = "run-ahead"
    question = "How far should Python run ahead of the devices?"
    source = "Dive into Deep Learning, 'Asynchronous Computation', exercises 1 and 2; '... Multiple GPUs', exercise 3"
    how_to_read = (
        "The first rows: two epochs of LeNet. 'Of first' is the time over that of the first row of its kind. 'Peak' "
        "is the most that the process grew in a round, 'ahead' the most steps pushed and not done. The next rows: the "
        "time until Python goes on after it has pushed several products. The last rows: y = x + 1, many times."
    )
    slide_panel = 1
    claims = {
        name: Claim(sentence, source, bound, least)
        for name, bound, least, source, sentence in (
            ("of_never", 1.1, False, "the book's exercise 3; the bound is ours",
             "Bounded to two steps ahead, training takes at most 1.1 times as long as without any wait."),
            ("peak_of_never", 1, False, "the book's exercise 3",
             "Bounded to two steps ahead, training takes at most 1 times the memory that it takes without any wait."),
            ("of_pushed", 1, True, "the book's exercise 1",
             "Additions with a wait for each take at least 1 times as long as without."),
        )
    }  # fmt: skip
    compared = "parameters after 6 steps: bits as with a wait at each, values as on one device; products; sums"
    together = True
    common = dict(devices=[2], kind="auto", seed=0, additions=10_000)
    presets = {
        "quick": dict(common, rounds=1, timeout=120.0, batch_size=64, samples=896, size=768, products=10),
        "full": dict(common, rounds=1, timeout=1800.0, batch_size=256, samples=3584, size=1000, products=10),
    }
    little = dict(batch_size=20, samples=100, size=64, products=2, additions=20)

    def cases(self, settings: Settings) -> List[Case]:
        n, count = max(settings["devices"]), settings["additions"]
        return [
            *(Case(name.replace("each", "wait each"), n, 1, {"wait": name}, {OWN_CHILD: name}) for name in POLICIES),
            *(Case(label, n, settings={"products": name}) for name, label in WAITS.items()),
            Case(f"{count:,} additions", 1, settings={"each": False}),
            Case(f"{count:,}, a wait for each", 1, settings={"each": True}),
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        steps = -(-settings["samples"] // settings["batch_size"])
        batch = f"batches of {settings['batch_size'] * 28 * 28 * 4 / 1e6:.1f} MB"
        return (
            f"Never waiting keeps up to {EPOCHS * steps - 1} {batch}, each epoch {steps - 1}, a bound of two steps 3."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        first = {"wait": "never", "products": "waitall", "each": False}
        for row in rows:
            key = next(key for key in first if key in row.case)
            for base in find_all(rows, **{key: first[key]}):
                row.keep("of_first", row.ratios(base))
                if row.case[key] == BOUNDED:
                    row.keep("of_never", row.rounds["of_first"])
                    row.keep("peak_of_never", row.ratios(base, "peak_bytes"))
                if row.case[key] is True:
                    row.keep("of_pushed", row.rounds["of_first"])
            if key == "wait":
                row.metrics["ms_a_step"] = row.median * 1e3 / row.metrics["steps"]
            if key == "each":
                row.metrics["us_an_op"] = row.median * 1e6 / settings["additions"]

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        bounded = find_all(rows, wait=BOUNDED)[0]
        return (
            f"Bounded to two steps ahead, training takes {bounded.estimate('of_never'):.2f} times as long as without "
            f"any wait, and {bounded.estimate('peak_of_never'):.2f} times the memory."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        pushed = find_all(rows, each=False)[0].metrics
        both = f"{pushed['front_us']:.1f} µs to push an addition, the back end {pushed['back_us']:.1f} µs to do it"
        return f"Without any wait, the batches of all steps that are pushed ahead pile up. Python needs {both}."

    def columns(self) -> List[Column]:
        return [
            Column("seconds", "ms", scale=1e3),
            Column("of_first", "of first", ".2f", spread=True),
            Column("peak_bytes", "peak MB", ".1f", 1e-6),
            Column("ahead", "ahead", ".0f"),
            Column("us_an_op", "µs an op", ".1f"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        rows = [row for row in result["rows"] if "wait" in row.case]
        upper, lower = figure.subplots(2, 1)
        style.row_bars(figure, rows, "ms", scale=[1e3 / row.metrics["steps"] for row in rows], axes=upper)
        upper.set_title("Time of a step")
        lower.set_title("Memory at the worst moment")
        peaks = {row.label: row.metrics["peak_bytes"] / 1e6 for row in rows}
        style.bars(lower, list(peaks), list(peaks.values()), unit="MB", colours=[style.COLOURS[1]] * len(rows))
