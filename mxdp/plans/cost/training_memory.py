"""What a device must hold while it trains: parameters, gradients and the optimiser's state, whole or in shards.

::

                 parameters     gradients      state          each of k devices holds, of n parameters
    copies       |||||||||||    |||||||||||    |||||||||||    n (p + g + s) bytes
    stage 1      |||||||||||    |||||||||||    ||             n (p + g) + n s / k
    stage 2      |||||||||||    ||             ||             n p + n (g + s) / k, and g of the layer at work, whole
    stage 3      ||             ||             ||             n (p + g + s) / k, and p + g of that layer, whole

In float32 p = g = 4 bytes, and s is 0 (SGD), 4 (momentum) or 8 (Adam). In mixed precision p = g = 2, and the state has
the parameters once more, in float32: the optimiser updates these.

Stage 3 is PyTorch's "fully sharded data parallel". Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward
Training Trillion Parameter Models", SC 2020.
"""

from __future__ import annotations

from typing import Dict, Mapping, Sequence

STAGES = (0, 1, 2, 3)
"""0: each device has a copy of all."""
STATE: Mapping[str, int] = {"sgd": 0, "momentum": 4, "adam": 8}
"""Bytes a parameter of an optimiser's state, in float32."""
BYTES: Mapping[str, int] = {"float32": 4, "mixed": 2}
"""Of a parameter, a gradient and an activation."""


def held(
    parameters: float, devices: int, stage: int, optimizer: str = "adam", dtype: str = "float32"
) -> Dict[str, float]:
    """Bytes of a model with that many ``parameters`` on each of ``devices`` devices.

    >>> held(7e9, 8, stage=2)
    {'parameters': 28000000000.0, 'gradients': 3500000000.0, 'state': 7000000000.0}
    >>> [round(sum(held(7.5e9, 64, stage, dtype="mixed").values()) / 1e9, 1) for stage in STAGES]  # as the paper's
    [120.0, 31.4, 16.6, 1.9]
    """
    return _held(parameters, parameters / devices, stage, optimizer, dtype)


def held_by_layers(
    sizes: Sequence[int], devices: int, stage: int, optimizer: str = "adam", dtype: str = "float32"
) -> Dict[str, float]:
    """Bytes of a model whose layers have these numbers of parameters, on the first of ``devices`` devices, which has
    the largest parts. ``gathered``: of the largest layer, whole for a moment. All together are the peak of the stage's
    plan (:func:`mxdp.plans.layers.fully_sharded.peak`).

    >>> held_by_layers([100] * 8, 4, stage=3)
    {'parameters': 800, 'gradients': 800, 'state': 1600, 'gathered': 800}
    """
    part = sum(-(-size // devices) for size in sizes)
    kinds = _held(sum(sizes), part, stage, optimizer, dtype)
    # Stage 2 has the layer's gradients whole, stage 3 its parameters, too.
    whole_kinds = max(0, stage - 1)
    return {**kinds, "gathered": BYTES[dtype] * whole_kinds * max(sizes)}


def _held(
    whole: float,
    part: float,
    stage: int,
    optimizer: str,
    dtype: str,
) -> Dict[str, float]:
    """Bytes by kind, of ``whole`` numbers or of a device's ``part`` of them."""
    width = BYTES[dtype]
    state = STATE[optimizer]
    if dtype == "mixed":
        state += BYTES["float32"]  # the optimiser's own parameters
    # Bytes of a number, and the stage from which on a device has only its part of them.
    sizes = {"parameters": (width, 3), "gradients": (width, 2), "state": (state, 1)}
    kinds = {}
    for kind, (size, least) in sizes.items():
        numbers = part if stage >= least else whole
        kinds[kind] = size * numbers
    return kinds
