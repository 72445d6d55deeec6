"""Exercises on shards: of a batch, and of an optimiser's state."""

from __future__ import annotations

import random
from functools import partial
from itertools import permutations
from typing import Any, Dict, List, Sequence, Tuple

import numpy as onp

from mxdp import backend
from mxdp.errors import plural
from mxdp.exercises.exchanges import dimensions
from mxdp.exercises.trial import (
    Exercise,
    Trial,
    Values,
    by_device,
    differing,
    digits,
    frugal,
    listed,
    misfit,
    returned,
    uneven,
    uploaded,
)
from mxdp.plans.partition import bounds

SHARDS = (
    "to each device the gradients of that device's shard, and its own shard of the new parameters"
)
PARTED = "The replicas differ: each shard of the new parameters must reach every device."

SPLITS = [([0, 1], (4,)), ([0, 1, 2], (7,)), ([0, 1], (5, 2)), ([0, 1, 2], (2,)), ([0], (3,))]


def _drawn_shards(draw: random.Random) -> Tuple[List[int], Tuple[int, ...], str]:
    devices = draw.randint(1, 7)
    shape = (draw.randint(1, 3 * devices), *dimensions(draw))
    return draw.sample(range(devices), devices), shape, draw.choice(["float32", "int32"])


@partial(Exercise, 3, "split with a remainder", SPLITS, _drawn_shards)
def split_and_load(
    order: Sequence[int], shape: Tuple[int, ...], dtype: str = "float32", factor: int = 1
) -> Trial:
    """Shards of a batch, the longer first. Shard k belongs on ``cpu(order[k])``."""
    x, devices = factor * onp.arange(1, onp.prod(shape) + 1, dtype=dtype).reshape(shape), len(order)
    places = [f"cpu({device})" for device in order]
    of = f"{plural(len(x), 'sample')}{' of ' * (x.ndim > 1)}{' x '.join(map(str, shape[1:]))}"
    title = f"{of}, {dtype}, on {', '.join(places)}{uneven('shard', len(x), devices)}"
    expected = listed("shard", onp.array_split(x, devices), places)
    planned = {(0, k): shard.size for k, shard in zip(order, expected.values()) if k and shard.size}

    def run(function: Any) -> Values:
        contexts = backend.devices(devices, "cpu")
        return returned(
            "shard",
            function(backend.upload(x, contexts[0]), [contexts[device] for device in order]),
        )

    hint, judge = partial(misfit, expected, ""), partial(frugal, planned, "send its shard alone")
    given = {"x on cpu(0)": x, "devices": ", ".join(places)}
    return Trial(title, given, expected, run, _wrong_shards(x, devices), hint, planned, judge)


def _wrong_shards(x: Any, devices: int) -> Dict[str, List[Any]]:
    """The shards that a usual mistake makes, by its hint."""
    n = len(x)
    short, long, rest = n // devices, -(-n // devices), n % devices
    even, late = [short] * (devices - 1), [short] * (devices - rest) + [long] * rest
    lost, to_last, to_first, longer_last, rounded_up = (
        onp.split(x, onp.cumsum(lengths))[:devices]
        for lengths in (
            [short] * devices,
            [*even, short + rest],
            [short + rest, *even],
            late,
            [long] * devices,
        )
    )
    dealt = [x[place::devices] for place in range(devices)]
    return {
        f"{n} samples on {devices} devices leave a remainder of {rest}, which is lost: every sample must be in one "
        "shard.": lost,
        "The last device has all of the remainder. Give one sample more to each of the first devices.": to_last,
        "The first device has all of the remainder. Give one sample more to each of the first devices.": to_first,
        "The longer shards come last. Here, as in NumPy's array_split, they come first.": longer_last,
        "Each shard but the last is as long as the first: the last one has too little to do. Shards differ by at most "
        "one sample.": rounded_up,
        "The samples are dealt out like cards. A shard is a run of samples that lie side by side.": dealt,
        f"Every device has the whole batch. Give each a shard of {short} or {long} samples.": [x]
        * devices,
    }


