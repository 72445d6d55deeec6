"""Plans as boards whose cells change from frame to frame, and what text and pages say about them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from mxdp.errors import plural
from mxdp.plans.collective.schedule import COPY, Schedule
from mxdp.plans.layers import fully_sharded as sharded
from mxdp.plans.layers.fully_sharded import ShardedPlan
from mxdp.plans.layers.halo import Exchange
from mxdp.plans.layers.halo_axis import extent
from mxdp.plans.partition import offsets
from mxdp.plans.pipeline import FORWARD, PipelinePlan, bubble, cycles, kept, needs
from mxdp.plans.show.contents import Held, contents, letter, sends, vectors_sent, written

Plan = Union[Schedule, PipelinePlan, Exchange, ShardedPlan]

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
    a column, and what travels. ``sent``: vectors that the busiest device of a collective has sent so far.
    """

    cells: List[Tuple[int, int, str, str]] = field(default_factory=list)
    moves: List[Tuple[int, int, int, int, str]] = field(default_factory=list)
    text: str = ""
    cost: str = ""
    sent: Optional[float] = None


@dataclass
class Board:
    """``about``: the plan's numbers; ``legend``: how to read it."""

    title: str
    about: str
    legend: str
    rows: List[str]
    columns: List[str]
    frames: List[Frame]


def board_of(plan: Plan) -> Board:
    """The board of any plan."""
    makers: Any = {
        Schedule: of_collective,
        PipelinePlan: of_pipeline,
        Exchange: of_exchange,
        ShardedPlan: of_sharded,
    }
    board: Board = makers[type(plan)](plan)
    return board


def of_collective(schedule: Schedule) -> Board:
    """A row for each device, a column for each chunk; a frame for the start and one for each step."""
    after = contents(schedule)
    adding = _adds(schedule)
    complete = [tuple(range(schedule.devices))] * schedule.chunks
    if not adding:  # What only copies ends with the same on all devices.
        complete = [after[-1][0, chunk] for chunk in range(schedule.chunks)]
    frames = []
    before: Held = {}
    for number, held in enumerate(after):
        frame = Frame(text="The start: each device holds its own part of every chunk.", sent=0.0)
        for (device, chunk), parts in held.items():
            if parts != before.get((device, chunk)):
                kind = "own" if len(parts) == 1 else "partial"
                if parts == complete[chunk]:
                    kind = "complete"
                frame.cells.append((device, chunk, written(schedule, chunk, parts), kind))
        if number:
            step = schedule.steps[number - 1]
            for send in step:
                what = written(schedule, send.chunk, before[send.source, send.chunk])
                frame.moves.append((send.source, send.chunk, send.target, send.chunk, what))
            sent = ", ".join(sends(step, schedule.chunks))
            frame.text = f"Step {number} of {len(schedule.steps)}: {sent}. {_completed(held, complete, adding)}"
            frame.sent = max(vectors_sent(replace(schedule, steps=schedule.steps[:number])))
            frame.cost = f"So far {plural(number, 'step')}; the busiest device has sent {frame.sent:.3g} of a vector"
        frames.append(frame)
        before = held
    rows = [f"device {device}" for device in range(schedule.devices)]
    columns = [f"chunk {letter(chunk)}" for chunk in range(schedule.chunks)]
    return Board(*words(schedule), rows, columns, frames)


def _completed(held: Held, complete: Sequence[Tuple[int, ...]], adding: bool) -> str:
    """What is finished. A plan that only copies (not ``adding``) has no sums."""
    unfinished = [device for (device, chunk), parts in held.items() if parts != complete[chunk]]
    if not unfinished:
        return f"Every device holds {'the complete sum' if adding else 'every chunk'}."
    whole = sorted({device for device, _ in held}.difference(unfinished))
    if whole:
        devices = ", ".join(f"device {device}" for device in whole)
        return f"{'The complete sum is' if adding else 'All chunks are'} on {devices}."
    count = len(held) - len(unfinished)
    return f"{count} of {len(held)} chunks are {'complete sums' if adding else 'in place'}."


