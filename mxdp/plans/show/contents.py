"""The contents of each device after each step of a plan: which devices' parts are in which chunk."""

from __future__ import annotations

from typing import List, Sequence, Tuple

from mxdp.plans.collective.schedule import COPY, Schedule

Parts = Tuple[int, ...]
"""The devices whose parts are in a sum, in order. A part that was added twice is listed twice."""

Held = Tuple[Tuple[Parts, ...], ...]
"""``held[device][chunk]``"""


def contents(schedule: Schedule) -> List[Held]:
    """The contents of each device at the start, when it has its own part of every chunk, and after each step.

    A chunk that arrives is added, or overwrites if the action is ``COPY``. All sends of a step carry what their sources
    held before the step.

    >>> from mxdp.plans.collective.one_hop import naive
    >>> for held in contents(naive(2)):
    ...     print(held)
    (((0,),), ((1,),))
    (((0, 1),), ((1,),))
    (((0, 1),), ((0, 1),))
    """
    held: Held = tuple(((device,),) * schedule.chunks for device in range(schedule.devices))
    after = [held]
    for step in schedule.steps:
        now = [list(chunks) for chunks in held]
        for send in step:
            arrives = held[send.source][send.chunk]
            own = () if send.action == COPY else now[send.target][send.chunk]
            now[send.target][send.chunk] = tuple(sorted(own + arrives))
        held = tuple(map(tuple, now))
        after.append(held)
    return after


def letter(chunk: int) -> str:
    """The name of a chunk in drawings: a, b, c ... z, aa, ab ...

    >>> letter(0), letter(25), letter(26), letter(127)
    ('a', 'z', 'aa', 'dx')
    """
    name = ""
    chunk += 1
    while chunk:
        chunk, last = divmod(chunk - 1, 26)
        name = chr(ord("a") + last) + name
    return name


def written(chunks: Sequence[Parts], devices: int) -> List[str]:
    """The contents of a device, chunk by chunk, as in the drawings.

    ``b02`` is the sum of chunk b of devices 0 and 2, ``B`` the complete sum. If the vector has only one chunk, the sum
    is written out: ``0+2``.

    >>> written([(0,), (0, 2), (0, 1, 2)], devices=3)
    ['a0', 'b02', 'C']
    >>> written([(0, 1, 2)], devices=3)
    ['0+1+2']
    >>> written([(0,), (1, 11)], devices=12)
    ['a0', 'b1+11']
    """
    if len(chunks) == 1:
        return ["+".join(map(str, chunks[0]))]
    comma = "" if devices <= 10 else "+"
    complete = tuple(range(devices))
    return [
        letter(chunk).upper() if parts == complete else letter(chunk) + comma.join(map(str, parts))
        for chunk, parts in enumerate(chunks)
    ]
