"""What a question tells of its numbers, anew whenever a result is shown: columns, claims, the answer and pictures.

A number that a reader wants to know is a size: a sentence in the answer or the explanation, with its interval. A claim
judges it by a bound. It is for what somebody else has said, with a source that can be looked up, and for what would be
a defect of ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from mxdp.errors import without_exit
from mxdp.experiments.lab.module import Settings
from mxdp.experiments.lab.rows import Number, Row, by_name

NO_ANSWER = "No answer: not every case was measured."
DEFECT = "ours: otherwise it is a defect"
"""The source of a claim that nobody else has made."""
Panel = Tuple[Callable[[Any], Any], float]
Had = Tuple[str, str, str]
FIRST, OTHERS = "first", "others"
"""Processes of a run: some numbers are measured in the first alone."""


def paragraph(text: str) -> str:
    """``text`` with a space for each line break: what a question says may be written as a paragraph."""
    return " ".join(str(text).split())


@dataclass(frozen=True)
class Column:
    """One column of a table. ``name``: of a number, a fact or a setting; of several, the first that the row has.
    ``form``: a format, by default three significant digits. ``scale``: what the number is multiplied by. ``unit``: is
    written after it. ``about``: what it means. ``spread``: with its interval. ``more``: in a second table."""

    name: Any
    heading: str
    form: str = ""
    scale: float = 1.0
    unit: str = ""
    about: str = ""
    spread: bool = False
    more: bool = False


@dataclass
class Claim:
    """One sentence that is judged: it holds if the interval of each number is on the right side of the bound, and does
    not if one is on the wrong side. ``least``: the bound is one from below. ``exact``: its numbers have no noise, such
    as counts of bytes, so each value is compared."""

    sentence: str
    source: str
    bound: float
    least: bool
    exact: bool
    numbers: List[Number] = field(default_factory=list)

    @property
    def holds(self) -> Optional[bool]:
        """None: undecided, or about no number."""
        sides = [self._side(number) for number in self.numbers]
        return False if False in sides else None if None in sides or not sides else True

    def _side(self, number: Number) -> Optional[bool]:
        if not self.exact:
            return number.at_least(self.bound) if self.least else number.at_most(self.bound)
        known = [value for value in number.values if value is not None]
        return (
            all(value >= self.bound if self.least else value <= self.bound for value in known)
            if known
            else None
        )


class Told:
    """The rows of a result (``rows``, and ``references``, the yardsticks), and what ``tell`` says of them. Iterating
    gives all rows, then all references. ``left_out`` says which runs were, and why."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = [row for row in rows if not row.reference]
        self.references = [row for row in rows if row.reference]
        self.columns: List[Column] = []
        self.notes: List[str] = []
        self.claims: Dict[str, Claim] = {}
        self.answering: List[Row] = self.rows
        self.sentence, self.explanation = "", ""
        self.left_out: List[str] = []
        self.panels: List[Any] = []  # a Panel, or the arguments of `bars`

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows + self.references)

    def find(self, **values: Any) -> List[Row]:
        """The rows, without references, whose attributes have these values."""
        return [row for row in self.rows if row.has(**values)]

    def one(self, **values: Any) -> Row:
        """The first row with these values, or else the first reference. Raises a LookupError if there is neither."""
        row = self.maybe(**values)
        if row is None:
            raise LookupError(f"no row has {values}")
        return row

    def maybe(self, **values: Any) -> Optional[Row]:
        """As :meth:`one`; None if there is none."""
        return next((row for row in self if row.has(**values)), None)

    def column(self, name: Any, heading: str = "", *more: Any, **options: Any) -> None:
        """Add a :class:`Column` to the table; its heading is the name, unless given."""
        self.columns.append(Column(name, heading or str(name).replace("_", " "), *more, **options))

    def note(self, text: str) -> None:
        """Say more about how to read the table."""
        self.notes.append(paragraph(text))

    def claim(
        self,
        sentence: str,
        *numbers: Optional[Number],
        at_most: Optional[float] = None,
        at_least: Optional[float] = None,
        exact: bool = False,
        source: str = DEFECT,
    ) -> None:
        """Judge ``numbers``, except None, by a bound. Calls with one sentence are one claim of several numbers.
        ``source``: who has said so, with a title and an address."""
        bound = at_most if at_least is None else at_least
        if bound is None or None not in (at_most, at_least):
            raise ValueError(f"the claim {sentence!r} needs one bound: at_most or at_least")
        sentence = paragraph(sentence)
        claim = self.claims.setdefault(
            sentence, Claim(sentence, source, bound, at_least is not None, exact)
        )
        claim.numbers += [number for number in numbers if number is not None]

    def first(self, rows: Sequence[Row]) -> None:
        """Of a long table, the rows that answer the question."""
        self.answering = list(rows)

    def answer(self, text: str) -> None:
        """The answer, to be read aloud: a sentence of at most two numbers and 30 other words. It says what was
        measured, never whether a claim holds."""
        self.sentence = paragraph(text)

    def explain(self, text: str) -> None:
        """What explains the answer: reasons, other rows, advice. Several calls add up."""
        self.explanation = " ".join(filter(None, [self.explanation, paragraph(text)]))

    def bars(
        self, name: str = "seconds", *how: Any, rows: Optional[Sequence[Row]] = None, **more: Any
    ) -> None:
        """Add a panel to the picture: a bar for each row, by default for all that have this number, drawn by
        :func:`mxdp.experiments.show.style.row_bars` with these arguments (unit, scale, title, colour)."""
        self.panels.append((name, how, rows, more))

    def draw(self, panel: Callable[[Any], Any], height: float = 3.2) -> None:
        """Add a panel, ``height`` inches high: drawn by this function of matplotlib axes. A slide has the first."""
        self.panels.append((panel, height))


