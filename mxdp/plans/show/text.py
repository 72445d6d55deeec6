"""Plans as text of a given width."""

from __future__ import annotations

import textwrap
from itertools import zip_longest
from typing import Any, List, Mapping, Sequence, Tuple

from mxdp.errors import plural
from mxdp.plans.collective.schedule import Schedule
from mxdp.plans.layers.fully_sharded import ShardedPlan
from mxdp.plans.layers.halo import Exchange
from mxdp.plans.pipeline import PIPELINES, PipelinePlan, cycles
from mxdp.plans.show.board import Plan, board_of, tasks_in_words, words
from mxdp.plans.show.contents import contents, sends, written

MOST_DRAWN = 8
"""Devices whose contents are shown: with more no terminal is wide enough."""
MOST_LINES = 4
"""Lines of text in a row of the table of these contents."""
GAP = 3
"""Spaces between two sends, and between columns if they fit."""

Rows = Sequence[Sequence[str]]
"""A table; its first row has the headings. A cell may have several lines."""


def as_text(plan: Plan, width: int) -> str:
    """The plan with its headline and how to read it."""
    if isinstance(plan, Exchange):
        return f"{plan}\n\nTile 0 (o: its own; 1, 2: arrives in this step; .: outside the picture):\n{plan.drawn(0)}"
    if isinstance(plan, Schedule):
        title, about, legend = words(plan)
        *drawn, legend = _collective(plan, legend, width)
    else:
        board = board_of(plan)
        title = board.title
        about = board.about
        if isinstance(plan, PipelinePlan):
            drawn = staircase(plan, width)
            legend = board.legend
        else:
            drawn = lives(plan, width)
            legend = tasks_in_words(plan)
    return "\n\n".join([_wrapped(f"{title}\n{about}", width), *drawn, _wrapped(legend, width)])


def list_as_text(rows: Sequence[Mapping[str, Any]], devices: int, width: int) -> str:
    """All collectives for ``devices`` devices, and how to see others. ``rows``: of ``python -m mxdp.plans --json``."""
    lines = [("plan", "steps", "sent", "what it does")]
    for row in rows:
        lines.append((row["name"], row["steps"], f"{row['sent']:.3g}", row["what"]))
    name_width = max(len(name) for name, *_ in lines)
    sent_width = max(len(sent) for _, _, sent, _ in lines)
    table = []  # Its sentences have 20 columns also where the terminal has less room.
    for name, steps, sent, what in lines:
        left = f"{name:{name_width}}  {steps:>5}  {sent:>{sent_width}}  "
        table.append(_wrapped(what, max(width, len(left) + 20), left))
    heading = f"{plural(devices, 'device')}; sent: vectors that the busiest device sends, in all steps together"
    note = f"sharded is given {plural(devices, 'equal array')}. One plan: python -m mxdp.plans NAME {devices}"
    others = (
        f"Pipelines ({', '.join(sorted(PIPELINES))}): python -m mxdp.plans gpipe {devices} --micro-batches 4\n"
        f"Layers in shards (ZeRO): python -m mxdp.plans fully-sharded {devices} --stage 3"
    )
    below = f"{_wrapped(note, width)}\n{others}"
    return "\n\n".join([_wrapped(heading, width), "\n".join(table), below])


def staircase(plan: PipelinePlan, width: int = 80) -> List[str]:
    """The drawing, cut into pieces of at most ``width`` columns of text.

    >>> from mxdp.plans.pipeline import gpipe
    >>> print(*staircase(gpipe(2, 2)))
    cycle     0   1   2   3   4   5
    stage 0   F0  F1          B1  B0
    stage 1       F0  F1  B1  B0
    """
    by_cycle = cycles(plan)
    rows = [["cycle", *map(str, range(len(by_cycle)))]]
    for stage, tasks in enumerate(zip(*by_cycle)):
        rows.append([f"stage {stage}", *(str(task or "") for task in tasks)])
    return _pieces(rows, 2, width)


def lives(plan: ShardedPlan, width: int = 80) -> List[str]:
    """The drawing, a letter for each task of a layer, cut into pieces of at most ``width`` columns of text.

    >>> from mxdp.plans.layers.fully_sharded import fully_sharded
    >>> print(*lives(fully_sharded(2, 2, stage=2)))
    layer 0   F       B R U   G
    layer 1     F B R       U   G
    """
    rows = []
    for layer in range(plan.layers):
        letters = (task.kind if task.layer == layer else "" for task in plan.tasks)
        rows.append([f"layer {layer}", *letters])
    return _pieces(rows, 1, width)


