"""A machine, as the simulator sees it: what a copy, a sum and a push cost, and how many cores share the work.

:func:`mxdp.calibrate` measures these costs. :data:`CPU`, :data:`INTEL` and :data:`GPU` stand for them elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Sequence, Tuple

from mxdp.errors import plural
from mxdp.plans.collective.operations import Operation
from mxdp.plans.collective.schedule import COPY

Curve = Tuple[Tuple[float, float], ...]
"""Points (bytes in use on all devices, seconds a byte), by rising bytes. Memory that fits into a cache is faster."""


@dataclass(frozen=True)
class Rate:
    """Cost of one kind of operation: ``start`` seconds, and then seconds for each byte of its result, ``alone`` or
    ``together`` with an operation on every other core."""

    start: float
    alone: Curve
    together: Curve

    @property
    def bandwidth(self) -> str:
        """In words: of the largest arrays, alone."""
        return f"{1e-9 / self.alone[-1][1]:.3g} GB/s"

    def seconds(self, nbytes: float, footprint: float, others: bool) -> float:
        """For a result of ``nbytes``, with ``footprint`` bytes in use on all devices, beside ``others`` or alone."""
        curve = self.together if others else self.alone
        return self.start + nbytes * _at(curve, footprint)


def _at(curve: Curve, footprint: float) -> float:
    """Interpolate linearly over the logarithm of the bytes. Beyond an end of the curve, its last point counts."""
    if footprint <= curve[0][0]:
        return curve[0][1]
    for (x0, y0), (x1, y1) in zip(curve, curve[1:]):
        if footprint <= x1:
            return y0 + (y1 - y0) * math.log(footprint / x0) / math.log(x1 / x0)
    return curve[-1][1]


@dataclass(frozen=True)
class Machine:
    """Costs in seconds. ``push``: Python's time for one operation; ``copy``: between devices; ``add``: a sum of two
    arrays; ``add_more``: what each further array adds to it, as a share of it; ``cores``: shared by all operations."""

    push: float
    copy: Rate
    add: Rate
    add_more: float
    cores: int

    def __repr__(self) -> str:
        rates = f"copy {self.copy.bandwidth}, add {self.add.bandwidth}"
        return f"<Machine: push {1e6 * self.push:.3g} us, {rates}, {plural(self.cores, 'core')}>"

    def with_cores(self, cores: int) -> Machine:
        """This machine with another number of cores."""
        return replace(self, cores=cores)

    def seconds(self, operation: Operation, nbytes: float, footprint: float, others: bool) -> float:
        """Time of one operation whose result has ``nbytes`` bytes; the other arguments as for :meth:`Rate.seconds`."""
        if operation.action == COPY:
            return self.copy.seconds(nbytes, footprint, others)
        more = 1 + self.add_more * (len(operation.sources) - 2)
        return self.add.seconds(nbytes * more, footprint, others)


MIB = float(1 << 20)


def _curve(mebibytes: Sequence[float], *picoseconds: float) -> Curve:
    """Picoseconds a byte with each number of MiB in use."""
    return tuple((size * MIB, rate * 1e-12) for size, rate in zip(mebibytes, picoseconds))


_AMD = (4, 16, 48, 160, 320)
_INTEL = (0.5, 4, 16, 48, 320)

CPU = Machine(
    push=8e-6,
    copy=Rate(
        7e-6,
        alone=_curve(_AMD, 40, 38, 51, 54, 59),
        together=_curve(_AMD, 37, 41, 78, 90, 98),
    ),
    add=Rate(
        7e-6,
        alone=_curve(_AMD, 132, 131, 153, 151, 156),
        together=_curve(_AMD, 147, 135, 165, 159, 156),
    ),
    add_more=0.0,
    cores=2,
)
"""CPU devices: two cores of an AMD EPYC with 32 MB of third-level cache. The second lowest of seven calibrations; the
push was measured later, on two cores of an Intel Xeon (6.6 to 9.6 microseconds in plans of 6 to 432 operations)."""

INTEL = Machine(
    push=10e-6,
    copy=Rate(
        11e-6,
        alone=_curve(_INTEL, 13, 134, 139, 166, 246),
        together=_curve(_INTEL, 58, 151, 110, 184, 270),
    ),
    add=Rate(
        11e-6,
        alone=_curve(_INTEL, 204, 274, 226, 243, 323),
        together=_curve(_INTEL, 373, 328, 257, 290, 349),
    ),
    add_more=0.08,
    cores=2,
)
"""CPU devices: two cores of an Intel Xeon (family 6, model 207). The medians of nine calibrations."""

_PCIE = ((1.0, 1 / 16e9),)
_MEMORY = ((1.0, 3 / 900e9),)

GPU = Machine(
    push=4e-6,
    copy=Rate(10e-6, alone=_PCIE, together=_PCIE),
    add=Rate(10e-6, alone=_MEMORY, together=_MEMORY),
    add_more=1 / 3,
    cores=64,
)
"""GPUs. Not measured: the book's links of 16 GB/s, and a V100's data sheet (900 GB/s, three accesses a sum)."""
