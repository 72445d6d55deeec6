"""Exercises on shards: of a batch, and of an optimiser's state."""

from __future__ import annotations

import random
from functools import partial
from itertools import permutations
from typing import Any, Dict, Iterable, List, Sequence, Tuple

import numpy as onp

from mxdp import backend
from mxdp.errors import plural
from mxdp.exercises.trial import (
    Moves,
    Trial,
    Trials,
    Values,
    Wrong,
    as_planned,
    by_device,
    differing,
    frugal,
    uneven,
    uploaded,
)
from mxdp.plans.partition import bounds

RATES: Dict[str, float] = dict(lr=0.1, momentum=0.5, batch_size=4)
SHARD = "send its shard alone"
PARTED = "The replicas differ: each shard of the new parameters must reach every device."
SHARDS = "to each device the gradients of that device's shard, and its own shard of the new parameters"


def split_and_load(draw: random.Random) -> Trials:
    """Shards of a batch, the longer first."""
    sizes = [((4,), 2), ((7,), 3), ((5, 2), 2), ((2,), 3), ((3,), 1)]
    others = []
    for devices in (1, 2, 3, 4, 4, 5, 5, 6, 6, 7):
        for samples in (devices * draw.randint(0, 3) + draw.randint(1, devices), draw.randint(1, devices)):
            shape = (samples, *(draw.randint(1, 3) for _ in range(draw.randint(0, 3))))
            order, dtype = draw.sample(range(devices), devices), draw.choice(["float32", "int32"])
            others.append(_split(shape, order, dtype))
    return [_split(shape, range(devices)) for shape, devices in sizes], others


def _split(shape: Tuple[int, ...], order: Sequence[int], dtype: str = "float32") -> Trial:
    """Shard k belongs on ``cpu(order[k])``."""
    x = onp.arange(1, onp.prod(shape) + 1, dtype=dtype).reshape(shape)
    places = [f"cpu({device})" for device in order]
    of = f"{plural(len(x), 'sample')}{' of ' * (x.ndim > 1)}{' x '.join(map(str, shape[1:]))}"
    title = f"{of}, {dtype}, on {', '.join(places)}{uneven('shard', len(x), len(places))}"

    def labelled(shards: Sequence[Any], contexts: Sequence[Any]) -> Values:
        return {
            f"shard {place} on {context}, {shard.dtype}": shard
            for place, (shard, context) in enumerate(zip(shards, contexts))
        }

    borders = bounds(len(x), len(order))
    right = [x[start:stop] for start, stop in borders]
    mistakes = {text: labelled(shards, places) for text, shards in _wrong_shards(x, len(order)).items()}
    mistakes["All shards are right and lie on cpu(0). Copy each to its device."] = labelled(
        right, ["cpu(0)"] * len(order)
    )
    planned = {(0, k): shard.size for k, shard in zip(order, right) if k and shard.size}

    def hint(got: Values) -> str:
        if not all(label.endswith(dtype) for label in got):
            return f"x is {dtype}, and so must its shards be."
        shapes = [", ".join(str(shard.shape) for shard in shards) for shards in (got.values(), right)]
        return f"The shapes are {shapes[0]}. They must be {shapes[1]}, on {', '.join(places)}."

    def run(function: Any) -> Values:
        contexts = backend.devices(len(order), "cpu")
        shards = function(backend.upload(x, contexts[0]), [contexts[device] for device in order])
        if not isinstance(shards, (list, tuple)) or not all(hasattr(shard, "ctx") for shard in shards):
            kind = "nothing" if shards is None else f"a {type(shards).__name__}"
            raise Wrong(f"It returns {kind}: return a list with an array for each device.")
        return labelled([shard.asnumpy() for shard in shards], [shard.ctx for shard in shards])

    given = {"x on cpu(0)": x, "devices": ", ".join(places)}
    judge = partial(as_planned, planned, SHARD)
    return Trial(title, given, labelled(right, places), run, mistakes, hint, planned, judge)


def _wrong_shards(x: Any, devices: int) -> Dict[str, List[Any]]:
    """The shards that a usual mistake makes, by its hint."""
    n, places = len(x), range(devices)
    short, long, rest = n // devices, -(-n // devices), n % devices
    even = [short] * devices
    first, last = [short + rest, *even[1:]], [*even[1:], short + rest]
    late = [short + (place >= devices - rest) for place in places]

    def cut(lengths: Sequence[int]) -> List[Any]:
        return [x[sum(lengths[:place]) : sum(lengths[: place + 1])] for place in places]

    return {
        f"{n} samples on {devices} devices leave a remainder of {rest}, which is lost: every sample must be in one "
        "shard.": cut(even),
        "The last device has all of the remainder. Give one sample more to each of the first devices.": cut(last),
        "The first device has all of the remainder. Give one sample more to each of the first devices.": cut(first),
        "The longer shards come last. Here, as in NumPy's array_split, they come first.": cut(late),
        "Each shard but the last is as long as the first: the last one has too little to do. Shards differ by at most "
        "one sample.": [x[place * long : (place + 1) * long] for place in places],
        "The samples are dealt out like cards. A shard is a run of samples that lie side by side.": [
            x[place::devices] for place in places
        ],
        f"Every device has the whole batch. Give each a shard of {short} or {long} samples.": [x] * devices,
    }


