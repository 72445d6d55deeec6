"""Rows of a result: finding them, their ratios, a table's cells, a picture's bars. Pure Python."""

from __future__ import annotations

import re
import statistics
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from mxdp.experiments.harness.claims import estimate
from mxdp.experiments.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mxdp.experiments.harness.experiment import Column, Experiment, Result, Row


def size(nbytes: int) -> str:
    """Bytes in the largest unit of which they are a whole number.

    >>> size(4), size(65536), size(1 << 24), size(160_000_000)
    ('4 bytes', '64 KiB', '16 MiB', '160 MB')
    """
    units = ((1 << 30, "GiB"), (10**9, "GB"), (1 << 20, "MiB"), (10**6, "MB"), (1 << 10, "KiB"), (1000, "kB"))
    unit, name = next((each for each in units if nbytes and nbytes % each[0] == 0), (1, "bytes"))
    return f"{nbytes // unit:,} {name}"


def find_all(rows: List[Row], **case: Any) -> List[Row]:
    """The rows whose ``case`` has these values."""
    return [row for row in rows if all(row["case"].get(key) == value for key, value in case.items())]


def find(rows: List[Row], **case: Any) -> Optional[Row]:
    """The first of them, or None."""
    return next(iter(find_all(rows, **case)), None)


def ratio(above: Row, below: Row) -> float:
    """Median over the rounds of ``above``'s seconds over ``below``'s: rounds of one number ran one after the other.

    >>> ratio({"seconds": {"samples": [2.0, 4.0, 9.0]}}, {"seconds": {"samples": [1.0, 4.0, 3.0]}})
    2.0
    """
    return float(statistics.median(ratios(above, below)))


def keep(row: Row, name: str, values: Iterable[Optional[float]]) -> None:
    """Keep a number that needs several rows: ``values``, one a round, and their median as the row's metric."""
    row["rounds"][name] = list(values)
    row["metrics"][name] = estimate(row, name).median


def keep_accuracies(row: Row, base: Row) -> None:
    """Each process trained from a seed of its own: the accuracy after its last round, and how far that is above
    ``base``'s."""
    own, others = _last_accuracies(row), _last_accuracies(base)
    row["metrics"]["test_accuracy"] = statistics.median(own.values())
    if row is not base:
        gains = {repeat: own[repeat] - others[repeat] for repeat in own if repeat in others}
        keep(row, "accuracy_gain", [gains.get(repeat) for repeat in row["rounds"]["repeat"]])


def _last_accuracies(row: Row) -> Dict[int, float]:
    return dict(zip(row["rounds"]["repeat"], row["rounds"]["test_accuracy"]))


def either(names: Iterable[str]) -> str:
    """
    >>> either(["a"]), either(["a", "b", "c"])
    ('a', 'a, b or c')
    """
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def one_way(values: Sequence[float]) -> List[float]:
    """``values``, or the inverse of each if their median is less than 1: how far two things are apart, whichever is the
    larger. If each round chose by itself, noise alone would drive them apart.

    >>> one_way([0.5, 2.0, 4.0]), one_way([0.5, 0.25, 2.0])
    ([0.5, 2.0, 4.0], [2.0, 4.0, 0.5])
    """
    return list(values) if statistics.median(values) >= 1 else [1 / value for value in values]


def ratios(above: Row, below: Row) -> List[float]:
    """``above``'s seconds over ``below``'s, round by round."""
    return [a / b for a, b in zip(above["seconds"]["samples"], below["seconds"]["samples"])]


def fastest(rows: Sequence[Row]) -> Tuple[Row, List[bool]]:
    """The row whose median is least over the odd rounds; and for each of its rounds, whether it may be reported: the
    even ones, since the least of many medians is low by chance. With repeats, whole processes are odd or even. Of one
    round, which no claim is judged from, the number is reported all the same.

    >>> steady, shaky = ({"seconds": {"samples": samples}, "rounds": {}} for samples in ([2, 2, 2, 2], [1, 9, 1, 9]))
    >>> fastest([steady, shaky]) == (shaky, [False, True, False, True])
    True
    """

    def reported(row: Row) -> List[bool]:
        samples = row["seconds"]["samples"]
        return [number % 2 == 1 for number in row["rounds"].get("repeat") or range(len(samples))]

    def seconds(row: Row) -> float:
        pairs = zip(row["seconds"]["samples"], reported(row))
        return float(statistics.median(sample for sample, even in pairs if not even))

    best = min(rows, key=seconds)
    even = reported(best)
    return best, even if any(even) else [True] * len(even)


