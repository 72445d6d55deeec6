"""Plans as boards whose cells change from frame to frame, for pages that show them move.

A collective's board has a row for each device and a column for each chunk, a pipeline's a row for each stage and a
column for each cycle, and a halo exchange's a cell for each pixel of each tile. That of a fully sharded step has a row
for each layer, and a column for each kind of what a device holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Dict, List, Sequence, Tuple

from mxdp.errors import plural
from mxdp.plans.collective.schedule import Schedule
from mxdp.plans.layers import fully_sharded as sharded
from mxdp.plans.layers.halo import Exchange
from mxdp.plans.partition import offsets
from mxdp.plans.pipeline import FORWARD, PipelinePlan, StageTask, bubble, cycles, kept, needs
from mxdp.plans.show.contents import Held, adds, contents, legend, letter, sends, traffic, vectors_sent, written

PASSES = "F0: micro-batch 0 forward, B0: its gradients back. All tasks are drawn equally long."

TASKS = {
    sharded.GATHER: "gather the layer's parameters from all devices",
    sharded.FORWARD: "forward pass",
    sharded.FREE: "free what was gathered",
    sharded.BACKWARD: "backward pass",
    sharded.REDUCE_SCATTER: "reduce-scatter, after which each device has its part of the summed gradients",
    sharded.ALL_REDUCE: "all-reduce of the gradients",
    sharded.UPDATE: "update of the parameters that the device owns",
}
"""What all devices do with a layer, by the letter of the drawing."""


@dataclass
class Frame:
    """A step on the board: its changes, its messages, and both in words.

    ``cells``: row, column, text, and a class of the page's style sheet. ``moves``: from a row and a column to a row and
    a column, and what travels. ``sent``: vectors that the busiest device has sent, or pixels that have travelled.
    """

    cells: List[Tuple[int, int, str, str]] = field(default_factory=list)
    moves: List[Tuple[int, int, int, int, str]] = field(default_factory=list)
    text: str = ""
    cost: str = ""
    sent: float = 0.0


@dataclass
class Board:
    """``about``: the headline; ``legend``: how to read it; ``unit``: what ``sent`` counts, if anything."""

    title: str
    about: str
    legend: str
    rows: List[str]
    columns: List[str]
    frames: List[Frame]
    unit: str = ""


def of_collective(schedule: Schedule) -> Board:
    """A frame for the start and one for each step."""
    after, adding = contents(schedule), adds(schedule)
    texts = [[written(chunks, schedule.devices) for chunks in held] for held in after]
    # What only copies ends with the same on all devices.
    complete = (tuple(range(schedule.devices)),) * schedule.chunks if adding else after[-1][0]
    frames = []
    for number, held in enumerate(after):
        frame, steps = Frame(text="The start: each device holds its own part of every chunk."), schedule.steps[:number]
        for device, chunks in enumerate(held):
            for chunk, parts in enumerate(chunks):
                if not number or parts != after[number - 1][device][chunk]:
                    kind = "complete" if parts == complete[chunk] else "own" if len(parts) == 1 else "partial"
                    frame.cells.append((device, chunk, texts[number][device][chunk], kind))
        for send in steps[-1] if steps else ():
            what = texts[number - 1][send.source][send.chunk]
            frame.moves.append((send.source, send.chunk, send.target, send.chunk, what))
        if steps:
            sent = ", ".join(sends(steps[-1], schedule.chunks))
            done = _completed(held, complete, adding)
            frame.text = f"Step {number} of {len(schedule.steps)}: {sent}. {done}"
            frame.sent = max(vectors_sent(replace(schedule, steps=steps)))
            frame.cost = f"So far {plural(number, 'step')}; the busiest device has sent {frame.sent:.3g} of a vector"
        frames.append(frame)
    rows = [f"device {device}" for device in range(schedule.devices)]
    columns = [f"chunk {letter(chunk)}" for chunk in range(schedule.chunks)]
    title, about = traffic(schedule).split("\n")
    return Board(title, about, legend(schedule), rows, columns, frames, "a vector")


def _completed(held: Held, complete: Tuple[Tuple[int, ...], ...], adding: bool) -> str:
    """A sentence that says what is finished. A plan that only copies (not ``adding``) has no sums."""
    whole = [f"device {device}" for device, chunks in enumerate(held) if chunks == complete]
    if len(whole) == len(held):
        return f"Every device holds {'the complete sum' if adding else 'every chunk'}."
    if whole:
        return f"{'The complete sum is' if adding else 'All chunks are'} on {', '.join(whole)}."
    count = sum(parts == end for chunks in held for parts, end in zip(chunks, complete))
    return f"{count} of {len(held) * len(complete)} chunks are {'complete sums' if adding else 'in place'}."


def of_pipeline(plan: PipelinePlan) -> Board:
    """A frame for each cycle, and one before."""
    rows = cycles(plan)
    done: Dict[StageTask, int] = {}
    alive = [0] * plan.stages
    frames = [Frame(text="The start: no stage has worked yet.")]
    for cycle, row in enumerate(rows):
        frame = Frame()
        busy = [(stage, task) for stage, task in enumerate(row) if task]
        for stage, task in busy:
            done[stage, task] = cycle
            alive[stage] += 1 if task.kind == FORWARD else -1
            frame.cells.append((stage, cycle, str(task), "forward" if task.kind == FORWARD else "backward"))
            for place in needs(plan, stage, task):
                if place[0] != stage:
                    frame.moves.append((place[0], done[place], stage, cycle, str(task)))
        frame.text = f"Cycle {cycle} (of 0 to {len(rows) - 1}): {', '.join(f'stage {s} {task}' for s, task in busy)}."
        total = plan.stages * (cycle + 1)
        frame.cost = (
            f"So far {plural(cycle + 1, 'cycle')}, {100 * (total - len(done)) / total:.0f} % of them idle; activations "
            f"are kept of {', '.join(map(str, alive))} micro-batches by stages 0 to {plan.stages - 1}"
        )
        frames.append(frame)
    stages = [f"stage {stage}" for stage in range(plan.stages)]
    title, about = bubbles(plan).split("\n")
    return Board(title, about, PASSES, stages, [str(cycle) for cycle in range(len(rows))], frames)


def bubbles(plan: PipelinePlan) -> str:
    """The name and the numbers of a plan, in two lines."""
    sizes = (plan.stages, "stage"), (plan.micro_batches, "micro-batch"), (len(cycles(plan)), "cycle")
    idle, counts = bubble(plan.stages, plan.micro_batches), [str(count) for count in kept(plan)]
    stages = f"stages 0 to {plan.stages - 1}" if plan.stages > 1 else "stage 0"
    return (
        f"{plan.name}: {', '.join(plural(*size) for size in sizes)}\n"
        f"Idle: {100 * idle:.3g} % of all cycles (the bubble). Activations kept by {stages}: of {', '.join(counts)} "
        f"micro-batch{'' if counts == ['1'] else 'es'}."
    )


def of_exchange(exchange: Exchange) -> Board:
    """The start, the rows that travel, the columns that travel. Tiles stand as in the picture, with room between."""
    tops, height = _places([piece.needs[1] - piece.needs[0] for piece in exchange.rows])
    lefts, width = _places([piece.needs[1] - piece.needs[0] for piece in exchange.columns])

    def place(tile: int, y: int, x: int) -> Tuple[int, int]:
        """The row and the column of the board for a pixel of the picture in a tile."""
        i, j = divmod(tile, len(exchange.columns))
        return tops[i] + y - exchange.rows[i].needs[0], lefts[j] + x - exchange.columns[j].needs[0]

    start = Frame(text="The start: each tile has its own pixels.")
    for tile in range(len(exchange.rows) * len(exchange.columns)):
        rows, columns = exchange.pieces(tile)
        top, left = place(tile, rows.needs[0], columns.needs[0])
        start.cells.append((top - 1, left, f"tile {tile}", "label"))
        start.cells += [(*place(tile, y, x), "o", "own") for y in range(*rows.kept) for x in range(*columns.kept)]
    frames, pixels = [start], 0
    for number, (step, axis) in enumerate(zip(exchange.steps, ("rows", "columns")), 1):
        frame = Frame()
        for halo in step:
            area = [(y, x) for y in range(*halo.rows) for x in range(*halo.columns)]
            frame.cells += [(*place(halo.target, y, x), str(number), "partial") for y, x in area]
            middle = area[len(area) // 2]
            frame.moves.append((*place(halo.source, *middle), *place(halo.target, *middle), str(halo.elements)))
            pixels += halo.elements
        sent = ", ".join(f"tile {halo.source} sends {halo.elements} to tile {halo.target}" for halo in step)
        frame.text = f"Step {number} of 2, {axis}: {sent or 'nothing travels'}."
        frame.sent = pixels
        frame.cost = f"So far {plural(number, 'step')}; {plural(pixels, 'pixel')} of each channel travelled"
        frames.append(frame)
    title = str(exchange).split("\n")[0]
    marks = "o: a tile's own pixels; 1: what arrived in step 1; 2: what arrived in step 2, corners among it."
    about = f"{sum(len(step) for step in exchange.steps)} messages, {plural(pixels, 'pixel')} of each channel."
    return Board(title, about, marks, [""] * height, [""] * width, frames, "a pixel")


def of_sharded(plan: sharded.ShardedPlan) -> Board:
    """A frame for the start and one for each task: what each device holds of each layer."""
    part = f"1/{plan.devices}" if plan.devices > 1 else "whole"
    frames: List[Frame] = []
    before: Sequence[Tuple[str, ...]] = [("",) * 5] * plan.layers
    for number, layers in enumerate(sharded.holds(plan)):
        task = plan.tasks[number - 1] if number else None
        frame = Frame(text="The start: each device holds its part of each layer, and what the stage leaves whole.")
        now = [
            (
                "whole" if layer.parameters else part,
                "whole" if layer.gradients else part,
                part if plan.stage else "whole",
                "kept" if layer.activations else "",
                task.kind if task and task.layer == row else "",
            )
            for row, layer in enumerate(layers)
        ]
        for row, pair in enumerate(zip(before, now)):
            for column, (old, text) in enumerate(zip(*pair)):
                if text != old:
                    kind = "own" if text == part else "complete" if text == "whole" else "partial" if text else "empty"
                    frame.cells.append((row, column, text, kind))
        if task:
            frame.text = f"Task {number} of {len(plan.tasks)}: layer {task.layer}, {TASKS[task.kind]}."
            done = replace(plan, step=plan.tasks[:number], update=())
            frame.sent = sharded.moved(done, [1] * plan.layers) / plan.devices / plan.layers
            whole = plural(sum(layer.parameters for layer in layers), "layer")
            frame.cost = f"The parameters of {whole} are whole; so far each device has sent {frame.sent:.3g} of all"
        frames.append(frame)
        before = now
    title, about = shares_held(plan).split("\n")
    columns = ["params", "grads", "state", "activ.", "task"]
    rows = [f"layer {layer}" for layer in range(plan.layers)]
    legend = f"params, grads: parameters, gradients; activ.: activations, from F to B. {tasks_in_words(plan)}"
    return Board(title, about, legend, rows, columns, frames, "all parameters")


def shares_held(plan: sharded.ShardedPlan) -> str:
    """The name and the numbers of a plan, in two lines."""
    sizes, plain = [plan.devices] * plan.layers, sharded.fully_sharded(plan.layers, plan.devices, stage=0)
    held = sharded.peak(plan, sizes) / sharded.peak(plain, sizes)
    sent = sharded.moved(plan, sizes) / plan.devices / sum(sizes)
    cut = f"Cut: {sharded.STAGES[plan.stage]}."
    return (
        f"{plan.name}: stage {plan.stage}, {plural(plan.devices, 'device')}, {plural(plan.layers, 'layer')}, "
        f"{len(plan.tasks)} tasks\n{cut} With equal layers and Adam, a device holds at most {held:.3g} of what plain "
        f"data parallelism holds, and sends {sent:.3g} times all parameters in a step."
    )


def tasks_in_words(plan: sharded.ShardedPlan) -> str:
    """How to read the letters of the plan."""
    kinds = {task.kind for task in plan.tasks}
    return "; ".join(f"{kind}: {words}" for kind, words in TASKS.items() if kind in kinds) + "."


def _places(lengths: List[int]) -> Tuple[List[int], int]:
    """The starts of pieces that stand one after the other with a gap before each, and the length of all."""
    *starts, end = offsets([length + 1 for length in lengths])
    return [start + 1 for start in starts], end
