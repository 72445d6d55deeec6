"""How far should Python run ahead of the devices?

Python pushes a step in a fraction of the time that it takes. If it never waits, all that it pushes piles up: every
batch's pictures, which Python writes itself, and the engine's notes. (Results do not: MXNet makes room for them when
they are computed.) If it waits at each step, the devices stand still while it pushes the next. The book's exercise lies
between: up to two steps ahead. The model: all steps but the first pile up, or those of an epoch, none, or three; and
who waits at each step pays for pushing it.

A wait is no simple thing either. ``wait_to_read`` takes its turn on ``cpu(0)``, after all that was queued there before,
so on a CPU it waits for the last step and not for one before. A stamp does not (see
``mxdp.experiments.measure.completion``).

The last rows: an addition costs t1 to push, t2 to do, t3 to hear that it is done. The book: n of them that wait take
n (t1 + t2 + t3), and pushed at once t1 + n t2 + t3, *if* n t2 > (n - 1) t1; else it is pushing that takes the time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, List

from mxdp.experiments.harness.experiment import (
    Case,
    Column,
    Experiment,
    Oracle,
    Ready,
    Result,
    Row,
    Settings,
    Verdict,
    experiment,
)
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find, find_all, metric, ratio, row_bars

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POLICIES = ("never", "each epoch", "each step", "2 ahead", "2 ahead, stamps")
RECORDED = ("never", "each step", "2 ahead", "2 ahead, stamps")
WAITS = {"waitall": "waitall", "wait_to_read": "the first: wait_to_read", "stamp": "the first: a stamp"}
EPOCHS = 2
CLAIM = 1.1
"""Time of the best bounded way over that of never waiting."""
LR = 0.1
PICTURE_BYTES = 28 * 28 * 4
OWN_CHILD = "RUN_AHEAD_CHILD"
"""An environment variable that nothing reads: cases of equal environment share a child, and a child that has trained
before has memory that another has still to get."""


@experiment
class RunAhead(Experiment):
    """Training steps with five ways to wait; products with three; additions with two."""

    name = "run-ahead"
    question = "How far should Python run ahead of the devices?"
    source = "Dive into Deep Learning, 'Asynchronous Computation', exercises 1 and 2; '... Multiple GPUs', exercise 3"
    how_to_read = (
        "A round of the first rows is two epochs of LeNet; 'of first' is the time over that of the first row of its "
        "kind, the median over the rounds. 'Peak' is how much the process grew at most, 'ahead' the most steps pushed "
        "and not done. The next rows: the time until Python goes on, after as many products on each device. The last: "
        "y = x + 1 so often."
    )
    together = True
    presets = {
        "quick": dict(
            devices=[2], kind="auto", seed=0, rounds=5, timeout=120.0, batch_size=64, samples=1024, size=768,
            products=10, additions=10_000,
        ),
        "full": dict(
            devices=[2], kind="auto", seed=0, rounds=7, timeout=1800.0, batch_size=256, samples=12800, size=1000,
            products=20, additions=10_000,
        ),
    }  # fmt: skip

    def cases(self, settings: Settings) -> List[Case]:
        n, count = max(settings["devices"]), settings["additions"]
        cases = [
            Case(f"wait {name}" if name.startswith("each") else name, n, 1, {"wait": name}, {OWN_CHILD: name})
            for name in POLICIES
        ]
        cases += [Case(label, n, settings={"products": name}) for name, label in WAITS.items()]
        cases.append(Case(f"{count:,} additions", 1, settings={"each": False}))
        cases.append(Case(f"{count:,}, a wait for each", 1, settings={"each": True}))
        return cases

    def predict(self, settings: Settings, cores: int) -> str:
        steps = -(-settings["samples"] // settings["batch_size"])
        batch = settings["batch_size"] * PICTURE_BYTES / 1e6
        return (
            f"Beside what a step needs, never waiting keeps up to {EPOCHS * steps - 1} batches of {batch:.1f} MB, each "
            f"epoch {steps - 1}, a bound of two steps 3. Pushed at once, {settings['additions']:,} additions "
            "cost what the slower of Python and the back end takes for them."
        )

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        from mxdp.experiments.automatic_parallelism.work import waits
        from mxdp.experiments.measure.devices import devices_of

        devices, seed = devices_of(case, settings), settings["seed"]
        if "wait" in case.settings:
            checked, wrong = waits.check_training(case.settings["wait"], devices, seed, LR)
        elif "products" in case.settings:
            checked, wrong = waits.check_products(case.settings["products"], devices, seed)
        else:
            checked, wrong = waits.check_additions(case.settings["each"], devices[0])
        text = (
            "parameters after 6 steps: the bits of a wait at each, and one device's numbers; products and sums exactly"
        )
        return Oracle(checked, wrong, text)

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        from mxdp.experiments.automatic_parallelism.work import waits
        from mxdp.experiments.measure.devices import devices_of

        devices, seed = devices_of(case, settings), settings["seed"]
        if "wait" in case.settings:
            way, sizes = case.settings["wait"], (settings["batch_size"], settings["samples"])
            recorded = settings["rounds"] if way in RECORDED else None
            rounds = waits.train(way, devices, *sizes, EPOCHS, seed, LR, recorded)
        elif "products" in case.settings:
            rounds = waits.wait(case.settings["products"], devices, settings["size"], settings["products"], seed)
        else:
            rounds = waits.add(settings["additions"], devices[0], case.settings["each"])
        yield Ready([str(device) for device in devices])
        yield from rounds

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for key in ("wait", "products", "each"):
            kind = [row for row in rows if key in row["case"]]
            for row in kind:
                row["metrics"]["of_first"] = ratio(row, kind[0])
                if key == "wait":
                    row["metrics"]["ms_a_step"] = row["seconds"]["median"] * 1e3 / row["metrics"]["steps"]
                if key == "each":
                    row["metrics"]["us_an_op"] = row["seconds"]["median"] * 1e6 / settings["additions"]

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        way = {row["case"]["wait"]: row["metrics"] for row in rows if "wait" in row["case"]}
        best = min(POLICIES[3:], key=lambda name: way[name]["of_first"])
        pushed, waited = (find_all(rows, each=each)[0]["metrics"] for each in (False, True))
        first = {name: _of_first(rows, name) for name in WAITS}
        t1, t2 = pushed["front_us"], pushed["back_us"]
        holds = (
            way[best]["of_first"] <= CLAIM
            and way[best]["peak_bytes"] < way["never"]["peak_bytes"]
            and waited["us_an_op"] > pushed["us_an_op"]
        )
        text = (
            f"Never waiting takes {way['never']['ms_a_step']:.1f} ms a step and {_mb(way['never'])}, up to "
            f"{way['never']['ahead']} steps ahead; a wait at each step {way['each step']['of_first']:.2f} of the time "
            f"and {_mb(way['each step'])}; two steps ahead ({'stamps' if best != '2 ahead' else 'wait_to_read'}) "
            f"{way[best]['of_first']:.2f} of the time and {_mb(way[best])}. Asked for: at most {CLAIM}, with less "
            f"memory than never waiting. To wait for the first product takes {first['wait_to_read']:.2f} of waitall's "
            f"time by wait_to_read, and {first['stamp']:.2f} by a stamp. "
            f"An addition costs {pushed['us_an_op']:.1f} µs pushed and {waited['us_an_op']:.1f} µs waited for: Python "
            f"needs {t1:.1f} µs to push it, the back end {t2:.1f} µs to do it when it is queued already, so "
            f"{'Python' if t1 > t2 else 'the back end'} is the slower one, and the book's condition "
            f"{'is not' if t1 > t2 else 'is'} met."
        )
        return Verdict(holds, text)

    def columns(self) -> List[Column]:
        return [
            Column("ms", lambda row: style.number(row["seconds"]["median"] * 1e3)),
            metric("of_first", "of first"),
            Column("peak MB", lambda row: f"{row['metrics']['peak_bytes'] / 1e6:.1f}"),
            metric("ahead", "ahead", "{:.0f}"),
            metric("us_an_op", "µs an op", "{:.1f}"),
        ]

    def draw(self, result: Result, figure: Figure) -> None:
        rows = [row for row in result["rows"] if "wait" in row["case"]]
        upper, lower = figure.subplots(2, 1)
        colours = [style.COLOURS[0]] * len(rows)
        row_bars(figure, rows, "ms", colours, [1e3 / row["metrics"]["steps"] for row in rows], upper)
        upper.set_title("Time of a step")
        peaks = [row["metrics"]["peak_bytes"] / 1e6 for row in rows]
        style.bars(lower, [row["label"] for row in rows], peaks, unit="MB", colours=[style.COLOURS[1]] * len(rows))
        lower.set_title("Memory at the worst moment")


def _of_first(rows: List[Row], way: str) -> float:
    row = find(rows, products=way)
    return float(row["metrics"]["of_first"]) if row else 0.0


def _mb(metrics: Any) -> str:
    return f"{metrics['peak_bytes'] / 1e6:.0f} MB"
