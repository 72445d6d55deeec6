"""A row of a result, and the arithmetic that questions need: ratios, intervals, the fastest. Pure Python.

Each case is measured in several processes, started anew (the setting ``repeats``). A process can be faster or slower
for its whole life, so it counts once, by the median of its rounds. Ratios are taken round by round before, so that a
drift of the machine cancels.

An interval is one of order statistics, which asks nothing of the numbers but that processes are independent: of n
processes, the r-th smallest and the r-th largest number enclose the true median unless more than n - r of them fall on
one side of it, and that is a question of coin tosses (Conover, "Practical Nonparametric Statistics", 3.2). One process
gives no interval, however many rounds it has.
"""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple

CONFIDENCE = 0.95
"""Of an interval where the number of processes is fixed."""


class Estimate(NamedTuple):
    """A median and its interval; ``low`` and ``high`` are None where there are too few processes for one.

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
    rank, ordered = _rank(len(values), error), sorted(values)
    return (ordered[rank - 1], ordered[-rank]) if rank else None


@lru_cache(maxsize=None)
def _rank(n: int, error: float) -> int:
    """Which smallest and largest of ``n`` values are the ends; 0 for none."""
    from scipy.special import bdtr  # takes longer to load than a command such as `list`

    return sum(bool(bdtr(k, n, 0.5) <= error / 2) for k in range(n // 2))


@dataclass(eq=False)
class Row:
    """What was measured of one case.

    ``case``: what distinguishes it, and the names of its ``devices``; ``samples``: the seconds of each round;
    ``metrics``: its other numbers; ``rounds``: those that were kept in each round; ``busy``: the share of the
    processors' time that went elsewhere, if that was too much; ``confidence``: of its intervals; ``disturbed``: which
    rounds were, for a picture.
    """

    label: str
    case: Dict[str, Any] = field(default_factory=dict)
    samples: Sequence[float] = ()
    metrics: Dict[str, Any] = field(default_factory=dict)
    rounds: Dict[str, Any] = field(default_factory=dict)
    oracle: Mapping[str, int] = field(default_factory=dict)
    busy: Optional[float] = None
    confidence: float = CONFIDENCE
    disturbed: Sequence[bool] = ()

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> Row:
        """The row of a result's file. What the file has besides is passed over, as everywhere in a result."""
        known = {each.name: record[each.name] for each in fields(Row) if each.name in record}
        return Row(**{**known, "samples": record["seconds"]["samples"]})

    def to_json(self) -> Dict[str, Any]:
        """For a result's file."""
        seconds = {"median": self.median, "min": min(self.samples), "max": max(self.samples), "samples": self.samples}
        own = {name: value for name, value in vars(self).items() if name not in ("samples", "disturbed")}
        return {**own, "seconds": seconds}

    @property
    def median(self) -> float:
        """Of its seconds."""
        return float(statistics.median(self.samples))

    @property
    def devices(self) -> List[str]:
        """Their names."""
        return list(self.case["devices"])

    def ratios(self, below: Row, name: str = "seconds") -> List[float]:
        """That number over that of ``below``, round by round: rounds of one number ran one after the other. NaN over 0.

        >>> Row("", rounds={"x": [1, 3]}).ratios(Row("", rounds={"x": [2, 0]}), "x")
        [0.5, nan]
        """
        mine, its = (row.samples if name == "seconds" else row.rounds[name] for row in (self, below))
        return [one / other if other else math.nan for one, other in zip(mine, its)]

    def keep(
        self, name: str, values: Iterable[Optional[float]], reported: Iterable[bool] = itertools.repeat(True)
    ) -> None:
        """Keep a number that needs several rows: ``values``, one a round, and their median as a metric. Rounds that are
        not ``reported`` (of :func:`fastest`) say nothing.

        >>> (row := Row("")).keep("x", [1.0, 2.0, 3.0], [False, True, True])
        >>> row.rounds, row.metrics
        ({'x': [None, 2.0, 3.0]}, {'x': 2.5})
        """
        self.rounds[name] = [value if own else None for value, own in zip(values, reported)]
        self.metrics[name] = self.estimate(name).median

    def keep_ratios(self, name: str, below: Optional[Row]) -> None:
        """Keep its :meth:`ratios`, if there is such a row: after a failure there may be none."""
        if below is not None:
            self.keep(name, self.ratios(below))

    def estimate(self, name: str = "seconds", sides: int = 1) -> Estimate:
        """The median of that number over the processes, and its interval at the row's ``confidence``.

        ``sides``: how many such intervals are judged at once; each is made wider so that all hold together.
        """
        medians = self.medians(name)
        if not medians:
            return Estimate(math.nan, None, None)
        ends = interval(medians, (1 - self.confidence) / sides)
        return Estimate(statistics.median(medians), *(ends or (None, None)))

    def medians(self, name: str = "seconds") -> List[float]:
        """The median of that number in each process."""
        return [statistics.median(own) for own in self.by_process(name)]

    def by_process(self, name: str = "seconds") -> List[List[float]]:
        """That number in the rounds of each process, without those that are None or not finite. Where ``rounds`` don't
        say which process they ran in, each is taken for one of its own."""
        values = self.samples if name == "seconds" else self.rounds[name]
        found: Dict[Any, List[float]] = {}
        for value, process in zip(values, self.rounds.get("repeat") or itertools.count()):
            if value is not None and math.isfinite(value):
                found.setdefault(process, []).append(float(value))
        return list(found.values())

    def halves(self) -> List[int]:
        """For each round, 0 if it is odd (the first is) and 1 if it is even: what one half chooses, the other reports.
        Whole processes are odd or even, as a process is fast or slow for its whole life."""
        return [number % 2 for number in self.rounds.get("repeat") or range(len(self.samples))]

    def at_most(self, name: str, bound: float) -> Optional[bool]:
        """Is that number at most ``bound``? None: undecided, by too few processes, an interval around the bound or a
        busy machine.

        >>> row = Row("", rounds={"x": [0.7, 0.7, 0.8, 0.8, 0.9, 0.9]})
        >>> row.at_most("x", 0.9), row.at_most("x", 0.6), row.at_most("x", 0.8)
        (True, False, None)
        """
        _, low, high = self.estimate(name)
        if low is None or high is None or self.busy:
            return None
        return True if high <= bound else False if low > bound else None

    def off(self, name: str, scale: float = 1.0) -> Optional[float]:
        """How far the prediction ``name``, times ``scale`` in seconds, is off the time that was measured: 0 where their
        intervals overlap, otherwise the ratio of the nearest ends, less 1. None without a prediction, or with too few
        rounds.

        A prediction's interval comes from measuring what it is calculated from anew in each round (or process).

        >>> row = Row("", samples=[2, 3] * 3, rounds={"near": [3, 4] * 3, "more": [6, 9] * 3, "less": [1] * 6})
        >>> row.off("near"), row.off("more"), row.off("less")
        (0.0, 1.0, -0.5)
        """
        if name not in self.rounds:
            return None
        (_, low, high), (_, least, most) = self.estimate(name), self.estimate()
        if low is None or high is None or least is None or most is None:
            return None
        return max(0.0, scale * low / most - 1) + min(0.0, scale * high / least - 1)


