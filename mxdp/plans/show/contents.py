"""A collective in words: what is sent, and which devices' parts each device holds in which chunk after each step.

The notation is that of the drawings in :mod:`mxdp.plans.collective`.
"""

from __future__ import annotations

from typing import Dict, List, Tuple

from mxdp.plans.collective.schedule import COPY, READ, Schedule, Send, Step

Summed = Tuple[int, ...]
"""The devices whose parts are in a sum, in order. A part that was added twice is listed twice."""

Held = Dict[Tuple[int, int], Summed]
"""``held[device, chunk]``"""


def contents(schedule: Schedule) -> List[Held]:
    """What each device holds of each chunk, by device and chunk: its own parts at the start, and after each step.

    A chunk that arrives is added, or overwrites if the action is ``COPY``. All sends of a step carry what their sources
    held before the step.
    """
    start: Held = {(device, chunk): (device,) for device in range(schedule.devices) for chunk in range(schedule.chunks)}
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


def written(schedule: Schedule, chunk: int, parts: Summed) -> str:
    """What a device holds of a chunk, as in the drawings.

    ``b02`` is the sum of chunk b of devices 0 and 2, ``B`` the complete sum. If the vector has only one chunk, the sum
    is written out: ``0+2``. So is that of more than ten devices: ``b1+11``.
    """
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
            texts.append(f"{target} reads {name}{source}" if send.action == READ else f"{source} -{name}-> {target}")
        elif Send(target, source, send.chunk, send.action) not in step:
            texts.append(f"{source} -> {target}")
        elif source < target:
            texts.append(f"{source} <-> {target}")
    return texts


def vectors_sent(schedule: Schedule) -> List[float]:
    """How many vectors each device sends, in all steps together."""
    length = sum(schedule.sizes) or schedule.chunks
    return [sent / length for sent in schedule.sent(length)]
