"""What a collective sends and what each device then holds, as in the drawings of :mod:`mxdp.plans.collective`."""

from __future__ import annotations

from itertools import product
from typing import Dict, List, Tuple

from mxdp.plans.collective.schedule import COPY, READ, Schedule, Send, Step

Held = Dict[Tuple[int, int], Tuple[int, ...]]
"""``held[device, chunk]``: the devices whose parts are in the sum, sorted; what was added twice stands twice."""


def contents(schedule: Schedule) -> List[Held]:
    """What the devices hold at the start, when each has its own part of every chunk, and after each step, in which all
    sends carry what their sources held before it."""
    places = product(range(schedule.devices), range(schedule.chunks))
    after: List[Held] = [{(device, chunk): (device,) for device, chunk in places}]
    for step in schedule.steps:
        before = after[-1]
        now = dict(before)
        for send in step:
            parts = before[send.source, send.chunk]
            if send.action != COPY:
                parts += now[send.target, send.chunk]
            now[send.target, send.chunk] = tuple(sorted(parts))
        after.append(now)
    return after


def letter(chunk: int) -> str:
    """The name of a chunk in drawings: a, b ... z, aa, ab ...

    >>> letter(25), letter(26), letter(127)
    ('z', 'aa', 'dx')
    """
    before, last = divmod(chunk, 26)
    name = chr(ord("a") + last)
    return letter(before - 1) + name if before else name


def written(schedule: Schedule, chunk: int, parts: Tuple[int, ...]) -> str:
    """A sum as in the drawings: ``b02`` is chunk b of devices 0 and 2, ``B`` that of all devices. The only chunk of a
    vector has no letter: ``0+2``. A number of two digits needs a plus before it: ``b1+11``."""
    if schedule.chunks == 1:
        return "+".join(map(str, parts))
    if parts == tuple(range(schedule.devices)):
        return letter(chunk).upper()
    between = "" if schedule.devices <= 10 else "+"
    return letter(chunk) + between.join(map(str, parts))


def sends(step: Step, chunks: int) -> List[str]:
    """The sends of a step as in the drawings. Two devices that exchange the only chunk make one entry.

    >>> sends((Send(0, 1, 2, "add"), Send(1, 0, 0, "read")), chunks=3)
    ['0 -c-> 1', '0 reads a1']
    >>> sends((Send(0, 1, 0, "add"), Send(1, 0, 0, "add"), Send(2, 0, 0, "add")), chunks=1)
    ['0 <-> 1', '2 -> 0']
    """
    texts = []
    for send in step:
        source = send.source
        target = send.target
        name = letter(send.chunk)
        if chunks > 1 and send.action == READ:
            texts.append(f"{target} reads {name}{source}")
        elif chunks > 1:
            texts.append(f"{source} -{name}-> {target}")
        elif Send(target, source, send.chunk, send.action) not in step:
            texts.append(f"{source} -> {target}")
        elif source < target:
            texts.append(f"{source} <-> {target}")
    return texts


def vectors_sent(schedule: Schedule) -> List[float]:
    """How many vectors each device sends, in all steps together."""
    length = sum(schedule.sizes) or schedule.chunks
    return [sent / length for sent in schedule.sent(length)]
