"""Can independent operators on one device run side by side?

The exercise pushes eight independent products on one device. The cost model: a device runs as many operators at once as
it has workers, and a CPU device has one, unless ``MXNET_CPU_WORKER_NTHREADS`` says more. The yardstick is one product,
repeated into one array: MXNet lets one operator at a time write an array.
"""

from mxdp.errors import plural
from mxdp.experiments import sources
from mxdp.experiments.automatic_parallelism.products import (
    Products,
    compare_products,
    factors,
    whole_factors,
)
from mxdp.experiments.devices import devices_of, mean_seconds, workers
from mxdp.experiments.lab import Case, Work, faster
from mxdp.plans.cost.link import jobs_ratio

SOURCE = f"exercise 1 of {sources.PARALLELISM}"
COMPARED = "independent products, against NumPy's, exactly"
TOGETHER = True
PRESETS = {
    "quick": dict(
        products=8,
        timeout=120.0,
        round_seconds=0.03,
        sides=[8, 32, 64, 128, 256, 512],
    ),
    "full": dict(
        products=8,
        timeout=600.0,
        round_seconds=0.05,
        sides=[8, 16, 32, 64, 128, 256, 512, 1024],
    ),
}
LITTLE = dict(
    sides=[8, 32],
    products=2,
    round_seconds=0.001,
)
WORKERS = (1, 2)
RECORDED = 256
"""The products of this side are recorded, or of the nearest side that is measured."""


def cases(s):
    for count in WORKERS:
        for side in s.sides:
            label = f"{plural(count, 'worker')}, {side}"
            yield Case(label, environment=workers(count), workers=count, side=side)


def expect(s, cores):
    one, two = (s.products / jobs_ratio(s.products, min(count, cores)) for count in WORKERS)
    return f"""On {plural(cores, "core")}, {plural(s.products, "product")} are {one:.2f} times as fast as one after the
        other on a device with 1 worker, and {two:.2f} times with 2. Small products take the time of their calls,
        whatever the number of workers."""


def oracle(case, s):
    """Three groups of products, one after the other into the same arrays, as in a round."""
    lefts, w = whole_factors(s.products, devices_of(case, s)[0], s.seed)
    products = Products(lefts, w, chain=False)
    for _ in range(3):
        products.push()
    return compare_products([[y] for y in products.results], lefts, w, chain=False)


def set_up(case, s):
    """A round times one product and then all of them. Its arrays are freed at its end."""
    (device,) = devices_of(case, s)

    def products(count):
        x, w = factors(case.side, case.side, device, s.seed)
        return Products([x] * count, w, chain=False)

    def measure():
        _, one = mean_seconds(products(1).push, s.round_seconds)
        _, together = mean_seconds(products(s.products).push, s.round_seconds)
        return together, {"one_seconds": one}

    measure()  # the first one of small products takes twice as long
    recorded = case.side == min(s.sides, key=lambda side: abs(side - RECORDED))
    return Work(measure, [device], record=products(s.products).push if recorded else None)


def tell(t, s):
    for row in t.rows:
        row.over_k_times_one = row.seconds / (s.products * row.one_seconds)
        row.over_one_worker = row.seconds / t.one(workers=1, side=row.side).seconds
    t.column(
        "one_seconds",
        "one, µs",
        scale=1e6,
        about="the time of a product, one after the other into one array",
    )
    t.column(
        "seconds",
        "all, µs",
        scale=1e6,
        about="that of k independent products, pushed without a wait",
    )
    t.column(
        "over_k_times_one",
        "/k x one",
        ".2f",
        spread=True,
        about="all over k times one: 1 means one after the other, 0.5 two at a time",
    )
    t.column(
        "over_one_worker",
        "/1 worker",
        ".2f",
        spread=True,
        about="all over all on a device with one worker",
    )
    t.note(
        "A row is a number of workers, set in the environment of its process, and a side of the square matrices."
    )
    t.bars("over_k_times_one", "", title="All products over k times one", colour="workers")
    least = min(s.sides)
    most = max(s.sides)
    one, two = (t.one(workers=count, side=most) for count in WORKERS)
    t.answer(f"""With two workers, a set of {s.products} independent products of {most} x {most}
        {faster(1 / two.over_k_times_one)} as one by one; with one worker it {faster(1 / one.over_k_times_one)}.""")
    t.explain(
        "A device runs as many operators at once as it has workers; MXNet gives a CPU device one."
    )
    if t.one(workers=2, side=least).over_one_worker.at_most(1.0) is False:
        t.explain("Small products take longer with two: MXNet wakes a worker for every operator.")
