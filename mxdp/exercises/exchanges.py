"""Exercises in which devices exchange arrays: two all-reduces, and halos of tiles."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as onp

from mxdp import backend
from mxdp.errors import plural
from mxdp.exercises.trial import Case, Function, Hosts, Moves, Record, Trial, Values, as_planned, too_few
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.collective.schedule import ADD, COPY, Schedule, Send
from mxdp.plans.partition import bounds


def by_device(arrays: Sequence[Any]) -> Values:
    """Label each device's array."""
    return {f"cpu({device})": x for device, x in enumerate(arrays)}


Size = Tuple[str, int, Tuple[int, ...]]
"""A title, the number of devices, the shape of each array."""


def naive_allreduce(draw: random.Random) -> Iterator[Case]:
    """Sums in place, by device 0."""
    for title, devices, shape in (
        ("2 devices, 3 numbers", 2, (3,)),
        ("3 devices, 3 numbers", 3, (3,)),
        ("4 devices, arrays of 2 x 2", 4, (2, 2)),
        ("1 device: nothing to do", 1, (3,)),
    ):
        yield [_allreduce("naive", title, devices, shape)]
    yield [_allreduce("naive", *size, draw) for size in _sizes(draw)]


def ring_allreduce(draw: random.Random) -> Iterator[Case]:
    """Sums in place, in a ring."""
    for title, devices, shape in (
        ("2 devices, 4 numbers", 2, (4,)),
        ("3 devices, 3 numbers", 3, (3,)),
        ("4 devices, 8 numbers", 4, (8,)),
        ("3 devices, 5 numbers: chunks of 2, 2 and 1", 3, (5,)),
        ("3 devices, 2 numbers: the last chunk is empty", 3, (2,)),
        ("2 devices, arrays of 2 x 3", 2, (2, 3)),
    ):
        yield [_allreduce("ring", title, devices, shape)]
    yield [_allreduce("ring", *size, draw) for size in _sizes(draw)]


def _sizes(draw: random.Random) -> List[Size]:
    """For each number of devices vectors, shorter and longer, and arrays of two and more dimensions."""
    found: List[Size] = []
    for devices in range(1, 7):
        shapes: List[Tuple[int, ...]] = [(draw.randint(1, devices),), (draw.randint(devices, 5 * devices),)]
        shapes += [tuple(draw.randint(1, 3) for _ in range(dimensions)) for dimensions in (2, draw.randint(3, 4))]
        for shape in shapes:
            of = plural(shape[0], "number") if len(shape) == 1 else f"arrays of {' x '.join(map(str, shape))}"
            found.append((f"{plural(devices, 'device')}, {of}", devices, shape))
    return found


def _allreduce(
    algorithm: str, title: str, devices: int, shape: Tuple[int, ...], draw: Optional[random.Random] = None
) -> Trial:
    length = int(onp.prod(shape))
    # 1 2 3, 10 20 30, 100 200 300: a sum's digits tell whose numbers are in it, and how often.
    given = [10.0**device * onp.arange(1, length + 1).reshape(shape) for device in range(devices)]
    if draw:
        given = [onp.array([draw.randint(1, 99) for _ in range(length)], float).reshape(shape) for _ in given]
    total: Any = sum(given)
    schedule = plan(algorithm, devices, [length])
    mistakes = _wrong_sums(algorithm, schedule, given)

    def run(function: Function) -> Values:
        arrays = [backend.upload(x.astype("float32"), d) for x, d in zip(given, backend.devices(devices, "cpu"))]
        function(list(arrays))  # A list of its own: an item that is replaced is no array that was changed.
        return by_device([x.asnumpy() for x in arrays])

    planned = _moves(schedule, length)
    return Trial(
        title,
        by_device(given),
        by_device([total] * devices),
        run,
        {text: by_device(values) for text, values in mistakes.items()},
        partial(_incomplete, algorithm, total),
        planned,
        as_planned(planned, STAR) if algorithm == "naive" else _in_a_ring(devices, length),
    )


