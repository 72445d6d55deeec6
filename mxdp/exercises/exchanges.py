"""Exercises in which devices exchange arrays: two all-reduces, and halos of tiles."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as onp

from mxdp.errors import plural
from mxdp.exercises.trial import Moves, Record, Trial, Trials, Values, as_planned, by_device, frugal, in_place, uneven
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.collective.schedule import ADD, COPY, Schedule
from mxdp.plans.partition import bounds

STAR = "each device sends its array to cpu(0), once, and gets the sum back"
CHUNKS = "in a ring one chunk travels in each step, not the whole array"


def naive_allreduce(draw: random.Random) -> Trials:
    """Sums in place, by device 0."""
    return _allreduces("naive", [(2, (3,)), (3, (3,)), (4, (2, 2)), (1, (3,))], draw)


def ring_allreduce(draw: random.Random) -> Trials:
    """Sums in place, in a ring."""
    return _allreduces("ring", [(2, (4,)), (3, (3,)), (4, (8,)), (3, (5,)), (3, (2,)), (2, (2, 3))], draw)


def _allreduces(algorithm: str, sizes: Sequence[Tuple[int, Tuple[int, ...]]], draw: random.Random) -> Trials:
    """At random: for each number of devices vectors, shorter and longer, and arrays of two and more dimensions."""
    others: List[Tuple[int, Tuple[int, ...]]] = []
    for devices in range(1, 7):
        shapes: List[Tuple[int, ...]] = [(draw.randint(1, devices),), (draw.randint(devices, 5 * devices),)]
        shapes += [tuple(draw.randint(1, 3) for _ in range(dimensions)) for dimensions in (2, draw.randint(3, 4))]
        others += [(devices, shape) for shape in shapes]
    return [_allreduce(algorithm, *size) for size in sizes], [_allreduce(algorithm, *size, draw) for size in others]


def _allreduce(algorithm: str, devices: int, shape: Tuple[int, ...], draw: Optional[random.Random] = None) -> Trial:
    length = int(onp.prod(shape))
    of = plural(length, "number") if len(shape) == 1 else f"arrays of {' x '.join(map(str, shape))}"
    title = f"{plural(devices, 'device')}, {of}{uneven('chunk', length, devices) if algorithm == 'ring' else ''}"
    # 1 2 3, 10 20 30, 100 200 300: a sum's digits tell whose numbers are in it, and how often.
    given = [10.0**device * onp.arange(1, length + 1).reshape(shape) for device in range(devices)]
    if draw:
        given = [onp.array([draw.randint(1, 99) for _ in range(length)], float).reshape(shape) for _ in given]
    total: Any = sum(given)
    schedule = plan(algorithm, devices, [length])
    planned = _moves(schedule, length)
    return Trial(
        title,
        by_device(given),
        by_device([total] * devices),
        partial(in_place, given, []),
        _wrong_sums(schedule, given),
        partial(_incomplete, algorithm, total),
        planned,
        partial(as_planned, planned, STAR) if algorithm == "naive" else partial(_in_a_ring, devices, length),
    )


def _moves(schedule: Schedule, length: int) -> Moves:
    moves: Moves = Counter()
    for send in (send for step in schedule.steps for send in step):
        start, stop = schedule.borders(length)[send.chunk]
        moves[send.source, send.target] += stop - start
    return moves


def _wrong_sums(schedule: Schedule, given: List[Any]) -> Dict[str, Values]:
    """The results of the usual mistakes on each device, by their hints."""
    devices, total = len(given), sum(given)
    early = [x.copy() for x in given]
    for x in early:
        x[...] = sum(early)

    def executed(always: str = "", shifted: str = "", by: int = 0) -> List[Any]:
        """The result of the plan with one action for all sends, or with other chunks in the sends of one action."""
        vectors = [x.reshape(-1).copy() for x in given]
        for step in schedule.steps:
            before = [x.copy() for x in vectors]
            for send in step:
                chunk = (send.chunk + by * (send.action == shifted)) % schedule.chunks
                place = slice(*schedule.borders(given[0].size)[chunk])
                kept = vectors[send.target][place] if (always or send.action) == ADD else 0
                vectors[send.target][place] = kept + before[send.source][place]
        return [x.reshape(given[0].shape) for x in vectors]

    ring = schedule.name == "ring"
    first, others = [total, *given[1:]], [given[0], *[total] * (devices - 1)]
    mistakes = {
        "The arrays are as they were. Write the sums into these arrays: `x += y` and `y.copyto(x)` do. `x = x + y` "
        "makes a new array, which nobody sees, and so do copies of chunks that are not copied back.": given,
        "Device 0 has the sum, and the others still have their own arrays. Send the sum back to them.": first,
        "All devices have the sum, but for cpu(0): `total = total + x` made a new array there. `total += x` adds in "
        "place.": others,
        "What comes back is added to what the device had. It must overwrite it.": executed(always=ADD),
        "What arrives first overwrites what the device had: it must be added."
        + " (Or the all-gather begins with chunk c - 1, where chunk c is complete.)" * ring: executed(always=COPY),
        "That is the mean. Add up only: `sgd` divides once, by the whole batch.": [total / devices] * devices,
        "Some arrays hold sums already when the next device adds them. Add up into one array first, then send it "
        "back.": early,
    }
    if ring:
        for hint, action, by in (
            ("The all-gather begins with chunk c + 1, where chunk c is complete.", COPY, 1),
            ("The reduce-scatter is one chunk ahead of the all-gather: complete is c + 1, and c is sent.", ADD, 1),
            ("The reduce-scatter is one chunk behind the all-gather: complete is c - 1, and c is sent.", ADD, -1),
        ):
            mistakes[hint] = executed(shifted=action, by=by)
    return {hint: by_device(values) for hint, values in mistakes.items()}


def _incomplete(algorithm: str, total: Any, got: Values) -> str:
    """A hint from the places that hold the sum and those that don't."""
    devices, length = len(got), total.size
    right = [onp.isclose(x, total).reshape(-1) for x in got.values()]
    chunks = [(start, stop) for start, stop in bounds(length, devices) if stop > start]
    whole = [[bool(places[start:stop].all()) for start, stop in chunks] for places in right]
    if 0 < length % devices < length and all(places[: length - length % devices].all() for places in right):
        return f"The last {length % devices} of {length} numbers were left out: {devices} doesn't divide {length}."
    if all(sum(complete) == 1 for complete in whole):
        return "Each device has one complete chunk: that was the reduce-scatter. The all-gather is missing."
    return f"`python -m mxdp.plans {algorithm} {devices}` prints the plan: compare it with each of your steps."


