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

FEWEST = 2
MOST = 200
ENOUGH = 1 << 25
"""Copies in one measurement: enough to move ``ENOUGH`` bytes, within these limits."""


class Copies:
    """One copy for each of ``pairs`` (from, to), all at the same time, of ``nbytes``, a multiple of 4 (float32). A
    copy's time is what a plan pays to send: MXNet's engine, or Python's call if that takes longer."""

    def __init__(self, pairs: Sequence[Tuple[Device, Device]], nbytes: int, seed: int) -> None:
        self._sent = []
        self._targets = []
        self._calls = []
        for source, target in pairs:
            sent = whole_numbers(source.device_id, nbytes // 4, seed)
            got = mx.nd.zeros(sent.shape, ctx=target)
            self._sent.append(sent)
            self._targets.append(got)
            self._calls.append(prepare("_copyto", [mx.nd.array(sent, ctx=source)], got))

    def seconds(self) -> float:
        """Mean time of one copy of each pair, in seconds. Waits at both ends: a pair's copies follow one another."""
        self._copy(1)
        repeats = max(FEWEST, min(MOST, ENOUGH // self._sent[0].nbytes))
        return timed(lambda: self._copy(repeats)) / repeats

    def compare(self) -> Iterator[Tuple[HostArray, HostArray, float]]:
        """Copy, wait, and yield what arrived with what was sent, as an oracle does."""
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
    points = []
    for size in (4, nbytes // 64, nbytes // 16, nbytes // 4, nbytes):
        points.append((size, Copies([(source, target)], size, seed).seconds()))
    return fit_link(points)


@lru_cache(maxsize=None)
def calibrated(devices: Tuple[Device, ...]) -> Machine:
    """The machine's speeds, measured once a process. Waits."""
    return calibrate(devices)
