"""Plans as text of a given width: who sends what in each step and what each device then holds; staircases; tiles; the
lives of layers."""

from __future__ import annotations

import textwrap
from itertools import zip_longest
from typing import Any, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from mxdp.errors import plural
from mxdp.plans.collective.schedule import Schedule
from mxdp.plans.layers.fully_sharded import ShardedPlan
from mxdp.plans.layers.halo import Exchange
from mxdp.plans.pipeline import PipelinePlan, cycles
from mxdp.plans.show.board import PASSES, bubbles, shares_held, tasks_in_words
from mxdp.plans.show.contents import Held, contents, legend, sends, traffic, written

MOST_DRAWN, MOST_LINES = 8, 4
"""Devices whose contents are shown (with more no terminal is wide enough), and lines of text in a row of that table."""
LEAST = 20
"""Columns of the list's sentences, also where the terminal has less room."""
GAP = 3
"""Spaces between two sends, and between columns if they fit."""

Plan = Union[Schedule, PipelinePlan, Exchange, ShardedPlan]
Rows = Sequence[Sequence[str]]
"""A table; its first row has the headings. A cell may have several lines."""


def as_text(plan: Plan, width: int) -> str:
    """The plan with its headline and how to read it."""
    if isinstance(plan, Exchange):
        words = "Tile 0 (o: its own; 1, 2: arrives in this step; .: outside the picture):"
        return f"{plan}\n\n{words}\n{plan.drawn(0)}"
    if isinstance(plan, ShardedPlan):
        blocks = [_wrapped(shares_held(plan), width), *lives(plan, width), _wrapped(tasks_in_words(plan), width)]
    elif isinstance(plan, PipelinePlan):
        blocks = [_wrapped(bubbles(plan), width), *staircase(plan, width), _wrapped(PASSES, width)]
    else:
        blocks = [_wrapped(traffic(plan), width), *_collective(plan, width)]
    return "\n\n".join(blocks)


def list_as_text(rows: Sequence[Mapping[str, Any]], devices: int, width: int) -> str:
    """All collectives for ``devices`` devices. A row has ``name``, ``steps``, ``sent`` (vectors that the busiest device
    sends) and ``what``."""
    sent = [f"{row['sent']:.3g}" for row in rows]
    wide = max(map(len, ["sent", *sent]))
    left = [("plan", "steps", "sent".rjust(wide))]
    left += [(row["name"], f"{row['steps']:5}", text.rjust(wide)) for row, text in zip(rows, sent)]
    room = max(LEAST, width - _wide(_aligned(left, 2)) - 2)
    what = ["what it does", *(_wrapped(row["what"], room) for row in rows)]
    heading = f"{plural(devices, 'device')}; sent: vectors that the busiest device sends, in all steps together"
    note = f"sharded is given {plural(devices, 'equal array')}. One plan: python -m mxdp.plans NAME {devices}"
    table = _aligned([(*row, text) for row, text in zip(left, what)], 2)
    return "\n\n".join([_wrapped(heading, width), table, _wrapped(note, width)])


