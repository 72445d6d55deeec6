"""What several catalog files do with their rows: names, ratios, and cells of a table. Pure Python."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, List, Optional, Sequence

from mxdp.experiments.harness.experiment import Column, Row
from mxdp.experiments.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plural(count: int, thing: str) -> str:
    """``1 device``, ``2 devices``.

    >>> plural(1, "device"), plural(2, "process")
    ('1 device', '2 processes')
    """
    return f"{count} {thing}" if count == 1 else f"{count} {thing}{'es' if thing.endswith('s') else 's'}"


def size(nbytes: int) -> str:
    """Bytes in the largest unit of which they are a whole number.

    >>> size(4), size(65536), size(1 << 24), size(160_000_000)
    ('4 B', '64 KiB', '16 MiB', '160 MB')
    """
    units = ((1 << 30, "GiB"), (10**9, "GB"), (1 << 20, "MiB"), (10**6, "MB"), (1 << 10, "KiB"), (1000, "kB"))
    unit, name = next((each for each in units if nbytes and nbytes % each[0] == 0), (1, "B"))
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
    pairs = zip(above["seconds"]["samples"], below["seconds"]["samples"])
    return float(statistics.median(a / b for a, b in pairs))


def metric(name: str, heading: str, form: str = "{:.2f}") -> Column:
    """A column for ``row["metrics"][name]``; the error for a row that has none makes the report show a dash."""

    def cell(row: Row) -> str:
        value = row["metrics"][name]
        return ("yes" if value else "no") if isinstance(value, bool) else form.format(value)

    return Column(heading, cell)


def seconds(heading: str = "seconds", form: str = "{:.2f}") -> Column:
    """A column for the median of the row's times, with minimum and maximum."""

    def cell(row: Row) -> str:
        times = row["seconds"]
        return f"{form} ({form}-{form})".format(times["median"], times["min"], times["max"])

    return Column(heading, cell)


def row_bars(
    figure: Figure,
    rows: List[Row],
    unit: str,
    colours: Sequence[str],
    scale: Sequence[float] = (),
    axes: Optional[Axes] = None,
    labels: Sequence[str] = (),
) -> None:
    """One bar a row: the median of its times, with whiskers and samples, each times its row's ``scale`` (default 1).

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
        colours=colours,
    )
