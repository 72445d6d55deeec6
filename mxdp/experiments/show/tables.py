"""A result's rows as tables: cells of text, and what they look like in a terminal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Dict, List, Literal, Optional

from rich import box
from rich.cells import cell_len
from rich.table import Table as RichTable
from rich.text import Text

from mxdp.experiments.harness.disturbance import disturbed
from mxdp.experiments.harness.experiment import Column, Experiment, Result
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.report import style

NOTHING = "–"
# A number and at most a short unit: "12.3 ms", "1.98x" and "83 %" line up to the right, "2 devices" does not.
NUMERIC = re.compile(r"[<>~≈]?[-+−]?\d[\d.,]*(e[-+]?\d+)?\s?\S{0,4}")
LABEL = 18
"""In a narrow table, labels are broken into lines of at least this length before numbers with intervals are broken."""


@dataclass(frozen=True)
class Cells:
    """A table in text: a line is a row's label and its cells; ``right`` marks columns of numbers."""

    headings: List[str]
    rows: List[List[str]]
    references: List[List[str]]
    right: List[bool]


def table(result: Result, experiment: Optional[Experiment]) -> Cells:
    """The columns of ``experiment``, or without one (it is not installed here) the time and every plain metric.

    A row may lack a number (a reference has not all metrics; a NaN is null): the cell is a dash. A format that does not
    fit its number is a defect, shown as ``?`` rather than thrown at a reader who waited for the other rows.
    """
    return _cells(experiment.columns() if experiment else _plain_columns(result), result["rows"], result["references"])


def more(result: Result, experiment: Optional[Experiment]) -> Optional[Cells]:
    """The second table, if ``experiment`` has one and any row has its numbers."""
    columns = experiment.more_columns() if experiment else []
    cells = _cells(columns, [row for row in result["rows"] if any(cell(column, row) for column in columns)], [])
    return cells if cells.rows else None


def _cells(columns: List[Column], own: List[Row], others: List[Row]) -> Cells:
    lines, references = (
        [[row.label, *(_cell(column, row) for column in columns)] for row in part] for part in (own, others)
    )
    right = [False]
    for index in range(1, len(columns) + 1):
        filled = [line[index] for line in lines + references if line[index] not in (NOTHING, "?", "")]
        right.append(bool(filled) and all(NUMERIC.fullmatch(text) for text in filled))
    return Cells(["", *(column.heading for column in columns)], lines, references, right)


def _plain_columns(result: Result) -> List[Column]:
    keys: Dict[str, None] = {}
    for row in result["rows"] + result["references"]:
        keys.update({key: None for key, value in row.metrics.items() if not isinstance(value, (dict, list))})

    return [
        Column("seconds", "median s"),
        *(Column(key, key.replace("_", " "), ",.6g") for key in keys),
    ]


def _cell(column: Column, row: Row) -> str:
    try:
        found = cell(column, row)
    except (TypeError, ValueError):
        return "?"
    return NOTHING if found is None else found


def cell(column: Column, row: Row) -> Optional[str]:
    """What a table shows of ``row`` in that column; None if the row has no such number."""
    names = [column.name] if isinstance(column.name, str) else column.name
    known = {**row.case, **row.metrics, "seconds": row.median}
    name = next((name for name in names if known.get(name) is not None), None)
    if name is None:
        return None
    if column.spread and (name == "seconds" or name in row.rounds):
        median, *ends = row.estimate(name)
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


def _widths(cells: Cells, width: int) -> List[Optional[int]]:
    """How wide each column is, for a table of ``width``. Where there is not enough room, headings are broken between
    words first, then labels, then other cells that are no numbers. None: characters have to be broken, too."""
    columns = [[line[index] for line in cells.rows + cells.references] for index in range(len(cells.headings))]
    words = [[*heading.split()] for heading in cells.headings]
    whole = [max(map(cell_len, [*heads, *texts]), default=0) for heads, texts in zip(words, columns)]
    least = [
        most if right else max(map(cell_len, [*heads, *" ".join(texts).split()]), default=0)
        for most, right, heads, texts in zip(whole, cells.right, words, columns)
    ]
    room = width - 2 * len(columns) + 1
    natural = [max(most, cell_len(heading)) for most, heading in zip(whole, cells.headings)]
    if sum(natural) <= room:
        return [*natural]
    others = whole[1:] if room - sum(whole[1:]) >= min(whole[0], LABEL) else least[1:]
    label = min(whole[0], room - sum(others))
    return [label, *others] if label >= least[0] else [None] * len(columns)


def for_terminal(cells: Cells, width: int) -> RichTable:
    """For ``width`` characters. If words don't fit, a table with fewer rows than columns is turned."""
    lines, widths = cells.rows + cells.references, _widths(cells, width)
    if None in widths and len(lines) + 1 < len(cells.headings):
        turned = [list(line) for line in zip(cells.headings, *lines)]
        return for_terminal(Cells(turned[0], turned[1:], [], [False] + [all(cells.right[1:])] * len(lines)), width)
    made = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for heading, right, own in zip(cells.headings, cells.right, widths):
        side: Literal["right", "left"] = "right" if right else "left"
        made.add_column(Text(heading), justify=side, width=own, overflow="fold")
    for number, line in enumerate(lines):
        if number == len(cells.rows):
            made.add_section()
        made.add_row(*map(Text, line), style="dim" if number >= len(cells.rows) else "")
    return made


def watched(rounds: Dict[str, List[Any]]) -> Optional[Cells]:
    """What else the machine did in each round, as a table; None for an old result."""
    forms = {"elsewhere": "{:.0%}", "stolen": "{:.0%}", "page_faults": "{:,}", "mhz": "{:,.0f}"}
    numbers = zip_longest(*(rounds.get(name, ()) for name in forms))
    lines = []
    for number, (mark, own) in enumerate(zip(disturbed(rounds), numbers), 1):
        cells = [NOTHING if each is None else form.format(each) for form, each in zip(forms.values(), own)]
        lines.append([f"{number}{'*' * mark}", *cells])
    headings = ["round", "elsewhere", "stolen by the host", "page faults", "MHz"]
    return Cells(headings, lines, [], [False] + [True] * len(forms)) if lines else None
