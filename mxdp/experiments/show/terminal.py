"""A result in a terminal: its tables, and what stands around them, also while it is measured. The report shows the same
tables."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any, Iterator, List, Literal, Mapping, Optional, Sequence, Tuple

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable
from rich.text import Text

from mxdp.errors import plural
from mxdp.experiments.lab.rows import Number, Row
from mxdp.experiments.lab.told import NO_ANSWER, Column
from mxdp.experiments.show import style, words

COLOURS = {"yes": "bold green", "no": "bold yellow", "unknown": "bold cyan", "bad": "bold red"}
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


def table(s: words.Shown, rows: Optional[Sequence[Row]] = None, more: bool = False) -> Cells:
    """What the terminal and the report show of these rows (default: all) and of the references; with ``more`` the
    second table, of the rows that have its numbers.

    A row may lack a number: the cell is a dash. A format that does not fit its number is a defect, shown as ``?``: it
    must not cost a reader the other rows.
    """
    columns = [column for column in s.told.columns if column.more == more]
    rows = s.told.rows if rows is None else rows
    filled_rows = [row for row in rows if not more or any(cell(column, row) != NOTHING for column in columns)]
    lines, references = (
        [[row.label, *(cell(column, row) for column in columns)] for row in part]
        for part in (filled_rows, [] if more else s.told.references)
    )
    right = [False]
    for index in range(1, len(columns) + 1):
        filled = [line[index] for line in lines + references if line[index] not in (NOTHING, "?", "")]
        right.append(bool(filled) and all(NUMERIC.fullmatch(text) for text in filled))
    return Cells(["", *(column.heading for column in columns)], lines, references, right)


def tables(s: words.Shown, rows: Sequence[Row]) -> List[Cells]:
    """Both tables, if there are both."""
    both = [table(s, rows), table(s, rows, more=True)]
    return [cells for cells in both if len(cells.headings) > 1 and (cells.rows or cells.references)]


def cell(column: Column, row: Row) -> str:
    """What a table shows of ``row`` in that column."""
    names = [column.name] if isinstance(column.name, str) else column.name
    value = next((row.get(name) for name in names if row.get(name) is not None), None)
    try:
        return _written(value, column)
    except (TypeError, ValueError):
        return "?"


def _written(value: Any, column: Column) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, Number) and value.truth:
        return "yes" if all(value.values) else "no"
    if isinstance(value, Number):
        text = _written(value.median, column)
        ends = [end for end in (value.low, value.high) if column.spread and end is not None and value.low != value.high]
        return f"{text} ({'-'.join(_written(end, column) for end in ends)})" if ends else text
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple, dict)):
        parts = value.values() if isinstance(value, dict) else value
        return ", ".join(_written(one, column) for one in parts) or "none"
    if not isinstance(value, (int, float)):
        return str(value)
    if value != value:
        return NOTHING
    scaled = value * column.scale if column.scale != 1 else value
    text = f"{scaled:{column.form}}" if column.form else style.number(scaled)
    return (text if re.search("[1-9]", text) else text.lstrip("-")) + column.unit


def _widths(cells: Cells, width: int) -> List[Optional[int]]:
    """How wide each column is, for a table of ``width``. Where there is not enough room, headings are broken between
    words first, then labels, then other cells that are no numbers. None: characters have to be broken, too."""
    columns = [[line[index] for line in cells.rows + cells.references] for index in range(len(cells.headings))]
    split = [[*heading.split()] for heading in cells.headings]
    whole = [max(map(cell_len, [*heads, *texts]), default=0) for heads, texts in zip(split, columns)]
    least = [
        most if right else max(map(cell_len, [*heads, *" ".join(texts).split()]), default=0)
        for most, right, heads, texts in zip(whole, cells.right, split, columns)
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
    for heading, right, wide in zip(cells.headings, cells.right, widths):
        side: Literal["right", "left"] = "right" if right else "left"
        made.add_column(Text(heading), justify=side, width=wide, overflow="fold")
    for number, line in enumerate(lines):
        if number == len(cells.rows):
            made.add_section()
        made.add_row(*map(Text, line), style="dim" if number >= len(cells.rows) else "")
    return made


def live(result: Mapping[str, Any], width: int) -> RenderableType:
    """Question, prediction, the table so far and the answer so far, while processes are measured."""
    s = words.shown([result])
    parts: List[RenderableType] = [Text.assemble("\n", (result["experiment"], "bold"), f": {s.title}")]
    parts.append(_facts([("prediction", Text(result["prediction"], style="dim"))]))
    if list(s.told):
        parts.append(Padding(for_terminal(table(s, s.told.answering), width - 2), (1, 0, 1, 2)))
    if s.told.sentence not in ("", NO_ANSWER):
        parts.append(_facts([("so far", Text(words.answer(s), style="bold"))]))
    return Group(*parts)


class View:
    """What a terminal shows while something is measured: the table so far, and a bar. It is gone when it ends."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        columns = TextColumn("{task.description}"), BarColumn(bar_width=20), TaskProgressColumn(), TimeElapsedColumn()
        self._bar = Progress(*columns)
        self._task = self._bar.add_task("", total=None)
        self._live = Live(self._bar, console=self.console, transient=True)
        self._begun = 0.0

    def __enter__(self) -> View:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Print a line above it."""
        self.console.print(text, markup=False, highlight=False)

    def begin(self, what: str) -> None:
        """Something else is measured now."""
        self._begun = time.monotonic()
        self._bar.reset(self._task, description=what, total=None)
        self._live.update(self._bar)

    def progress(
        self, where: str, done: int, total: int, doing: str = "", result: Optional[Mapping[str, Any]] = None
    ) -> None:
        """Where the work is, how much of how much is done, what it does, and what was measured so far."""
        if result and done < total:
            doing = f"about {words.duration((time.monotonic() - self._begun) / done * (total - done))} more"
            self._live.update(Group(live(result, self.console.width), self._bar))
        self._bar.update(self._task, description=", ".join(filter(None, [where, doing])), completed=done, total=total)


def print_result(runs: Sequence[Mapping[str, Any]], console: Console, why: bool = False, guess: str = "") -> None:
    """Print what was measured: question, prediction (after the reader's own ``guess``), table, answer, and one line of
    what else there is; with ``why`` all of that, too."""
    s = words.shown(runs)
    console.print(Text.assemble("\n", (s.latest["experiment"], "bold"), ": ", s.title))
    lines = [("your guess", guess), ("prediction", s.latest["prediction"])]
    lines += [("how to read", line) for line in words.how_to_read(s)] if why else []
    console.print(_facts([(term, Text(text, style="dim")) for term, text in lines if text]))
    if list(s.told):
        for cells in tables(s, s.told.answering)[: None if why else 1]:
            console.print(Padding(for_terminal(cells, console.width - 2), (1, 0, 0, 2)))
        left = len(s.told.rows) - len(s.told.answering)
        said_left = f"{plural(left, 'more row')}: in report.html" if left else ""
        console.print(Padding(Text(said_left, style="dim"), (0, 0, 1 if left else 0, 2)))
    console.print(_facts([fact for fact in _after(s, why) if fact[1]]))


def _after(s: words.Shown, why: bool) -> Iterator[Tuple[str, Text]]:
    """What stands below the table; what there is nothing to say of is empty."""
    ended = words.mark(s)
    yield "reason", Text(reason(s), style="red" if ended and ended[0] == "bad" else "")
    yield (
        ("ended", Text(ended[1], style=COLOURS[ended[0]])) if ended else ("answer", Text(words.answer(s), style="bold"))
    )
    if not why:
        measured = words.summary(s)
        yield "measured", Text(f"{measured}. More: --why, or the report." if measured else "", style="dim")
        return
    yield "why", Text(words.explanation(s))
    for kind, held, sentence in words.claim_lines(s):
        yield "claim", Text.assemble((held, COLOURS[kind]), f": {sentence}")
    kind, sentence = words.oracle_line(s)
    yield "oracle", Text(sentence, style="" if kind == "yes" else COLOURS[kind])
    yield "measured", Text(words.sureness(s), style="dim")


def reason(s: words.Shown) -> str:
    """Why it failed, without the colours of a child's terminal."""
    return Text.from_ansi(s.latest["error"] or "").plain


def _facts(facts: List[Tuple[str, Text]]) -> Padding:
    """Terms and what to say of each, the same indent everywhere."""
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True, min_width=len("how to read"))
    grid.add_column(overflow="fold")
    for term, text in facts:
        grid.add_row(Text(term), text)
    return Padding(grid, (0, 0, 0, 2))
