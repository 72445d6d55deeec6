"""What an experiment claims, and how sure its numbers are.

A claim is judged from an interval, never from a point. The interval is one of order statistics, which asks nothing of
the times but that rounds are independent: of n rounds, the r-th smallest and the r-th largest enclose the true median
unless more than n - r of them fall on one side of it, and that is a question of coin tosses (Conover, "Practical
Nonparametric Statistics", 3.2). Ratios are taken round by round before, so that a drift of the machine cancels.

Where each case was measured in several processes, started anew (the setting ``repeats``), a process counts once, with
the median of its rounds: a process can be faster or slower for its whole life.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

Row = Dict[str, Any]

LOOK_ERRORS = (0.0325, 0.00875, 0.00875)
"""How often the interval of each look may miss: together 5 %, so 95 % hold however early the looking ends. Six rounds
give the first (they miss in 3.1 %), twelve the second. That is for one claim: of an experiment's many, the chance that
one is judged wrongly is higher."""
CONFIDENCE = 0.95
"""Of an interval where the number of rounds is fixed."""


@dataclass(frozen=True)
class Claim:
    """One sentence that an experiment judges.

    ``finish`` writes the measured quantity into ``row["rounds"]``, one number a round (None: this round says nothing),
    under the claim's name, for each row that the claim is about. It holds if every such row's number is at most
    ``bound``, or at least where ``least``. ``source``: who says so. Where the source is vague, the sentence says how it
    is read. ``exact``: the number has no noise, such as a count of bytes, so each round's is compared itself.
    """

    sentence: str
    source: str
    bound: float
    least: bool = False
    exact: bool = False


class Estimate(NamedTuple):
    """A median and its interval; ``low`` and ``high`` are None where there are too few rounds for one.

    >>> f"{Estimate(1.5, 1.25, 1.75):.2f} times, {Estimate(0.5, None, None):.0%}"
    '1.50 (1.25 to 1.75) times, 50%'
    """

    median: float
    low: Optional[float]
    high: Optional[float]

    def __format__(self, form: str) -> str:
        if self.low is None:
            return format(self.median, form)
        return f"{self.median:{form}} ({self.low:{form}} to {self.high:{form}})"


def interval(values: Sequence[float], error: float = 1 - CONFIDENCE) -> Optional[Tuple[float, float]]:
    """The narrowest pair of order statistics that misses the true median in at most ``error`` of all cases; None if
    there are too few values.

    >>> interval([5, 1, 4, 2, 6, 3]), interval([5, 1, 4, 2, 3])
    ((1, 6), None)
    """
    from scipy.special import bdtr  # takes longer to load than a command such as `list`

    n = len(values)
    rank = sum(bdtr(k, n, 0.5) <= error / 2 for k in range(n // 2))
    ordered = sorted(values)
    return (ordered[rank - 1], ordered[-rank]) if rank else None


def estimate(row: Row, name: str = "seconds", sides: int = 1) -> Estimate:
    """The median of that number over the rounds of ``row``, and its interval at the row's ``confidence``.

    ``sides``: how many such intervals are judged at once; each is made wider so that all hold together.
    """
    values = row["seconds"]["samples"] if name == "seconds" else row["rounds"][name]
    repeats: Dict[Any, List[float]] = {}
    for value, repeat in zip(values, row["rounds"].get("repeat") or count()):
        if value is not None and math.isfinite(value):
            repeats.setdefault(repeat, []).append(float(value))
    if not repeats:
        return Estimate(math.nan, None, None)
    medians = [statistics.median(own) for own in repeats.values()]
    ends = interval(medians, (1 - row.get("confidence", CONFIDENCE)) / sides)
    return Estimate(statistics.median(medians), *(ends or (None, None)))


def unpaired_ratio(above: Estimate, below: Estimate) -> Estimate:
    """``above`` over ``below``, where no round of one belongs to a round of the other: two runs.

    The ends of both intervals give it: the least over the most, the most over the least. It misses the true ratio no
    more often than one of the two misses its median. If both runs are alike it is wider than it must be. A bootstrap of
    six or nine values is narrower there, but misses in 6 to 7 % where one run is steady and the other is not.

    >>> f"{unpaired_ratio(Estimate(3.0, 2.0, 4.0), Estimate(2.0, 1.0, 2.5)):.2f}"
    '1.50 (0.80 to 4.00)'
    """
    median = above.median / below.median if below.median else math.nan
    if above.low is None or above.high is None or not below.low or not below.high:
        return Estimate(median, None, None)
    return Estimate(median, above.low / below.high, above.high / below.low)


def noise_factor(noise: Optional[Mapping[str, Any]]) -> float:
    """By how much a case differed from itself, as a factor of at least 1; 1 if it may have been the same."""
    differs = noise and not noise["low"] <= 1 <= noise["high"]
    return max(noise["median"], 1 / noise["median"]) if noise and differs else 1.0


def off(row: Row, name: str, scale: float = 1.0) -> Optional[float]:
    """How far the prediction ``name``, times ``scale`` in seconds, is off the time that was measured: 0 where their
    intervals overlap, otherwise the ratio of the nearest ends, less 1. None without a prediction, or with too few
    rounds.

    A prediction's interval comes from measuring what it is calculated from anew in each round (or process).

    >>> row = {"seconds": {"samples": [2, 3] * 3}, "rounds": {"near": [3, 4] * 3, "more": [6, 9] * 3, "less": [1] * 6}}
    >>> off(row, "near"), off(row, "more"), off(row, "less")
    (0.0, 1.0, -0.5)
    """
    if name not in row["rounds"]:
        return None
    (_, low, high), (_, least, most) = estimate(row, name), estimate(row)
    if low is None or high is None or least is None or most is None:
        return None
    return max(0.0, scale * low / most - 1) + min(0.0, scale * high / least - 1)


def at_most(row: Row, name: str, bound: float) -> Optional[bool]:
    """Is that number at most ``bound``? None, can't tell: :func:`unsure` says why. An answer gives advice only where
    this is known.

    >>> row = {"seconds": {"samples": []}, "rounds": {"x": [0.7, 0.7, 0.8, 0.8, 0.9, 0.9]}}
    >>> at_most(row, "x", 0.9), at_most(row, "x", 0.6), at_most(row, "x", 0.8), at_most({**row, "busy": 0.3}, "x", 0.9)
    (True, False, None, None)
    """
    _, low, high = estimate(row, name)
    if low is None or high is None or row.get("busy"):
        return None
    return True if high <= bound else False if low > bound else None


def unsure(row: Row, name: str = "seconds") -> str:
    """Why one can't tell, in a few words."""
    if row.get("busy"):
        return "this machine was busy"
    return "too few rounds" if estimate(row, name).low is None else "the intervals overlap"


