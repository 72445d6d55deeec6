"""A number, which holds one value for each process, and a row of them. Pure Python.

Each case is measured in several processes, started anew. A process can be faster or slower for its whole life, so it
counts once. Numbers divide process by process before anything is summed up, so that a drift of the machine cancels.

An interval is one of order statistics, which assumes only that its values are independent: of n values, the r-th
smallest and the r-th largest enclose the true median unless more than n - r of them fall on one side of it, and that is
a question of coin tosses (Conover, "Practical Nonparametric Statistics", 3.2). Processes of one run share its hour, and
the next hour may be faster: where there are six runs or more, a value is the median of a run.
"""

from __future__ import annotations

import math
import statistics
from functools import lru_cache
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

CONFIDENCE = 0.95
RUNS = 6
"""An interval is one of runs where there are at least this many. Fewer values than this give no interval."""
Value = Optional[float]


def interval(values: Sequence[float]) -> Optional[Tuple[float, float]]:
    """The narrowest pair of order statistics that encloses the true median in at least 95 %; None if there are too few.

    >>> interval([5, 1, 4, 2, 6, 3]), interval([5, 1, 4, 2, 3])
    ((1, 6), None)
    """
    rank, ordered = _rank(len(values)), sorted(values)
    return (ordered[rank - 1], ordered[-rank]) if rank else None


@lru_cache(maxsize=None)
def _rank(n: int) -> int:
    """Which smallest and largest of ``n`` values are the ends; 0 for none."""
    beyond, rank = 0, 0
    while rank < n // 2:
        beyond += math.comb(n, rank)
        if 2 * beyond > (1 - CONFIDENCE) * 2**n:
            break
        rank += 1
    return rank


class Number:
    """One value a process; None where it has none. ``runs`` has the run of each process, and ``label`` is the row's.
    ``truth``: all are true or false.

    Numbers are added, subtracted, multiplied and divided process by process. A number that a row gets has its label.

    >>> ratio = Number([1.0, 3.0, 2.0]) / Number([1.0, 2.0, 0.0])
    >>> ratio.values, f"{ratio:.2f}", f"{Number([1, 2, 3, 4, 5, 6]) / 2:.1f}"
    ([1.0, 1.5, None], '1.25', '1.8 (0.5 to 3.0)')
    """

    def __init__(self, values: Iterable[Any], runs: Optional[Sequence[int]] = None, label: str = "") -> None:
        every = list(values)
        self.truth = bool(every) and all(isinstance(value, bool) for value in every)
        self.values: List[Value] = [_finite(value) for value in every]
        self.runs = list(runs) if runs is not None else [0] * len(self.values)
        self.label = label
        self.made: Optional[Tuple[Number, str, Any]] = None
        """If it is another number times or over a plain one: these, to be shown beside it."""

    @property
    def units(self) -> List[float]:
        """What the interval is of: the median of each run if there are six or more, else the processes."""
        by_run: Dict[int, List[float]] = {}
        for run, value in zip(self.runs, self.values):
            if value is not None:
                by_run.setdefault(run, []).append(value)
        medians = [statistics.median(values) for values in by_run.values()]
        return medians if len(medians) >= RUNS else [value for values in by_run.values() for value in values]

    @property
    def median(self) -> float:
        """NaN without any value."""
        return float(statistics.median(self.units)) if self.units else math.nan

    @property
    def low(self) -> Value:
        """The lower end of its interval; None where there are too few values for one."""
        ends = interval(self.units)
        return ends[0] if ends else None

    @property
    def high(self) -> Value:
        """The upper end."""
        ends = interval(self.units)
        return ends[1] if ends else None

    @property
    def last(self) -> Value:
        """The value of the last process."""
        return self.values[-1] if self.values else None

    def at_most(self, bound: float) -> Optional[bool]:
        """True or False if its whole interval is on that side of ``bound``; None: undecided.

        >>> [Number([7, 7, 8, 8, 9, 9]).at_most(bound) for bound in (9, 6, 8)]
        [True, False, None]
        """
        low, high = self.low, self.high
        if low is None or high is None:
            return None
        return True if high <= bound else False if low > bound else None

    def at_least(self, bound: float) -> Optional[bool]:
        """As :meth:`at_most`, the other way round."""
        low, high = self.low, self.high
        if low is None or high is None:
            return None
        return True if low >= bound else False if high < bound else None

    def apart(self, other: Number) -> Optional[float]:
        """How far it is off ``other``: 0 where their intervals overlap, else the ratio of the nearest ends, less 1.
        None without intervals.

        >>> time = Number([2, 3] * 3)
        >>> Number([3, 4] * 3).apart(time), Number([6, 9] * 3).apart(time), Number([1] * 6).apart(time)
        (0.0, 1.0, -0.5)
        """
        low, high, least, most = self.low, self.high, other.low, other.high
        if low is None or high is None or least is None or most is None:
            return None
        return max(0.0, low / most - 1) + min(0.0, high / least - 1)

    def one_way(self) -> Number:
        """It, or its inverse if that is at least 1: how far two things are apart, whichever is the larger. (If each
        process chose by itself, noise alone would drive them apart.)"""
        return self if not self.median < 1 else 1 / self

    def __format__(self, form: str) -> str:
        if self.low is None:
            return format(self.median, form)
        if self.low == self.high:  # a count
            return format(self.median, form)
        return f"{self.median:{form}} ({self.low:{form}} to {self.high:{form}})"

    def __repr__(self) -> str:
        return f"Number({self.values})"

    def __add__(self, other: Any) -> Number:
        return by_process(lambda a, b: a + b, self, other)

    def __sub__(self, other: Any) -> Number:
        return by_process(lambda a, b: a - b, self, other)

    def __rsub__(self, other: Any) -> Number:
        return by_process(lambda a, b: b - a, self, other)

    def __mul__(self, other: Any) -> Number:
        return self._making("x", other, by_process(lambda a, b: a * b, self, other))

    def __truediv__(self, other: Any) -> Number:
        return self._making("/", other, by_process(lambda a, b: a / b, self, other))

    def __rtruediv__(self, other: Any) -> Number:
        return by_process(lambda a, b: b / a, self, other)

    __radd__, __rmul__ = __add__, __mul__

    def _making(self, sign: str, other: Any, made: Number) -> Number:
        if not isinstance(other, Number):
            made.made = self, sign, other
        return made


