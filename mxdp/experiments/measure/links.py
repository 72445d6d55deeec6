"""Copies between devices, timed and compared. Loads MXNet: import it inside ``oracle`` and ``run``."""

from __future__ import annotations

from typing import Sequence, Tuple

from mxdp.backend import Device, mx
from mxdp.experiments.measure.oracle import count_wrong, whole_numbers
from mxdp.plans.cost.link import Link, fit_link
from mxdp.prepared import prepare
from mxdp.timing import Timer

FEWEST, MOST, ENOUGH = 2, 200, 1 << 25
"""Copies in one measurement: as many as move ``ENOUGH`` bytes, but not fewer or more than these."""


PARTS = (1, 4, 16, 64)
"""A link is measured with a message that long as it is to be used for, with these parts of it, and with 4 bytes."""


class Copies:
    """One copy for each of ``pairs`` (from, to), all at the same time: arrays of their own, made ready.

    The time of a copy counts what a plan meets when it sends: MXNet's engine, and Python's call if that takes longer.

    Raises:
        ValueError: ``nbytes`` is not a positive multiple of 4, the bytes of a float32.
    """

    def __init__(self, pairs: Sequence[Tuple[Device, Device]], nbytes: int, seed: int) -> None:
        if nbytes < 4 or nbytes % 4:
            raise ValueError(f"arrays are of float32, so a size is 4, 8, 12 ... bytes, not {nbytes!r}")
        self.nbytes = nbytes
        self._sent = [whole_numbers(source.device_id, nbytes // 4, seed) for source, _ in pairs]
        sources = [mx.nd.array(sent, ctx=source) for sent, (source, _) in zip(self._sent, pairs)]
        self._targets = [mx.nd.zeros((nbytes // 4,), ctx=target) for _, target in pairs]
        self._calls = [prepare("_copyto", [source], target) for source, target in zip(sources, self._targets)]

    def seconds(self) -> float:
        """Mean time of one copy of each pair, in seconds. Waits at both ends, not between the copies of a pair: each
        writes the same array, and so comes after the one before by itself."""
        self._copy(1)
        repeats = max(FEWEST, min(MOST, ENOUGH // self.nbytes))
        timer = Timer()
        with timer:
            self._copy(repeats)
        return timer.times[-1] / repeats

    def compare(self) -> Tuple[int, int]:
        """Copy, wait, and compare every element that arrived with what was sent: (compared, wrong)."""
        self._copy(1)
        counts = [count_wrong(got.asnumpy(), sent, 0.0) for got, sent in zip(self._targets, self._sent)]
        return sum(checked for checked, _ in counts), sum(wrong for _, wrong in counts)

    def _copy(self, repeats: int) -> None:
        for _ in range(repeats):
            for call in self._calls:
                call()


def measured_link(source: Device, target: Device, nbytes: int, seed: int) -> Link:
    """The link from ``source`` to ``target``, for messages of up to ``nbytes`` bytes (at least 8). Waits."""
    sizes = sorted({4, *(max(4, nbytes // part // 4 * 4) for part in PARTS)})
    return fit_link([(each, Copies([(source, target)], each, seed).seconds()) for each in sizes])
