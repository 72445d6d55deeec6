"""Exercises on plans and costs: gradient buckets, GPipe's schedule, alpha and beta of a link."""

from __future__ import annotations

import random
from functools import partial
from itertools import product
from typing import Any, Callable, Iterable, List, Sequence

import numpy as onp

from mxdp.errors import plural
from mxdp.exercises.trial import Exercise, Mistakes, Record, Sizes, Trial, Values, Wrong, a_list
from mxdp.plans.cost.link import fit_link
from mxdp.plans.partition import fill_buckets as filled
from mxdp.plans.pipeline import PipelinePlan, cycles, one_f_one_b
from mxdp.plans.pipeline import gpipe as planned_gpipe

LENET = [720, 80, 100000, 200, 409600, 512, 5120, 40]
BUCKETS = [
    ([6, 2, 3, 3, 1], 6),
    ([2, 4], 6),
    ([2, 9, 1], 4),
    (LENET, 1 << 18),
    ([], 6),
]


def _lists(returned: Any, what: str) -> List[Any]:
    return a_list(returned, lambda part: isinstance(part, (list, tuple)), f"a list of lists {what}")


def _drawn_sizes(draw: random.Random) -> Sizes:
    sizes = [draw.randint(1, 9) for _ in range(draw.randint(1, 20))]
    return sizes, draw.randint(4, 16)


@partial(Exercise, 6, "gradient buckets", BUCKETS, _drawn_sizes)
def fill_buckets(nbytes: Sequence[int], room: int, factor: int = 1) -> Trial:
    """Lists of the gradients that travel together."""
    nbytes = [factor * size for size in nbytes]
    backwards = range(len(nbytes))[::-1]

    def fill(
        numbers: Sequence[int] = backwards, room: int = room, early: bool = True, empty: int = 0
    ) -> List[List[int]]:
        """``early``: the next gradient counts before it is added; ``empty``: how many empty buckets come first."""
        buckets: List[List[int]] = [[] for _ in range(empty)]
        for number in numbers:
            counted = nbytes[number] if early else 0
            if not buckets or sum(nbytes[other] for other in buckets[-1]) + counted > room:
                buckets.append([])
            buckets[-1].append(number)
        return buckets

    right = filled(nbytes, ["float32"] * len(nbytes), room)
    forwards = fill(backwards[::-1])
    too_full = fill(room=room - 1, early=False)
    too_empty = fill(room=room - 1)
    sizes = []
    for bucket in right:
        sizes.append([nbytes[number] for number in bucket])
    mistakes = {
        "The buckets are filled from the first parameter on. Backward produces the last parameter's gradient first: "
        "fill them in that order, or the first bucket waits for the end of backward.": forwards,
        "The buckets are right, and their numbers stand in the order of the parameters. Keep backward's order in a "
        "bucket, too.": [sorted(bucket) for bucket in right],
        "The last bucket is missing: it is not full when the loop ends.": right[:-1],
        "A bucket takes one gradient too many: look whether the next one still fits before it is added.": too_full,
        f"Gradients that fill a bucket to exactly {room} bytes still fit: compare with <=.": too_empty,
        "There is an empty bucket: a gradient that is larger than the room opens one of its own, but only if the "
        "current one holds something.": fill(empty=1),
        "These are sizes. Return the numbers of the parameters.": sizes,
    }

    def run(function: Any) -> Values:
        returned = function(list(nbytes), room)
        parts = _lists(returned, "of numbers, such as [[4, 3], [2, 1], [0]]")
        return {"buckets": [list(part) for part in parts]}

    title = f"{plural(len(nbytes), 'gradient')}, room for {room} bytes"
    wrong = {hint: [buckets] for hint, buckets in mistakes.items()}
    return Trial(title, {"nbytes": list(nbytes), "room": room}, {"buckets": right}, run, wrong)


IDLE = ".."


def _rows(rows: Iterable[Sequence[Any]]) -> List[str]:
    """A line for each stage, without the cycles at the end in which it is idle. A cell is a task, or empty, or None.
    Raises Wrong for two tasks in a cell."""
    return [" ".join(map(_task, row)).rstrip(" .") for row in rows]


def _task(cell: Any) -> str:
    words = [] if cell is None else str(cell).split()
    if len(words) > 1:
        raise Wrong(f"It puts {cell!r:.60} into one cycle: a stage does one task in a cycle.")
    return words[0] if words else IDLE


def _by_stage(lines: Sequence[str]) -> Values:
    return {f"stage {stage}": line for stage, line in enumerate(lines)}


def _drawn_stages(draw: random.Random) -> Sizes:
    return draw.randint(1, 8), draw.choice([1, 2, 4, 5, 12])


STAGES = [
    (1, 2),
    (2, 2),
    (3, 4),
    (4, 2),
]


@partial(Exercise, 7, "GPipe's schedule", STAGES, _drawn_stages)
def gpipe(stages: int, micro_batches: int, factor: int = 1) -> Trial:
    """The staircase: a row for each stage, with its task in each cycle. It has no numbers to multiply."""
    plan = planned_gpipe(stages, micro_batches)
    staircase = cycles(plan)
    enough = len(staircase)
    longest = 0

    def run(function: Any) -> Values:
        nonlocal longest
        rows = _lists(function(stages, micro_batches), "of words, one for each stage")
        longest = max(map(len, rows), default=0)
        return _by_stage(_rows(rows))

    def hint(got: Values) -> str:
        """The first task that runs before what it needs."""
        done = {}
        for stage, row in enumerate(got.values()):
            for cycle, cell in enumerate(row.split()):
                if cell != IDLE:
                    done[stage, cell] = cycle
        for (stage, cell), cycle in sorted(done.items(), key=lambda item: item[1]):
            needed = [(stage - 1, cell)]
            if cell[0] != "F":
                needed = [(stage, f"F{cell[1:]}"), (stage + 1, cell)]
            for other, task in needed:
                if 0 <= other < stages and done.get((other, task), cycle) >= cycle:
                    return (
                        f"In cycle {cycle} stage {stage} does {cell}, which needs stage {other}'s {task} in an earlier "
                        "cycle."
                    )
        return "No task runs too early; look for one that is missing, is there twice, or could run in an earlier cycle."

    def judge(_: Record) -> str:
        if longest <= enough:
            return ""
        return f"But the rows have {longest} cycles, and {enough} are enough."

    return Trial(
        f"{plural(stages, 'stage')}, {plural(micro_batches, 'micro-batch')}",
        given={"stages": stages, "micro_batches": micro_batches},
        expected=_by_stage(_rows(zip(*staircase))),
        run=run,
        mistakes=_wrong_schedules(plan),
        hint=hint,
        judge=judge,
    )


