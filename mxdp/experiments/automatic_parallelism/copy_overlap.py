"""Can results be copied away while the next are computed?

The slides run 50 products, copy the 50 results to the CPU, and then do both without a wait between. They say
"Overlapping shaves real time", but their own numbers say that both take *longer* than one after the other.

The cost model: what overlaps takes the longer of the two times, what doesn't takes their sum. A CPU device's workers
also copy its results, and their queue is first in, first out::

    one worker                  p1 p2 p3 c1 c2 c3    the sum, in whatever order they are pushed
    two workers, independent    p1 p3 c1 c3          the products fill both workers, and the copies come after them:
                                p2 .. c2             nothing is left to hide behind
    two workers, chain          p1 p2 p3             a product waits for the one before: one worker is free,
                                   c1 c2 c3          and a copy hides behind the next product

On a CPU one copy is short beside a product, so each result is copied until copying takes as long: then overlapping
saves the most, half of the sum. On a GPU, copies have a thread and a stream of their own, but copies to pageable
memory, as in the slides, are synchronous.
"""

from functools import lru_cache

from mxdp import memory
from mxdp.backend import mx, np
from mxdp.engine import prepare
from mxdp.errors import plural
from mxdp.experiments import sources
from mxdp.experiments.automatic_parallelism.products import (
    SLIDES,
    Products,
    compare_products,
    factors,
    whole_factors,
)
from mxdp.experiments.devices import devices_of, timed, workers
from mxdp.experiments.lab import Case, Work, faster

SOURCE = f"{sources.PARALLELISM}; {sources.PARALLELISM_SLIDES}"
COMPARED = "products, and every copy of them, against NumPy's products, exactly"
TOGETHER = True
# Tall results have `nbytes` and `width` columns. The slides' own work (`size = 4000` in a preset) is hours on a CPU.
PRESETS = {
    "quick": dict(
        products=50,
        timeout=120.0,
        size=400,
        nbytes=1 << 22,
        width=56,
    ),
    "full": dict(
        products=50,
        timeout=600.0,
        size=512,
        nbytes=8_000_000,
        width=40,
    ),
}
LITTLE = dict(
    size=64,
    products=2,
    nbytes=65536,
    width=16,
)
SQUARE = "slides"
INDEPENDENT = "indep."
CHAIN = "chain"
ENVIRONMENTS = {"1 worker": workers(1), "2 workers": workers(2)}
FIRST_COPIES = 5
"""Copies of each result that are measured first."""
WARM_UP = 5
"""Products that warm up: of the slides' size all take minutes."""


def cases(s):
    for work in (SQUARE, INDEPENDENT, CHAIN):
        for under, environment in ENVIRONMENTS.items():
            yield Case(f"{work}, {under}", environment=environment, work=work, under=under)


def expect(s, cores):
    # In a chain all but the first product and the last copies share their time.
    chain = (s.products + 1) / (2 * s.products) if cores > 1 else 1
    return f"""On {plural(cores, "core")} and two workers, a chain of products and copies that take equally long take
        {chain:.2f} of the sum of their times. Independent products, or one worker, take the sum. The slides' single
        copies are short beside products on a CPU, so there is little to hide."""


class CopiedProducts(Products):
    """Products, and copies of their results: ``landed[i]`` are the targets for result i. If all are one array, one copy
    runs at a time, as over one bus."""

    def __init__(self, lefts, w, chain, landed):
        super().__init__(lefts, w, chain)
        self.landed = landed
        self._copies = []
        for result, targets in zip(self.results, landed):
            self._copies += [prepare("_copyto", [result], target) for target in targets]

    def copy(self):
        """Push all copies."""
        for call in self._copies:
            call()

    def both(self):
        """Push the products and the copies, with no wait between."""
        self.push()
        self.copy()


def oracle(case, s):
    device, host = device_and_host(case, s)
    lefts, w = whole_factors(4, device, s.seed)
    chain = case.work == CHAIN
    landed = []
    for _ in lefts:
        landed.append([np.zeros(w.shape, ctx=host) for _ in range(3)])
    job = CopiedProducts(lefts, w, chain, landed)
    job.both()
    arrays = [(result, *copies) for result, copies in zip(job.results, job.landed)]
    return compare_products(arrays, lefts, w, chain)