def judged(name: str, claim: Claim, rows: Sequence[Row], noise: float = 1.0) -> Dict[str, Any]:
    """The claim with what was measured, for the JSON: ``holds`` is None where the intervals can't tell.

    It holds if each row's interval is on the right side of the bound. It does not if one is on the wrong side, and
    stays there when made wider for the number of rows: of many rows, one is on the wrong side by chance.
    ``noise``: the factor by which a case differed from itself; each interval is widened by it.
    """
    about = [row for row in rows if any(value is not None for value in row["rounds"].get(name, ()))]
    right = [_side(claim, row, name, 1, noise) is True for row in about]
    wrong = [_side(claim, row, name, len(about), noise) is False for row in about]
    holds = False if any(wrong) else True if about and all(right) else None
    measured = [{"label": row["label"], **estimate(row, name)._asdict()} for row in about]
    if claim.exact:  # judged by every round, so all are shown
        for row, each in zip(about, measured):
            known = [float(value) for value in row["rounds"][name] if value is not None]
            each.update(low=min(known), high=max(known))
    return {"name": name, **asdict(claim), "holds": holds, "measured": measured}


def _side(claim: Claim, row: Row, name: str, sides: int, noise: float) -> Optional[bool]:
    """Is the row's interval on the right side of the bound? None: the bound is inside it."""
    if claim.exact:
        known = [value for value in row["rounds"][name] if value is not None]
        return bool(min(known) >= claim.bound if claim.least else max(known) <= claim.bound)
    _, low, high = estimate(row, name, sides)
    if low is None or high is None:
        return None
    low, high = low / noise, high * noise
    beyond = [claim.bound - end if claim.least else end - claim.bound for end in (low, high)]
    return True if max(beyond) <= 0 else False if min(beyond) > 0 else None


def overall(claims: Sequence[Mapping[str, Any]]) -> Optional[bool]:
    """What all judged claims say together: one that fails decides, one that is open leaves it open."""
    held = [claim["holds"] for claim in claims if claim["measured"]]
    return False if False in held else None if None in held or not held else True


def is_open(claims: Sequence[Mapping[str, Any]]) -> bool:
    """Could more rounds decide a claim that is not decided yet?"""
    return any(claim["measured"] and claim["holds"] is None for claim in claims)
