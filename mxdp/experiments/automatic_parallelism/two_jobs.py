"""Two devices, two jobs that have nothing to do with each other: do they take as long as one?

A job is a number of matrix products on one device. The cost model says 1.0 where each device has a core of its own, and
2.0 on a single core. MXNet's own settings break this on CPU devices: all of them share four pieces of temporary space.
Each product takes the next piece, and so waits for the other device's products. The reference measures that.
"""

from __future__ import annotations

import statistics
from typing import List

from mxdp import process
from mxdp.errors import plural
from mxdp.experiments.automatic_parallelism import slides
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find_all
from mxdp.experiments.report import style
from mxdp.plans.cost.link import jobs_ratio

# mxdp would warn of exactly what the reference shows.
STOCK_TEMP_SPACE = {"MXNET_CPU_TEMP_COPY": "4", "PYTHONWARNINGS": "ignore"}


@experiment
class TwoJobs(Experiment):
    """Independent products on each device alone, on one after the other, and on all at once."""

    name = "two-jobs"
    question = "Do independent jobs on two devices take as long as one?"
    source = "Dive into Deep Learning, 'Automatic Parallelism'"
    how_to_read = (
        "'Over one' is a row's time over the mean time of a job alone, the median over the rounds. 1 means that the "
        "devices work side by side, 2 that they wait for each other. The reference runs the same jobs with MXNet's own "
        "MXNET_CPU_TEMP_COPY=4, the pieces of temporary space that all CPU devices share."
    )
    claims = {
        "both_over_one": Claim(
            "Jobs on several devices at once take as long as one: at most 1.1 times as long.",
            "the slides, where both took 1.02 times as long on two GPUs; read as 10 %",
            1.1,
        )
    }
    compared = "products, against NumPy's, exactly"
    tour = True
    # Without a size, products are scaled to the machine, by the rate of small ones: a job takes `run_seconds`.
    # The slides' own work (`size = 4000` in a preset) is hours on a CPU.
    common = dict(devices=[2], kind="auto", seed=0, products=50)
    presets = {
        "quick": dict(common, rounds=1, timeout=120.0, size=None, run_seconds=0.3),
        "full": dict(common, rounds=1, timeout=3600.0, size=1000, run_seconds=2.0),
    }
    little = dict(size=64, products=2, run_seconds=0.001)

    def cases(self, settings: Settings) -> List[Case]:
        cases = []
        for n in settings["devices"]:
            jobs, environment = {"jobs": n}, {}
            # More pieces of temporary space, if more products than pieces are pushed before the last device's first.
            if n * settings["products"] > int(process.SETTINGS["MXNET_CPU_TEMP_COPY"]):
                environment = {"MXNET_CPU_TEMP_COPY": str(n * settings["products"])}
            cases += [
                Case(f"job {job + 1} of {n} alone", n, 1, {**jobs, "run": "alone", "job": job}, environment)
                for job in range(n)
            ]
            cases.append(Case(f"{_all(n)}, in turn", n, 1, {**jobs, "run": "in turn"}, environment))
            cases.append(Case(f"{_all(n)} at once", n, 1, {**jobs, "run": "at once"}, environment))
            stock = {**jobs, "run": "at once", "temp_space": "stock"}
            cases.append(Case(f"{_all(n)} at once, shared temp space", n, 1, stock, STOCK_TEMP_SPACE, reference=True))
        return cases

    def predict(self, settings: Settings, cores: int) -> str:
        said = [f"{_all(n).capitalize()} at once over one: {jobs_ratio(n, cores):.2f}" for n in settings["devices"]]
        scaled = f" A job is scaled to take about {settings['run_seconds']:g} s." if not settings["size"] else ""
        return f"{'; '.join(said)} (on {plural(cores, 'core')}). One after the other: as many times as jobs.{scaled}"

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows + references:
            alone = find_all(rows, run="alone", jobs=row.case["jobs"])
            rounds = zip(*(each.samples for each in (row, *alone)))
            once = row.case["run"] == "at once"
            name = "over_one" if row in references or not once else "both_over_one"
            if alone:
                row.keep(name, [mine / statistics.mean(ones) for mine, *ones in rounds])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        together, stock = find_all(rows, run="at once")[-1], references[-1]
        return (
            f"{_all(together.case['jobs']).capitalize()} at once, one on each device, take "
            f"{together.estimate('both_over_one'):.2f} times as long as one alone; with the temporary space that "
            f"MXNet's CPU devices share by default, {stock.estimate('over_one'):.2f} times."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        case = rows[0].case
        said = f"A job is {slides.size_in_words(settings['products'], case['size'], case, settings)}."
        shares = [row.metrics.get("together") for row in (find_all(rows, run="at once")[-1], references[-1])]
        if None in shares:
            return said
        both = f"{shares[0]:.0%} of the time, and with shared temporary space for {shares[1]:.0%}"
        return f"{said} Recorded, two devices work at the same time for {both}."

    def columns(self) -> List[Column]:
        return [
            Column("seconds", "seconds", ".3f", spread=True),
            Column(("both_over_one", "over_one"), "over one", ".2f", spread=True),
            Column("devices", "devices"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        jobs = max(row.case["jobs"] for row in result["rows"])  # a colour each; then one for all of them
        colours = [style.COLOURS[row.case.get("job", jobs) % len(style.COLOURS)] for row in result["rows"]]
        grey = [style.GREY] * len(result["references"])
        style.row_bars(figure, result["rows"] + result["references"], "s", colours + grey)


def _all(jobs: int) -> str:
    return "both jobs" if jobs == 2 else f"all {jobs} jobs"