def _in_a_ring(devices: int, length: int, record: Record) -> str:
    """Each sends to the right alone, and no more than in a ring whose chunks are all as long as the longest."""
    for source, target in sorted(record.moves):
        if target != (source + 1) % devices:
            return f"But cpu({source}) sends to cpu({target}). In a ring a device sends to its right neighbour alone."
    steps = 2 * (devices - 1)
    return frugal([steps * -(-length // devices)] * devices, steps * length, CHUNKS, record)


OLD_ABOVE, OLD_BELOW = -1.0, -2.0
ROWS = "send the rows of the halo alone"


def exchange_halos(draw: random.Random) -> Trials:
    """Tiles of rows, each with halos above and below."""
    sizes = [((2, 2), 1), ((3, 3, 3), 1), ((3, 3, 3), 2), ((3, 2), 1), ((2,), 1)]
    others = []
    for devices in (2, 2, 3, 3, 4, 5, 6):
        halo = draw.randint(1, 3)
        heights = [draw.randint(halo, halo + 3) for _ in range(devices)]
        inner = tuple(draw.randint(1, 3) for _ in range(draw.randint(1, 3)))
        others.append(_halos(heights, halo, inner))
    return [_halos(*size, inner=(2,)) for size in sizes], others


def _halos(heights: Sequence[int], halo: int, inner: Tuple[int, ...]) -> Trial:
    """Tiles of these heights, whose rows have the shape ``inner``."""
    rows_of = f"{', '.join(map(str, heights))} rows of {' x '.join(map(str, inner))}"
    title = f"{plural(len(heights), 'tile')} of {rows_of}, halo of {plural(halo, 'row')}"
    devices = len(heights)
    columns = onp.arange(onp.prod(inner), dtype="float32").reshape(inner) / 10
    inside: List[Any] = [
        onp.array([10 * tile + row + columns for row in range(n)]) for tile, n in enumerate(heights, 1)
    ]
    first, last = [rows[:halo] for rows in inside], [rows[-halo:] for rows in inside]

    def tiles(above: Sequence[Any], below: Sequence[Any], top: Any = 0, bottom: Any = 0) -> Values:
        """Each tile with its halos: ``above`` are those of all but the first tile, ``below`` of all but the last."""
        whole = []
        for rows, high, low in zip(inside, [top, *above], [*below, bottom]):
            tile = onp.zeros((len(rows) + 2 * halo, *inner), "float32")
            tile[:halo], tile[halo:-halo], tile[-halo:] = high, rows, low
            whole.append(tile)
        return by_device(whole)

    old_above, old_below = [OLD_ABOVE] * (devices - 1), [OLD_BELOW] * (devices - 1)
    given = tiles(old_above, old_below)
    as_a_ring = tiles(last[:-1], first[1:], last[-1], first[0])
    mistakes = {
        "No halo was filled. Write into the tiles: `tile[:halo] = rows.as_in_ctx(tile.ctx)`.": given,
        "The old halos travelled. Send a neighbour's own rows: they begin after its halo, at `tile[halo:]`, and end "
        "before it, at `tile[:-halo]`.": tiles(old_below, old_above),
        "The halos above are filled, those below are not. Rows travel both ways.": tiles(last[:-1], old_below),
        "The halos below are filled, those above are not. Rows travel both ways.": tiles(old_above, first[1:]),
        "The rows come from the far end of the neighbour. A tile needs the rows next to the border: the last of the "
        "tile above, the first of the tile below.": tiles(first[:-1], last[1:]),
        "The first and the last tile exchange rows, too. A picture is no ring: outside it, halos stay zero.": as_a_ring,
    }
    planned: Moves = {}
    for device in range(devices - 1):
        planned[device, device + 1] = planned[device + 1, device] = halo * columns.size

    run, judge = partial(in_place, list(given.values()), [halo]), partial(as_planned, planned, ROWS)
    expected = tiles(last[:-1], first[1:])
    return Trial(title, {**given, "halo": halo}, expected, run, mistakes, planned=planned, judge=judge)
