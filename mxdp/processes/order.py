"""Checks that all ranks give their parameters in one order. MPI adds what it is given, and can't notice a swap of
arrays of one shape.

gluon's Trainer sorts the names, and gluon counts layers in each process, so one rank may come to another order::

    rank 0    dense9_weight, dense10_weight     sorted: dense10_weight, dense9_weight      second layer, first layer
    rank 1    dense0_weight, dense1_weight      sorted: dense0_weight, dense1_weight       first layer, second layer
"""

from __future__ import annotations

import re
import sys
import zlib
from collections import defaultdict
from itertools import zip_longest
from typing import Any, DefaultDict, List, Sequence, Set, Tuple

from mxdp.backend import NDArray, gluon
from mxdp.errors import MxdpError
from mxdp.processes.world import World

NUMBER = re.compile(r"(\d+)")
SAME = "make the same network on every rank, before any other layers"


def agree_names(world: World, names: Sequence[str]) -> None:
    """Compare the order of gluon's parameters over all ranks, by their names; of ``dense0_`` and ``dense7_`` only the
    order of the numbers counts. Waits for the ranks. Raises an MxdpError, on every rank, if the orders differ."""
    ranks = world.gather((list(names), without_counts(names)))
    for rank, (theirs, order) in enumerate(ranks):
        for number, (first, other) in enumerate(zip_longest(ranks[0][1], order)):
            if first != other:
                here, there = (
                    (*of_rank[number : number + 1], "missing")[0]
                    for of_rank in (theirs, ranks[0][0])
                )
                what = f"parameter {number} is {here} on rank {rank} and {there} on rank 0"
                raise MxdpError(
                    f"the ranks can't train together: {what}, which is another place in the network: {SAME}"
                )


def calling_trainer() -> Any:
    """The gluon Trainer whose method called this one's caller, or None. (gluon gives a store numbers, not names.)"""
    trainer = sys._getframe(2).f_locals.get("self")
    return trainer if isinstance(trainer, gluon.Trainer) else None


def without_counts(names: Sequence[str]) -> List[str]:
    """Each number of a name replaced by its place among the numbers that follow the same text.

    >>> without_counts(["dense10_weight", "dense9_weight", "net3_conv7_bias"])
    ['dense1_weight', 'dense0_weight', 'net0_conv0_bias']
    """
    split = [NUMBER.split(name) for name in names]  # text, number, text, number, text
    counts: DefaultDict[Tuple[str, ...], Set[int]] = defaultdict(set)
    for parts in split:
        for at in range(1, len(parts), 2):
            counts[tuple(parts[:at])].add(int(parts[at]))
    places = {
        text: {count: place for place, count in enumerate(sorted(numbers))}
        for text, numbers in counts.items()
    }
    return [
        "".join(
            str(places[tuple(parts[:at])][int(part)]) if at % 2 else part
            for at, part in enumerate(parts)
        )
        for parts in split
    ]


def agree_values(world: World, arrays: Sequence[NDArray]) -> None:
    """Compare the initial values of arrays that have no names. Waits for them and the ranks. Raises an MxdpError, on
    every rank, if a rank has rank 0's values in another order. (Other values can't be compared so.)"""
    if world.size == 1:
        return
    first, *others = world.gather([zlib.crc32(array.asnumpy()) for array in arrays])
    for rank, checksums in enumerate(others, 1):
        moved = [number for number, pair in enumerate(zip(first, checksums)) if pair[0] != pair[1]]
        if moved and sorted(checksums) == sorted(first):
            raise MxdpError(
                f"the ranks can't train together: rank {rank} has rank 0's parameters in another order (from parameter "
                f"{moved[0]} on): {SAME}, and give its parameters in the same order"
            )