def _pieces(rows: Rows, gap: int, width: int) -> List[str]:
    """Rows of a label and texts, in columns of equal width, cut into pieces that all have the labels."""
    left = max(len(label) for label, *_ in rows) + GAP
    cell = max(len(text) for _, *texts in rows for text in texts)
    widths = [cell] * max(1, (width - left + gap) // (cell + gap))
    cut = []
    for label, *texts in rows:
        lines = _lines(texts, widths, " " * gap).split("\n")
        cut.append([f"{label:{left}}{line}".rstrip() for line in lines])
    return ["\n".join(piece) for piece in zip(*cut)]


def _collective(schedule: Schedule, legend: str, width: int) -> List[str]:
    """One table if there is room, else two: sends and contents. Last the legend, or why something is not shown."""
    if not schedule.steps:
        return ["There is nothing to send."]
    chunks = schedule.chunks
    numbers = [str(number + 1) for number in range(len(schedule.steps))]
    actions = [", ".join(dict.fromkeys(send.action for send in step)) for step in schedule.steps]
    sent = [sends(step, chunks) for step in schedule.steps]
    room = width - _wide(_aligned([("step", "what"), *zip(numbers, actions)], 2)) - 2
    folded = [_fold(texts, room, chunks) for texts in sent]
    heading = ("step", "what", "sends")
    sending = _aligned([heading, *zip(numbers, actions, folded)], 2)
    if schedule.devices > MOST_DRAWN:
        return [sending, f"What each device holds is shown for up to {MOST_DRAWN} devices."]
    in_a_line = [(" " * GAP).join(texts) for texts in sent]
    one = [heading, ("start", "", ""), *zip(numbers, actions, in_a_line)]
    layouts: List[Tuple[List[str], Rows]] = []
    layouts.append(([], _held(schedule, one, "device ", chunks)))
    labels = [("device",), ("start",), *((f"step {number}",) for number in numbers)]
    # Of decreasing width: the chunks of a device in one line, then in two, and so on.
    for lines in range(1, min(MOST_LINES, chunks) + 1):
        layouts.append(([sending], _held(schedule, labels, "", -(-chunks // lines))))
    for above, rows in layouts:
        for gap in (GAP, 2):
            table = _aligned(rows, gap)
            if _wide(table) <= width:
                return [*above, table, legend]
    needed = min(_wide(_aligned(rows, 2)) for _, rows in layouts)
    return [
        sending,
        f"The table of what each device holds needs {needed} columns, and the terminal has {width}: make it wider, or "
        f"set COLUMNS={needed}.",
    ]


def _held(schedule: Schedule, left: Rows, heading: str, a_line: int) -> Rows:
    """Right of ``left``: what each device holds at the start and after each step, ``a_line`` chunks in a line."""
    after = contents(schedule)
    chunks = range(schedule.chunks)
    columns = []
    for device in range(schedule.devices):
        cells = []
        for held in after:
            cells.append([written(schedule, chunk, held[device, chunk]) for chunk in chunks])
        widths = [0] * a_line
        for chunk in chunks:
            place = chunk % a_line
            widths[place] = max(widths[place], *(len(cell[chunk]) for cell in cells))
        columns.append([f"{heading}{device}", *(_lines(cell, widths, " ") for cell in cells)])
    return [(*row, *held) for row, held in zip(left, zip(*columns))]


def _fold(texts: Sequence[str], room: int, chunks: int) -> str:
    """Sends in lines of equal length: one line if it fits, else one send for every chunk in a line if that divides."""
    widest = max(map(len, texts))
    most = max(1, (room + GAP) // (widest + GAP))
    lines = -(-len(texts) // most)
    a_line = -(-len(texts) // lines)
    if lines > 1 and most >= chunks > 1 and len(texts) % chunks == 0:
        a_line = chunks
    return _lines(texts, [widest] * a_line, " " * GAP)


def _lines(texts: Sequence[str], widths: Sequence[int], gap: str) -> str:
    """The texts in lines of ``len(widths)`` texts."""
    lines = []
    for start in range(0, len(texts), len(widths)):
        padded = (text.ljust(width) for text, width in zip(texts[start:], widths))
        lines.append(gap.join(padded).rstrip())
    return "\n".join(lines)


def _aligned(rows: Rows, gap: int) -> str:
    """A table as text, with ``gap`` spaces between its columns."""
    lines: List[Tuple[str, ...]] = []
    for row in rows:
        cells = [cell.split("\n") for cell in row]
        lines += zip_longest(*cells, fillvalue="")
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(_lines(line, widths, " " * gap) for line in lines)


def _wide(text: str) -> int:
    return max(map(len, text.split("\n")))


def _wrapped(text: str, width: int, left: str = "") -> str:
    """Each line of the text in as many as it needs, to the right of ``left``."""
    indent = " " * len(left)
    wrapper = textwrap.TextWrapper(max(width, 1), left, indent, break_on_hyphens=False)
    return "\n".join(map(wrapper.fill, text.split("\n")))