def words(schedule: Schedule) -> Tuple[str, str, str]:
    """Title, numbers and legend of the board; much sooner than the frames, if there are many devices."""
    chunks = plural(schedule.chunks, "chunk")
    if schedule.sizes:
        chunks += f" (whole arrays, elements: {', '.join(map(str, schedule.sizes))})"
    title = f"{schedule.name}: {plural(schedule.devices, 'device')}, {chunks}, {plural(len(schedule.steps), 'step')}"
    shares = [f"{share:.3g}" for share in vectors_sent(schedule)]
    about = f"Devices 0 to {schedule.devices - 1} send {', '.join(shares)} vectors."
    if len(set(shares)) == 1:
        vectors = "vector" if shares[0] == "1" else "vectors"
        about = f"Each device sends {shares[0]} {vectors}."
    if schedule.reads:
        about += " What is read in place is not sent."
    return title, about, f"{_legend(schedule)}."


def _legend(schedule: Schedule) -> str:
    adding = _adds(schedule)
    if schedule.chunks == 1:
        return "0+1: the vectors of devices 0 and 1 added up" if adding else "0: device 0's vector"
    legend = "a0: device 0's chunk a"
    if adding and schedule.devices > 2:
        legend += "; a01: devices 0 and 1 added up"
    if adding:
        legend += "; A: all devices added up"
    return legend


def _adds(schedule: Schedule) -> bool:
    """The other plans, such as a broadcast, only copy."""
    return any(send.action != COPY for step in schedule.steps for send in step)


def of_pipeline(plan: PipelinePlan) -> Board:
    """A row for each stage, a column for each cycle; a frame for each cycle, and one before."""
    rows = cycles(plan)
    done = {}
    alive = [0] * plan.stages
    frames = [Frame(text="The start: no stage has worked yet.")]
    for cycle, row in enumerate(rows):
        frame = Frame()
        busy = [(stage, task) for stage, task in enumerate(row) if task]
        for stage, task in busy:
            done[stage, task] = cycle
            forward = task.kind == FORWARD
            alive[stage] += 1 if forward else -1
            frame.cells.append((stage, cycle, str(task), "forward" if forward else "backward"))
            for source, need in needs(plan, stage, task):
                if source != stage:
                    frame.moves.append((source, done[source, need], stage, cycle, str(task)))
        tasks = ", ".join(f"stage {stage} {task}" for stage, task in busy)
        frame.text = f"Cycle {cycle} (of 0 to {len(rows) - 1}): {tasks}."
        total = plan.stages * (cycle + 1)
        frame.cost = (
            f"So far {plural(cycle + 1, 'cycle')}, {100 * (total - len(done)) / total:.0f} % of them idle; activations "
            f"are kept of {', '.join(map(str, alive))} micro-batches by stages 0 to {plan.stages - 1}"
        )
        frames.append(frame)
    parts = f"{plural(plan.stages, 'stage')}, {plural(plan.micro_batches, 'micro-batch')}"
    title = f"{plan.name}: {parts}, {plural(len(rows), 'cycle')}"
    keeping = f"stages 0 to {plan.stages - 1}" if plan.stages > 1 else "stage 0"
    counts = ", ".join(map(str, kept(plan)))
    micro_batches = "micro-batch" if counts == "1" else "micro-batches"
    about = (
        f"Idle: {100 * bubble(plan.stages, plan.micro_batches):.3g} % of all cycles (the bubble). Activations kept by "
        f"{keeping}: of {counts} {micro_batches}."
    )
    legend = "F0: micro-batch 0 forward, B0: its gradients back. All tasks are drawn equally long."
    stages = [f"stage {stage}" for stage in range(plan.stages)]
    return Board(title, about, legend, stages, [str(cycle) for cycle in range(len(rows))], frames)


