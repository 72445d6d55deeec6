"""Exercises in which devices sum arrays: two all-reduces, and the halves of one."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from itertools import permutations
from typing import Any, List, Tuple

import numpy as onp

from mxdp.errors import plural
from mxdp.exercises.trial import (
    Exercise,
    Mistakes,
    Moves,
    Record,
    Sizes,
    Trial,
    Values,
    by_device,
    digits,
    frugal,
    in_place,
    listed,
    misfit,
    returned,
    uneven,
    uploaded,
)
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.collective.schedule import ADD, COPY, Schedule
from mxdp.plans.partition import bounds

STAR = "each device sends its array to cpu(0), once, and gets the sum back"
CHUNKS = "in a ring one chunk travels in each step, not the whole array"
TO_OWNER = "send each other device its own chunk alone, or one chunk a step to the right neighbour"
FROM_OWNER = (
    "send its own chunk to each other device once, or one chunk a step to the right neighbour"
)


def dimensions(draw: random.Random) -> Tuple[int, ...]:
    """Up to three of an array's dimensions, all but the first."""
    return tuple(draw.randint(1, 3) for _ in range(draw.randint(0, 3)))


NAIVE = [
    (2, (3,)),
    (3, (3,)),
    (4, (2, 2)),
    (1, (3,)),
]
RING = [
    (2, (4,)),
    (3, (3,)),
    (4, (8,)),
    (3, (5,)),
    (3, (2,)),
    (2, (2, 3)),
]


def _shapes(draw: random.Random) -> Sizes:
    return draw.randint(1, 6), (draw.randint(1, 20), *dimensions(draw))


@partial(Exercise, 1, "naive all-reduce", NAIVE, _shapes)
def naive_allreduce(devices: int, shape: Tuple[int, ...], factor: int = 1) -> Trial:
    """Sums in place, by device 0."""
    return _allreduce("naive", factor * digits(devices, *shape))


@partial(Exercise, 2, "ring all-reduce", RING, _shapes)
def ring_allreduce(devices: int, shape: Tuple[int, ...], factor: int = 1) -> Trial:
    """Sums in place, in a ring."""
    return _allreduce("ring", factor * digits(devices, *shape))


def _allreduce(algorithm: str, given: Any) -> Trial:
    devices, *shape = given.shape
    total = given.sum(axis=0)
    length = total.size
    of = plural(length, "number") if len(shape) == 1 else f"arrays of {' x '.join(map(str, shape))}"
    title = f"{plural(devices, 'device')}, {of}"
    schedule = plan(algorithm, devices, [length])
    planned: Moves = Counter()
    for step in schedule.steps:
        for send in step:
            start, stop = schedule.borders(length)[send.chunk]
            planned[send.source, send.target] += stop - start
    judge = partial(frugal, planned, STAR)
    if algorithm == "ring":
        title += uneven("chunk", length, devices)
        judge = partial(_in_a_ring, devices, length, planned)
    return Trial(
        title,
        given=by_device(given),
        expected=by_device([total] * devices),
        run=partial(in_place, given, []),
        mistakes=_wrong_sums(schedule, given),
        hint=partial(_incomplete, algorithm, total),
        planned=planned,
        judge=judge,
    )


def _wrong_sums(schedule: Schedule, given: Any) -> Mistakes:
    """The results of the usual mistakes on each device, by their hints."""
    devices = len(given)
    total = given.sum(axis=0)
    early = given.copy()
    for x in early:
        x[...] = early.sum(axis=0)

    def executed(always: str = "", shifted: str = "", by: int = 0) -> List[Any]:
        """The result of the plan with one action for all sends, or with other chunks in the sends of one action."""
        vectors = given.reshape(devices, -1).copy()
        for step in schedule.steps:
            before = vectors.copy()
            for send in step:
                chunk = send.chunk
                if send.action == shifted:
                    chunk = (chunk + by) % schedule.chunks
                place = slice(*schedule.borders(total.size)[chunk])
                sent = before[send.source, place]
                if (always or send.action) == ADD:
                    vectors[send.target, place] += sent
                else:
                    vectors[send.target, place] = sent
        return list(vectors.reshape(given.shape))

    all_but_first = [given[0], *[total] * (devices - 1)]
    added_back = executed(always=ADD)
    overwritten = executed(always=COPY)
    hint = "What arrives first overwrites what the device had: it must be added."
    if schedule.name == "ring":
        hint += " (Or the all-gather begins with chunk c - 1, where chunk c is complete.)"
    mean = [total / devices] * devices
    # Where a chunk is the whole array, these are right.
    wrong_start = executed(shifted=COPY, by=1)
    ahead = executed(shifted=ADD, by=1)
    behind = executed(shifted=ADD, by=-1)
    return {
        "The arrays are as they were. Write the sums into these arrays: `x += y` and `y.copyto(x)` do. `x = x + y` "
        "makes a new array, which nobody sees, and so do copies of chunks that are not copied back.": given,
        "Device 0 has the sum, and the others still have their own arrays. Send the sum back to "
        "them.": [total, *given[1:]],
        "All devices have the sum, but for cpu(0): `total = total + x` made a new array there. `total += x` adds in "
        "place.": all_but_first,
        "What comes back is added to what the device had. It must overwrite it.": added_back,
        hint: overwritten,
        "That is the mean. Add up only: `sgd` divides once, by the whole batch.": mean,
        "Some arrays hold sums already when the next device adds them. Add up into one array first, then send it "
        "back.": early,
        "The all-gather begins with chunk c + 1, where chunk c is complete.": wrong_start,
        "The reduce-scatter is one chunk ahead of the all-gather: complete is c + 1, and c is sent.": ahead,
        "The reduce-scatter is one chunk behind the all-gather: complete is c - 1, and c is sent.": behind,
    }


