"""Prints pipelines as staircases, as drawn in :mod:`mxdp.plans.pipeline`."""

from __future__ import annotations

from typing import List

from rich.console import Console

from mxdp.errors import plural
from mxdp.plans.pipeline import PipelinePlan, bubble, cycles, kept


def print_pipeline(plan: PipelinePlan) -> None:
    """Print the headline, the staircase (in pieces that fit the terminal) and a legend."""
    console = Console(highlight=False)
    console.print(headline(plan) + "\n")
    console.print("\n\n".join(staircase(plan, console.width)), soft_wrap=True)
    console.print("\nF0: micro-batch 0 forward, B0: its gradients back. All tasks are drawn equally long.")


def headline(plan: PipelinePlan) -> str:
    """The name and the numbers of a plan.

    >>> from mxdp.plans.pipeline import one_f_one_b
    >>> print(headline(one_f_one_b(3, 4)))
    1f1b: 3 stages, 4 micro-batches, 12 cycles
    Idle: 33.3 % of all cycles (the bubble). Activations kept by stages 0 to 2: of 3, 2, 1 micro-batches.
    """
    idle, counts = bubble(plan.stages, plan.micro_batches), [str(count) for count in kept(plan)]
    stages = f"stages 0 to {plan.stages - 1}" if plan.stages > 1 else "stage 0"
    return (
        f"{plan.name}: {plural(plan.stages, 'stage')}, {plural(plan.micro_batches, 'micro-batch')}, "
        f"{plural(len(cycles(plan)), 'cycle')}\n"
        f"Idle: {100 * idle:.3g} % of all cycles (the bubble). Activations kept by {stages}: of {', '.join(counts)} "
        f"micro-batch{'' if counts == ['1'] else 'es'}."
    )


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
    labels = ["cycle", *(f"stage {stage}" for stage in range(plan.stages))]
    columns = [[str(number), *(str(task or "") for task in row)] for number, row in enumerate(rows)]
    left = max(map(len, labels)) + 3
    cell = max(len(text) for column in columns for text in column) + 2
    at_once = max(1, (width - left + 2) // cell)
    blocks = []
    for first in range(0, len(columns), at_once):
        block = columns[first : first + at_once]
        lines = (
            label.ljust(left) + "".join(column[number].ljust(cell) for column in block)
            for number, label in enumerate(labels)
        )
        blocks.append("\n".join(line.rstrip() for line in lines))
    return blocks
