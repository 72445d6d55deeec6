"""Is the memory that a job will need known before it starts?

The notebook of the book's section died on its card of 4 GB, over 50 results of 64 MB each, which need 3.2 GB. The model
adds up a job's arrays at the worst moment, before it starts. It leaves out MXNet's own bookkeeping, a few MB at most,
and workspaces, which these operators do not have. A job that needs more than the memory that is left need not die
halfway: it is refused with both numbers, or cut into slices that fit.
"""

from typing import NamedTuple

import numpy as onp

from mxdp import memory
from mxdp.backend import npx, upload
from mxdp.errors import MemoryShortage, size
from mxdp.experiments import sources
from mxdp.experiments.devices import devices_of, timed
from mxdp.experiments.lab import Case, Work
from mxdp.experiments.memory_use import taken

SOURCE = f"the out-of-memory stop of the notebook of {sources.PARALLELISM}"
COMPARED = "row sums against NumPy's, exactly; and the guard's own answer"
PRESETS = {
    "quick": dict(
        devices=[1],
        products=50,
        timeout=120.0,
        size=1000,
        limit_bytes=64_000_000,
    ),
    "full": dict(
        devices=[1],
        products=50,
        timeout=600.0,
        size=2000,
        limit_bytes=250_000_000,
    ),
}
LITTLE = dict(size=64, products=2, limit_bytes=80000)
MB = 1e6
INNER = 64
"""The short side of the factors. The slides' factors are square; here only the bytes of the results count."""


class BigResults(NamedTuple):
    """``products`` products of (size, 64) by (64, size); of each only the sums of its rows are kept."""

    size: int
    products: int

    @property
    def result_bytes(self):
        """One result, its row sums, and the factor made for it."""
        return (self.size * self.size + self.size + self.size * INNER) * 4

    @property
    def fixed_bytes(self):
        """The two factors that all results are made from."""
        return 2 * self.size * INNER * 4

    def needed(self, results):
        """Bytes at the worst moment, with ``results`` results at a time."""
        return self.fixed_bytes + results * self.result_bytes


def cases(s):
    for way, label in {"fits": "no limit", "refused": "refused", "sliced": "in slices"}.items():
        yield Case(label, way=way)


