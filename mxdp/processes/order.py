"""Checks that all ranks give their parameters in one order. MPI adds what it is given, and can't notice a swap of
arrays of one shape.

gluon's Trainer sorts the names, and gluon counts layers in each process, so one rank may come to another order::

    rank 0    dense9_weight, dense10_weight     sorted: dense10_weight, dense9_weight      second layer, first layer
    rank 1    dense0_weight, dense1_weight      sorted: dense0_weight, dense1_weight       first layer, second layer
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from itertools import zip_longest
from typing import DefaultDict, List, Match, Sequence, Set

from mxdp.backend import NDArray
from mxdp.errors import MxdpError
from mxdp.processes.world import World

NUMBER = re.compile(r"\d+")
SAME = "make the same network on every rank, before any other layers"


def agree_names(world: World, names: Sequence[str]) -> None:
    """Compare the order of gluon's parameters over all ranks, by their names; of ``dense0_`` and ``dense7_`` only the
    order of the numbers counts. Waits for the ranks. Raises an MxdpError, on every rank, if the orders differ."""
    ranks = world.gather(list(zip(names, without_counts(names))))
    for rank, theirs in enumerate(ranks):
        places = zip_longest(ranks[0], theirs, fillvalue=("missing", ""))
        for number, ((there, first), (here, other)) in enumerate(places):
            if first != other:
                what = f"parameter {number} is {here} on rank {rank} and {there} on rank 0"
                raise MxdpError(
                    f"the ranks can't train together: {what}, which is another place in the network: {SAME}"
                )


def without_counts(names: Sequence[str]) -> List[str]:
    """Each number of a name replaced by its place among the numbers that follow the same text.

    >>> without_counts(["dense10_weight", "dense9_weight", "net3_conv7_bias"])
    ['dense1_weight', 'dense0_weight', 'net0_conv0_bias']
    """
    numbers: DefaultDict[str, Set[int]] = defaultdict(set)
    for name in names:
        for match in NUMBER.finditer(name):
            numbers[name[: match.start()]].add(int(match[0]))

    def place(match: Match[str]) -> str:
        same_text = numbers[match.string[: match.start()]]
        return str(sorted(same_text).index(int(match[0])))

    return [NUMBER.sub(place, name) for name in names]


def agree_values(world: World, arrays: Sequence[NDArray]) -> None:
    """Compare the initial values of arrays that have no names. Waits for them and the ranks. Raises an MxdpError, on
    every rank, if a rank has rank 0's values in another order. (Other values can't be compared so.)"""
    if world.size == 1:
        return
    ranks = world.gather([zlib.crc32(array.asnumpy()) for array in arrays])
    first = ranks[0]
    for rank, checksums in enumerate(ranks):
        both = enumerate(zip(first, checksums))
        moved = [number for number, (one, other) in both if one != other]
        if moved and sorted(checksums) == sorted(first):
            raise MxdpError(
                f"the ranks can't train together: rank {rank} has rank 0's parameters in another order (from parameter "
                f"{moved[0]} on): {SAME}, and give its parameters in the same order"
            )