def _wrong_sums(algorithm: str, schedule: Schedule, given: Hosts) -> Dict[str, Hosts]:
    """What the usual mistakes give on each device, by their hints."""
    devices, total = len(given), sum(given)
    changed = [x.copy() for x in given]
    for device in range(devices):  # each adds what the others hold by now
        changed[device] += sum(changed[other] for other in range(devices) if other != device)

    def executed(change: Callable[[Send], Send]) -> Hosts:
        return _executed(schedule, given, change)

    def shifted(action: str, by: int) -> Hosts:
        return executed(
            lambda send: replace(send, chunk=(send.chunk + by) % schedule.chunks) if send.action == action else send
        )

    mistakes = {
        "The arrays are as they were. Write the sums into these arrays: `x += y` and `y.copyto(x)` do. `x = x + y` "
        "makes a new array, which nobody sees, and so do copies of chunks that are not copied back.": given,
        "Device 0 has the sum, and the others still have their own arrays. Send the sum back to them.": [
            total,
            *given[1:],
        ],
        "All devices have the sum, but for cpu(0): `total = total + x` made a new array there. `total += x` adds in "
        "place.": [given[0], *[total] * (devices - 1)],
        "What comes back is added to what the device had. It must overwrite it.": executed(
            lambda send: replace(send, action=ADD)
        ),
        "What arrives first overwrites what the device had: it must be added."
        + " (Or the all-gather begins with chunk c - 1, where chunk c is complete.)" * (algorithm == "ring"): executed(
            lambda send: replace(send, action=COPY)
        ),
        "That is the mean. Add up only: `sgd` divides once, by the whole batch.": [total / devices] * devices,
        "Some arrays hold sums already when the next device adds them. Add up into one array first, then send it "
        "back.": changed,
    }
    if algorithm == "ring":
        mistakes.update(
            {
                "The all-gather begins with chunk c + 1, where chunk c is complete.": shifted(COPY, 1),
                "The reduce-scatter is one chunk ahead of the all-gather: complete is c + 1, and c is sent.": shifted(
                    ADD, 1
                ),
                "The reduce-scatter is one chunk behind the all-gather: complete is c - 1, and c is sent.": shifted(
                    ADD, -1
                ),
            }
        )
    return mistakes


def _moves(schedule: Schedule, length: int) -> Moves:
    moves: Moves = Counter()
    for send in (send for step in schedule.steps for send in step):
        start, stop = schedule.borders(length)[send.chunk]
        moves[send.source, send.target] += stop - start
    return moves


def _executed(schedule: Schedule, given: Hosts, change: Callable[[Send], Send]) -> Hosts:
    """What a plan gives whose sends are changed."""
    vectors = [x.reshape(-1).copy() for x in given]
    for step in schedule.steps:
        before = [x.copy() for x in vectors]
        for send in map(change, step):
            own = slice(*schedule.borders(given[0].size)[send.chunk])
            kept = vectors[send.target][own] if send.action == ADD else 0
            vectors[send.target][own] = kept + before[send.source][own]
    return [x.reshape(given[0].shape) for x in vectors]


def _incomplete(algorithm: str, total: Any, got: Values) -> str:
    """Which places hold the sum, and which don't."""
    devices, length = len(got), total.size
    right = [onp.isclose(x, total).reshape(-1) for x in got.values()]
    chunks = [(start, stop) for start, stop in bounds(length, devices) if stop > start]
    whole = [[bool(places[start:stop].all()) for start, stop in chunks] for places in right]
    if 0 < length % devices < length and all(places[: length - length % devices].all() for places in right):
        return f"The last {length % devices} of {length} numbers were left out: {devices} doesn't divide {length}."
    if all(sum(one) == 1 for one in whole):
        return "Each device has one complete chunk: that was the reduce-scatter. The all-gather is missing."
    return f"`python -m mxdp.plans {algorithm} {devices}` prints the plan: compare it with each of your steps."


STAR = "each device sends its array to cpu(0), once, and gets the sum back"


