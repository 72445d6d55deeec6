"""Exercises on shards: of a batch, and of an optimiser's state."""

from __future__ import annotations

import random
from functools import partial
from typing import Any, Dict, Iterator, Sequence, Tuple

import numpy as onp

from mxdp import backend
from mxdp.errors import plural
from mxdp.exercises.trial import Case, Function, Hosts, Moves, Record, Trial, Values, Wrong, as_planned, too_few
from mxdp.plans.partition import bounds

RATES: Dict[str, float] = dict(lr=0.1, momentum=0.5, batch_size=4)
SHARD = "send its shard alone"


def split_and_load(draw: random.Random) -> Iterator[Case]:
    """Shards of a batch, the longer first."""
    for title, shape, devices in (
        ("4 samples, 2 devices", (4,), 2),
        ("7 samples, 3 devices", (7,), 3),
        ("5 samples of 2 numbers, 2 devices", (5, 2), 2),
        ("2 samples, 3 devices: the last shard is empty", (2,), 3),
        ("3 samples, 1 device", (3,), 1),
    ):
        yield [_split(title, shape, range(devices))]
    others = []
    for devices in (1, 2, 3, 4, 4, 5, 5, 6, 6, 7):
        for samples in (devices * draw.randint(0, 3) + draw.randint(1, devices), draw.randint(1, devices)):
            size = (samples, *(draw.randint(1, 3) for _ in range(draw.randint(0, 3))))
            order, dtype = draw.sample(range(devices), devices), draw.choice(["float32", "int32"])
            of = f"{plural(samples, 'sample')}{' of ' * (len(size) > 1)}{' x '.join(map(str, size[1:]))}"
            others.append(_split(f"{of}, {dtype}, on cpu {order}", size, order, dtype))
    yield others


def _split(title: str, shape: Tuple[int, ...], order: Sequence[int], dtype: str = "float32") -> Trial:
    """Shard k belongs on ``cpu(order[k])``."""
    x = onp.arange(1, onp.prod(shape) + 1, dtype=dtype).reshape(shape)
    places = [f"cpu({device})" for device in order]

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
    planned = {(0, k): (stop - start) * x[0].size for k, (start, stop) in zip(order, borders) if k and stop > start}

    def hint(got: Values) -> str:
        if not all(label.endswith(dtype) for label in got):
            return f"x is {dtype}, and so must its shards be."
        shapes = [", ".join(str(shard.shape) for shard in shards) for shards in (got.values(), right)]
        return f"The shapes are {shapes[0]}. They must be {shapes[1]}, on {given['devices']}."

    def run(function: Function) -> Values:
        contexts = backend.devices(len(order), "cpu")
        found = function(backend.upload(x, contexts[0]), [contexts[device] for device in order])
        if not isinstance(found, (list, tuple)) or not all(hasattr(shard, "ctx") for shard in found):
            kind = "nothing" if found is None else f"a {type(found).__name__}"
            raise Wrong(f"It returns {kind}: return a list with an array for each device.")
        return labelled([shard.asnumpy() for shard in found], [shard.ctx for shard in found])

    given = {"x on cpu(0)": x, "devices": ", ".join(places)}
    judge = as_planned(planned, SHARD)
    return Trial(title, given, labelled(right, places), run, mistakes, hint, planned, judge)


def _wrong_shards(x: Any, devices: int) -> Dict[str, Hosts]:
    """The shards that a usual mistake makes, by its hint."""
    n, places = len(x), range(devices)
    short, long, rest = n // devices, -(-n // devices), n % devices

    def cut(*lengths: int) -> Hosts:
        return [x[sum(lengths[:place]) : sum(lengths[: place + 1])] for place in places]

    return {
        f"{n} samples on {devices} devices leave a remainder of {rest}, which is lost: every sample must be in one "
        "shard.": cut(*[short] * devices),
        "The last device has all of the remainder. Give one sample more to each of the first devices.": cut(
            *[short] * (devices - 1), short + rest
        ),
        "The first device has all of the remainder. Give one sample more to each of the first devices.": cut(
            short + rest, *[short] * (devices - 1)
        ),
        "The longer shards come last. Here, as in NumPy's array_split, they come first.": cut(
            *[short] * (devices - rest), *[short + 1] * rest
        ),
        "Each shard but the last is as long as the first: the last one has too little to do. Shards differ by at most "
        "one sample.": [x[place * long : (place + 1) * long] for place in places],
        "The samples are dealt out like cards. A shard is a run of samples that lie side by side.": [
            x[place::devices] for place in places
        ],
        f"Every device has the whole batch. Give each a shard of {short} or {long} samples.": [x] * devices,
    }


