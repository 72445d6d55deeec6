"""A collective in words: what is sent, and which devices' parts each device holds in which chunk after each step.

The notation is that of the drawings in :mod:`mxdp.plans.collective`.
"""

from __future__ import annotations

from typing import List, Sequence, Tuple

from mxdp.errors import plural
from mxdp.plans.collective.schedule import COPY, READ, Schedule, Send, Step

Summed = Tuple[int, ...]
"""The devices whose parts are in a sum, in order. A part that was added twice is listed twice."""

Held = Tuple[Tuple[Summed, ...], ...]
"""``held[device][chunk]``"""


def contents(schedule: Schedule) -> List[Held]:
    """The contents of each device at the start, when it has its own part of every chunk, and after each step.

    A chunk that arrives is added, or overwrites if the action is ``COPY``. All sends of a step carry what their sources
    held before the step.
    """
    held: Held = tuple(((device,),) * schedule.chunks for device in range(schedule.devices))
    after = [held]
    for step in schedule.steps:
        now = [list(chunks) for chunks in held]
        for send in step:
            arrives = held[send.source][send.chunk]
            kept = () if send.action == COPY else now[send.target][send.chunk]
            now[send.target][send.chunk] = tuple(sorted(kept + arrives))
        held = tuple(map(tuple, now))
        after.append(held)
    return after


def letter(chunk: int) -> str:
    """The name of a chunk in drawings: a, b ... z, aa, ab ...

    >>> letter(25), letter(26), letter(127)
    ('z', 'aa', 'dx')
    """
    before, last = divmod(chunk, 26)
    return (letter(before - 1) if before else "") + chr(ord("a") + last)


def written(chunks: Sequence[Summed], devices: int) -> List[str]:
    """The contents of a device, chunk by chunk, as in the drawings.

    ``b02`` is the sum of chunk b of devices 0 and 2, ``B`` the complete sum. If the vector has only one chunk, the sum
    is written out: ``0+2``.

    >>> written([(0,), (0, 2), (0, 1, 2)], devices=3), written([(0, 1, 2)], 3), written([(0,), (1, 11)], devices=12)
    (['a0', 'b02', 'C'], ['0+1+2'], ['a0', 'b1+11'])
    """
    if len(chunks) == 1:
        return ["+".join(map(str, chunks[0]))]
    comma = "" if devices <= 10 else "+"
    complete = tuple(range(devices))
    return [
        letter(chunk).upper() if parts == complete else letter(chunk) + comma.join(map(str, parts))
        for chunk, parts in enumerate(chunks)
    ]


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


def adds(schedule: Schedule) -> bool:
    """True if the plan adds anything; the others, such as a broadcast, only copy."""
    return any(send.action != COPY for step in schedule.steps for send in step)


def traffic(schedule: Schedule) -> str:
    """The name and the numbers of a plan, in two lines."""
    numbers = [f"{share:.3g}" for share in vectors_sent(schedule)]
    if len(set(numbers)) == 1:
        sent = f"Each device sends {numbers[0]} vector{'' if numbers[0] == '1' else 's'}."
    else:
        sent = f"Devices 0 to {schedule.devices - 1} send {', '.join(numbers)} vectors."
    chunks = plural(schedule.chunks, "chunk")
    if schedule.sizes:
        chunks += f" (whole arrays, elements: {', '.join(map(str, schedule.sizes))})"
    if schedule.reads:
        sent += " What is read in place is not sent."
    devices, steps = plural(schedule.devices, "device"), plural(len(schedule.steps), "step")
    return f"{schedule.name}: {devices}, {chunks}, {steps}\n{sent}"


def legend(schedule: Schedule) -> str:
    """A line that explains the notation of the contents."""
    if schedule.chunks == 1:
        return "0+1: the vectors of devices 0 and 1 added up." if adds(schedule) else "0: device 0's vector."
    parts = ["a0: device 0's chunk a"]
    if adds(schedule):
        parts += ["a01: devices 0 and 1 added up"] * (schedule.devices > 2) + ["A: all devices added up"]
    return "; ".join(parts) + "."
