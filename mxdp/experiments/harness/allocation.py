"""How many processes, and how many rounds in each: the split that gives the narrowest intervals in a given time.

A process can be fast or slow for its whole life, so its rounds are alike. A process counts once, by the median of its
rounds, which has the variance ::

    between ** 2  +  within ** 2 * share(rounds)

More rounds make the second part smaller, and more processes the whole. Each process has to be started, so the best
split depends on both spreads and on both times. A pilot of a few processes tells them.

Source: the two-stage design of survey sampling (Cochran, "Sampling Techniques", 10.6), for medians.
"""

from __future__ import annotations

import math
import statistics
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence

from mxdp.errors import plural
from mxdp.experiments.harness.rows import Row, interval

ROUNDS = (1, 3, 5, 7, 9)
"""Of a process. An odd number has a middle one: of an even number, skewed noise moves the median."""
MOST = 30
"""Processes: an interval of more is hardly narrower."""
FEWEST_THAT_DECIDE = 15
"""Processes, where these differ by more than the medians of their rounds do."""


class Spread(NamedTuple):
    """Standard deviations of one number, relative to its median; ``within`` is None if no process had two rounds."""

    between: float
    within: Optional[float]


def share(rounds: int) -> float:
    """Of a round's variance, what is left in the median of so many (normal noise).

    >>> [round(share(rounds), 2) for rounds in (1, 3, 9)]
    [1.0, 0.44, 0.16]
    """
    return (math.pi / 2) / (rounds + math.pi / 2 - 1)


def spread(processes: Sequence[Sequence[float]]) -> Optional[Spread]:
    """The spread of a number, of which ``processes`` has each process's values. None with fewer than two processes, or
    if the median is 0."""
    medians = [statistics.median(own) for own in processes]
    middle = abs(statistics.median(medians)) if len(medians) > 1 else 0.0
    if not middle:
        return None
    inside = [statistics.variance(own) for own in processes if len(own) > 1]
    within = statistics.mean(inside) if inside else 0.0
    rounds = round(statistics.mean(map(len, processes)))
    between = max(0.0, statistics.variance(medians) - within * share(rounds))
    return Spread(math.sqrt(between) / middle, math.sqrt(within) / middle if inside else None)


def spreads(rows: Iterable[Row], claims: Iterable[str]) -> List[Spread]:
    """Of each claim's number in each row that has it; without any, of the rows' times."""
    rows = list(rows)
    found = [spread(row.by_process(name)) for name in claims for row in rows if name in row.rounds]
    return [each for each in found or [spread(row.by_process()) for row in rows] if each]


class Allocation(NamedTuple):
    """So many processes (with those of the pilot), and in each new one so many rounds."""

    processes: int
    rounds: int


def width(own: Spread, split: Allocation) -> float:
    """Of the interval, in standard deviations of normal noise; infinite if so few processes give none."""
    ends = interval(range(split.processes))
    if not ends:
        return math.inf
    low = statistics.NormalDist().inv_cdf((ends[0] + 0.6) / (split.processes + 0.2))
    return -2 * low * math.sqrt(own.between**2 + (own.within or 0.0) ** 2 * share(split.rounds))


def best(found: Sequence[Spread], pilot: Allocation, start: float, round_: float, seconds: float) -> Allocation:
    """The split with the narrowest intervals (the mean of their logarithms), which takes at most ``seconds`` more than
    the ``pilot`` did.

    ``start`` and ``round_``: seconds that all cases together take to start, and for a round. Where processes decide
    (for most numbers they differ by more than their medians' noise) there are at least :data:`FEWEST_THAT_DECIDE`.

    >>> best([Spread(0.045, 0.06)], Allocation(6, 3), start=4, round_=11, seconds=200)
    Allocation(processes=17, rounds=1)
    >>> best([Spread(0.0, 0.06)], Allocation(6, 3), start=20, round_=2, seconds=200)
    Allocation(processes=9, rounds=9)
    """

    def cost(split: Allocation) -> float:
        return (split.processes - pilot.processes) * (start + split.rounds * round_)

    def mean_width(split: Allocation) -> float:
        return statistics.mean(math.log(max(width(each, split), 1e-9)) for each in found) if found else 0.0

    known = all(each.within is not None for each in found)
    counts = [n for n in range(pilot.processes + 1, MOST + 1) if _sheds_one(n)]
    choices = [pilot, *(Allocation(n, rounds) for rounds in (ROUNDS if known else [pilot.rounds]) for n in counts)]
    chosen = min((each for each in choices if cost(each) <= seconds), key=lambda each: (mean_width(each), cost(each)))
    decide = [each.between**2 > (each.within or 0.0) ** 2 * share(chosen.rounds) for each in found]
    if 2 * sum(decide) > len(decide) and chosen.processes < FEWEST_THAT_DECIDE:
        return Allocation(FEWEST_THAT_DECIDE, min(each.rounds for each in choices))
    return chosen


def _sheds_one(count: int) -> bool:
    """Does the interval of ``count`` values leave out more of them than that of one fewer?"""
    own, fewer = interval(range(count)), interval(range(count - 1))
    return bool(own and not (fewer and own[0] == fewer[0]))


def plan(
    rows: Iterable[Row],
    claims: Iterable[str],
    pilot: Allocation,
    starts: Sequence[float],
    rounds: Sequence[float],
    budget: float,
) -> Dict[str, Any]:
    """What the ``pilot`` found, and what was chosen, for the JSON; ``why`` is in words. Without a ``budget`` the pilot
    is all. ``starts`` and ``rounds``: seconds of each start of all cases, and of each of their rounds."""
    found = spreads(rows, claims)
    start, round_ = (round(statistics.median(own), 3) if own else 0.0 for own in (starts, rounds))
    chosen = best(found, pilot, start, round_, budget) if budget else pilot
    between, within = ([own for own in each if own is not None] for each in zip(*found)) if found else ([], [])
    apart = [
        f"by {statistics.median(own):.1%} between {words}"
        for own, words in ((between, "processes"), (within, "the rounds of one"))
        if own
    ]
    said = f"The numbers differ {' and '.join(apart)} (standard deviation). " if apart else ""
    more = f"{plural(chosen.processes, 'process')} of {plural(chosen.rounds, 'round')}"
    return {
        **chosen._asdict(),
        "between": statistics.median(between) if between else None,
        "within": statistics.median(within) if within else None,
        "start_seconds": start,
        "round_seconds": round_,
        "why": f"{said}A process takes {start:.1f} s to start and {round_:.1f} s for a round. "
        + (f"{more} give the narrowest intervals in the time that there is." if budget else f"The preset says {more}."),
    }