def of_exchange(exchange: Exchange) -> Board:
    """A cell for each pixel of each tile; frames for the start, for the rows that travel, and for the columns."""
    tops = offsets([1 + extent(piece.needs) for piece in exchange.rows])
    lefts = offsets([1 + extent(piece.needs) for piece in exchange.columns])

    def place(tile: int, y: int, x: int) -> Tuple[int, int]:
        """The row and the column of the board for a pixel of the picture in a tile, which has a gap before it."""
        i, j = divmod(tile, len(exchange.columns))
        row = tops[i] + 1 + y - exchange.rows[i].needs[0]
        column = lefts[j] + 1 + x - exchange.columns[j].needs[0]
        return row, column

    start = Frame(text="The start: each tile has its own pixels.")
    for tile in range(len(exchange.rows) * len(exchange.columns)):
        high, wide = exchange.pieces(tile)
        top, left = place(tile, high.needs[0], wide.needs[0])
        start.cells.append((top - 1, left, f"tile {tile}", "label"))
        for y, x in product(range(*high.kept), range(*wide.kept)):
            start.cells.append((*place(tile, y, x), "o", "own"))
    frames = [start]
    pixels = 0
    for number, (step, axis) in enumerate(zip(exchange.steps, ("rows", "columns")), 1):
        frame = Frame()
        sent = []
        for halo in step:
            area = list(product(range(*halo.rows), range(*halo.columns)))
            for y, x in area:
                frame.cells.append((*place(halo.target, y, x), str(number), "partial"))
            middle = area[len(area) // 2]
            source = place(halo.source, *middle)
            target = place(halo.target, *middle)
            frame.moves.append((*source, *target, str(halo.elements)))
            sent.append(f"tile {halo.source} sends {halo.elements} to tile {halo.target}")
            pixels += halo.elements
        frame.text = f"Step {number} of 2, {axis}: {', '.join(sent) or 'nothing travels'}."
        frame.cost = (
            f"So far {plural(number, 'step')}; {plural(pixels, 'pixel')} of each channel travelled"
        )
        frames.append(frame)
    title = str(exchange).split("\n")[0]
    about = f"{sum(map(len, exchange.steps))} messages, {plural(pixels, 'pixel')} of each channel."
    legend = "o: a tile's own pixels; 1: what arrived in step 1; 2: what arrived in step 2, corners among it."
    rows = [""] * tops[-1]
    columns = [""] * lefts[-1]
    return Board(title, about, legend, rows, columns, frames)


def of_sharded(plan: ShardedPlan) -> Board:
    """A row for each layer, a column for each kind of what a device holds; a frame for the start and each task."""
    part = f"1/{plan.devices}" if plan.devices > 1 else "whole"
    kinds = {"whole": "complete", "": "empty", part: "own"}
    frames = []
    before: Dict[Tuple[int, int], str] = {}
    for number, layers in enumerate(sharded.holds(plan)):
        task = plan.tasks[number - 1] if number else None
        now = {}
        for row, layer in enumerate(layers):
            now[row, 0] = "whole" if layer.parameters else part
            now[row, 1] = "whole" if layer.gradients else part
            now[row, 2] = part if plan.stage else "whole"
            now[row, 3] = "kept" if layer.activations else ""
            now[row, 4] = task.kind if task and task.layer == row else ""
        frame = Frame(
            text="The start: each device holds its part of each layer, and what the stage leaves whole."
        )
        for place, text in now.items():
            if text != before.get(place, ""):
                frame.cells.append((*place, text, kinds.get(text, "partial")))
        if task:
            what = f"layer {task.layer}, {TASKS[task.kind]}"
            frame.text = f"Task {number} of {len(plan.tasks)}: {what}."
            done = replace(plan, step=plan.tasks[:number], update=())
            sent = sharded.moved(done, [1] * plan.layers) / plan.devices / plan.layers
            whole = plural(sum(layer.parameters for layer in layers), "layer")
            frame.cost = f"The parameters of {whole} are whole; so far each device has sent {sent:.3g} of all"
        frames.append(frame)
        before = now
    sizes = [plan.devices] * plan.layers
    plain = sharded.fully_sharded(plan.layers, plan.devices, stage=0)
    held = sharded.peak(plan, sizes) / sharded.peak(plain, sizes)
    sent = sharded.moved(plan, sizes) / plan.devices / sum(sizes)
    counts = f"{plural(plan.devices, 'device')}, {plural(plan.layers, 'layer')}"
    title = f"{plan.name}: stage {plan.stage}, {counts}, {len(plan.tasks)} tasks"
    about = (
        f"Cut: {sharded.STAGES[plan.stage]}. With equal layers and Adam, a device holds at most {held:.3g} of what "
        f"plain data parallelism holds, and sends {sent:.3g} times all parameters in a step."
    )
    legend = f"params, grads: parameters, gradients; activ.: activations, from F to B. {tasks_in_words(plan)}"
    rows = [f"layer {layer}" for layer in range(plan.layers)]
    columns = ["params", "grads", "state", "activ.", "task"]
    return Board(title, about, legend, rows, columns, frames)


def tasks_in_words(plan: ShardedPlan) -> str:
    """How to read the letters of the plan."""
    kinds = {task.kind for task in plan.tasks}
    return "; ".join(f"{kind}: {words}" for kind, words in TASKS.items() if kind in kinds) + "."
