"""ZeRO's stages, also called fully sharded data parallelism: what each device does with each layer, and what it holds.

All devices compute on a shard of the batch, with all layers. Each owns a k-th of every layer's numbers, and it holds
the rest only while that is needed. Three layers, stage 3; all devices do the same at the same time::

    layer 0   G F x                             G B R x U
    layer 1         G F x               G B R x           U
    layer 2               G F x G B R x                     U

``G`` gathers the layer's parameters from all devices, ``F`` and ``B`` are its forward and backward pass, ``x`` frees
what was gathered. ``R`` is a reduce-scatter: each device gets the sum of its k-th of the gradients, and frees the rest.
``U`` updates its k-th of the parameters. (x begins at once after F, so the last layer is gathered twice in a row.)

=====  ==============================  ====================================================  ==================
stage  a device holds 1 / k of         it holds whole                                        it sends, of N
=====  ==============================  ====================================================  ==================
0      nothing                         everything: plain data parallelism                    2 (k - 1) / k
1      the optimiser's state           parameters, gradients                                 2 (k - 1) / k
2      and the gradients               parameters, and one layer's gradients from B to R     2 (k - 1) / k
3      and the parameters              one layer's parameters from G to x, its gradients     3 (k - 1) / k
=====  ==============================  ====================================================  ==================

Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020; Zhao et
al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", VLDB 2023.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import List, Sequence, Tuple

from mxdp.plans.partition import bounds

GATHER = "G"
FORWARD = "F"
FREE = "x"
BACKWARD = "B"
REDUCE_SCATTER = "R"
ALL_REDUCE = "S"
UPDATE = "U"
STAGES = (
    "nothing",
    "the optimiser's state",
    "state and gradients",
    "state, gradients and parameters",
)
"""What is cut into one part for each device, by the stage's number."""
ADAM = 2
"""Numbers of the optimiser's state for each parameter."""


@dataclass(frozen=True)
class LayerTask:
    """What all devices do with one layer."""

    kind: str
    layer: int

    def __str__(self) -> str:
        return f"{self.kind}{self.layer}"


@dataclass(frozen=True)
class ShardedPlan:
    """``step``: the tasks up to the gradients' sums, and ``update``: those behind them, in their order."""

    name: str
    stage: int
    devices: int
    layers: int
    step: Tuple[LayerTask, ...]
    update: Tuple[LayerTask, ...]

    @property
    def tasks(self) -> Tuple[LayerTask, ...]:
        """``step`` and ``update``."""
        return self.step + self.update

    def __str__(self) -> str:
        return f"{self.name}: {' '.join(map(str, self.tasks))}"


@dataclass(frozen=True)
class Whole:
    """What a device holds of a layer as a whole, and not only its k-th; and whether its activations are kept."""

    parameters: bool
    gradients: bool
    activations: bool


def fully_sharded(layers: int, devices: int, stage: int = 3) -> ShardedPlan:
    """The plan of a stage; above is stage 3. Raises a ValueError for less than a layer or device, or no such stage.

    >>> print(fully_sharded(2, 4, stage=2))
    fully-sharded: F0 F1 B1 R1 B0 R0 U0 U1 G0 G1
    """
    if layers < 1 or devices < 1:
        raise ValueError(
            f"a plan has at least one layer and one device, not {layers} layers and {devices} devices"
        )
    if stage not in range(len(STAGES)):
        raise ValueError(f"there are the stages 0 (plain) to 3, not {stage!r}")
    # The letters of a layer's tasks, on the way there, on the way back, and in the two after it.
    forward, backward, sums, gathers = (
        ("F", "B", "S", ""),
        ("F", "B", "R", "G"),
        ("F", "BR", "", "G"),
        ("GFx", "GBRx", "", ""),
    )[stage]
    there = range(layers)
    back = there[::-1]
    step = _tasks(forward, there) + _tasks(backward, back) + _tasks(sums, back)
    update = _tasks(UPDATE, there) + _tasks(gathers, there)
    return ShardedPlan("fully-sharded", stage, devices, layers, step, update)


def holds(plan: ShardedPlan) -> List[Tuple[Whole, ...]]:
    """What a device holds of each layer: at the start, and after each task. What a task frees is there until its end,
    so between two tasks it is gone: during ``R`` the gradients are still whole, as before it."""
    layers = [Whole(plan.stage < 3, plan.stage < 2, False)] * plan.layers
    moments = [tuple(layers)]
    for task in plan.tasks:
        now = layers[task.layer]
        if plan.stage == 3 and task.kind in (GATHER, FREE):
            now = replace(now, parameters=task.kind == GATHER)
        if plan.stage > 1 and task.kind in (BACKWARD, REDUCE_SCATTER):
            now = replace(now, gradients=task.kind == BACKWARD)
        if task.kind in (FORWARD, BACKWARD):
            now = replace(now, activations=task.kind == FORWARD)
        layers[task.layer] = now
        moments.append(tuple(layers))
    return moments


def peak(plan: ShardedPlan, sizes: Sequence[int], state: int = ADAM, device: int = 0) -> int:
    """The most numbers that a device holds at a time: parameters, gradients, optimiser's state, and what is gathered.
    ``sizes``: of each layer's parameters; ``state``: numbers of the optimiser for each parameter.

    >>> [peak(fully_sharded(8, 4, stage), [100] * 8) for stage in (0, 1, 2, 3)]
    [3200, 2000, 1500, 1000]
    """
    part = 0  # of the numbers of all layers, what the device owns
    for size in sizes:
        start, stop = bounds(size, plan.devices)[device]
        part += stop - start
    kept = state * (part if plan.stage else sum(sizes))
    # From stage 2 on a device has its k-th of the gradients beside a layer's whole ones, from stage 3 on of the
    # parameters, too.
    kept += part * max(0, plan.stage - 1)
    most = 0
    for layers in holds(plan):
        parameters = sum(size for size, layer in zip(sizes, layers) if layer.parameters)
        gradients = sum(size for size, layer in zip(sizes, layers) if layer.gradients)
        most = max(most, parameters + gradients)
    return kept + most


def moved(plan: ShardedPlan, sizes: Sequence[int]) -> int:
    """Numbers that all devices together send in a step and its update: for a gather or a reduce-scatter, k - 1 times
    the layer's parameters.

    >>> [moved(fully_sharded(2, 2, stage), [6, 4]) for stage in (0, 1, 2, 3)]
    [20, 20, 20, 30]
    """
    times = {GATHER: 1, REDUCE_SCATTER: 1, ALL_REDUCE: 2}
    numbers = sum(times.get(task.kind, 0) * sizes[task.layer] for task in plan.tasks)
    return (plan.devices - 1) * numbers


def _tasks(kinds: str, layers: Sequence[int]) -> Tuple[LayerTask, ...]:
    """The tasks of each layer: ``kinds`` has a letter for each."""
    return tuple(LayerTask(kind, layer) for layer in layers for kind in kinds)
