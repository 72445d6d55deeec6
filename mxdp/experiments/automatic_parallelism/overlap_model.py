"""Work and the copies of its results: what both should take together, what they took, and a picture. Pure Python."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Dict, List, Sequence, Tuple

from mxdp.experiments.harness.experiment import Row
from mxdp.experiments.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Parts = Tuple[float, float, float]
"""Seconds of the work alone, of the copies alone, and of both with no wait between."""


def expected_parts(count: int, work: float, copy: float, at_once: int, chain: bool, one_landing: bool) -> Parts:
    """What ``count`` pieces of work of ``work`` seconds each, and ``copy`` seconds of copying for each, should take.

    The device runs ``at_once`` jobs at the same time, and takes the one that has been ready for longest. Independent
    pieces are all ready at once, so copies come after them; of a ``chain`` one is ready at a time, and a copy finds a
    worker without work. With ``one_landing`` the copies wait for each other.

    >>> expected_parts(50, 1.0, 1.0, 2, chain=True, one_landing=True)
    (50.0, 50.0, 51.0)
    >>> expected_parts(50, 1.0, 1.0, 2, chain=False, one_landing=True)
    (25.0, 50.0, 75.0)
    """
    run = count * work / (1 if chain else at_once)
    copies = count * copy / (1 if one_landing else at_once)
    if chain and at_once > 1:
        return run, copies, work + (count - 1) * max(work, copy) + copy
    return run, copies, run + copies


def describe(rounds: Sequence[Parts]) -> Dict[str, float]:
    """A row's numbers: medians over the rounds, of the seconds and of each round's own ratios."""
    found: Dict[str, List[float]] = {
        "run_seconds": [run for run, _, _ in rounds],
        "copy_seconds": [copy for _, copy, _ in rounds],
        "in_turn_seconds": [run + copy for run, copy, _ in rounds],
        "overlapped_seconds": [both for _, _, both in rounds],
        "overlapped_over_longer": [both / max(run, copy) for run, copy, both in rounds],
        "overlapped_over_sum": [both / (run + copy) for run, copy, both in rounds],
    }
    return {name: statistics.median(values) for name, values in found.items()}


def alike(row: Row) -> float:
    """The shorter of the work alone and the copies alone, over the longer."""
    alone = sorted(row["metrics"][f"{part}_seconds"] for part in ("run", "copy"))
    return float(alone[0] / alone[1])


def draw(axes: Axes, rows: Sequence[Row]) -> None:
    """For each row two bars: work and copies in turn, which is 1, and below it both with no wait between."""
    for y, row in enumerate(rows):
        numbers = row["metrics"]
        run = numbers["run_seconds"] / numbers["in_turn_seconds"]
        both, longer = numbers["overlapped_over_sum"], max(run, 1 - run)
        axes.barh(y - 0.1, run, height=0.2, color=style.COLOURS[0], label="products" if y == 0 else None)
        axes.barh(y - 0.1, 1 - run, left=run, height=0.2, color=style.COLOURS[1], label="copies" if y == 0 else None)
        axes.barh(y + 0.1, both, height=0.2, color=style.COLOURS[2], label="both, no wait" if y == 0 else None)
        axes.plot([longer] * 2, [y, y + 0.2], color=style.INK, label="longer of the two" if y == 0 else None)
        axes.annotate(row["label"], (0, y - 0.2), (2, 2), textcoords="offset points", va="bottom")
        axes.annotate(f"{both:.2f}", (max(both, longer), y + 0.1), (6, 0), textcoords="offset points", va="center",
                      weight="bold")  # fmt: skip
    axes.set_ylim(len(rows) - 0.6, -0.6)
    axes.set_xlim(0, max(1.15, 1.15 * max(row["metrics"]["overlapped_over_sum"] for row in rows)))
    axes.set_yticks([])
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("time; products and copies in turn = 1")
