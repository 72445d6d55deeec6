"""Exercises on shards: of a batch, and of an optimiser's state."""

from __future__ import annotations

from functools import partial
from typing import Any, Iterator, Sequence, Tuple

import numpy as onp

from mxdp import backend
from mxdp.exercises.trial import Function, Hosts, Moves, Trial, Values, Wrong
from mxdp.plans.partition import bounds

LR, MOMENTUM, BATCH = 0.1, 0.5, 4


def split_and_load() -> Iterator[Trial]:
    """Shards of a batch, the longer first."""
    for title, shape, devices in (
        ("4 samples, 2 devices", (4,), 2),
        ("7 samples, 3 devices", (7,), 3),
        ("5 samples of 2 numbers, 2 devices", (5, 2), 2),
        ("2 samples, 3 devices: the last shard is empty", (2,), 3),
        ("3 samples, 1 device", (3,), 1),
    ):
        yield _split(title, shape, devices)


def _split(title: str, shape: Tuple[int, ...], devices: int) -> Trial:
    x = onp.arange(1, onp.prod(shape) + 1, dtype="float32").reshape(shape)
    n = len(x)
    short, long = n // devices, -(-n // devices)

    def cut(lengths: Sequence[int]) -> Hosts:
        return [x[sum(lengths[:place]) : sum(lengths[: place + 1])] for place in range(len(lengths))]

    def labelled(shards: Sequence[Any], contexts: Sequence[Any]) -> Values:
        return {f"shard {place} on {context}": shard for place, (shard, context) in enumerate(zip(shards, contexts))}

    def on_devices(shards: Sequence[Any]) -> Values:
        return labelled(shards, [f"cpu({device})" for device in range(devices)])

    right = cut([stop - start for start, stop in bounds(n, devices)])
    mistakes = {
        f"{n} samples on {devices} devices leave a remainder of {n % devices}, which is lost: every sample must be in "
        "one shard.": on_devices(cut([short] * devices)),
        "The last device has all of the remainder. Give one sample more to each of the first devices.": on_devices(
            cut([short] * (devices - 1) + [n - short * (devices - 1)])
        ),
        "The longer shards come last. Here, as in NumPy's array_split, they come first.": on_devices(
            cut([short] * (devices - n % devices) + [short + 1] * (n % devices))
        ),
        "Each shard but the last is as long as the first: the last one has too little to do. Shards differ by at most "
        "one sample.": on_devices([x[place * long : (place + 1) * long] for place in range(devices)]),
        "The samples are dealt out like cards. A shard is a run of samples that lie side by side.": on_devices(
            [x[place::devices] for place in range(devices)]
        ),
        "All shards are right and lie on cpu(0). Copy each to its device.": labelled(right, ["cpu(0)"] * devices),
    }

    def run(function: Function) -> Values:
        found = function(backend.upload(x, backend.devices(1, "cpu")[0]), backend.devices(devices, "cpu"))
        if not isinstance(found, (list, tuple)) or not all(hasattr(shard, "ctx") for shard in found):
            raise Wrong(f"It returns {_named(found)}: return a list with an array for each device.")
        return labelled([shard.asnumpy() for shard in found], [shard.ctx for shard in found])

    return Trial(title, {"x on cpu(0)": x, "devices": devices}, on_devices(right), run, mistakes)


def _named(found: Any) -> str:
    return "nothing" if found is None else f"a {type(found).__name__}"


def sharded_step() -> Iterator[Trial]:
    """SGD with momentum, each device with the velocity of its shard alone."""
    for title, length, devices, steps in (
        ("2 devices, 4 numbers", 4, 2, 1),
        ("3 devices, 6 numbers", 6, 3, 1),
        ("3 devices, 5 numbers: shards of 2, 2 and 1", 5, 3, 1),
        ("2 devices, 4 numbers, two steps", 4, 2, 2),
    ):
        yield _sharded_step(title, length, devices, steps)


