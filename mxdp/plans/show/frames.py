"""Plans as boards whose cells change from frame to frame, for pages that show them move.

A collective's board has a row for each device and a column for each chunk, a pipeline's a row for each stage and a
column for each cycle, and a halo exchange's a cell for each pixel of each tile.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Dict, List, Tuple

from mxdp.errors import plural
from mxdp.plans.collective.schedule import Schedule
from mxdp.plans.layers.halo import Exchange
from mxdp.plans.pipeline import PipelinePlan, Task, cycles, needs
from mxdp.plans.show import staircases, tables
from mxdp.plans.show.contents import Parts, contents, letter, written

OWN, PARTIAL, COMPLETE, FORWARD, BACKWARD, LABEL = "own", "partial", "complete", "forward", "backward", "label"

Cell = Tuple[int, int, str, str]
"""Row, column, text and kind."""

Move = Tuple[int, int, int, int, str]
"""From a row and a column to a row and a column, and what travels."""


@dataclass
class Frame:
    """What changes on the board, what travels, and the same in words. ``sent``: vectors that the busiest device has
    sent so far, or pixels that have travelled."""

    cells: List[Cell] = field(default_factory=list)
    moves: List[Move] = field(default_factory=list)
    text: str = ""
    cost: str = ""
    sent: float = 0.0


@dataclass
class Board:
    """``unit``: what ``sent`` counts, if anything. ``about``: the headline; ``legend``: how to read it."""

    title: str
    about: str
    legend: str
    rows: List[str]
    columns: List[str]
    frames: List[Frame]
    unit: str = ""


def of_collective(schedule: Schedule) -> Board:
    """A frame for the start and one for each step."""
    chunks, devices = range(schedule.chunks), range(schedule.devices)
    after, sums = contents(schedule), tables.sums(schedule)
    # What only copies ends with the same on all devices.
    complete = (tuple(devices),) * schedule.chunks if sums else after[-1][0]

    def cell(device: int, chunk: int, held: Tuple[Parts, ...]) -> Cell:
        kind = COMPLETE if held[chunk] == complete[chunk] else OWN if len(held[chunk]) == 1 else PARTIAL
        return device, chunk, written(held, schedule.devices)[chunk], kind

    def said(held: Tuple[Tuple[Parts, ...], ...]) -> str:
        whole = [device for device in devices if held[device] == complete]
        if len(whole) == schedule.devices:
            return "Every device holds the complete sum." if sums else "Every device holds every chunk."
        if whole:
            what = "The complete sum is" if sums else "All chunks are"
            return f"{what} on {', '.join(f'device {device}' for device in whole)}."
        count = sum(parts == end for own in held for parts, end in zip(own, complete))
        return f"{count} of {schedule.devices * schedule.chunks} chunks are {'complete sums' if sums else 'in place'}."

    start = [cell(device, chunk, after[0][device]) for device in devices for chunk in chunks]
    frames = [Frame(start, text="The start: each device holds its own part of every chunk.")]
    for number, (step, before, now) in enumerate(zip(schedule.steps, after, after[1:]), 1):
        frame = Frame()
        for send in step:
            what = written(before[send.source], schedule.devices)[send.chunk]
            frame.moves.append((send.source, send.chunk, send.target, send.chunk, what))
        changed = [(d, c) for d in devices for c in chunks if now[d][c] != before[d][c]]
        frame.cells = [cell(device, chunk, now[device]) for device, chunk in changed]
        sends = ", ".join(tables.sends(step, schedule.chunks))
        frame.text = f"Step {number} of {len(schedule.steps)}: {sends}. {said(now)}"
        frame.sent = max(tables.shares(replace(schedule, steps=schedule.steps[:number])))
        frame.cost = f"So far {plural(number, 'step')}; the busiest device has sent {frame.sent:.3g} of a vector"
        frames.append(frame)
    title, about = tables.headline(schedule).split("\n")
    rows = [f"device {device}" for device in devices]
    columns = [f"chunk {letter(chunk)}" for chunk in chunks]
    return Board(title, about, tables.legend(schedule), rows, columns, frames, "a vector")


def of_pipeline(plan: PipelinePlan) -> Board:
    """A frame for each cycle, and one before."""
    rows = cycles(plan)
    done: Dict[Tuple[int, Task], int] = {}
    idle, kept = 0, [0] * plan.stages
    frames = [Frame(text="The start: no stage has worked yet.")]
    for cycle, row in enumerate(rows):
        frame, busy = Frame(), []
        for stage, task in enumerate(row):
            idle += task is None
            if task is None:
                continue
            done[stage, task] = cycle
            kept[stage] += 1 if task.kind == "F" else -1
            frame.cells.append((stage, cycle, str(task), FORWARD if task.kind == "F" else BACKWARD))
            busy.append(f"stage {stage} {task}")
            for place in needs(plan, stage, task):
                if place[0] != stage:
                    frame.moves.append((place[0], done[place], stage, cycle, str(task)))
        frame.text = f"Cycle {cycle} (of 0 to {len(rows) - 1}): {', '.join(busy)}."
        share = 100 * idle / (plan.stages * (cycle + 1))
        frame.cost = (
            f"So far {plural(cycle + 1, 'cycle')}, {share:.0f} % of them idle; activations are kept of "
            f"{', '.join(map(str, kept))} micro-batches by stages 0 to {plan.stages - 1}"
        )
        frames.append(frame)
    title, about = staircases.headline(plan).split("\n")
    legend = "F0: micro-batch 0 forward through a stage; B0: its gradients back. All take one cycle."
    stages = [f"stage {stage}" for stage in range(plan.stages)]
    return Board(title, about, legend, stages, [str(cycle) for cycle in range(len(rows))], frames)


def of_exchange(exchange: Exchange) -> Board:
    """The start, the rows that travel, the columns that travel. Tiles stand as in the picture, with room between."""
    grid = len(exchange.rows), len(exchange.columns)
    tops, height = _places([piece.needs[1] - piece.needs[0] for piece in exchange.rows])
    lefts, width = _places([piece.needs[1] - piece.needs[0] for piece in exchange.columns])

    def place(tile: int, y: int, x: int) -> Tuple[int, int]:
        """Where a pixel of the picture lies in a tile, on the board."""
        i, j = divmod(tile, grid[1])
        return tops[i] + y - exchange.rows[i].needs[0], lefts[j] + x - exchange.columns[j].needs[0]

    start = Frame(text="The start: each tile has its own pixels.")
    for tile in range(grid[0] * grid[1]):
        rows, columns = exchange.pieces(tile)
        top, left = place(tile, rows.needs[0], columns.needs[0])
        start.cells.append((top - 1, left, f"tile {tile}", LABEL))
        start.cells += [(*place(tile, y, x), "o", OWN) for y in range(*rows.kept) for x in range(*columns.kept)]
    frames, pixels = [start], 0
    for number, (step, axis) in enumerate(zip(exchange.steps, ("rows", "columns")), 1):
        frame = Frame()
        for halo in step:
            area = [(y, x) for y in range(*halo.rows) for x in range(*halo.columns)]
            frame.cells += [(*place(halo.target, y, x), str(number), PARTIAL) for y, x in area]
            middle = area[len(area) // 2]
            move = (*place(halo.source, *middle), *place(halo.target, *middle), str(halo.elements))
            frame.moves.append(move)
            pixels += halo.elements
        sends = ", ".join(f"tile {halo.source} sends {halo.elements} to tile {halo.target}" for halo in step)
        frame.text = f"Step {number} of 2, {axis}: {sends or 'nothing travels'}."
        frame.sent = pixels
        frame.cost = f"So far {plural(number, 'step')}; {plural(pixels, 'pixel')} of each channel travelled"
        frames.append(frame)
    title = str(exchange).split("\n")[0]
    legend = "o: a tile's own pixels; 1: what arrived in step 1; 2: what arrived in step 2, corners among it."
    about = f"{sum(len(step) for step in exchange.steps)} messages, {plural(pixels, 'pixel')} of each channel."
    return Board(title, about, legend, [""] * height, [""] * width, frames, "a pixel")


def _places(lengths: List[int]) -> Tuple[List[int], int]:
    """Where pieces begin that stand one after the other, each after a gap; and the length of all."""
    starts, end = [], 0
    for length in lengths:
        starts.append(end + 1)
        end += length + 1
    return starts, end