def staircase(plan: PipelinePlan, width: int = 80) -> List[str]:
    """The drawing, cut into pieces of at most ``width`` columns of text.

    >>> from mxdp.plans.pipeline import gpipe
    >>> print("\\n\\n".join(staircase(gpipe(2, 2), width=30)))
    cycle     0   1   2   3   4
    stage 0   F0  F1          B1
    stage 1       F0  F1  B1  B0
    <BLANKLINE>
    cycle     5
    stage 0   B0
    stage 1
    """
    rows = cycles(plan)
    lines = [["cycle", *map(str, range(len(rows)))]]
    lines += [[f"stage {stage}", *(str(row[stage] or "") for row in rows)] for stage in range(plan.stages)]
    left = max(len(label) for label, *_ in lines) + 3
    cell = max(len(text) for _, *texts in lines for text in texts) + 2
    at_once = max(1, (width - left + 2) // cell)
    return [
        "\n".join(
            (label.ljust(left) + "".join(text.ljust(cell) for text in texts[first : first + at_once])).rstrip()
            for label, *texts in lines
        )
        for first in range(0, len(rows), at_once)
    ]


def lives(plan: ShardedPlan, width: int = 80) -> List[str]:
    """The drawing, a letter for each task of a layer, cut into pieces of at most ``width`` columns of text.

    >>> from mxdp.plans.layers.fully_sharded import fully_sharded
    >>> print(*lives(fully_sharded(2, 2, stage=2)))
    layer 0   F       B R U   G
    layer 1     F B R       U   G
    """
    left = len(f"layer {plan.layers - 1}") + GAP
    at_once = max(1, (width - left + 1) // 2)
    pieces = (plan.tasks[first : first + at_once] for first in range(0, len(plan.tasks), at_once))
    return [
        "\n".join(
            (
                f"layer {layer}".ljust(left) + " ".join(task.kind if task.layer == layer else " " for task in piece)
            ).rstrip()
            for layer in range(plan.layers)
        )
        for piece in pieces
    ]


def _collective(schedule: Schedule, width: int) -> Iterator[str]:
    """One table if there is room, else two: sends and contents."""
    if not schedule.steps:
        yield "There is nothing to send."
        return
    devices, chunks = range(schedule.devices), schedule.chunks
    steps = [
        (str(n), ", ".join(dict.fromkeys(send.action for send in step))) for n, step in enumerate(schedule.steps, 1)
    ]
    sent = [sends(step, chunks) for step in schedule.steps]
    after = contents(schedule) if schedule.devices <= MOST_DRAWN else []
    if after:
        left = [("step", "what", "sends"), ("start", "", "")]
        left += [(*step, (" " * GAP).join(texts)) for step, texts in zip(steps, sent)]
        right = [tuple(f"device {device}" for device in devices), *_cells(schedule, after, chunks)]
        table = _first_that_fits([[a + b for a, b in zip(left, right)]], width)
        if table:
            yield from (table, _wrapped(legend(schedule), width))
            return
    room = width - _wide(_aligned([("step", "what"), *steps], 2)) - 2
    rows = [(*step, _fold(texts, room, chunks)) for step, texts in zip(steps, sent)]
    yield _aligned([("step", "what", "sends"), *rows], 2)
    if not after:
        yield _wrapped(f"What each device holds is shown for up to {MOST_DRAWN} devices.", width)
        return
    # Tables of decreasing width: the chunks of a device in one line, then in two, and so on.
    labels = ["device", "start", *(f"step {number}" for number, _ in steps)]
    tables = []
    for lines in range(1, min(MOST_LINES, chunks) + 1):
        held = [tuple(map(str, devices)), *_cells(schedule, after, -(-chunks // lines))]
        tables.append([(label, *row) for label, row in zip(labels, held)])
    table = _first_that_fits(tables, width)
    needed = min(_wide(_aligned(rows, 2)) for rows in tables)
    too_wide = (
        f"The table of what each device holds needs {needed} columns, and the terminal has {width}: make it wider, or "
        f"set COLUMNS={needed}."
    )
    yield from (table, _wrapped(legend(schedule), width)) if table else (_wrapped(too_wide, width),)


def _cells(schedule: Schedule, after: Sequence[Held], a_line: int) -> List[Tuple[str, ...]]:
    """The contents of each device, ``a_line`` chunks in a line, aligned in columns."""
    columns = []
    for device in range(schedule.devices):
        cells = [written(held[device], schedule.devices) for held in after]
        widths = [max(len(text) for cell in cells for text in cell[place::a_line]) for place in range(a_line)]
        columns.append([_lines(cell, widths, " ") for cell in cells])
    return list(zip(*columns))


def _fold(texts: Sequence[str], room: int, chunks: int) -> str:
    """Sends in lines of equal length: one line if it fits, else one send for every chunk in a line if that divides."""
    widest = max(map(len, texts))
    most = max(1, (room + GAP) // (widest + GAP))
    a_line = -(-len(texts) // -(-len(texts) // most))
    if len(texts) > most >= chunks > 1 and len(texts) % chunks == 0:
        a_line = chunks
    return _lines(texts, [widest] * a_line, " " * GAP)


def _lines(texts: Sequence[str], widths: Sequence[int], gap: str) -> str:
    """The texts in lines of ``len(widths)`` texts."""
    lines = (texts[start : start + len(widths)] for start in range(0, len(texts), len(widths)))
    return "\n".join(gap.join(text.ljust(width) for text, width in zip(line, widths)).rstrip() for line in lines)


def _first_that_fits(tables: Sequence[Rows], width: int) -> Optional[str]:
    texts = (_aligned(rows, gap) for rows in tables for gap in (GAP, 2))
    return next((text for text in texts if _wide(text) <= width), None)


def _aligned(rows: Rows, gap: int) -> str:
    """A table as text, with ``gap`` spaces between its columns."""
    lines = [line for row in rows for line in zip_longest(*(cell.split("\n") for cell in row), fillvalue="")]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(_lines(line, widths, " " * gap) for line in lines)


def _wide(text: str) -> int:
    return max(map(len, text.split("\n")))


def _wrapped(text: str, width: int) -> str:
    return "\n".join(textwrap.fill(line, max(width, 1), break_on_hyphens=False) for line in text.split("\n"))
