"""Two devices, two jobs that have nothing to do with each other: do they take as long as one?

A job is a number of matrix products on one device. The deck times them on A, on B, and on both without a wait between;
on its two GPUs both took 1.02 times as long as one. The cost model says 1.0 where each device has a core of its own,
and 2.0 on a single core.

On CPU contexts the stock settings break this: MXNet gives all of them four pieces of temporary space to share, each
product takes the next, and so waits for the other device's. The reference measures that.
"""

from __future__ import annotations

import itertools
import statistics
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Tuple

from mxdp import process
from mxdp.experiments.automatic_parallelism import slides as deck
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
from mxdp.experiments.report.rows import find_all, metric, plural, row_bars, seconds
from mxdp.plans.cost.link import jobs_ratio

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Job = Callable[[], List[Any]]

CLAIM = 1.08
DECK = 1.02
"""Both over one in the deck, on two GPUs."""
WARM_UP = 5
"""Products of a job that each device does before it is measured."""
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

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        import numpy as onp

        from mxdp.experiments.measure.oracle import count_wrong

        random = onp.random.RandomState(settings["seed"])
        # Whole numbers this small have exact float32 products, in whatever order they are added up.
        factors = random.randint(-8, 9, size=(case.devices, 257, 257)).astype("float32")
        _, jobs = _jobs(case, settings, factors, products=3)
        answers = [job() for job in jobs]
        own = factors if case.settings["run"] != "alone" else factors[case.settings["job"] :]
        counts = [
            count_wrong(answer.asnumpy(), onp.dot(factor, factor), tolerance=0.0)
            for three, factor in zip(answers, own)
            for answer in three
        ]
        return Oracle(sum(c for c, _ in counts), sum(w for _, w in counts), "products, against NumPy's, exactly")

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        import numpy as onp

        from mxdp import Timer
        from mxdp.backend import npx
        from mxdp.experiments.automatic_parallelism.work.products import square_side
        from mxdp.experiments.measure.timelines import recorded

        shared = _shared(case, settings)
        size = settings["size"] or square_side(settings["run_seconds"] / settings["products"], shared["rate"])
        random = onp.random.RandomState(settings["seed"])
        factors = random.uniform(size=(case.devices, size, size)).astype("float32")
        for job in _jobs(case, settings, factors, min(settings["products"], WARM_UP))[1]:
            job()
        npx.waitall()
        devices, jobs = _jobs(case, settings, factors, settings["products"])
        yield Ready([str(device) for device in devices], {"size": size}, shared)
        timer = Timer()

        def push() -> None:
            for job in jobs:
                job()
                if case.settings["run"] == "in turn":
                    npx.waitall()

        for number in itertools.count(1):
            with timer:
                push()
            last = number == settings["rounds"] and case.settings["run"] == "at once"
            yield Round(timer.times[-1], recorded(push, devices) if last else {})

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
        over_one = metric("over_one", "")
        both = metric("both_over_one", "")
        return [
            seconds(form="{:.3f}"),
            Column("over one", lambda row: (both if row["case"]["run"] == "at once" else over_one).cell(row)),
            Column("devices", lambda row: ", ".join(row["case"]["devices"])),
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


def _shared(case: Case, settings: Settings) -> Dict[str, float]:
    """The rate by which all cases scale their products, of which the first measures it; nothing, if they have a size.

    The cases are in processes of their own. If each measured for itself, their sizes would differ, and what is compared
    would not be equal work.
    """
    from mxdp.experiments.automatic_parallelism.work.products import multiply_adds_a_second
    from mxdp.experiments.measure.devices import devices_of

    if settings["size"]:
        return {}
    return {"rate": case.settings.get("rate") or multiply_adds_a_second(devices_of(case, settings)[0])}


def _jobs(
    case: Case, settings: Settings, factors: Any, products: int
) -> Tuple[List[Any], List[Callable[[], List[Any]]]]:
    """The case's devices, and a function for each that pushes ``products`` products of its factor with itself."""
    from mxdp.backend import np
    from mxdp.experiments.measure.devices import devices_of

    devices = devices_of(case, settings)
    if case.settings["run"] == "alone":
        job = case.settings["job"]
        devices, factors = devices[job : job + 1], factors[job : job + 1]
    loaded = [np.array(factor, ctx=device) for factor, device in zip(factors, devices)]

    def push(x: Any) -> List[Any]:
        return [np.dot(x, x) for _ in range(products)]

    return devices, [partial(push, x) for x in loaded]