def _incomplete(algorithm: str, total: Any, got: Values) -> str:
    """A hint from the places that hold the sum and those that don't."""
    devices = len(got)
    length = total.size
    right = onp.array([onp.isclose(x, total).ravel() for x in got.values()])
    rest = length % devices
    divisible = length - rest
    if 0 < rest < length and right[:, :divisible].all():
        return (
            f"The last {rest} of {length} numbers were left out: {devices} doesn't divide {length}."
        )
    complete = onp.zeros(devices)
    for start, stop in bounds(length, devices):
        if stop > start:
            complete += right[:, start:stop].all(axis=1)
    if (complete == 1).all():
        return "Each device has one complete chunk: that was the reduce-scatter. The all-gather is missing."
    return f"`python -m mxdp.plans {algorithm} {devices}` prints the plan: compare it with each of your steps."


def _in_a_ring(devices: int, length: int, planned: Moves, record: Record) -> str:
    """Each sends to the right alone, and no more than in a ring whose chunks are all as long as the longest."""
    for source, target in sorted(record.moves):
        if target != (source + 1) % devices:
            return f"But cpu({source}) sends to cpu({target}). In a ring a device sends to its right neighbour alone."
    longest = -(-length // devices)
    most = 2 * (devices - 1) * longest
    return frugal(planned, CHUNKS, record, most=[most] * devices)


HALVES = [
    (2, 4),
    (3, 6),
    (3, 5),
    (3, 2),
    (1, 3),
]
COMPARE = "`python -m mxdp.plans reduce-scatter 3` and `all-gather 3` print both plans: compare them with your steps."


def _lengths(draw: random.Random) -> Sizes:
    return draw.randint(1, 6), draw.randint(1, 20)


@partial(Exercise, 11, "reduce-scatter", HALVES, _lengths, stem="two_halves")
def reduce_scatter(devices: int, length: int, factor: int = 1) -> Trial:
    """The sum of vectors, chunk k on device k."""
    given = factor * digits(devices, length)
    total = given.sum(axis=0)
    chunks = onp.array_split(total, devices)
    own = [onp.array_split(vector, devices)[k] for k, vector in enumerate(given)]
    whole = [total] * devices
    from_behind = onp.array_split(total[::-1], devices)
    mistakes = {
        "Each device has its own chunk, to which nothing was added. Chunk k needs the numbers of all devices.": own,
        "Every device has the whole sum: that is an all-reduce. Device k keeps chunk k alone.": whole,
        "That is the mean. Add up only.": [chunk / devices for chunk in chunks],
        "Device k has chunk k + 1 of the sum. A ring in which device k sends chunk k first ends so: let it send chunk "
        "k - 1 first.": chunks[1:] + chunks[:1],
        "Device k has chunk k - 1 of the sum: go one chunk on.": chunks[-1:] + chunks[:-1],
        "The longer chunks come last. Here, as in NumPy's array_split, they come first.": [
            chunk[::-1] for chunk in reversed(from_behind)
        ],
    }
    planned = {}
    for a, b in permutations(range(devices), 2):
        if chunks[b].size:
            planned[a, b] = chunks[b].size
    return _half("chunk", length, given, chunks, mistakes, planned, TO_OWNER)


@partial(Exercise, 11, "all-gather", HALVES, _lengths, stem="two_halves")
def all_gather(devices: int, length: int, factor: int = 1) -> Trial:
    """The chunks of all devices, on every device."""
    vector = factor * onp.arange(1, length + 1, dtype="float32")
    chunks = onp.array_split(vector, devices)
    to_the_right = []
    to_the_left = []
    planned = {}
    for k, chunk in enumerate(chunks):
        to_the_right.append(onp.concatenate(chunks[k:] + chunks[:k]))
        to_the_left.append(onp.concatenate(chunks[k::-1] + chunks[:k:-1]))
        for other in range(devices):
            if other != k and chunk.size:
                planned[k, other] = chunk.size
    mistakes = {
        "Each device has its own chunk alone. Send it to all others.": chunks,
        "Each device has its own chunk first, then those of its right neighbours. The chunks lie in the order of the "
        "devices.": to_the_right,
        "Each device has its own chunk first, then those of its left neighbours, as they arrive in a ring. The chunks "
        "lie in the order of the devices.": to_the_left,
        "The chunks lie in reverse order.": [onp.concatenate(chunks[::-1])] * devices,
        "Only device 0 has all chunks. Every device needs them.": [vector, *chunks[1:]],
    }
    if length % devices == 0:
        mistakes["The chunks are added up. Put them side by side."] = [sum(chunks)] * devices
    return _half("vector", length, chunks, [vector] * devices, mistakes, planned, FROM_OWNER)


def _half(
    name: str,
    length: int,
    given: Any,
    right: List[Any],
    mistakes: Mistakes,
    planned: Moves,
    advice: str,
) -> Trial:
    """The function is called with a list of arrays, one on each device, and returns another."""
    devices = len(given)
    expected = listed(name, right, by_device(right))
    title = f"{plural(devices, 'device')}, {plural(length, 'number')}"
    title += uneven("chunk", length, devices)
    longest = -(-length // devices)
    most = (devices - 1) * longest  # a ring may take this way, too

    def run(function: Any) -> Values:
        return returned(name, function(uploaded(given)))

    return Trial(
        title,
        given=by_device(given),
        expected=expected,
        run=run,
        mistakes=mistakes,
        hint=partial(misfit, expected, COMPARE),
        planned=planned,
        judge=partial(frugal, planned, advice, most=[most] * devices),
    )
