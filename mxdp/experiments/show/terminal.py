"""A result in a terminal, also while it is measured; and its tables, which the report shows, too."""

from __future__ import annotations

import re
from typing import Any, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable
from rich.text import Text

from mxdp.errors import plural
from mxdp.experiments.lab.rows import Number, Record, Row
from mxdp.experiments.lab.told import NO_ANSWER, Column, Told
from mxdp.experiments.show import style, words

COLOURS = {"yes": "bold green", "no": "bold yellow", "unknown": "bold cyan", "bad": "bold red"}
NOTHING = "–"
# A number and at most a short unit: "12.3 ms", "1.98x" and "83 %" line up to the right, "2 devices" does not.
NUMERIC = re.compile(r"[<>~≈]?[-+−]?\d[\d.,]*(e[-+]?\d+)?\s?\S{0,4}")
NO_SUM = "Ratios are taken process by process: they may differ from those of the medians above."
# In a narrow table, labels are broken into lines of at least this length before numbers with intervals are broken.
LABEL = 18
# A column of words keeps a heading of at most this length in one line, such as "in sync".
SHORT = 7


class Cells(NamedTuple):
    """A table in text: a line is a row's label and its cells; ``right`` marks columns of numbers; ``note`` stands
    below."""

    headings: List[str]
    rows: List[List[str]]
    references: List[List[str]]
    right: List[bool]
    note: str = ""


def tables(about: Told, rows: Sequence[Row]) -> List[Cells]:
    """What the terminal and the report show of these rows and of the references; and the second table, if there is
    one, of the rows that have its numbers.

    A row may lack a number: the cell is a dash. A format that does not fit its number is a defect, shown as ``?``: it
    must not cost a reader the other rows.
    """
    made = []
    for more in (False, True):
        columns = [column for column in about.columns if column.more == more]
        headings = ["", *(column.heading for column in columns)]
        parts: List[List[List[str]]] = []
        note = ""
        for part in (rows, [] if more else about.references):
            lines = []
            for row in part:
                values = [_value(column, row) for column in columns]
                if any(isinstance(value, Number) and not value.adds_up for value in values):
                    note = NO_SUM
                lines.append([row.label, *map(written, values, columns)])
            parts.append(lines)
        lines, references = parts
        if more:
            lines = [line for line in lines if {*line[1:]} != {NOTHING}]
        right = [False]
        for texts in [*zip(*lines, *references)][1:]:
            filled = {*texts} - {NOTHING, "?", ""}
            right.append(bool(filled) and all(NUMERIC.fullmatch(text) for text in filled))
        if columns and lines + references:
            made.append(Cells(headings, lines, references, right, note))
    return made


def _value(column: Column, row: Row) -> Any:
    """What the row has in that column, or None."""
    names = [column.name] if isinstance(column.name, str) else column.name
    for name in names:
        if row.get(name) is not None:
            return row.get(name)
    return None


def written(value: Any, column: Column) -> str:
    """A value for people, as the column says; ``?`` if its format does not fit."""
    if isinstance(value, Number) and value.truth:
        value = all(value.values)
    if isinstance(value, Number):
        text = written(value.median, column)
        if column.spread and (around := value.around(lambda one: written(one, column), "-")):
            text += f" ({around})"
        return text
    if value is None or value != value:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple, dict)):
        parts = value.values() if isinstance(value, dict) else value
        return ", ".join(written(part, column) for part in parts) or "none"
    if not isinstance(value, (int, float)):
        return str(value)
    if column.scale != 1:
        value *= column.scale
    try:
        text = f"{value:{column.form}}" if column.form else style.number(value)
    except ValueError:
        return "?"
    if not re.search("[1-9]", text):
        text = text.lstrip("-")
    return text + column.unit


def _longest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)


def _widths(cells: Cells, width: int) -> List[Optional[int]]:
    """How wide each column is, for a table of ``width``. Where there is not enough room, headings are broken between
    words first, then labels, then other cells that are no numbers. None: characters have to be broken, too."""
    columns = list(zip(cells.headings, *cells.rows, *cells.references))
    natural = []
    whole = []
    least = []
    for (heading, *texts), right in zip(columns, cells.right):
        short = not right and cell_len(heading) <= SHORT
        words = [heading] if short else heading.split()
        natural.append(_longest([heading, *texts]))
        whole.append(_longest([*words, *texts]))
        if not right:
            texts = " ".join(texts).split()
        least.append(_longest([*words, *texts]))
    room = width - 2 * len(columns) + 1
    if sum(natural) <= room:
        return [*natural]
    others = whole[1:]
    if room - sum(others) < min(whole[0], LABEL):
        others = least[1:]
    label = min(whole[0], room - sum(others))
    if label < least[0]:
        return [None] * len(columns)
    return [label, *others]


