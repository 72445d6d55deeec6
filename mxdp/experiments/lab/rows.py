"""A number, which holds one value for each process, and a row of them. Pure Python.

A process can be faster or slower for its whole life, so it counts once. Numbers divide process by process before
anything is summed up, so that a drift of the machine cancels.

An interval is one of order statistics, which assumes only independent values. Of n values, the r-th smallest and the
r-th largest enclose the true median unless more than n - r fall on one side of it. That is a question of coin tosses
(Conover, "Practical Nonparametric Statistics", 3.2). Processes of one run share its hour, and the next hour may be
faster: from six runs on, a value is the median of a run. An interval needs six different values, and a run that repeats
another's values is no further run: three seeds that every run repeats are three values. Fewer values are shown
themselves, or their range, from which nothing follows.
"""

from __future__ import annotations

import math
import operator
import statistics
from contextlib import suppress
from itertools import chain, repeat
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

RUNS = 6
"""With this many runs or more, an interval is of runs. Fewer different values give no interval."""
LISTED = 3
"""So many different values without an interval are listed; of more, their range is given."""
APART = 0.05
"""What differs by more from what the medians give does not seem to add up."""
Value = Optional[float]
Record = Dict[str, Any]
"""A part of a result, as JSON has it: a run, a row of it, or what one process measured."""


def interval(values: Sequence[float]) -> Tuple[Value, Value]:
    """The narrowest pair of order statistics that encloses the true median in at least 95 %; None if there are too few.

    >>> interval([5, 1, 4, 2, 6, 3]), interval([5, 1, 4, 2, 3])
    ((1, 6), (None, None))
    """
    ordered = sorted(values)
    n = len(ordered)
    rank = 0
    beyond = 1  # tosses of n coins with at most `rank` heads
    while 2 * beyond <= 0.05 * 2**n:
        rank += 1
        beyond += math.comb(n, rank)
    return (ordered[rank - 1], ordered[-rank]) if rank else (None, None)


def _units(runs: Sequence[Sequence[float]]) -> List[float]:
    """What an interval of these runs is of: their medians, or of fewer than :data:`RUNS` their processes."""
    if len(runs) >= RUNS:
        return list(map(statistics.median, runs))
    return list(chain.from_iterable(runs))