RATES = dict(lr=0.1, momentum=0.5, batch_size=4)


def _drawn_rates(draw: random.Random) -> Tuple[int, int, int, int, Dict[str, float]]:
    devices, steps, slope = draw.randint(1, 6), draw.randint(1, 3), draw.randint(1, 9)
    rates = dict(
        lr=draw.randint(1, 9) / 16, momentum=draw.randint(1, 9) / 10, batch_size=draw.randint(1, 40)
    )
    return devices, draw.randint(1, 4 * devices), steps, slope, rates


@partial(
    Exercise,
    10,
    "sharded optimiser step",
    [(2, 4, 1), (3, 6, 1), (3, 5, 1), (3, 2, 1), (2, 4, 2)],
    _drawn_rates,
)
def sharded_step(
    devices: int,
    length: int,
    steps: int,
    slope: int = 0,
    rates: Dict[str, float] = RATES,
    factor: int = 1,
) -> Trial:
    """SGD with momentum, each device with the velocity of its shard alone: 1, 1 + ``slope`` and so on, at first."""
    lr, momentum, batch_size = rates.values()
    cut = uneven("shard", length, devices)
    title = f"{plural(devices, 'device')}, {plural(length, 'number')}, {plural(steps, 'step')}{cut}"
    grads, shards = (
        factor * digits(devices, length),
        [slice(*border) for border in bounds(length, devices)],
    )
    start, held, mean = (
        factor * onp.arange(1.0, length + 1),
        onp.zeros_like(grads),
        grads.sum(axis=0) / batch_size,
    )
    old = factor * (1 + slope * onp.arange(float(length)))
    for device, shard in enumerate(shards):
        held[device, shard] = 1

    def after(gradient: Any, reached: Any = 1, keep: bool = True) -> List[Any]:
        """``reached``: 1 where a device gets new parameters."""
        params, velocity = onp.tile(start, (devices, 1)), old
        for _ in range(steps):
            new = momentum * velocity + gradient
            params, velocity = params - lr * new * reached, new if keep else velocity
        return [*params, *(velocity[shard] for shard in shards)]

    unchanged = after(mean, 0, keep=False)
    mistakes = {
        "Nothing has changed. Write into the arrays that were given: `x -= ...`, `y.copyto(x)`.": unchanged,
        "Each device has new parameters in its own shard alone. Send them to the others: the all-gather is "
        "missing.": after(mean, held),
        "Each device used its own gradient. Its shard needs the sum of all devices' gradients: the reduce-scatter is "
        "missing.": after((held * grads).sum(axis=0) / batch_size),
        "Gradients are divided by the batch, and once more by the devices: they are summed.": after(
            mean / devices
        ),
        "The summed gradient is not divided by batch_size.": after(mean * batch_size),
        "The parameters move as they should in the first step, but the velocity is as it was. Write it into the array "
        "that was given, or the next step lacks it.": after(mean, keep=False),
    }

    labels = [*by_device(shards, "parameters on "), *by_device(shards, "velocity on ")]

    def run(function: Any) -> Values:
        params, velocities = uploaded([start] * devices), uploaded([old[shard] for shard in shards])
        for _ in range(steps):
            function(list(params), uploaded(grads), list(velocities), lr, momentum, batch_size)
        return dict(zip(labels, (x.asnumpy() for x in (*params, *velocities))))

    given: Values = {
        **by_device(grads, "gradient on "),
        "parameters everywhere": start,
        "velocity everywhere": old,
    }
    # To each device the gradients of its shard, and the sender's shard of the parameters.
    lengths = [len(old[shard]) for shard in shards]
    planned = {
        (a, b): steps * (lengths[a] + lengths[b]) for a, b in permutations(range(devices), 2)
    }
    most = steps * (
        length + (devices - 2) * lengths[0]
    )  # by the device of the longest shard; a ring may, too
    judge = partial(frugal, planned, SHARDS, most=[most] * devices)
    hint, expected = partial(differing, "parameters", PARTED), dict(zip(labels, after(mean)))
    return Trial(title, {**given, **rates}, expected, run, mistakes, hint, planned, judge)