def _wrong_schedules(plan: PipelinePlan) -> Mistakes:
    """The results of the usual mistakes, by their hints."""
    stages = plan.stages
    micro_batches = plan.micro_batches
    forward = micro_batches + stages - 1  # cycles of the forward passes

    def rows(
        forwards: Callable[[int, int], int], backwards: Callable[[int, int], int]
    ) -> List[str]:
        """``forwards(stage, micro-batch)`` is the cycle of the forward pass."""
        cells = [[""] * (2 * stages * micro_batches) for _ in range(stages)]
        for stage, number in product(range(stages), range(micro_batches)):
            cells[stage][forwards(stage, number)] = f"F{number}"
            cells[stage][backwards(stage, number)] = f"B{number}"
        return _rows(cells)

    alternating = _rows(zip(*cycles(one_f_one_b(stages, micro_batches))))
    halved = _rows(zip(*cycles(plan)[:forward]))
    in_order = rows(lambda s, m: s + m, lambda s, m: forward + stages - 1 - s + m)
    at_once = rows(lambda s, m: m, lambda s, m: 2 * micro_batches - 1 - m)
    one_by_one = rows(
        lambda s, m: 2 * stages * m + s,
        lambda s, m: 2 * stages * (m + 1) - 1 - s,
    )
    return {
        "The backward passes come in the order of the forward passes. In GPipe the last micro-batch goes back first: "
        "its activations are the newest.": in_order,
        "All stages work at the same time. A stage has to wait until the stage before it has passed the micro-batch "
        "on.": at_once,
        "That is 1F1B, which goes back as soon as it can. GPipe makes all forward passes first.": alternating,
        "Each micro-batch goes through all stages and back before the next one starts: one stage works at a time. Let "
        "the next micro-batch follow in the next cycle.": one_by_one,
        "The forward passes are right, and there are no backward passes.": halved,
    }


SIZES = [4, 4096, 65536, 1048576]
TIMES = [1e-5 + 2e-10 * size for size in SIZES]
NOISY = [seconds * factor for seconds, factor in zip(TIMES, (1.1, 0.9, 1.2, 1.3))]
MEASURED = [
    ("times on a line", SIZES, TIMES),
    ("two sizes", SIZES[::3], TIMES[::3]),
    ("times with noise: the small messages count as much as the large", SIZES, NOISY),
]


def _drawn_times(draw: random.Random) -> Sizes:
    others = [0, *(1 << power for power in range(3, 24))]
    sizes = [4, 1 << 24, *draw.sample(others, draw.randint(0, 10))]
    draw.shuffle(sizes)
    alpha = draw.randint(1, 9) * 1e-5
    beta = draw.randint(1, 9) * 1e-10
    times = [(alpha + beta * size) * draw.uniform(0.9, 1.1) for size in sizes]
    return f"{len(sizes)} sizes in any order, times with noise", sizes, times


@partial(Exercise, 9, "alpha and beta of a link", MEASURED, _drawn_times)
def fit_alpha_beta(
    title: str, nbytes: Sequence[int], seconds: Sequence[float], factor: int = 1
) -> Trial:
    """A line through measured times."""
    seconds = [factor * time for time in seconds]
    link = fit_link(list(zip(nbytes, seconds)))
    x = onp.array(nbytes, float)
    y = onp.array(seconds, float)
    slope, height = onp.polyfit(x, y, 1)
    rate = x / y
    through_zero = rate.sum() / (rate**2).sum()
    of_the_ends = (y[-1] - y[0]) / (x[-1] - x[0])
    before_the_first = y[0] - of_the_ends * x[0]
    mistakes = {
        "These are beta and alpha: return alpha first.": (link.beta, link.alpha),
        "beta is the seconds for a byte, not the bytes in a second.": (link.alpha, 1 / link.beta),
        "That is the line with the least squares of the errors in seconds: the largest message decides alone. Divide "
        "each error by its time first.": (height, slope),
        "The line goes through zero: alpha is the time of a message of no bytes.": (
            0.0,
            through_zero,
        ),
        "The line goes through the first and the last time alone: use all of them.": (
            before_the_first,
            of_the_ends,
        ),
        "alpha is the time of the smallest message, which has bytes too, and noise.": (
            y[0],
            link.beta,
        ),
    }

    def run(function: Any) -> Values:
        returned = function(list(nbytes), list(seconds))
        try:
            alpha, beta = map(float, returned)
        except (TypeError, ValueError):
            raise Wrong(
                f"It returns {returned!r:.60}: return two numbers, alpha and beta."
            ) from None
        return {"alpha": alpha, "beta": beta}

    given = {"nbytes": list(nbytes), "seconds": [f"{value:.3g}" for value in seconds]}
    return Trial(title, given, {"alpha": link.alpha, "beta": link.beta}, run, mistakes)
