"""Copies between devices, timed and compared; and the speeds of the machine."""

from __future__ import annotations

from functools import lru_cache
from typing import Iterator, Sequence, Tuple

from mxdp.backend import Device, HostArray, mx
from mxdp.collectives.calibration import calibrate
from mxdp.engine import prepare
from mxdp.experiments.devices import timed
from mxdp.experiments.oracle import whole_numbers
from mxdp.plans.cost.link import Link, fit_link
from mxdp.plans.cost.machine import Machine

FEWEST, MOST, ENOUGH = 2, 200, 1 << 25
"""Copies in one measurement: enough to move ``ENOUGH`` bytes, within these limits."""


class Copies:
    """One copy for each of ``pairs`` (from, to), all at the same time, of ``nbytes``, a multiple of 4 (float32). A
    copy's time is what a plan pays to send: MXNet's engine, or Python's call if that takes longer."""

    def __init__(self, pairs: Sequence[Tuple[Device, Device]], nbytes: int, seed: int) -> None:
        self._sent = [whole_numbers(source.device_id, nbytes // 4, seed) for source, _ in pairs]
        sources = [mx.nd.array(sent, ctx=source) for sent, (source, _) in zip(self._sent, pairs)]
        self._targets = [mx.nd.zeros((nbytes // 4,), ctx=target) for _, target in pairs]
        self._calls = [
            prepare("_copyto", [source], target) for source, target in zip(sources, self._targets)
        ]

    def seconds(self) -> float:
        """Mean time of one copy of each pair, in seconds. Waits at both ends: a pair's copies follow one another."""
        self._copy(1)
        repeats = max(FEWEST, min(MOST, ENOUGH // self._sent[0].nbytes))
        return timed(lambda: self._copy(repeats)) / repeats

    def compare(self) -> Iterator[Tuple[HostArray, HostArray, float]]:
        """For an oracle: copy, wait, and yield what arrived with what was sent."""
        self._copy(1)
        for got, sent in zip(self._targets, self._sent):
            yield got.asnumpy(), sent, 0.0

    def _copy(self, repeats: int) -> None:
        for _ in range(repeats):
            for call in self._calls:
                call()


@lru_cache(maxsize=None)
def measured_link(source: Device, target: Device, nbytes: int, seed: int) -> Link:
    """The link from ``source`` to ``target``, measured once a process: with 4 bytes, ``nbytes`` (a multiple of 256),
    and a 64th, a 16th and a 4th of that. Waits."""
    sizes = (4, *(nbytes // part for part in (64, 16, 4, 1)))
    return fit_link([(size, Copies([(source, target)], size, seed).seconds()) for size in sizes])


@lru_cache(maxsize=None)
def calibrated(devices: Tuple[Device, ...]) -> Machine:
    """The machine's speeds, measured once a process. Waits."""
    return calibrate(devices)