def _sharded_step(title: str, length: int, devices: int, steps: int) -> Trial:
    borders = bounds(length, devices)
    start = onp.arange(1, length + 1, dtype="float32")
    grads = [10.0**device * onp.arange(1, length + 1, dtype="float32") for device in range(devices)]
    old = onp.ones(length, dtype="float32")
    total = sum(grads)

    def labelled(params: Sequence[Any], velocity: Sequence[Any]) -> Values:
        return {
            **{f"parameters on cpu({device})": x for device, x in enumerate(params)},
            **{f"velocity on cpu({device})": velocity[device][a:b] for device, (a, b) in enumerate(borders)},
        }

    def after(grad: Any, divisor: float = BATCH, gathered: bool = True, keep: bool = True) -> Values:
        """``grad(device)``: what this device takes for the gradient of its shard."""
        params, velocity = [start.copy() for _ in range(devices)], [old.copy() for _ in range(devices)]
        for _ in range(steps):
            for device, (a, b) in enumerate(borders):
                moved = MOMENTUM * velocity[device] + grad(device) / divisor
                for other in range(devices) if gathered else [device]:
                    params[other][a:b] -= LR * moved[a:b]
                velocity[device] = moved if keep else velocity[device]
        return labelled(params, velocity)

    mistakes = {
        "Nothing has changed. Write into the arrays that were given: `x -= ...`, `y.copyto(x)`.": labelled(
            [start] * devices, [old] * devices
        ),
        "Each device has new parameters in its own shard alone. Send them to the others: the all-gather is missing.": (
            after(lambda _: total, gathered=False)
        ),
        "Each device used its own gradient. Its shard needs the sum of all devices' gradients: the reduce-scatter is "
        "missing.": after(lambda device: grads[device]),
        "Gradients are divided by the batch once more than they should be, by the devices: they are summed.": after(
            lambda _: total, divisor=BATCH * devices
        ),
        "The summed gradient is not divided by batch_size.": after(lambda _: total, divisor=1),
        "The parameters move as they should in the first step, but the velocity is as it was. Write it into the array "
        "that was given, or the next step lacks it.": after(lambda _: total, keep=False),
    }

    def run(function: Function) -> Values:
        contexts = backend.devices(devices, "cpu")
        params = [backend.upload(start, context) for context in contexts]
        own = [backend.upload(old[a:b], context) for (a, b), context in zip(borders, contexts)]
        for _ in range(steps):
            given = [backend.upload(grad, context) for grad, context in zip(grads, contexts)]
            function(list(params), given, list(own), LR, MOMENTUM, BATCH)
        found = {f"parameters on cpu({device})": x.asnumpy() for device, x in enumerate(params)}
        found.update({f"velocity on cpu({device})": x.asnumpy() for device, x in enumerate(own)})
        return found

    given: Values = {f"gradient on cpu({device})": grad for device, grad in enumerate(grads)}
    given.update({"parameters everywhere": start, "velocity everywhere": old})
    given.update({"lr": LR, "momentum": MOMENTUM, "batch_size": BATCH})
    planned = _planned(borders, steps)
    return Trial(title, given, after(lambda _: total), run, mistakes, planned=planned, judge=partial(_thrifty, planned))


def _planned(borders: Sequence[Tuple[int, int]], steps: int) -> Moves:
    """To each device the gradients of its shard, and the sender's shard of the parameters."""
    lengths = [stop - start for start, stop in borders]
    return {
        (source, target): steps * (lengths[source] + lengths[target])
        for source in range(len(borders))
        for target in range(len(borders))
        if source != target
    }


def _thrifty(planned: Moves, moves: Moves) -> str:
    def sent(device: int, moved: Moves) -> int:
        return sum(numbers for (source, _), numbers in moved.items() if source == device)

    devices = range(1 + max(source for source, _ in planned))
    most = max(sent(device, planned) for device in devices)
    for device in devices:
        if sent(device, moves) > most:
            return (
                f"But cpu({device}) sends {sent(device, moves)} numbers, and {most} are enough: to each device the "
                "gradients of that device's shard, and its own shard of the new parameters."
            )
    return ""
