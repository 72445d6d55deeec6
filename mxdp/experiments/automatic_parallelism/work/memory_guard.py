"""Runs a job of many large results, of which little is kept: whole, in slices, or not at all."""

from __future__ import annotations

import re
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Iterator, List, Optional, Tuple

import numpy as onp

from mxdp import memory
from mxdp.backend import Device, HostArray, NDArray, mx, npx, upload
from mxdp.errors import MemoryShortage
from mxdp.experiments.automatic_parallelism.memory_guard import INNER, BigResults
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.devices import devices_of
from mxdp.experiments.measure.memory import give_back, taken
from mxdp.timing import Timer

SLACK = 32 << 20
"""Bytes that Python and MXNet may take for themselves beside the job, where the system enforces the limit."""

Pieces = List[Tuple[int, int]]
"""(start, stop) of the results that there are at a time."""


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """The row sums, and what the guard lets pass."""
    job, (device,), seed = BigResults(size=129, products=11), devices_of(case, settings), settings["seed"]
    at_once = 3 if case.settings["way"] == "sliced" else 11
    pieces = slices_of(job, device, job.needed(at_once), cut=at_once < 11)
    yield run(job, device, seed, pieces), serial(job, seed), 0.0
    if case.settings["way"] == "refused":
        yield refused(job, device, job.needed(11) - 1), True, 0.0
    else:
        yield max(stop - start for start, stop in pieces), at_once, 0.0


def set_up(case: Case, settings: Settings) -> Work:
    """A round tries to run the job in the way of this case."""
    job, (device,), seed = BigResults.of(settings), devices_of(case, settings), settings["seed"]
    way = case.settings["way"]
    limit = None if way == "fits" else settings["limit_bytes"]
    run(job, device, seed, [(0, 2)])
    timer = Timer()
    pieces: Pieces = []
    said = ""

    def attempt() -> None:
        nonlocal pieces, said
        with timer:
            pieces, said = _attempt(job, device, seed, way, limit)

    def one_round() -> Round:
        measured = taken(attempt, device)
        at_once = max((stop - start for start, stop in pieces), default=0)
        last = {"predicted_bytes": job.needed(at_once or job.products), "at_once": at_once, "said": said}
        return Round(timer.times[-1], {"measured_bytes": measured}, last)

    return Work([device], one_round, (lambda: partial(run, job, device, seed, pieces)) if way == "sliced" else None)


def _attempt(job: BigResults, device: Device, seed: int, way: str, limit: Any) -> Tuple[Pieces, str]:
    """The pieces in which the job ran; or none, and why."""
    unguarded = way == "unguarded"
    try:
        pieces = [(0, job.products)] if unguarded else slices_of(job, device, limit, cut=way == "sliced")
        with at_most(limit + SLACK) if unguarded else nullcontext():
            run(job, device, seed, pieces)
    except MemoryShortage as shortage:
        return [], str(shortage)
    except mx.MXNetError as error:
        return [], str(error).strip().splitlines()[-1]
    return pieces, ""


def factors(job: BigResults, seed: int) -> Tuple[HostArray, HostArray]:
    """(size, 64) each, of -1, 0 and 1: up to ``size`` 4000 and 50 products all sums are exact in float32."""
    random = onp.random.RandomState(seed)
    a, b = (random.randint(-1, 2, size=(job.size, INNER)).astype("float32") for _ in "ab")
    return a, b


def serial(job: BigResults, seed: int) -> Any:
    """The row sums (products, size) in NumPy's integers, one result after the other."""
    a, b = (factor.astype("int64") for factor in factors(job, seed))
    return onp.stack([((a + number) @ b.T).sum(axis=1) for number in range(job.products)])


def run(job: BigResults, device: Device, seed: int, pieces: Pieces) -> HostArray:
    """The row sums, piece by piece. Waits for each piece: only then is its memory free again."""
    a, b = (upload(factor, device) for factor in factors(job, seed))
    # One array from the start for all that is kept. Small arrays kept between the slices would lie in the holes that
    # the slice before has left, and a result would no longer fit into them.
    kept = onp.full((job.products, job.size), onp.nan, "float32")
    for start, stop in pieces:
        _run_piece(a, b, start, kept[start:stop])
    return kept


def _run_piece(a: NDArray, b: NDArray, start: int, kept: HostArray) -> None:
    left = [a + number for number in range(start, start + len(kept))]
    results = [npx.fully_connected(each, b, num_hidden=len(b), no_bias=True) for each in left]
    sums = [result.sum(axis=1) for result in results]
    npx.waitall()
    for row, each in zip(kept, sums):
        row[:] = each.asnumpy()


def slices_of(job: BigResults, device: Device, limit: Optional[int], cut: bool) -> Pieces:
    """How to run the job in at most ``limit`` bytes: whole, or with ``cut`` in slices that fit.

    Raises:
        MemoryShortage: it does not fit; with ``cut``: not even a slice of one result fits.
    """
    try:
        memory.check_fits(job.needed(job.products), device, limit)
    except MemoryShortage:
        if not cut:
            raise
        available = memory.available_bytes(device)
        room = available if limit is None else min(limit, available)
        return memory.slices(job.products, job.result_bytes, room - job.fixed_bytes)
    return [(0, job.products)]


def refused(job: BigResults, device: Device, limit: int) -> bool:
    """Does the guard refuse to run the whole job?"""
    try:
        slices_of(job, device, limit, cut=False)
    except MemoryShortage:
        return True
    return False


@contextmanager
def at_most(nbytes: int) -> Iterator[None]:
    """Have the system refuse this process more than ``nbytes`` beyond what it has (``RLIMIT_DATA``), for the block.

    Where the system has no such limit, the block runs without one.
    """
    try:
        import resource

        give_back()  # the heap's free end counts as had
        status = Path("/proc/self/status").read_text()
    except (ImportError, OSError):
        yield
        return
    found = re.search(r"^VmData:\s+(\d+) kB", status, re.M)
    assert found is not None
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(found.group(1)) * 1024 + nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
