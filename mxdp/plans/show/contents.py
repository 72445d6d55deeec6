"""What a collective sends and what each device then holds, as in the drawings of :mod:`mxdp.plans.collective`."""

from __future__ import annotations

from typing import Dict, List, Tuple

from mxdp.plans.collective.schedule import COPY, READ, Schedule, Send, Step

Held = Dict[Tuple[int, int], Tuple[int, ...]]
"""``held[device, chunk]``: the devices whose parts are in the sum, sorted; what was added twice stands twice."""


def contents(schedule: Schedule) -> List[Held]:
    """What the devices hold at the start, when each has its own part of every chunk, and after each step, in which all
    sends carry what their sources held before it."""
    start: Held = {
        (device, chunk): (device,)
        for device in range(schedule.devices)
        for chunk in range(schedule.chunks)
    }
    after = [start]
    for step in schedule.steps:
        before, now = after[-1], dict(after[-1])
        for send in step:
            kept = () if send.action == COPY else now[send.target, send.chunk]
            now[send.target, send.chunk] = tuple(sorted(kept + before[send.source, send.chunk]))
        after.append(now)
    return after


def letter(chunk: int) -> str:
    """The name of a chunk in drawings: a, b ... z, aa, ab ...

    >>> letter(25), letter(26), letter(127)
    ('z', 'aa', 'dx')
    """
    before, last = divmod(chunk, 26)
    return (letter(before - 1) if before else "") + chr(ord("a") + last)


def written(schedule: Schedule, chunk: int, parts: Tuple[int, ...]) -> str:
    """A sum as in the drawings: ``b02`` is chunk b of devices 0 and 2, ``B`` that of all devices. The only chunk of a
    vector has no letter: ``0+2``. A number of two digits needs a plus before it: ``b1+11``."""
    if schedule.chunks == 1:
        return "+".join(map(str, parts))
    if parts == tuple(range(schedule.devices)):
        return letter(chunk).upper()
    return letter(chunk) + ("" if schedule.devices <= 10 else "+").join(map(str, parts))


def sends(step: Step, chunks: int) -> List[str]:
    """The sends of a step as in the drawings. Two devices that exchange the only chunk make one entry.

    >>> sends((Send(0, 1, 2, "add"), Send(1, 0, 0, "read")), chunks=3)
    ['0 -c-> 1', '0 reads a1']
    >>> sends((Send(0, 1, 0, "add"), Send(1, 0, 0, "add"), Send(2, 0, 0, "add")), chunks=1)
    ['0 <-> 1', '2 -> 0']
    """
    texts = []
    for send in step:
        source, target, name = send.source, send.target, letter(send.chunk)
        if chunks > 1:
            texts.append(
                f"{target} reads {name}{source}"
                if send.action == READ
                else f"{source} -{name}-> {target}"
            )
        elif Send(target, source, send.chunk, send.action) not in step:
            texts.append(f"{source} -> {target}")
        elif source < target:
            texts.append(f"{source} <-> {target}")
    return texts


def vectors_sent(schedule: Schedule) -> List[float]:
    """How many vectors each device sends, in all steps together."""
    length = sum(schedule.sizes) or schedule.chunks
    return [sent / length for sent in schedule.sent(length)]