def by_process(function: Callable[..., Any], *numbers: Union[Number, float]) -> Number:
    """``function`` of these, process by process; of a plain number, in each. It has the first one's label.

    >>> by_process(max, Number([1, 4]), Number([3, 2]), 2.5).values
    [3.0, 4.0]
    """
    first = next(number for number in numbers if isinstance(number, Number))
    columns = [number.values if isinstance(number, Number) else [number] * len(first.values) for number in numbers]

    def one(values: Sequence[Any]) -> Any:
        try:
            return None if None in values else function(*values)
        except ZeroDivisionError:
            return None

    return Number(map(one, zip(*columns)), first.runs, first.label)


def mean(numbers: Iterable[Number]) -> Number:
    """The mean of several, process by process."""
    return by_process(lambda *values: statistics.fmean(values), *numbers)


def largest(numbers: Iterable[Number]) -> Number:
    """The largest of several, process by process."""
    return by_process(lambda *values: max(values), *numbers)


def smallest(numbers: Iterable[Number]) -> Number:
    """The smallest of several, process by process."""
    return by_process(lambda *values: min(values), *numbers)


def combined(values: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """What a process says, which has measured these rounds: of numbers the median, of truths whether all were true, of
    dicts of numbers this of each entry, of anything else the last.

    >>> combined([{"x": 3, "y": True, "z": {"a": 1.0}}, {"x": 1, "y": False, "z": {"a": 2.0}}])
    {'x': 2.0, 'y': False, 'z': {'a': 1.5}}
    """
    whole: Dict[str, Any] = {}
    for name in dict.fromkeys(name for one in values for name in one):
        known = [one[name] for one in values if one.get(name) is not None]
        if known and all(isinstance(value, bool) for value in known):
            whole[name] = all(known)
        elif known and all(isinstance(value, (int, float)) for value in known):
            whole[name] = statistics.median(known) if len(known) > 1 else known[0]
        elif known and all(map(is_numeric, known)):
            whole[name] = combined(known)
        else:
            whole[name] = known[-1] if known else None
    return whole


def is_numeric(value: Any) -> bool:
    """True for a dict of numbers."""
    return bool(value) and isinstance(value, Mapping) and all(type(x) in (int, float) for x in value.values())


class Row:
    """What was measured of one case: ``seconds`` and other numbers, and the case's settings and facts, as attributes.
    ``tell`` may set more. ``devices`` is how many they are, ``device_names`` what they are called, and ``cores`` how
    many processors the machine had."""

    def __init__(self, label: str, reference: bool, known: Mapping[str, Any]) -> None:
        self.label, self.reference = label, reference
        self.__dict__.update(known)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Number):  # whatever rows it was computed from
            value = Number(value.values, value.runs, self.label)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the row {self.__dict__.get('label')!r} has no {name!r}")

    def get(self, name: str, default: Any = None) -> Any:
        """One of its attributes, or ``default``."""
        return self.__dict__.get(name, default)

    def has(self, **values: Any) -> bool:
        """True if its attributes have these values."""
        return all(self.get(name) == value for name, value in values.items())


def fastest(rows: Sequence[Row], name: str = "seconds") -> Row:
    """The row whose median is least. It may be by chance: compare with all :func:`contenders`."""
    return min(rows, key=lambda row: row.get(name).median)


def contenders(rows: Sequence[Row], name: str = "seconds") -> List[Row]:
    """The :func:`fastest`, and all rows that may be as fast: the interval of their time over its reaches down to 1."""
    best = fastest(rows, name)
    over = [row.get(name) / best.get(name) for row in rows]
    return [row for row, ratio in zip(rows, over) if row is best or ratio.low is None or ratio.low <= 1]


def _finite(value: Any) -> Value:
    return float(value) if value is not None and math.isfinite(value) else None