def set_up(case, s):
    device, host = device_and_host(case, s)
    height = s.size
    width = s.size
    copies = 1
    if case.work != SQUARE:
        height = max(1, s.nbytes // 4 // s.width)
        width = s.width
        copies = balanced(height, width, s.products, device, host, s.seed)
    # As many results as fit into half of the free memory.
    nbytes = 4 * height * width
    room = memory.available_bytes(device) // 2
    memory.check_fits(nbytes, device, limit=room)
    count = min(s.products, room // nbytes)

    def job(count):
        x, w = factors(height, width, device, s.seed)
        return repeated(x, w, case.work == CHAIN, count, copies, host)

    def measure():  # the cases share one process, so none may hold memory while another is measured
        return one_round(job(count))

    one_round(job(min(WARM_UP, count)))
    jobs: list = []
    return Work(
        measure,
        [device, host],
        lambda: jobs[0].both(),
        prepare=lambda: jobs.append(job(count)),
        products=count,
        copies=copies,
    )


def repeated(x, w, chain, count, copies, host):
    """``count`` products, each of which is copied ``copies`` times, all into one array on ``host``."""
    targets = [np.zeros(x.shape, ctx=host)] * copies
    return CopiedProducts([x] * count, w, chain, [targets] * count)


def one_round(job):
    """The products alone, then the copies alone, then both with no wait between, whose time counts; each waited for."""
    parts = {"run_seconds": timed(job.push), "copy_seconds": timed(job.copy)}
    return timed(job.both), parts


def device_and_host(case, s):
    """The device that computes, and the one to which its results go: the CPU, or another CPU device."""
    (device,) = devices_of(case, s)
    return device, mx.cpu(1 if device == mx.cpu(0) else 0)


@lru_cache(maxsize=None)
def balanced(height, width, products, device, host, seed):
    """How often each result is copied (at least once) so that copying takes as long as the ``products``: once for all
    cases. Of large results there are few copies to push, for which Python needs a core, too."""
    copies = FIRST_COPIES
    for _ in range(2):
        x, w = factors(height, width, device, seed)
        job = repeated(x, w, True, products, copies, host)
        ran = []
        copied = []
        for _ in range(2):
            ran.append(timed(job.push))
            copied.append(timed(job.copy))
        copies = max(1, round(min(ran) * copies / min(copied)))
    return copies


def tell(t, s):
    for row in t.rows:
        row.in_turn = row.run_seconds + row.copy_seconds
        row.over_sum = row.seconds / row.in_turn
    t.column("copies", about="how many times each result is copied")
    t.column("run_seconds", "run", scale=1e3, about="the products alone, in ms")
    t.column("copy_seconds", "copy", scale=1e3, about="the copies of their results alone")
    t.column("seconds", "both", scale=1e3, about="both with no wait between")
    t.column(
        "over_sum",
        "/sum",
        ".2f",
        about="both over their sum (1: nothing is hidden, 0.5: all that can be)",
    )
    t.column(
        "beside",
        form=".0%",
        about="the share of a timeline in which products and copies run at the same time",
    )
    t.note("""slides: independent products of square matrices, each result copied once; indep.: products of tall
        matrices, each result copied until copying takes as long as the product; chain: the same, but each product needs
        the one before.""")
    t.bars("over_sum", "", title="Both over their sum", colour="work")
    one = t.one(work=CHAIN, under="1 worker")
    two = t.one(work=CHAIN, under="2 workers")
    t.answer(f"""With two workers, a chain of products and copies {faster(1 / two.over_sum)} as one after the other;
        with one worker, it {faster(1 / one.over_sum)}.""")
    t.explain(f"""In that chain there is something to hide: the products take
        {two.run_seconds / two.copy_seconds:.2f} times as long as the copies.""")
    square = t.one(work=SQUARE, under="1 worker")
    independent = t.one(work=INDEPENDENT, under="2 workers")
    t.explain(f"""Independent products fill both workers before the first copy can start: they and their copies take
        {independent.over_sum:.2f} of the sum of their times. In the slides' work,
        {square.products} products of {s.size} x {s.size} ({SLIDES}), copies are
        {(square.copy_seconds / square.in_turn).median:.1%} of the sum. On a GPU, the slides measured 0.12 s for the
        products, 2.16 s for the copies and 3.13 s for both: 1.37 of the sum.""")