def find_all(rows: Iterable[Row], **case: Any) -> List[Row]:
    """The rows whose ``case`` has these values."""
    return [row for row in rows if all(row.case.get(key) == value for key, value in case.items())]


def find(rows: Iterable[Row], **case: Any) -> Optional[Row]:
    """The first of them, or None."""
    return next(iter(find_all(rows, **case)), None)


def fastest(rows: Sequence[Row], by: int = 0) -> Tuple[Row, List[bool]]:
    """The row whose median is least over the rounds of half ``by``, the odd ones; and for each of its rounds, whether
    it may be reported: those of the other half, since the least of many medians is low by chance. Where there is no
    other half, as of one process, from which no claim is judged, the number is reported all the same.

    >>> steady, shaky = Row("", samples=[2, 2, 2, 2]), Row("", samples=[1, 9, 1, 9])
    >>> fastest([steady, shaky]) == (shaky, [False, True, False, True])
    True
    """

    def seconds(row: Row) -> float:
        own = [sample for sample, half in zip(row.samples, row.halves()) if half == by]
        return float(statistics.median(own or row.samples))

    best = min(rows, key=seconds)
    halves = best.halves()
    return best, [half != by or len(set(halves)) == 1 for half in halves]


def contenders(rows: Sequence[Row], best: Row, reported: Sequence[bool]) -> List[Row]:
    """``best`` (of :func:`fastest`) and all rows that may be as fast: their time over its, in the rounds that may be
    reported, has an interval that reaches down to 1, or none."""
    close = [best]
    for row in rows:
        over = Row(row.label, rounds=dict(row.rounds), confidence=row.confidence)
        over.keep("over", row.ratios(best), reported)
        low = over.estimate("over").low
        if row is not best and (low is None or low <= 1):
            close.append(row)
    return close


def one_way(values: Sequence[float]) -> List[float]:
    """``values``, or the inverse of each if their median is less than 1: how far two things are apart, whichever is the
    larger. If each round chose by itself, noise alone would drive them apart.

    >>> one_way([0.5, 2.0, 4.0]), one_way([0.5, 0.25, 2.0])
    ([0.5, 2.0, 4.0], [2.0, 4.0, 0.5])
    """
    return list(values) if statistics.median(values) >= 1 else [1 / value for value in values]


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
