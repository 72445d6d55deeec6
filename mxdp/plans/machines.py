"""Speeds to plan with where nothing was measured: ``auto`` works with them.

``mxdp.collectives.calibrate`` measures those of the machine at hand.
"""

from __future__ import annotations

from mxdp.plans.replay import Machine, Rate

_flat = ((1.0, 1e-10),)
CPU = Machine(4e-6, Rate(4e-6, _flat, _flat), Rate(4e-6, _flat, _flat), 0.0, 2)
GPU = CPU
