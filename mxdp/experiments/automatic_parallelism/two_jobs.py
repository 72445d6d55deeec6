"""Two devices, two jobs that have nothing to do with each other: do they take as long as one?

A job is a number of matrix products on one device. The deck times them on A, on B, and on both without a wait between;
on its two GPUs both took 1.02 times as long as one. The cost model says 1.0 where each device has a core of its own,
and 2.0 on a single core.

On CPU contexts the stock settings break this: MXNet gives all of them four pieces of temporary space to share, each
product takes the next, and so waits for the other device's. The reference measures that.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Dict, List

from mxdp import process
from mxdp.errors import plural
from mxdp.experiments.automatic_parallelism import slides as deck
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Row, Settings, Verdict, experiment
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find_all, row_bars
from mxdp.plans.cost.link import jobs_ratio

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = 1.08
DECK = 1.02
"""Both over one in the deck, on two GPUs."""
# mxdp would warn of just what this is to show.
STOCK_TEMP_SPACE = {"MXNET_CPU_TEMP_COPY": "4", "PYTHONWARNINGS": "ignore"}


@experiment
class TwoJobs(Experiment):
    """Independent products on each device alone, on all in turn, and on all at once."""

    name = "two-jobs"
    question = "Do independent jobs on two devices take as long as one?"
    source = "Dive into Deep Learning, 'Automatic Parallelism'"
    how_to_read = (
        "'Over one' is a row's time over the mean time of a job alone, the median over the rounds, which take turns. "
        "1 means that the devices work side by side, 2 that they wait for each other. The reference is the same with "
        "MXNet's own MXNET_CPU_TEMP_COPY=4, which all CPU devices share."
    )
    compared = "products, against NumPy's, exactly"
    tour = True
    # Without a size, products are scaled to the machine, by the rate of small ones: a job in so many seconds.
    presets = {
        "quick": dict(
            devices=[2], kind="auto", seed=0, rounds=7, timeout=120.0, products=50, size=None, run_seconds=0.3
        ),
        "full": dict(
            devices=[2], kind="auto", seed=0, rounds=5, timeout=14400.0, products=50, size=deck.SIDE, run_seconds=60.0
        ),
    }
    little = dict(size=64, products=2, run_seconds=0.001)

    def cases(self, settings: Settings) -> List[Case]:
        cases = []
        for n in settings["devices"]:
            jobs, environment = {"jobs": n}, _temp_space(n * settings["products"])
            cases += [
                Case(f"job {job + 1} of {n} alone", n, 1, {**jobs, "run": "alone", "job": job}, environment)
                for job in range(n)
            ]
            cases.append(Case(f"{_all(n)}, in turn", n, 1, {**jobs, "run": "in turn"}, environment))
            cases.append(Case(f"{_all(n)} at once", n, 1, {**jobs, "run": "at once"}, environment))
            stock = {**jobs, "run": "at once", "temp_space": "stock"}
            cases.append(
                Case(f"{_all(n)} at once, shared temp space", n, 1, stock, STOCK_TEMP_SPACE, reference=True),
            )
        return cases

    def predict(self, settings: Settings, cores: int) -> str:
        said = [f"{_all(n)} at once over one: {jobs_ratio(n, cores):.2f}" for n in settings["devices"]]
        text = f"{'; '.join(said)} (on {plural(cores, 'core')}). In turn: as many times as there are jobs."
        if settings["size"]:
            return text
        return f"{text} Products are scaled to this machine, so that a job takes about {settings['run_seconds']:g} s."

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows + references:
            jobs = row["case"]["jobs"]
            alone = [each for each in rows if each["case"]["run"] == "alone" and each["case"]["jobs"] == jobs]
            if not alone:
                continue
            over_one = statistics.median(
                together / statistics.mean(ones)
                for together, *ones in zip(row["seconds"]["samples"], *(each["seconds"]["samples"] for each in alone))
            )
            row["metrics"]["both_over_one" if row["case"]["run"] == "at once" else "over_one"] = over_one

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        case, worst = rows[0]["case"], 0.0
        said = [f"A job: {deck.size_in_words(settings['products'], case['size'], case, settings)}."]
        for together, stock in zip(find_all(rows, run="at once"), references):
            jobs, over_one = together["case"]["jobs"], together["metrics"]["both_over_one"]
            worst = max(worst, over_one)
            said.append(
                f"{_all(jobs).capitalize()} at once take {over_one:.2f} times as long as one alone; with MXNet's own "
                f"shared temporary space {stock['metrics']['both_over_one']:.2f} times. {_seen(together, stock)}"
            )
        return Verdict(worst <= CLAIM, f"{' '.join(said)} The deck, on two GPUs: {DECK:.2f}.")

    def columns(self) -> List[Column]:
        return [
            Column("seconds_range", "seconds", ".3f"),
            Column(("both_over_one", "over_one"), "over one", ".2f"),
            Column("devices", "devices"),
        ]

    def draw(self, result: Result, figure: Figure) -> None:
        colours = [style.COLOURS[0 if row["case"]["run"] == "alone" else 1] for row in result["rows"]]
        grey = [style.GREY] * len(result["references"])
        row_bars(figure, result["rows"] + result["references"], "s", colours + grey)


def _seen(together: Row, stock: Row) -> str:
    """What the timelines show, where there are any."""
    shares = [row["metrics"].get("together") for row in (together, stock)]
    if None in shares:
        return ""
    return f"Recorded, two devices work at the same time {shares[0]:.0%} of the time, and {shares[1]:.0%}."


def _all(jobs: int) -> str:
    return "both jobs" if jobs == 2 else f"all {jobs} jobs"


def _temp_space(products: int) -> Dict[str, str]:
    """More of what CPU devices share, if so many products are pushed before the last device is given its first one."""
    usual = process.SETTINGS["MXNET_CPU_TEMP_COPY"]
    return {"MXNET_CPU_TEMP_COPY": str(products)} if products > int(usual) else {}
