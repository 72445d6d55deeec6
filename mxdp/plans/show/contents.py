"""What each device holds after each step of a plan: whose parts were added up there, and how often."""

from __future__ import annotations

from typing import List, Sequence, Tuple

from mxdp.plans.collective.schedule import COPY, Schedule

Parts = Tuple[int, ...]
"""The devices whose parts are in a sum, in order; twice where a part was added twice."""

Held = Tuple[Tuple[Parts, ...], ...]
"""``held[device][chunk]``"""


def holdings(schedule: Schedule) -> List[Held]:
    """What each device holds at the start, where each has its own part of every chunk, and after each step.

    What arrives is added, or overwrites if the action is ``COPY``. All that leaves in a step is what was there before
    it.

    >>> from mxdp.plans.collective.one_hop import naive
    >>> for held in holdings(naive(2)):
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
    """The chunk's name in drawings: a, b, c ... z, aa, ab ...

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
    """What a device holds, chunk by chunk, as the drawings have it: ``b02`` for the parts of devices 0 and 2 of chunk
    b, ``B`` for the complete sum. A vector of one chunk is ``0+2``, its sum written out.

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
