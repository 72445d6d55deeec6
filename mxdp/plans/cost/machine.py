"""Speeds to plan with where nothing was measured: ``auto`` works with them.

``mxdp.collectives.calibrate`` measures those of the machine at hand, and the experiments plan with what it finds.
"""

from __future__ import annotations

from mxdp.plans.cost.simulate import Curve, Machine, Rate

MIB = float(1 << 20)


def _curve(*picoseconds: float) -> Curve:
    """Picoseconds a byte with 4, 16, 48, 160 and 320 MiB in use."""
    return tuple((size * MIB, rate * 1e-12) for size, rate in zip((4, 16, 48, 160, 320), picoseconds))


CPU = Machine(
    push=4e-6,
    copy=Rate(7e-6, alone=_curve(40, 38, 51, 54, 59), together=_curve(37, 41, 78, 90, 98)),
    add=Rate(7e-6, alone=_curve(132, 131, 153, 151, 156), together=_curve(147, 135, 165, 159, 156)),
    add_more=0.0,
    cores=2,
    measured_on="two cores of an AMD EPYC with 32 MB of third-level cache",
)
"""CPU devices. Measured by ``calibrate``; the second lowest of seven runs."""

_PCIE, _MEMORY = ((1.0, 1 / 16e9),), ((1.0, 3 / 900e9),)

GPU = Machine(
    push=4e-6,
    copy=Rate(10e-6, alone=_PCIE, together=_PCIE),
    add=Rate(10e-6, alone=_MEMORY, together=_MEMORY),
    add_more=1 / 3,
    cores=64,
    measured_on="nothing: the book's links of 16 GB/s, and a V100's data sheet (900 GB/s, three accesses a sum)",
)
"""GPUs. Not measured: a guess that ranks plans by their operations and bytes."""
