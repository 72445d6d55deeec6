"""Prints plans as tables: who sends what in each step, and what each device then holds.

The notation is that of the drawings in :mod:`mxdp.plans.collective.rings`, :mod:`mxdp.plans.collective.trees` and
:mod:`mxdp.plans.collective.one_hop`.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Sequence, Tuple

from rich.console import Console
from rich.table import Table

from mxdp.errors import plural
from mxdp.plans.collective.schedule import COPY, READ, Schedule, Send, Step
from mxdp.plans.show.contents import Held, contents, letter, written

MOST_DRAWN = 8
"""The contents are shown for at most this many devices; with more no terminal is wide enough."""

MOST_LINES = 4
"""Most lines of text in one row of the table of contents."""

GAP = 3
"""Spaces between two sends, and between columns if they fit."""


def print_plans(rows: Sequence[Dict[str, Any]], devices: int) -> None:
    """Print all plans for ``devices`` devices. A row has ``name``, ``steps``, ``sent`` (vectors that the busiest device
    sends) and ``what``."""
    console = Console(highlight=False)
    console.print(f"{plural(devices, 'device')}; sent: vectors that the busiest device sends, in all steps together\n")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("plan", no_wrap=True)
    table.add_column("steps", no_wrap=True, justify="right")
    table.add_column("sent", no_wrap=True, justify="right")
    table.add_column("what it does")
    for row in rows:
        table.add_row(row["name"], str(row["steps"]), f"{row['sent']:.3g}", row["what"])
    console.print(table)
    console.print(f"\nsharded is given {plural(devices, 'equal array')}. One plan: python -m mxdp.plans NAME {devices}")


def print_plan(schedule: Schedule) -> None:
    """Print the plan in one table if the terminal is wide enough, else in two: sends and contents."""
    console = Console(highlight=False)
    console.print(headline(schedule) + "\n")
    if not schedule.steps:
        console.print("There is nothing to send.")
        return
    after = contents(schedule) if schedule.devices <= MOST_DRAWN else []
    if after and _print_first_that_fits(console, [_one_table(schedule, after)]):
        console.print("\n" + legend(schedule))
        return
    _print(console, _sends_table(schedule, console.width))
    if not after:
        console.print(f"\nWhat each device holds is shown for up to {MOST_DRAWN} devices.")
        return
    tables = list(_contents_tables(schedule, after))
    console.print()
    if _print_first_that_fits(console, tables):
        console.print("\n" + legend(schedule))
    else:
        needed = min(map(_width, tables))
        console.print(
            f"The table of what each device holds needs {needed} columns, and the terminal has {console.width}: "
            f"make it wider, or set COLUMNS={needed}."
        )


def shares(schedule: Schedule) -> List[float]:
    """The number of vectors that each device sends in all steps.

    >>> from mxdp.plans.collective.rings import ring
    >>> shares(ring(4))
    [1.5, 1.5, 1.5, 1.5]
    """
    length = sum(schedule.sizes) or schedule.chunks
    return [sent / length for sent in schedule.sent(length)]


def headline(schedule: Schedule) -> str:
    """The name and the numbers of a plan.

    >>> from mxdp.plans.collective.trees import tree
    >>> print(headline(tree(3)))
    tree: 3 devices, 1 chunk, 4 steps
    Devices 0 to 2 send 2, 1, 1 vectors.
    """
    numbers = [f"{share:.3g}" for share in shares(schedule)]
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


def sends(step: Step, chunks: int) -> List[str]:
    """The sends of a step as in the drawings. Two devices that exchange the only chunk make one entry.

    >>> sends((Send(0, 1, 2, "add"), Send(1, 0, 0, "read")), chunks=3)
    ['0 -c-> 1', '0 reads a1']
    >>> sends((Send(0, 1, 0, "add"), Send(1, 0, 0, "add"), Send(2, 0, 0, "add")), chunks=1)
    ['0 <-> 1', '2 -> 0']
    """
    if chunks > 1:
        return [
            f"{send.target} reads {letter(send.chunk)}{send.source}"
            if send.action == READ
            else f"{send.source} -{letter(send.chunk)}-> {send.target}"
            for send in step
        ]
    texts = []
    for send in step:
        if Send(send.target, send.source, send.chunk, send.action) not in step:
            texts.append(f"{send.source} -> {send.target}")
        elif send.source < send.target:
            texts.append(f"{send.source} <-> {send.target}")
    return texts


Rows = List[Tuple[str, ...]]
"""A table; its first row has the headings. A cell may have several lines."""


def _one_table(schedule: Schedule, after: Sequence[Held]) -> Rows:
    steps = [("start", "", "")]
    for number, step in enumerate(schedule.steps, 1):
        steps.append((str(number), _what(step), (" " * GAP).join(sends(step, schedule.chunks))))
    headings = ("step", "what", "sends", *(f"device {device}" for device in range(schedule.devices)))
    return [headings, *(step + row for step, row in zip(steps, _cells(schedule, after, schedule.chunks)))]


def _sends_table(schedule: Schedule, width: int) -> Rows:
    left = [("step", "what"), *((str(number), _what(step)) for number, step in enumerate(schedule.steps, 1))]
    room = width - _width([(*row, "") for row in left])
    right = ["sends", *(_fold(sends(step, schedule.chunks), room, schedule.chunks) for step in schedule.steps)]
    return [(*row, folded) for row, folded in zip(left, right)]


def _contents_tables(schedule: Schedule, after: Sequence[Held]) -> Iterator[Rows]:
    """Tables of decreasing width: the chunks of a device in one line, then in two, and so on."""
    headings = ("device", *map(str, range(schedule.devices)))
    labels = ["start", *(f"step {number}" for number in range(1, len(after)))]
    for lines in range(1, min(MOST_LINES, schedule.chunks) + 1):
        rows = _cells(schedule, after, -(-schedule.chunks // lines))
        yield [headings, *((label, *row) for label, row in zip(labels, rows))]


def _cells(schedule: Schedule, after: Sequence[Held], a_line: int) -> Rows:
    """The contents of each device, ``a_line`` chunks in a line, aligned in columns."""
    columns = []
    for device in range(schedule.devices):
        cells = [written(held[device], schedule.devices) for held in after]
        widths = [max(len(text) for cell in cells for text in cell[place::a_line]) for place in range(a_line)]
        columns.append(["\n".join(_lines(cell, widths, " ")) for cell in cells])
    return list(zip(*columns))


def _lines(texts: Sequence[str], widths: Sequence[int], gap: str) -> Iterator[str]:
    for start in range(0, len(texts), len(widths)):
        line = texts[start : start + len(widths)]
        yield gap.join(text.ljust(width) for text, width in zip(line, widths)).rstrip()


def _fold(texts: Sequence[str], room: int, chunks: int) -> str:
    """Sends in lines of equal length: one line if it fits, else one send for every chunk in a line if that divides."""
    widest = max(map(len, texts))
    most = max(1, (room + GAP) // (widest + GAP))
    a_line = -(-len(texts) // -(-len(texts) // most))
    if len(texts) > most >= chunks > 1 and len(texts) % chunks == 0:
        a_line = chunks
    return "\n".join(_lines(texts, [widest] * a_line, " " * GAP))


def _what(step: Step) -> str:
    return ", ".join(dict.fromkeys(send.action for send in step))


def sums(schedule: Schedule) -> bool:
    """Whether the plan adds anything; the others, such as a broadcast, only copy."""
    return any(send.action != COPY for step in schedule.steps for send in step)


def legend(schedule: Schedule) -> str:
    """How to read what devices hold."""
    if schedule.chunks == 1:
        return "0+1: the vectors of devices 0 and 1 added up." if sums(schedule) else "0: device 0's vector."
    parts = ["a0: device 0's chunk a"]
    if sums(schedule):
        parts += ["a01: devices 0 and 1 added up"] * (schedule.devices > 2) + ["A: all devices added up"]
    return "; ".join(parts) + "."


def _width(rows: Rows, gap: int = 2) -> int:
    """The width of the printed table: its columns with ``gap`` spaces between them."""
    columns = [max(len(line) for cell in column for line in cell.split("\n")) for column in zip(*rows)]
    return sum(columns) + gap * (len(columns) - 1)


def _print_first_that_fits(console: Console, tables: Sequence[Rows]) -> bool:
    for rows in tables:
        for gap in (GAP, 2):
            if _width(rows, gap) <= console.width:
                _print(console, rows, gap)
                return True
    return False


def _print(console: Console, rows: Rows, gap: int = 2) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0))
    for heading in rows[0]:
        table.add_column(heading, no_wrap=True)
    for row in rows[1:]:
        table.add_row(*row)
    console.print(table)