def sharded_step(draw: random.Random) -> Trials:
    """SGD with momentum, each device with the velocity of its shard alone."""
    chosen = []
    for length, devices, steps in ((4, 2, 1), (6, 3, 1), (5, 3, 1), (2, 3, 1), (4, 2, 2)):
        grads = onp.outer(10.0 ** onp.arange(devices), onp.arange(1, length + 1))
        chosen.append(_sharded_step(grads, onp.ones(length), steps, RATES))
    others = []
    for devices in (1, 2, 3, 3, 4, 4, 5, 6):
        length, steps = draw.randint(1, 4 * devices), draw.randint(1, 3)
        rates = dict(lr=draw.randint(1, 9) / 16, momentum=draw.randint(1, 9) / 10, batch_size=draw.randint(1, 40))
        *rows, old = onp.array([[float(draw.randint(-99, 99)) for _ in range(length)] for _ in range(devices + 1)])
        others.append(_sharded_step(onp.array(rows), old, steps, rates))
    return chosen, others


def _sharded_step(grads: Any, old: Any, steps: int, rates: Dict[str, float]) -> Trial:
    """``grads`` (devices, length); ``old``: the velocity, whose shards are given to the devices."""
    lr, momentum, batch_size = rates.values()
    devices, length = grads.shape
    cut = uneven("shard", length, devices)
    title = f"{plural(devices, 'device')}, {plural(length, 'number')}, {plural(steps, 'step')}{cut}"
    shards = [slice(*border) for border in bounds(length, devices)]
    start, held, mean = onp.arange(1.0, length + 1), onp.zeros_like(grads), grads.sum(axis=0) / batch_size
    for device, shard in enumerate(shards):
        held[device, shard] = 1

    def after(gradient: Any, reached: Any = 1, keep: bool = True) -> Values:
        """``reached``: 1 where a device gets new parameters."""
        params, velocity = onp.tile(start, (devices, 1)), old
        for _ in range(steps):
            new = momentum * velocity + gradient
            params, velocity = params - lr * new * reached, new if keep else velocity
        return _state(params, [velocity[shard] for shard in shards])

    unchanged, twice = after(mean, 0, keep=False), after(mean / devices)
    mistakes = {
        "Nothing has changed. Write into the arrays that were given: `x -= ...`, `y.copyto(x)`.": unchanged,
        "Each device has new parameters in its own shard alone. Send them to the others: the all-gather is missing.": (
            after(mean, held)
        ),
        "Each device used its own gradient. Its shard needs the sum of all devices' gradients: the reduce-scatter is "
        "missing.": after((held * grads).sum(axis=0) / batch_size),
        "Gradients are divided by the batch once more than they should be, by the devices: they are summed.": twice,
        "The summed gradient is not divided by batch_size.": after(mean * batch_size),
        "The parameters move as they should in the first step, but the velocity is as it was. Write it into the array "
        "that was given, or the next step lacks it.": after(mean, keep=False),
    }

    def run(function: Any) -> Values:
        params, velocities = uploaded([start] * devices), uploaded([old[shard] for shard in shards])
        for _ in range(steps):
            function(list(params), uploaded(grads), list(velocities), lr, momentum, batch_size)
        return _state([x.asnumpy() for x in params], [x.asnumpy() for x in velocities])

    given: Values = {**by_device(grads, "gradient on "), "parameters everywhere": start, "velocity everywhere": old}
    planned, most = _moves([len(old[shard]) for shard in shards], steps)
    hint = partial(differing, ["parameters"], PARTED)
    judge = partial(frugal, [most] * devices, sum(planned.values()), SHARDS)  # a ring may, too
    return Trial(title, {**given, **rates}, after(mean), run, mistakes, hint, planned, judge)


def _moves(lengths: Sequence[int], steps: int) -> Tuple[Moves, int]:
    """To each device the gradients of its shard, and the sender's shard of the parameters; and the most that one sends,
    which is the device of the longest shard."""
    pairs = permutations(range(len(lengths)), 2)
    moves = {(source, target): steps * (lengths[source] + lengths[target]) for source, target in pairs}
    return moves, steps * (sum(lengths) + (len(lengths) - 2) * lengths[0])


def _state(params: Iterable[Any], velocity: Sequence[Any]) -> Values:
    return {**by_device(params, "parameters on "), **by_device(velocity, "velocity on ")}