class Number:
    """One value a process, or None. ``runs`` has the run of each process; ``label`` is that of the number's row.

    Computed from the values: ``median`` (NaN without any); ``units``, of which it is the median: medians of runs, or
    processes; ``different``, the values that differ, sorted; ``low`` and ``high``, the ends of the interval (None if
    fewer than :data:`RUNS` values differ); ``last``, the last process's value; ``truth``, whether all are true or
    false; ``seeds``, the values of one run, if all of several runs repeat them; ``of_medians``, of a ratio that of the
    medians; and ``made``: of a number times or over a plain one, these two and the sign, to be shown beside it.

    Numbers are added, subtracted, multiplied and divided process by process.

    >>> ratio = Number([1.0, 3.0, 2.0]) / Number([1.0, 2.0, 0.0])
    >>> ratio.values, f"{ratio:.2f}", f"{Number([1, 2, 3, 4, 5, 6]) / 2:.1f}"
    ([1.0, 1.5, None], '1.25 (1.00, 1.50)', '1.8 (0.5 to 3.0)')
    """

    def __init__(
        self, values: Iterable[Any], runs: Optional[Sequence[int]] = None, label: str = ""
    ) -> None:
        every = list(values)
        self.truth = bool(every) and all(isinstance(value, bool) for value in every)
        self.values: List[Value] = [None] * len(every)
        self.runs = [0] * len(every) if runs is None else list(runs)
        self.label = label
        by_run: Dict[int, List[float]] = {}
        for at, value in enumerate(every):
            if value is not None and math.isfinite(value):
                self.values[at] = float(value)
                by_run.setdefault(self.runs[at], []).append(float(value))
        self.last = self.values[-1] if every else None
        self.made: Optional[Tuple[Number, str, Any]] = None
        measured = list(by_run.values())
        # A run that repeats another's values, in whatever order, is no further run.
        new = list({tuple(sorted(run)): run for run in measured}.values())
        self.seeds = new[0] if len(new) == 1 < len(measured) else []
        self.different = sorted(set(chain.from_iterable(new)))
        self.units = _units(measured)
        self.median = float(statistics.median(self.units)) if self.units else math.nan
        self.of_medians = self.median
        self.low, self.high = interval(_units(new)) if len(self.different) >= RUNS else (None, None)

    def around(self, write: Callable[[float], str], to: str = " to ") -> str:
        """What stands in brackets beside the median, each value as ``write`` writes it: the interval. Without one, the
        different values, or of more than :data:`LISTED` their range; nothing if all look alike.

        >>> [Number(values).around(str) for values in ([1, 2, 3, 4, 5, 6], [3, 1, 3], [1, 2, 3, 4], [1, 1])]
        ['1.0 to 6.0', '1.0, 3.0', 'range 1.0 to 4.0', '']
        """
        if self.low is not None and self.high is not None:
            return f"{write(self.low)}{to}{write(self.high)}"
        texts = list(dict.fromkeys(map(write, self.different)))
        if len(texts) < 2:
            return ""
        return ", ".join(texts) if len(texts) <= LISTED else f"range {texts[0]}{to}{texts[-1]}"

    @property
    def adds_up(self) -> bool:
        """Whether it is about what the medians give, of which it is a ratio."""
        return not abs(self.median - self.of_medians) > APART * abs(self.median)

    def at_most(self, bound: float) -> Optional[bool]:
        """True or False if its whole interval is on that side of ``bound``; None: undecided.

        >>> [Number([4, 5, 6, 7, 8, 9]).at_most(bound) for bound in (9, 3, 8)]
        [True, False, None]
        """
        if self.low is None or self.high is None:
            return None
        if self.high <= bound:
            return True
        return False if self.low > bound else None

    def at_least(self, bound: float) -> Optional[bool]:
        """Does what :meth:`at_most` does, the other way round."""
        return (self * -1).at_most(-bound)

    def __format__(self, form: str) -> str:
        around = self.around(lambda value: f"{value:{form}}")
        return f"{self.median:{form}} ({around})" if around else f"{self.median:{form}}"

    def __repr__(self) -> str:
        return f"Number({self.values})"

    def __add__(self, other: Any) -> Number:
        return by_process(operator.add, self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Number:
        return by_process(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Number:
        return by_process(operator.sub, other, self)

    def __mul__(self, other: Any) -> Number:
        return _scaled(operator.mul, "x", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Number:
        return _scaled(operator.truediv, "/", self, other)

    def __rtruediv__(self, other: Any) -> Number:
        return _scaled(operator.truediv, "/", other, self)


def by_process(function: Callable[..., Any], *numbers: Any) -> Number:
    """``function`` of these, process by process; of a plain number, in each. It has the first one's label.

    >>> by_process(max, Number([1, 4]), Number([3, 2]), 2.5).values
    [3.0, 4.0]
    """
    first = next(number for number in numbers if isinstance(number, Number))
    columns: List[Iterable[Any]] = []
    for number in numbers:
        columns.append(number.values if isinstance(number, Number) else repeat(number))

    def one(*values: Any) -> Any:
        with suppress(ZeroDivisionError):
            return None if None in values else function(*values)

    return Number(map(one, *columns), first.runs, first.label)


def _scaled(function: Callable[..., Any], sign: str, one: Any, other: Any) -> Number:
    """A product or a ratio, which also has that of the medians, and how it was made."""
    result = by_process(function, one, other)
    if not isinstance(other, Number):
        result.made = one, sign, other
    with suppress(ZeroDivisionError):
        result.of_medians = function(_of_medians(one), _of_medians(other))
    return result


def _of_medians(number: Any) -> Any:
    return number.of_medians if isinstance(number, Number) else number


def mean(numbers: Iterable[Number]) -> Number:
    """The mean of several, process by process."""
    return by_process(lambda *values: statistics.fmean(values), *numbers)


def factor(ratio: Number) -> Number:
    """How far off 1 a ratio is, on either side: 1.25 for 1.25 and for 0.8.

    >>> factor(Number([1.25, 0.8, 1.0])).values
    [1.25, 1.25, 1.0]
    """
    return by_process(lambda value: max(value, 1 / value), ratio)


def by_name(records: Sequence[Record], number: Callable[[List[Any]], Any]) -> Record:
    """What these have under each name: of numbers ``number`` of them all (None where one has none), of dicts of numbers
    this of each entry, and of anything else the last.

    >>> by_name([{"x": 3, "z": {"a": 1.0}}, {"x": 1, "y": "so"}], middle)
    {'x': 2.0, 'z': {'a': 1.0}, 'y': 'so'}
    """
    whole: Record = {}
    for name in dict.fromkeys(chain.from_iterable(records)):
        values = [record.get(name) for record in records]
        known = [value for value in values if value is not None]
        if not known:
            whole[name] = None
        elif all(isinstance(value, (int, float)) for value in known):
            whole[name] = number(values)
        elif all(map(_of_numbers, known)):
            whole[name] = by_name([value or {} for value in values], number)
        else:
            whole[name] = known[-1]
    return whole


def _of_numbers(value: Any) -> bool:
    """Whether it is a dict of numbers."""
    return isinstance(value, Mapping) and {*map(type, value.values())} <= {int, float}


def middle(values: Sequence[Any]) -> Any:
    """The median of a process's rounds; of true and false, whether all are true."""
    known = [value for value in values if value is not None]
    if all(isinstance(value, bool) for value in known):
        return all(known)
    return statistics.median(known)


class Row:
    """What was measured of one case: ``seconds`` and other numbers, and the case's settings and facts, as attributes;
    also ``device_names``, and ``cores``, how many processors the machine had. ``tell`` may set more."""

    def __init__(self, label: str, reference: bool, known: Record) -> None:
        self.label = label
        self.reference = reference
        self.__dict__.update(known)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Number):  # whatever rows it was computed from
            of_medians = value.of_medians
            value = Number(value.values, value.runs, self.label)
            value.of_medians = of_medians
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
    found = []
    for row in rows:
        over = row.get(name) / best.get(name)
        if row is best or over.low is None or over.low <= 1:
            found.append(row)
    return found