def sharded_step(draw: random.Random) -> Iterator[Case]:
    """SGD with momentum, each device with the velocity of its shard alone."""
    for title, length, devices, steps in (
        ("2 devices, 4 numbers", 4, 2, 1),
        ("3 devices, 6 numbers", 6, 3, 1),
        ("3 devices, 5 numbers: shards of 2, 2 and 1", 5, 3, 1),
        ("3 devices, 2 numbers: the last shard is empty", 2, 3, 1),
        ("2 devices, 4 numbers, two steps", 4, 2, 2),
    ):
        grads = [10.0**device * onp.arange(1, length + 1, dtype="float32") for device in range(devices)]
        yield [_sharded_step(title, grads, onp.ones(length, "float32"), steps, RATES)]
    others = []
    for devices in (1, 2, 3, 3, 4, 4, 5, 6):
        length, steps = draw.randint(1, 4 * devices), draw.randint(1, 3)
        rates = dict(lr=draw.randint(1, 9) / 16, momentum=draw.randint(1, 9) / 10, batch_size=draw.randint(1, 40))
        title = f"{plural(devices, 'device')}, {plural(length, 'number')}, {plural(steps, 'step')}"
        *grads, old = (onp.array([draw.randint(-99, 99) for _ in range(length)], "float32") for _ in range(devices + 1))
        others.append(_sharded_step(title, grads, old, steps, rates))
    yield others


def _sharded_step(title: str, grads: Hosts, old: Any, steps: int, rates: Dict[str, float]) -> Trial:
    """``grads``: each device's; ``old``: the velocity, before its shards are given to the devices."""
    lr, momentum, batch_size = rates.values()
    devices, borders = len(grads), bounds(len(old), len(grads))
    start = onp.arange(1, len(old) + 1, dtype="float32")
    total = [sum(grads)] * devices

    def after(grads: Hosts, divisor: float = batch_size, gathered: bool = True, keep: bool = True) -> Values:
        """``grads``: of which each device takes its shard."""
        params, velocity = [start.copy() for _ in range(devices)], [old[a:b] for a, b in borders]
        for _ in range(steps):
            for device, (a, b) in enumerate(borders):
                moved = momentum * velocity[device] + grads[device][a:b] / divisor
                for other in range(devices) if gathered else [device]:
                    params[other][a:b] -= lr * moved
                velocity[device] = moved if keep else velocity[device]
        return _state(params, velocity)

    mistakes = {
        "Nothing has changed. Write into the arrays that were given: `x -= ...`, `y.copyto(x)`.": _state(
            [start] * devices, [old[a:b] for a, b in borders]
        ),
        "Each device has new parameters in its own shard alone. Send them to the others: the all-gather is missing.": (
            after(total, gathered=False)
        ),
        "Each device used its own gradient. Its shard needs the sum of all devices' gradients: the reduce-scatter is "
        "missing.": after(grads),
        "Gradients are divided by the batch once more than they should be, by the devices: they are summed.": after(
            total, divisor=batch_size * devices
        ),
        "The summed gradient is not divided by batch_size.": after(total, divisor=1),
        "The parameters move as they should in the first step, but the velocity is as it was. Write it into the array "
        "that was given, or the next step lacks it.": after(total, keep=False),
    }

    def run(function: Function) -> Values:
        contexts = backend.devices(devices, "cpu")
        params = [backend.upload(start, context) for context in contexts]
        own = [backend.upload(old[a:b], context) for (a, b), context in zip(borders, contexts)]
        for _ in range(steps):
            given = [backend.upload(grad, context) for grad, context in zip(grads, contexts)]
            function(list(params), given, list(own), lr, momentum, batch_size)
        return _state([x.asnumpy() for x in params], [x.asnumpy() for x in own])

    given: Values = {f"gradient on cpu({device})": grad for device, grad in enumerate(grads)}
    given.update({"parameters everywhere": start, "velocity everywhere": old, **rates})
    planned = _planned(borders, steps)
    return Trial(title, given, after(total), run, mistakes, planned=planned, judge=partial(_thrifty, planned))


def _state(params: Sequence[Any], velocity: Sequence[Any]) -> Values:
    both = {"parameters": params, "velocity": velocity}
    return {f"{what} on cpu({device})": x for what, arrays in both.items() for device, x in enumerate(arrays)}


def _planned(borders: Sequence[Tuple[int, int]], steps: int) -> Moves:
    """To each device the gradients of its shard, and the sender's shard of the parameters."""
    lengths = [stop - start for start, stop in borders]
    return {
        (source, target): steps * (lengths[source] + lengths[target])
        for source in range(len(borders))
        for target in range(len(borders))
        if source != target
    }


def _thrifty(planned: Moves, record: Record) -> str:
    """No device sends more than the plan's most, and together they send what the plan does: a ring may, too."""

    def sent(device: int, moved: Moves) -> int:
        return sum(numbers for (source, _), numbers in moved.items() if source == device)

    devices = range(1 + max((source for source, _ in [*planned, *record.moves]), default=0))
    most = max(sent(device, planned) for device in devices)
    for device in devices:
        if sent(device, record.moves) > most:
            return (
                f"But cpu({device}) sends {sent(device, record.moves)} numbers, and {most} are enough: to each device "
                "the gradients of that device's shard, and its own shard of the new parameters."
            )
    moved, needed = sum(record.moves.values()), sum(planned.values())
    return too_few(record, "from device to device", moved, needed) if moved < needed else ""