def expect(s, cores):
    job = BigResults(s.size, s.products)
    most = max(0, (s.limit_bytes - job.fixed_bytes) // job.result_bytes)
    return f"""{job.products} results of {job.result_bytes / MB:.1f} MB and their factors:
        {job.needed(job.products) / MB:.0f} MB. Of a limit of {s.limit_bytes / MB:.0f} MB, at most {most} at a time."""


def oracle(case, s):
    (device,) = devices_of(case, s)
    job = BigResults(size=129, products=11)
    at_once = 3 if case.way == "sliced" else 11
    pieces = slices_of(job, device, job.needed(at_once), cut=at_once < 11)
    yield run_job(job, device, s.seed, pieces), serial_sums(job, s.seed), 0.0
    if case.way == "refused":
        pieces, _ = _attempt(job, device, s.seed, job.needed(11) - 1, cut=False)
        yield len(pieces), 0, 0.0
    else:
        yield max(stop - start for start, stop in pieces), at_once, 0.0


def set_up(case, s):
    (device,) = devices_of(case, s)
    job = BigResults(s.size, s.products)
    limit = None if case.way == "fits" else s.limit_bytes
    cut = case.way == "sliced"
    run_job(job, device, s.seed, [(0, 2)])
    done = []
    seconds = []

    def attempt():
        done.append(_attempt(job, device, s.seed, limit, cut))

    def measure():
        measured = taken(lambda: seconds.append(timed(attempt)), device)
        pieces, said = done[-1]
        at_once = max((stop - start for start, stop in pieces), default=0)
        return seconds[-1], {
            "measured_bytes": measured,
            "predicted_bytes": job.needed(at_once or job.products),
            "at_once": at_once,
            "said": said,
        }

    def again():
        pieces, _ = done[-1]
        run_job(job, device, s.seed, pieces)

    return Work(measure, record=again if cut else None)


def _attempt(job, device, seed, limit, cut):
    """The pieces in which the job ran; or none, and why."""
    try:
        pieces = slices_of(job, device, limit, cut)
    except MemoryShortage as shortage:
        return [], str(shortage)
    run_job(job, device, seed, pieces)
    return pieces, ""


def thin_factors(job, seed):
    """(size, 64) each, of -1, 0 and 1: up to ``size`` 4000 and 50 products all sums are exact in float32."""
    random = onp.random.RandomState(seed)
    a = random.randint(-1, 2, size=(job.size, INNER)).astype("float32")
    b = random.randint(-1, 2, size=(job.size, INNER)).astype("float32")
    return a, b


def serial_sums(job, seed):
    """The row sums (products, size) in NumPy's integers, one result after the other."""
    a, b = (factor.astype("int64") for factor in thin_factors(job, seed))
    sums = []
    for number in range(job.products):
        sums.append(((a + number) @ b.T).sum(axis=1))
    return onp.stack(sums)


def run_job(job, device, seed, pieces):
    """The row sums, piece by piece: ``pieces`` are (start, stop) of the results that there are at a time. Waits for
    each piece: only then is its memory free again."""
    a, b = (upload(factor, device) for factor in thin_factors(job, seed))
    # One array for all that is kept: small ones, kept between the slices, would break up the room that a slice leaves.
    kept = onp.full((job.products, job.size), onp.nan, "float32")
    for start, stop in pieces:
        left = [a + number for number in range(start, stop)]
        results = [
            npx.fully_connected(factor, b, num_hidden=len(b), no_bias=True) for factor in left
        ]
        sums = [result.sum(axis=1) for result in results]
        npx.waitall()
        for number, row_sums in enumerate(sums, start):
            kept[number] = row_sums.asnumpy()
        del left, results, sums
    return kept


def slices_of(job, device, limit, cut):
    """How to run the job in at most ``limit`` bytes: whole, or with ``cut`` in slices that fit. Raises a MemoryShortage
    if it does not fit; with ``cut``, if not even a slice of one result does."""
    needed = job.needed(job.products)
    room = memory.available_bytes(device)
    if limit is not None:
        room = min(limit, room)
    if cut and needed > room:
        return memory.slices(job.products, job.result_bytes, room - job.fixed_bytes)
    memory.check_fits(needed, device, limit)
    return [(0, job.products)]


def tell(t, s):
    fits = t.one(way="fits")
    refused = t.one(way="refused")
    sliced = t.one(way="sliced")
    t.column(
        "predicted_bytes",
        "needs MB",
        ".1f",
        1 / MB,
        about="the predicted peak, beyond what was there before",
    )
    t.column(
        "measured_bytes",
        "measured MB",
        ".1f",
        1 / MB,
        about="the growth of the process at its worst moment (on a GPU: what MXNet had there)",
    )
    t.column("of_needs", "of needs", ".3f", spread=True, about="their ratio")
    t.column("at_once", "at once", ".0f", about="the number of results at a time")
    t.column("seconds", "ms", scale=1e3, about="the time of the attempt")
    t.bars("measured_bytes", "MB", 1 / MB)
    at_most = "The job takes at most 1.1 times the memory that was predicted before its start, whole and in slices."
    at_least = (
        "The job takes at least 0.9 times the memory that was predicted, whole and in slices."
    )
    for row in (fits, sliced):
        row.of_needs = row.measured_bytes / row.predicted_bytes
        t.claim(at_most, row.of_needs, at_most=1.1)
        t.claim(at_least, row.of_needs, at_least=0.9)
    sentence = "In slices the job takes at most 1 times its limit."
    t.claim(sentence, sliced.measured_bytes / s.limit_bytes, at_most=1)
    sentence = "Whole, the job is refused under the limit: it computes 0 results."
    t.claim(sentence, refused.at_once, at_most=0, exact=True)
    result = BigResults(s.size, s.products).result_bytes
    sentence = "The refused job allocates less than 1 result."
    # Counted in whole pages, so that values are often alike: each is judged.
    t.claim(sentence, refused.measured_bytes / result, at_most=1, exact=True)
    if not (fits.at_once.last and sliced.at_once.last):
        return t.answer(f"The job could not be run: {fits.said or sliced.said}")
    t.answer(f"""A job of {s.products} products takes {fits.of_needs:.3f} times the memory that was predicted before its
        start; cut into slices that fit, {sliced.of_needs:.3f} times.""")
    start = f"refused: {refused.said}" if refused.said else "not refused."
    t.explain(f"Under a limit of {size(s.limit_bytes)} the whole job is {start}")