def _in_a_ring(devices: int, length: int) -> Callable[[Record], str]:
    """Each sends to the right alone, and no more than in a ring whose chunks are all as long as the longest."""
    most, needed = 2 * (devices - 1) * -(-length // devices), 2 * (devices - 1) * length

    def judge(record: Record) -> str:
        for device in range(devices):
            to = sorted(target for source, target in record.moves if source == device)
            sent = sum(numbers for (source, _), numbers in record.moves.items() if source == device)
            if to not in ([], [(device + 1) % devices]):
                names = " and ".join(f"cpu({target})" for target in to)
                return f"But cpu({device}) sends to {names}. In a ring a device sends to its right neighbour alone."
            if sent > most:
                return (
                    f"But cpu({device}) sends {sent} numbers. In a ring no device sends more than {most} here: one "
                    "chunk in each step, not the whole array."
                )
        moved = sum(record.moves.values())
        return too_few(record, "from device to device", moved, needed) if moved < needed else ""

    return judge


OLD_ABOVE, OLD_BELOW = -1.0, -2.0
ROWS = "send the rows of the halo alone"


def exchange_halos(draw: random.Random) -> Iterator[Case]:
    """Tiles of rows, each with halos above and below."""
    for title, rows, halo in (
        ("2 tiles of 2 rows, halo of 1 row", (2, 2), 1),
        ("3 tiles of 3 rows, halo of 1 row", (3, 3, 3), 1),
        ("3 tiles of 3 rows, halo of 2 rows", (3, 3, 3), 2),
        ("2 tiles of 3 and 2 rows, halo of 1 row", (3, 2), 1),
        ("1 tile: nothing to do", (2,), 1),
    ):
        yield [_halos(title, rows, halo, (2,))]
    others = []
    for devices in (2, 2, 3, 3, 4, 5, 6):
        halo = draw.randint(1, 3)
        heights = [draw.randint(halo, halo + 3) for _ in range(devices)]
        inner = tuple(draw.randint(1, 3) for _ in range(draw.randint(1, 3)))
        row = " x ".join(map(str, inner))
        others.append(
            _halos(
                f"tiles of {', '.join(map(str, heights))} rows of {row}, halo of {plural(halo, 'row')}",
                heights,
                halo,
                inner,
            )
        )
    yield others


def _halos(title: str, rows: Sequence[int], halo: int, inner: Tuple[int, ...]) -> Trial:
    devices = len(rows)
    columns = onp.arange(onp.prod(inner), dtype="float32").reshape(inner) / 10
    own: Hosts = [onp.array([10 * device + row + columns for row in range(n)]) for device, n in enumerate(rows, 1)]

    first, last = [tile[:halo] for tile in own], [tile[-halo:] for tile in own]

    def tiles(above: Sequence[Any], below: Sequence[Any], top: Any = 0, bottom: Any = 0) -> Values:
        """Each tile with its halos: ``above`` are those of all but the first tile, ``below`` of all but the last."""
        found = []
        for rows, high, low in zip(own, [top, *above], [*below, bottom]):
            tile = onp.zeros((len(rows) + 2 * halo, *inner), "float32")
            tile[:halo], tile[halo:-halo], tile[-halo:] = high, rows, low
            found.append(tile)
        return by_device(found)

    old_above, old_below = [OLD_ABOVE] * (devices - 1), [OLD_BELOW] * (devices - 1)
    given, expected = tiles(old_above, old_below), tiles(last[:-1], first[1:])
    mistakes = {
        "No halo was filled. Write into the tiles: `tile[:halo] = rows.as_in_ctx(tile.ctx)`.": given,
        "The old halos travelled. Send a neighbour's own rows: they begin after its halo, at `tile[halo:]`, and end "
        "before it, at `tile[:-halo]`.": tiles(old_below, old_above),
        "The halos above are filled, those below are not. Rows travel both ways.": tiles(last[:-1], old_below),
        "The halos below are filled, those above are not. Rows travel both ways.": tiles(old_above, first[1:]),
        "The rows come from the far end of the neighbour. A tile needs the rows next to the border: the last of the "
        "tile above, the first of the tile below.": tiles(first[:-1], last[1:]),
        "The first and the last tile exchange rows, too. A picture is no ring: outside it, halos stay zero.": tiles(
            last[:-1], first[1:], last[-1], first[0]
        ),
    }
    planned: Moves = {}
    for device in range(devices - 1):
        planned[device, device + 1] = planned[device + 1, device] = halo * int(onp.prod(inner))

    def run(function: Function) -> Values:
        arrays = [backend.upload(x, d) for x, d in zip(given.values(), backend.devices(devices, "cpu"))]
        function(list(arrays), halo)
        return by_device([x.asnumpy() for x in arrays])

    return Trial(
        title, {**given, "halo": halo}, expected, run, mistakes, planned=planned, judge=as_planned(planned, ROWS)
    )
