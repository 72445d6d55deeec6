"""Do independent jobs on two devices take as long as one?

A job is a number of matrix products on one device. The cost model says 1.0 where each device has a core of its own, and
2.0 on a single core. MXNet's own settings break this on CPU devices: all of them share four pieces of temporary space.
Each product takes the next piece, and so waits for the other device's products. The reference measures that.
"""

from functools import partial

from mxdp import process
from mxdp.backend import np, npx
from mxdp.errors import plural
from mxdp.experiments import sources
from mxdp.experiments.automatic_parallelism.products import SLIDES
from mxdp.experiments.devices import devices_of, random_of
from mxdp.experiments.lab import Case, Work, mean
from mxdp.plans.cost.link import jobs_ratio

SOURCE = f"{sources.PARALLELISM}; {sources.PARALLELISM_SLIDES}"
COMPARED = "products, against NumPy's, exactly"
TOUR = True
PRESETS = {
    "quick": dict(
        devices=[2],
        products=50,
        size=600,
        timeout=120.0,
    ),
    "full": dict(
        devices=[2],
        products=50,
        size=1000,
        timeout=3600.0,
    ),
}
LITTLE = dict(size=64, products=2)
# mxdp would warn of exactly what the reference shows.
STOCK = {"MXNET_CPU_TEMP_COPY": "4", "PYTHONWARNINGS": "ignore"}
WARM_UP = 5
"""Products of a job that each device does before it is measured."""


def cases(s):
    for n in s.devices:
        # More pieces of temporary space, if more products than pieces are pushed before the last device's first.
        enough = n * s.products <= int(process.SETTINGS["MXNET_CPU_TEMP_COPY"])
        space = {} if enough else {"MXNET_CPU_TEMP_COPY": str(n * s.products)}
        for job in range(n):
            yield Case(f"job {job + 1} of {n} alone", n, environment=space, run="alone", job=job)
        yield Case(f"{_all(n)}, in turn", n, environment=space, run="in turn")
        yield Case(f"{_all(n)} at once", n, environment=space, run="at once")
        label = f"{_all(n)} at once, shared temp space"
        yield Case(label, n, environment=STOCK, reference=True, run="at once")


def expect(s, cores):
    ratios = []
    for n in s.devices:
        ratios.append(f"{_all(n).capitalize()} at once over one: {jobs_ratio(n, cores):.2f}")
    return f"{'; '.join(ratios)} (on {plural(cores, 'core')}). One after the other: as many times as jobs."


def oracle(case, s):
    """Whole numbers this small have exact float32 products, in whatever order they are added up."""
    factors = random_of(s).randint(-8, 9, size=(case.devices, 257, 257))
    for factor, job in _jobs(case, s, factors.astype("float32"), products=3):
        for answer in job():
            yield answer.asnumpy(), factor @ factor, 0.0


def set_up(case, s):
    """A round is every job of the case."""
    shape = (case.devices, s.size, s.size)
    factors = random_of(s).uniform(size=shape).astype("float32")
    jobs = [job for _, job in _jobs(case, s, factors, s.products)]
    for _, warm_up in _jobs(case, s, factors, min(s.products, WARM_UP)):
        warm_up()

    def push():
        for job in jobs:
            job()
            if case.run == "in turn":
                npx.waitall()

    devices = devices_of(case, s)
    if case.run == "alone":
        devices = [devices[case.job]]
    return Work(push, devices, record=case.run == "at once")


def _jobs(case, s, factors, products):
    """Each job of the case: its factor, and a function that pushes ``products`` products of it with itself."""
    for job, (factor, device) in enumerate(zip(factors, devices_of(case, s))):
        if job == case.get("job", job):
            yield factor, partial(_push, np.array(factor, ctx=device), products)


def _push(x, products):
    return [np.dot(x, x) for _ in range(products)]


def tell(t, s):
    for row in t:
        alone = t.find(run="alone", devices=row.devices)
        row.over_one = row.seconds / mean(one.seconds for one in alone)
    both = t.find(run="at once")[-1]
    stock = t.references[-1]
    t.column("seconds", form=".3f", spread=True, about="the time of all jobs of the row")
    over_one = "that over the mean time of a job alone: 1 if the devices work side by side, 2 if they wait in turn"
    t.column("over_one", form=".2f", spread=True, about=over_one)
    t.column("device_names", "devices")
    t.note(
        "The last row has MXNet's own MXNET_CPU_TEMP_COPY=4: pieces of temporary space that all CPU devices share."
    )
    t.answer(f"""{_all(both.devices).capitalize()} at once, one on each device, take {both.over_one:.2f} times as long
        as one alone; with the temporary space that MXNet's CPU devices share by default, {stock.over_one:.2f}
        times.""")
    t.explain(f"""A job is {s.products} products of {s.size} x {s.size} ({SLIDES}). There two GPUs at once take 1.02
        times as long as one.""")
    if both.get("together") is not None and stock.get("together") is not None:
        t.explain(f"""Recorded, two devices work at the same time for {both.together:.0%} of the time, and with shared
            temporary space for {stock.together:.0%}.""")
    t.bars(colour="job")


def _all(jobs):
    return "both jobs" if jobs == 2 else f"all {jobs} jobs"