def for_terminal(cells: Cells, width: int) -> RichTable:
    """The table in ``width`` characters. If words don't fit, one with fewer rows than columns is turned."""
    lines = cells.rows + cells.references
    widths = _widths(cells, width)
    if None in widths and len(lines) + 1 < len(cells.headings):
        headings, *turned = map(list, zip(cells.headings, *lines))
        numbers = all(cells.right[1:])
        right = [False, *(numbers for _ in lines)]
        return for_terminal(Cells(headings, turned, [], right), width)
    made = RichTable(
        box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold"
    )
    for heading, of_numbers, wide in zip(cells.headings, cells.right, widths):
        side: Any = "right" if of_numbers else "left"
        made.add_column(Text(heading), justify=side, width=wide, overflow="fold")
    for line in cells.rows:
        made.add_row(*map(Text, line))
    if cells.references:
        made.add_section()
    for line in cells.references:
        made.add_row(*map(Text, line), style="dim")
    return made


def live(so_far: Record, width: int) -> RenderableType:
    """Question, prediction, the table so far and the answer so far, while processes are measured."""
    s = words.told_of([so_far])
    parts: List[RenderableType] = [
        Text.assemble("\n", (so_far["experiment"], "bold"), ": ", s.title),
        _facts([("prediction", Text(so_far["prediction"], style="dim"))]),
    ]
    for cells in tables(s.told, s.told.answering)[:1]:
        parts.append(Padding(for_terminal(cells, width - 2), (1, 0, 1, 2)))
    if s.told.sentence not in ("", NO_ANSWER):
        parts.append(_facts([("so far", Text(words.answer(s), style="bold"))]))
    return Group(*parts)


class View(Live):
    """What a terminal shows while something is measured: the table so far, and a bar. It is gone when it ends."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TaskProgressColumn(),
            TimeElapsedColumn(),
        )
        self._task = self._bar.add_task("", total=None)
        super().__init__(self._bar, console=Console(stderr=True), transient=True)

    def say(self, text: str) -> None:
        """Print a line above it."""
        self.console.print(text, markup=False, highlight=False)

    def begin(self, what: str) -> None:
        """Something else is measured now."""
        self._bar.reset(self._task, description=what, total=None)
        self.update(self._bar)

    def progress(
        self,
        where: str,
        done: float,
        total: float,
        doing: str = "",
        so_far: Optional[Record] = None,
    ) -> None:
        """Where the work is, how much of how much is done, what it does, and what was measured so far."""
        if so_far and done < total:
            elapsed = self._bar.tasks[0].elapsed or 0.0
            doing = f"about {words.duration(elapsed / done * (total - done))} more"
            self.update(Group(live(so_far, self.console.width), self._bar))
        about = f"{where}, {doing}" if doing else where
        self._bar.update(self._task, description=about, completed=done, total=total)


def print_result(
    runs: Sequence[Record],
    console: Console,
    why: bool = False,
    guess: str = "",
    across_commits: bool = False,
) -> None:
    """Print what was measured: question, prediction (after the reader's own ``guess``), table, answer, and one line of
    what else there is; with ``why`` all of that, too. ``across_commits``: of runs of different commits."""
    s = words.shown(runs, across_commits)
    console.print(Text.assemble("\n", (s.latest["experiment"], "bold"), ": ", s.title))
    lines = [("your guess", guess), ("prediction", s.latest["prediction"])]
    if why:
        lines += [("how to read", line) for line in words.how_to_read(s)]
    console.print(_facts([(term, Text(text, style="dim")) for term, text in lines]))
    if list(s.told):
        found = tables(s.told, s.told.answering)
        if not why:
            found = found[:1]
        for cells in found:
            console.print(Padding(for_terminal(cells, console.width - 2), (1, 0, 0, 2)))
            console.print(Padding(Text(cells.note, style="dim"), (0, 0, 0, 2)))
        left = len(s.told.rows) - len(s.told.answering)
        rest = f"{plural(left, 'more row')}: in report.html\n" if left else ""
        console.print(Padding(Text(rest, style="dim"), (0, 0, 0, 2)))
    console.print(_facts(_after(s, why)))


def _after(s: words.Shown, why: bool) -> Iterator[Tuple[str, Text]]:
    """What stands below the table."""
    kind, ended = words.mark(s) or ("", "")
    yield "reason", Text(reason(s), style="red" if kind == "bad" else "")
    if ended:
        yield "ended", Text(ended, style=COLOURS[kind])
    else:
        yield "answer", Text(words.answer(s), style="bold")
    if not why:
        measured = words.summary(s)
        if measured:
            yield "measured", Text(f"{measured}. More: --why, or the report.", style="dim")
        return
    yield "why", Text(words.explanation(s))
    for claim in words.claim_lines(s):
        yield "claim", Text.assemble((claim.words, COLOURS[claim.kind]), f": {claim.text}")
    kind, sentence = words.oracle_line(s)
    yield "oracle", Text(sentence, style="" if kind == "yes" else COLOURS[kind])
    yield "measured", Text(words.sureness(s), style="dim")


def reason(s: words.Shown) -> str:
    """Why it failed, without the colours of a child's terminal."""
    return Text.from_ansi(s.latest["error"] or "").plain


def _facts(facts: Iterable[Tuple[str, Text]]) -> Padding:
    """Terms and what to say of each, the same indent everywhere. What there is nothing to say of is left out."""
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True, min_width=len("how to read"))
    grid.add_column(overflow="fold")
    for term, text in facts:
        if text:
            grid.add_row(Text(term), text)
    return Padding(grid, (0, 0, 0, 2))
