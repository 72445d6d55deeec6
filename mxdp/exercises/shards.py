"""Exercises on what is cut over the devices: a batch, a picture (in tiles, with halos), an optimiser's state."""

from __future__ import annotations

import random
from functools import partial
from itertools import permutations
from typing import Any, Dict, Iterable, List, Sequence, Tuple

import numpy as onp

from mxdp import backend
from mxdp.errors import plural
from mxdp.exercises.exchanges import dimensions
from mxdp.exercises.trial import (
    Exercise,
    Mistakes,
    Sizes,
    Trial,
    Values,
    by_device,
    counted,
    differing,
    digits,
    frugal,
    in_place,
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

SPLITS = [
    ([0, 1], (4,)),
    ([0, 1, 2], (7,)),
    ([0, 1], (5, 2)),
    ([0, 1, 2], (2,)),
    ([0], (3,)),
]


def _drawn_shards(draw: random.Random) -> Sizes:
    devices = draw.randint(1, 7)
    shape = (draw.randint(1, 3 * devices), *dimensions(draw))
    return draw.sample(range(devices), devices), shape, draw.choice(["float32", "int32"])


@partial(Exercise, 3, "split with a remainder", SPLITS, _drawn_shards)
def split_and_load(
    order: Sequence[int], shape: Tuple[int, ...], dtype: str = "float32", factor: int = 1
) -> Trial:
    """Shards of a batch, the longer first. Shard k belongs on ``cpu(order[k])``."""
    samples = counted(shape, dtype) * factor
    devices = len(order)
    places = [f"cpu({device})" for device in order]
    of = plural(len(samples), "sample")
    if len(shape) > 1:
        of += f" of {' x '.join(map(str, shape[1:]))}"
    shards = onp.array_split(samples, devices)
    expected = listed("shard", shards, places)
    planned = {}
    for device, shard in zip(order, shards):
        if device and shard.size:
            planned[0, device] = shard.size

    def run(function: Any) -> Values:
        contexts = backend.devices(devices, "cpu")
        x = backend.upload(samples, contexts[0])
        return returned("shard", function(x, [contexts[device] for device in order]))

    return Trial(
        f"{of}, {dtype}, on {', '.join(places)}{uneven('shard', len(samples), devices)}",
        given={"x on cpu(0)": samples, "devices": ", ".join(places)},
        expected=expected,
        run=run,
        mistakes=_wrong_shards(samples, devices),
        hint=partial(misfit, expected, ""),
        planned=planned,
        judge=partial(frugal, planned, "send its shard alone"),
    )


def _wrong_shards(x: Any, devices: int) -> Mistakes:
    """The shards that a usual mistake makes, by its hint."""
    n = len(x)
    short = n // devices
    long = -(-n // devices)
    rest = n % devices
    others = [short] * (devices - 1)
    late = [short] * (devices - rest) + [long] * rest

    def cut(lengths: List[int]) -> List[Any]:
        return onp.split(x, onp.cumsum(lengths))[:devices]

    whole = [x] * devices
    return {
        f"{n} samples on {devices} devices leave a remainder of {rest}, which is lost: every sample must be in one "
        "shard.": cut([short] * devices),
        "The last device has all of the remainder. Give one sample more to each of the first "
        "devices.": cut([*others, short + rest]),
        "The first device has all of the remainder. Give one sample more to each of the first "
        "devices.": cut([short + rest, *others]),
        "The longer shards come last. Here, as in NumPy's array_split, they come first.": cut(late),
        "Each shard but the last is as long as the first: the last one has too little to do. Shards differ by at most "
        "one sample.": cut([long] * devices),
        "The samples are dealt out like cards. A shard is a run of samples that lie side by "
        "side.": [x[place::devices] for place in range(devices)],
        f"Every device has the whole batch. Give each a shard of {short} or {long} samples.": whole,
    }


TILES = [
    ([2, 2], 1),
    ([3, 3, 3], 1),
    ([3, 3, 3], 2),
    ([3, 2], 1),
    ([2], 1),
]


def _drawn_tiles(draw: random.Random) -> Sizes:
    halo = draw.randint(1, 3)
    heights = [draw.randint(halo, halo + 3) for _ in range(draw.randint(2, 6))]
    return heights, halo, (2, *dimensions(draw)[1:])


@partial(Exercise, 8, "halo exchange", TILES, _drawn_tiles)
def exchange_halos(
    heights: Sequence[int], halo: int, inner: Tuple[int, ...] = (2,), factor: int = 1
) -> Trial:
    """Tiles of these heights, whose rows have the shape ``inner``, each with halos above and below."""
    devices = len(heights)
    rows_of = f"{', '.join(map(str, heights))} rows of {' x '.join(map(str, inner))}"
    title = f"{plural(devices, 'tile')} of {rows_of}, halo of {plural(halo, 'row')}"
    columns = onp.arange(onp.prod(inner), dtype="float32").reshape(inner) / 10
    inside = []
    for tile, height in enumerate(heights, 1):
        inside.append(factor * (10 * tile + onp.add.outer(onp.arange(height), columns)))
    first = [rows[:halo] for rows in inside]
    last = [rows[-halo:] for rows in inside]

    def tiles(
        above: Sequence[Any], below: Sequence[Any], top: Any = 0, bottom: Any = 0
    ) -> List[Any]:
        """Each tile with its halos: ``above`` are those of all but the first tile, ``below`` of all but the last."""
        whole = []
        for rows, high, low in zip(inside, [top, *above], [*below, bottom]):
            tile = onp.zeros((len(rows) + 2 * halo, *inner), "float32")
            tile[:halo] = high
            tile[halo:-halo] = rows
            tile[-halo:] = low
            whole.append(tile)
        return whole

    old_above = [-1.0] * (devices - 1)
    old_below = [-2.0] * (devices - 1)
    given = tiles(old_above, old_below)
    above_alone = tiles(last[:-1], old_below)
    below_alone = tiles(old_above, first[1:])
    as_a_ring = tiles(last[:-1], first[1:], last[-1], first[0])
    mistakes = {
        "No halo was filled. Write into the tiles: `tile[:halo] = rows.as_in_ctx(tile.ctx)`.": given,
        "The old halos travelled. Send a neighbour's own rows: they begin after its halo, at `tile[halo:]`, and end "
        "before it, at `tile[:-halo]`.": tiles(old_below, old_above),
        "The halos above are filled, those below are not. Rows travel both ways.": above_alone,
        "The halos below are filled, those above are not. Rows travel both ways.": below_alone,
        "The rows come from the far end of the neighbour. A tile needs the rows next to the border: the last of the "
        "tile above, the first of the tile below.": tiles(first[:-1], last[1:]),
        "The first and the last tile exchange rows, too. A picture is no ring: outside it, halos stay zero.": as_a_ring,
    }
    planned = {}
    for tile in range(1, devices):
        planned[tile - 1, tile] = planned[tile, tile - 1] = halo * columns.size
    return Trial(
        title,
        given={**by_device(given), "halo": halo},
        expected=by_device(tiles(last[:-1], first[1:])),
        run=partial(in_place, given, [halo]),
        mistakes=mistakes,
        planned=planned,
        judge=partial(frugal, planned, "send the rows of the halo alone"),
    )


RATES = dict(lr=0.1, momentum=0.5, batch_size=4)


def _drawn_rates(draw: random.Random) -> Sizes:
    devices = draw.randint(1, 6)
    steps = draw.randint(1, 3)
    slope = draw.randint(1, 9)
    rates = dict(
        lr=draw.randint(1, 9) / 16,
        momentum=draw.randint(1, 9) / 10,
        batch_size=draw.randint(1, 40),
    )
    return devices, draw.randint(1, 4 * devices), steps, slope, rates


STEPS = [
    (2, 4, 1),
    (3, 6, 1),
    (3, 5, 1),
    (3, 2, 1),
    (2, 4, 2),
]


@partial(Exercise, 10, "sharded optimiser step", STEPS, _drawn_rates)
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
    grads = factor * digits(devices, length)
    start = factor * onp.arange(1.0, length + 1)
    old = factor * (1 + slope * onp.arange(float(length)))

    def run(function: Any) -> Values:
        params = uploaded([start] * devices)
        velocities = uploaded(onp.array_split(old, devices))
        for _ in range(steps):
            function(list(params), uploaded(grads), list(velocities), lr, momentum, batch_size)
        return _states([x.asnumpy() for x in params], [x.asnumpy() for x in velocities])

    right, mistakes = _sharded_steps(start, old, grads, steps, rates)
    # To each device the gradients of its shard, and the sender's shard of the parameters.
    lengths = [behind - first for first, behind in bounds(length, devices)]
    planned = {}
    for a, b in permutations(range(devices), 2):
        planned[a, b] = steps * (lengths[a] + lengths[b])
    # By the device of the longest shard; a ring may, too.
    most = steps * (length + (devices - 2) * lengths[0])
    title = f"{plural(devices, 'device')}, {plural(length, 'number')}, {plural(steps, 'step')}"
    return Trial(
        title + uneven("shard", length, devices),
        given={
            **by_device(grads, "gradient on "),
            "parameters everywhere": start,
            "velocity everywhere": old,
            **rates,
        },
        expected=right,
        run=run,
        mistakes={hint: states.values() for hint, states in mistakes.items()},
        hint=partial(differing, "parameters", PARTED),
        planned=planned,
        judge=partial(frugal, planned, SHARDS, most=[most] * devices),
    )


def _states(params: Iterable[Any], velocities: Iterable[Any]) -> Values:
    """What the devices hold at the end."""
    return {**by_device(params, "parameters on "), **by_device(velocities, "velocity on ")}


def _sharded_steps(
    start: Any, old: Any, grads: Any, steps: int, rates: Dict[str, float]
) -> Tuple[Values, Dict[str, Values]]:
    """The right result, and the results of the usual mistakes, by their hints. ``start``: the first parameters;
    ``old``: the first velocity."""
    lr, momentum, batch_size = rates.values()
    devices, length = grads.shape
    held = onp.zeros_like(grads)  # 1 where a device has a shard
    for device, (first, behind) in enumerate(bounds(length, devices)):
        held[device, first:behind] = 1

    def after(gradient: Any, reached: Any = 1, keep: bool = True) -> Values:
        """``reached``: 1 where a device gets new parameters; ``keep``: the velocity, too, is that of the last step."""
        params = onp.tile(start, (devices, 1))
        velocity = old
        for _ in range(steps):
            new = momentum * velocity + gradient
            params = params - lr * new * reached
            if keep:
                velocity = new
        return _states(params, onp.array_split(velocity, devices))

    mean = grads.sum(axis=0) / batch_size
    own = (held * grads).sum(axis=0) / batch_size
    return after(mean), {
        "Nothing has changed. Write into the arrays that were given: `x -= ...`, "
        "`y.copyto(x)`.": after(mean, 0, keep=False),
        "Each device has new parameters in its own shard alone. Send them to the others: the all-gather is "
        "missing.": after(mean, held),
        "Each device used its own gradient. Its shard needs the sum of all devices' gradients: the reduce-scatter is "
        "missing.": after(own),
        "Gradients are divided by the batch, and once more by the devices: they are summed.": after(
            mean / devices
        ),
        "The summed gradient is not divided by batch_size.": after(mean * batch_size),
        "The parameters move as they should in the first step, but the velocity is as it was. Write it into the array "
        "that was given, or the next step lacks it.": after(mean, keep=False),
    }
