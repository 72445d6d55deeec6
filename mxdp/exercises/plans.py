"""Exercises on plans and costs: gradient buckets, GPipe's schedule, alpha and beta of a link."""

from __future__ import annotations

import random
from itertools import product
from typing import Any, Callable, Dict, List, Sequence

import numpy as onp

from mxdp.errors import plural
from mxdp.exercises.trial import Record, Trial, Trials, Values, Wrong
from mxdp.plans.cost.link import fit_link
from mxdp.plans.partition import fill_buckets as filled
from mxdp.plans.pipeline import PipelinePlan, cycles, one_f_one_b
from mxdp.plans.pipeline import gpipe as planned_gpipe


def _lists(returned: Any, what: str) -> List[List[Any]]:
    """Raises Wrong unless a list of lists is returned."""
    if not isinstance(returned, (list, tuple)) or not all(isinstance(part, (list, tuple)) for part in returned):
        raise Wrong(f"It returns {returned!r:.60}: return a list of lists {what}.")
    return [list(part) for part in returned]


def fill_buckets(draw: random.Random) -> Trials:
    """Buckets: lists of the gradients that travel together."""
    lenet = [720, 80, 100000, 200, 409600, 512, 5120, 40]
    sizes = [([6, 2, 3, 3, 1], 6), ([2, 4], 6), ([2, 9, 1], 4), (lenet, 1 << 18), ([], 6)]
    others = []
    for count in (1, 2, 3, 4, 6, 8, 12, 16, 20):
        others.append(_buckets([draw.randint(1, 9) for _ in range(count)], draw.randint(4, 16)))
    return [_buckets(*size) for size in sizes], others


def _buckets(nbytes: Sequence[int], room: int) -> Trial:
    backwards = range(len(nbytes))[::-1]

    def fill(
        numbers: Sequence[int] = backwards, room: float = room, counted: int = 1, empty: int = 0
    ) -> List[List[int]]:
        """``counted``: 0 if the next gradient doesn't count; ``empty``: how many empty buckets come first."""
        buckets: List[List[int]] = [[] for _ in range(empty)]
        for number in numbers:
            if not buckets or sum(nbytes[other] for other in buckets[-1]) + counted * nbytes[number] > room:
                buckets.append([])
            buckets[-1].append(number)
        return buckets

    too_full = fill(room=room - 1, counted=0)
    right = filled(nbytes, ["float32"] * len(nbytes), room)
    mistakes = {
        "The buckets are filled from the first parameter on. Backward produces the last parameter's gradient first: "
        "fill them in that order, or the first bucket waits for the end of backward.": fill(backwards[::-1]),
        "The buckets are right, and their numbers stand in the order of the parameters. Keep backward's order in a "
        "bucket, too.": [sorted(bucket) for bucket in right],
        "The last bucket is missing: it is not full when the loop ends.": right[:-1],
        "A bucket takes one gradient too many: look whether the next one still fits before it is added.": too_full,
        f"Gradients that fill a bucket to exactly {room} bytes still fit: compare with <=.": fill(room=room - 1),
        "There is an empty bucket: a gradient that is larger than the room opens one of its own, but only if the "
        "current one holds something.": fill(empty=1),
        "These are sizes. Return the numbers of the parameters.": [[nbytes[i] for i in bucket] for bucket in right],
    }

    def run(function: Any) -> Values:
        return {"buckets": _lists(function(list(nbytes), room), "of numbers, such as [[4, 3], [2, 1], [0]]")}

    wrong = {text: {"buckets": buckets} for text, buckets in mistakes.items()}
    title = f"{plural(len(nbytes), 'gradient')}, room for {room} bytes"
    return Trial(title, {"nbytes": list(nbytes), "room": room}, {"buckets": right}, run, wrong)


IDLE = ".."


def gpipe(draw: random.Random) -> Trials:
    """The staircase: a row for each stage, with its task in each cycle."""
    chosen = [_gpipe(*sizes) for sizes in ((1, 2), (2, 2), (3, 4), (4, 2))]
    return chosen, [*(_gpipe(stages, draw.randint(1, 9)) for stages in range(1, 9)), _gpipe(5, 1), _gpipe(2, 12)]


def _staircase(plan: PipelinePlan) -> List[List[str]]:
    return [[str(task or IDLE) for task in row] for row in zip(*cycles(plan))]


def _rows(rows: Sequence[Sequence[str]]) -> Values:
    """A line for each stage, without the cycles at the end in which all are idle."""
    lines = [[cell or IDLE for cell in row] for row in rows]
    length = max((place + 1 for line in lines for place, cell in enumerate(line) if cell != IDLE), default=0)
    return {f"stage {k}": " ".join([*line[:length], *[IDLE] * (length - len(line))]) for k, line in enumerate(lines)}


