"""A job of many large results, of which little is kept: the memory it needs is known before it runs.

Loads MXNet when it runs, not when it is imported.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, List, Optional, Tuple

import numpy as onp

from mxdp.errors import MemoryShortage

if TYPE_CHECKING:
    from mxdp.backend import HostArray, NDArray

INNER = 64
"""The short side of the factors. The deck's are square; here only the results' bytes count."""
ITEM = 4
"""Bytes of a float32."""


class BigResults:
    """``products`` products of (size, 64) by (64, size), of each of which the sums of its rows are kept."""

    def __init__(self, size: int, products: int) -> None:
        self.size, self.products = size, products

    @property
    def result_bytes(self) -> int:
        """One result, its row sums, and the factor made for it."""
        return (self.size * self.size + self.size + self.size * INNER) * ITEM

    @property
    def fixed_bytes(self) -> int:
        """The two factors that all results are made from."""
        return 2 * self.size * INNER * ITEM

    def needed(self, results: int) -> int:
        """Bytes at the worst moment, with so many results at a time."""
        return self.fixed_bytes + results * self.result_bytes

    def factors(self, seed: int) -> Tuple[HostArray, HostArray]:
        """(size, 64) each, of -1, 0 and 1: up to ``size`` 4000 and 50 products all sums are exact in float32."""
        random = onp.random.RandomState(seed)
        a, b = (random.randint(-1, 2, size=(self.size, INNER)).astype("float32") for _ in "ab")
        return a, b

    def serial(self, seed: int) -> Any:
        """The row sums (products, size) in NumPy's integers, one result after the other."""
        a, b = (factor.astype("int64") for factor in self.factors(seed))
        return onp.stack([((a + number) @ b.T).sum(axis=1) for number in range(self.products)])

    def run(self, device: Any, seed: int, pieces: List[Tuple[int, int]]) -> HostArray:
        """The row sums, piece by piece. Waits for each: only then is its memory free again."""
        from mxdp.backend import upload

        a, b = (upload(factor, device) for factor in self.factors(seed))
        # One array for all that is kept, from the start: small ones, kept between slices, would lie in the holes that
        # the slice before has left, and a result would no longer fit into them.
        kept = onp.full((self.products, self.size), onp.nan, "float32")
        for start, stop in pieces:
            self._piece(a, b, start, kept[start:stop])
        return kept

    def _piece(self, a: NDArray, b: NDArray, start: int, kept: HostArray) -> None:
        from mxdp.backend import npx

        factors = [a + number for number in range(start, start + len(kept))]
        results = [npx.fully_connected(each, b, num_hidden=self.size, no_bias=True) for each in factors]
        sums = [result.sum(axis=1) for result in results]
        npx.waitall()
        for row, each in zip(kept, sums):
            row[:] = each.asnumpy()

    def pieces(self, device: Any, limit: Optional[int], cut: bool) -> List[Tuple[int, int]]:
        """How to run it, if it may take ``limit`` bytes at most: whole, or with ``cut`` in slices that fit.

        Raises:
            MemoryShortage: it does not fit; with ``cut``: not even a slice of one result does.
        """
        from mxdp.memory import available_bytes, check_fits, slices

        try:
            check_fits(self.needed(self.products), device, limit)
        except MemoryShortage:
            if not cut:
                raise
            available = available_bytes(device)
            room = available if limit is None else min(limit, available)
            return slices(self.products, self.result_bytes, room - self.fixed_bytes)
        return [(0, self.products)]

    def refused(self, device: Any, limit: int) -> bool:
        """Would it be?"""
        try:
            self.pieces(device, limit, cut=False)
        except MemoryShortage:
            return True
        return False


@contextmanager
def at_most(nbytes: int) -> Iterator[None]:
    """Have the system refuse this process more than ``nbytes`` beyond what it has (``RLIMIT_DATA``), for the block.

    Where the system has no such limit, the block goes on without.
    """
    try:
        import resource

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