def contenders(rows: Sequence[Row], best: Row, reported: Sequence[bool]) -> List[Row]:
    """``best`` (of :func:`fastest`) and all rows that may be as fast: their time over its, in the rounds that may be
    reported, has an interval that reaches down to 1, or none."""
    close = [best]
    for row in rows:
        values = [each if even else None for each, even in zip(ratios(row, best), reported)]
        low = estimate({**row, "rounds": {**row["rounds"], "over": values}}, "over").low
        if row is not best and (low is None or low <= 1):
            close.append(row)
    return close


def over(rows: List[Row], row: Row, *same: str, **case: Any) -> Optional[float]:
    """``row``'s time over that of the row whose case has these values, and ``row``'s own for the names in ``same``;
    None without such a row."""
    base = _like(rows, row, same, case)
    return ratio(row, base) if base else None


def speedup(rows: List[Row], row: Row, *same: str, **case: Any) -> Optional[float]:
    """How many times as fast ``row`` is as the row that :func:`over` would divide by."""
    base = _like(rows, row, same, case)
    return ratio(base, row) if base else None


def _like(rows: List[Row], row: Row, same: Sequence[str], case: Mapping[str, Any]) -> Optional[Row]:
    return find(rows, **case, **{name: row["case"].get(name) for name in same})


def cell(column: Column, row: Row) -> Optional[str]:
    """What a table shows of ``row`` in that column; None if the row has no such number."""
    names = [column.name] if isinstance(column.name, str) else column.name
    times = row["seconds"]
    known = {**row["case"], **row["metrics"], "seconds": times["median"]}
    name = next((name for name in names if known.get(name) is not None), None)
    if name is None:
        return None
    if column.spread and (name == "seconds" or name in row["rounds"]):
        median, *ends = estimate(row, name)
        text = _written(median, column)
        return text if None in ends else f"{text} ({'-'.join(_written(end, column) for end in ends)})"
    return _written(known[name], column)


def _written(value: Any, column: Column) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple, dict)):
        own = value.values() if isinstance(value, dict) else value
        return ", ".join(_written(each, column) for each in own) or "none"
    if not isinstance(value, (int, float)):
        return str(value)
    scaled = value * column.scale if column.scale != 1 else value
    text = f"{scaled:{column.form}}" if column.form else style.number(scaled)
    return (text if re.search("[1-9]", text) else text.lstrip("-")) + column.unit


def answering(result: Result, experiment: Optional[Experiment]) -> Result:
    """``result`` with the rows that answer its question. With all, if the experiment can't say which."""
    try:
        return {**result, "rows": experiment.answering(result["rows"])} if experiment else result
    except Exception:  # a defect, or an old result: the reader gets a longer table
        return result


def row_bars(
    figure: Figure,
    rows: List[Row],
    unit: str,
    colours: Sequence[str] = (),
    scale: Sequence[float] = (),
    axes: Optional[Axes] = None,
    labels: Sequence[str] = (),
) -> None:
    """One bar a row: the median of its times, with whiskers and samples, each times its row's ``scale`` (default 1).
    Samples of the rounds in ``row["disturbed"]``, if the report has put it there, are crosses.

    ``axes``: where, if not on the whole figure; ``labels``: in place of the rows' own."""
    factors = scale or [1.0] * len(rows)
    times = [[sample * factor for sample in row["seconds"]["samples"]] for row, factor in zip(rows, factors)]
    style.bars(
        axes or figure.add_subplot(),
        labels or [row["label"] for row in rows],
        [statistics.median(samples) for samples in times],
        [min(samples) for samples in times],
        [max(samples) for samples in times],
        unit=unit,
        samples=times,
        colours=colours or [style.COLOURS[0]] * len(rows),
        disturbed=[row.get("disturbed", ()) for row in rows],
    )