def faster(number: Number, form: str = ".2f") -> str:
    """How fast something is, of the other's time over its own: never "0.75 times as fast".

    >>> faster(Number([1.5])), faster(Number([0.5]))
    ('is 1.50 times as fast', 'takes 2.00 times as long')
    """
    if number.median < 1:
        return f"takes {1 / number:{form}} times as long"
    return f"is {number:{form}} times as fast"


def rows_of(results: Sequence[Mapping[str, Any]]) -> List[Row]:
    """The rows of these runs of one question, oldest first. A number has the values of all runs, None where a run lacks
    the case. Facts are the last run's, ``cores`` those of its machine."""
    by_run = [{row["label"]: row for row in result["rows"]} for result in results]
    counts = [max((len(row["processes"]) for row in known.values()), default=0) for known in by_run]
    runs = [number for number, count in enumerate(counts) for _ in range(count)]
    rows = []
    for label, row in {label: row for known in by_run for label, row in known.items()}.items():
        processes: List[Mapping[str, Any]] = []
        for known, count in zip(by_run, counts):
            measured = known[label]["processes"] if label in known else []
            processes += [*measured, *[{}] * (count - len(measured))]
        about = {
            "cores": results[-1]["environment"]["cores"],
            "oracle": row["oracle"],
            **row["case"],
            **row["facts"],
        }
        numbers = by_name(processes, partial(Number, runs=runs, label=label))
        rows.append(
            Row(label, row["reference"], {**about, "device_names": row["devices"], **numbers})
        )
    return rows


def complete(results: Sequence[Mapping[str, Any]]) -> Tuple[List[Mapping[str, Any]], List[str]]:
    """The runs that have every number that any of them has; and of each other run why it is left out."""
    had = [_had(result) for result in results]
    wanted = set().union(*(has for has, _ in had))
    whole: List[Mapping[str, Any]] = []
    left_out: List[str] = []
    for result, (has, lacks) in zip(results, had):
        processes = {row["label"]: len(row["processes"]) for row in result["rows"]}
        # A run of one process has none of its "others".
        due = {what for what in wanted if what[2] == FIRST or processes.get(what[0]) != 1}
        missing = sorted(lacks | (due - has))
        if not missing:
            whole.append(result)
            continue
        label, name, _ = missing[0]
        what = f"{name!r} of {label!r}" if label in processes else f"the case {label!r}"
        left_out.append(f"The run of {result['started']} is left out: it lacks {what}.")
    return whole, left_out


def _had(result: Mapping[str, Any]) -> Tuple[Set[Had], Set[Had]]:
    """What a run has, and what one of its processes lacks although others have it: of each row each number, in the
    first process or in the others. NaN and infinity are no numbers."""
    has: Set[Had] = set()
    lacks: Set[Had] = set()
    for row in result["rows"]:
        processes = [dict(_flat(process)) for process in row["processes"]]
        for name in set().union(*processes):
            values = [process.get(name) for process in processes]
            first, *others = [value is not None and math.isfinite(value) for value in values]
            if first:
                has.add((row["label"], name, FIRST))
            if any(others):
                has.add((row["label"], name, OTHERS))
                if not (first and all(others)):
                    lacks.add((row["label"], name, OTHERS))
    return has, lacks


def _flat(process: Mapping[str, Any]) -> Iterator[Tuple[str, Optional[float]]]:
    """The numbers of a process by name, and each entry of its dicts of numbers."""
    for name, value in process.items():
        if isinstance(value, Mapping):
            yield from ((f"{name} {entry}", one) for entry, one in _flat(value))
        elif value is None or isinstance(value, (int, float)):
            yield name, value


def told(question: Any, results: Sequence[Mapping[str, Any]]) -> Told:
    """What ``question`` (or None, if it is not installed) tells today of these runs of it, without those that are not
    :func:`complete`. If a case is missing or the question can't tell, it has no answer, and columns of all plain
    numbers."""
    latest = results[-1]
    trouble = ""
    whole, left_out = complete(results)
    shown = whole or results
    about = Told(rows_of(shown))
    ended = all(result["status"] in ("ok", "skipped") and result["rows"] for result in results)
    if question is not None and list(about):
        try:
            with without_exit():
                question.tell(about, Settings({**question.preset("full"), **latest["settings"]}))
        except Exception as error:
            about = Told(rows_of(shown))
            trouble = f" ({type(error).__name__}: {error})" if ended else ""
    if not about.columns:
        for name in dict.fromkeys(
            name for row in about for name, x in vars(row).items() if isinstance(x, Number)
        ):
            about.column(name, "s" if name == "seconds" else "", form=",.6g")
    if not about.panels:
        about.bars()
    if whole:
        about.left_out = left_out
    elif ended:
        trouble = f" ({' '.join(left_out)})"
    if not (ended and whole and about.sentence):
        about.answer(NO_ANSWER + trouble if list(about) else "")
        about.claims, about.explanation = {}, ""
    return about