def _wrong_schedules(plan: PipelinePlan) -> Dict[str, Values]:
    """The results of the usual mistakes, by their hints."""
    stages, micro_batches = plan.stages, plan.micro_batches
    forward = micro_batches + stages - 1

    def rows(forwards: Callable[[int, int], int], backwards: Callable[[int, int], int]) -> Values:
        """``forwards(stage, micro-batch)`` is the cycle of the forward pass."""
        cells = [[IDLE] * (2 * stages * micro_batches) for _ in range(stages)]
        for stage, number in product(range(stages), range(micro_batches)):
            cells[stage][forwards(stage, number)] = f"F{number}"
            cells[stage][backwards(stage, number)] = f"B{number}"
        return _rows(cells)

    return {
        "The backward passes come in the order of the forward passes. In GPipe the last micro-batch goes back first: "
        "its activations are the newest.": rows(lambda s, m: s + m, lambda s, m: forward + stages - 1 - s + m),
        "All stages work at the same time. A stage has to wait until the stage before it has passed the micro-batch "
        "on.": rows(lambda s, m: m, lambda s, m: 2 * micro_batches - 1 - m),
        "That is 1F1B, which goes back as soon as it can. GPipe makes all forward passes first.": _rows(
            _staircase(one_f_one_b(stages, micro_batches))
        ),
        "Each micro-batch goes through all stages and back before the next one starts: one stage works at a time. Let "
        "the next micro-batch follow in the next cycle.": rows(
            lambda s, m: 2 * stages * m + s, lambda s, m: 2 * stages * (m + 1) - 1 - s
        ),
        "The forward passes are right, and there are no backward passes.": _rows(
            [row[:forward] for row in _staircase(plan)]
        ),
    }


def _gpipe(stages: int, micro_batches: int) -> Trial:
    plan = planned_gpipe(stages, micro_batches)
    enough, longest = 2 * (micro_batches + stages - 1), 0

    def run(function: Any) -> Values:
        nonlocal longest
        rows = _lists(function(stages, micro_batches), "of words, one for each stage")
        longest = max(map(len, rows), default=0)
        return _rows([["" if cell is None else str(cell).strip() for cell in row] for row in rows])

    def hint(got: Values) -> str:
        """The first task that runs before what it needs."""
        done = {}
        for stage, row in enumerate(got.values()):
            done.update({(stage, cell): cycle for cycle, cell in enumerate(row.split()) if cell != IDLE})
        for (stage, cell), cycle in sorted(done.items(), key=lambda item: item[1]):
            needed = [(stage - 1, cell)] if cell[0] == "F" else [(stage, f"F{cell[1:]}"), (stage + 1, cell)]
            for other, task in needed:
                if 0 <= other < stages and done.get((other, task), cycle) >= cycle:
                    return (
                        f"In cycle {cycle} stage {stage} does {cell}, which needs stage {other}'s {task} in an earlier "
                        "cycle."
                    )
        return "No task runs too early; look for one that is missing, is there twice, or could run in an earlier cycle."

    def judge(_: Record) -> str:
        return f"But the rows have {longest} cycles, and {enough} are enough." if longest > enough else ""

    given = {"stages": stages, "micro_batches": micro_batches}
    title = f"{plural(stages, 'stage')}, {plural(micro_batches, 'micro-batch')}"
    return Trial(title, given, _rows(_staircase(plan)), run, _wrong_schedules(plan), hint, judge=judge)


def fit_alpha_beta(draw: random.Random) -> Trials:
    """A line through measured times."""
    sizes = [4, 4096, 65536, 1048576]
    exact = [1e-5 + 2e-10 * size for size in sizes]
    noisy = [seconds * factor for seconds, factor in zip(exact, (1.1, 0.9, 1.2, 1.3))]
    chosen = [
        _fit("times on a line", sizes, exact),
        _fit("two sizes", sizes[::3], exact[::3]),
        _fit("times with noise: the small messages count as much as the large", sizes, noisy),
    ]
    others = []
    for count in (2, 3, 4, 6, 8, 12):
        sizes = [4, 1 << 24, *draw.sample([0, *(2**power for power in range(3, 24))], count - 2)]
        draw.shuffle(sizes)
        alpha, beta = draw.randint(1, 9) * 1e-5, draw.randint(1, 9) * 1e-10
        times = [(alpha + beta * size) * draw.uniform(0.9, 1.1) for size in sizes]
        others.append(_fit(f"{count} sizes in any order, times with noise", sizes, times))
    return chosen, others


def _fit(title: str, nbytes: Sequence[int], seconds: Sequence[float]) -> Trial:
    link, x, y = fit_link(list(zip(nbytes, seconds))), onp.array(nbytes, float), onp.array(seconds, float)
    slope, height = onp.polyfit(x, y, 1)
    ends = (y[-1] - y[0]) / (x[-1] - x[0])

    def pair(alpha: float, beta: float) -> Values:
        return {"alpha": onp.array(alpha), "beta": onp.array(beta)}

    right = pair(link.alpha, link.beta)
    mistakes = {
        "These are beta and alpha: return alpha first.": pair(link.beta, link.alpha),
        "beta is the seconds for a byte, not the bytes in a second.": pair(link.alpha, 1 / link.beta),
        "That is the line with the least squares of the errors in seconds: the largest message decides alone. Divide "
        "each error by its time first.": pair(height, slope),
        "The line goes through zero: alpha is the time of a message of no bytes.": pair(
            0, (x / y).sum() / ((x / y) ** 2).sum()
        ),
        "The line goes through the first and the last time alone: use all of them.": pair(y[0] - ends * x[0], ends),
        "alpha is the time of the smallest message, which has bytes too, and noise.": pair(y[0], link.beta),
    }

    def run(function: Any) -> Values:
        returned = function(list(nbytes), list(seconds))
        try:
            alpha, beta = (float(value) for value in returned)
        except (TypeError, ValueError):
            raise Wrong(f"It returns {returned!r:.60}: return two numbers, alpha and beta.") from None
        return pair(alpha, beta)

    given = {"nbytes": list(nbytes), "seconds": [f"{value:.3g}" for value in seconds]}
    return Trial(title, given, right, run, mistakes)
