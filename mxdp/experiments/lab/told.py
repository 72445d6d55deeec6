"""What a question tells of its numbers, anew whenever a result is shown: columns, claims, the answer and pictures.

A number that a reader wants to know is a size: a sentence in the answer or the explanation, with its interval. A claim
judges it by a bound. It is for what somebody else has said, with a source that can be looked up, and for what would be
a defect of ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
    Union,
)

from mxdp.errors import without_exit
from mxdp.experiments.lab.module import Settings
from mxdp.experiments.lab.rows import Number, Record, Row, by_name

NO_ANSWER = "No answer: not every case was measured."
DEFECT = "ours: otherwise it is a defect"
"""The source of a claim that nobody else has made."""
Had = Tuple[str, str]
"""A row's label, and the name of a number."""


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
        sides = {self._side(number) for number in self.numbers}
        if False in sides:
            return False
        return True if sides == {True} else None

    def _side(self, number: Number) -> Optional[bool]:
        """Whether the number is on the right side of the bound; None: undecided."""
        if not self.exact:
            return number.at_least(self.bound) if self.least else number.at_most(self.bound)
        known = number.different
        if not known:
            return None
        return known[0] >= self.bound if self.least else known[-1] <= self.bound


class Panel(NamedTuple):
    """A part of a picture: what a function draws on matplotlib's axes, ``height`` inches high."""

    draw: Callable[[Any], Any]
    height: float


class Bars(NamedTuple):
    """A part of a picture: bars, drawn by :func:`mxdp.experiments.show.style.row_bars` with these arguments. Without
    ``rows``: of all that have this number in the end."""

    rows: Sequence[Row]
    name: str
    unit: str = "s"
    scale: float = 1.0
    title: str = ""
    colour: str = ""


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
        self.sentence = ""
        self.explanation = ""
        self.left_out: List[str] = []
        self.panels: List[Union[Panel, Bars]] = []

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows + self.references)

    def find(self, **values: Any) -> List[Row]:
        """The rows, without references, whose attributes have these values."""
        return [row for row in self.rows if row.has(**values)]

    def one(self, **values: Any) -> Row:
        """The first row with these values, or else the first reference. Raises a LookupError if there is neither."""
        if row := self.maybe(**values):
            return row
        raise LookupError(f"no row has {values}")

    def maybe(self, **values: Any) -> Optional[Row]:
        """The row that :meth:`one` finds, or None."""
        return next((row for row in self if row.has(**values)), None)

    def column(self, name: Any, heading: str = "", *more: Any, **options: Any) -> None:
        """Add a :class:`Column` to the table; its heading is the name, unless given."""
        heading = heading or str(name).replace("_", " ")
        self.columns.append(Column(name, heading, *more, **options))

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
        one = Claim(sentence, source, bound, at_least is not None, exact)
        one = self.claims.setdefault(sentence, one)
        one.numbers += [number for number in numbers if number is not None]

    def first(self, rows: Sequence[Row]) -> None:
        """Say which rows of a long table answer the question."""
        self.answering = list(rows)

    def answer(self, text: str) -> None:
        """The answer, to be read aloud: a sentence of at most two numbers and 30 other words. It says what was
        measured, never whether a claim holds."""
        self.sentence = paragraph(text)

    def explain(self, text: str) -> None:
        """What explains the answer: reasons, other rows, advice. Several calls add up."""
        self.explanation = f"{self.explanation} {paragraph(text)}".strip()

    def bars(
        self,
        name: str = "seconds",
        *how: Any,
        rows: Sequence[Row] = (),
        **more: Any,
    ) -> None:
        """Add a panel to the picture, with the other arguments of :class:`Bars`."""
        self.panels.append(Bars(rows, name, *how, **more))

    def draw(self, panel: Callable[[Any], Any], height: float = 3.2) -> None:
        """Add a :class:`Panel`. A slide has the first."""
        self.panels.append(Panel(panel, height))


def faster(number: Number, form: str = ".2f") -> str:
    """How fast something is, of the other's time over its own: never "0.75 times as fast".

    >>> faster(Number([1.5])), faster(Number([0.5]))
    ('is 1.50 times as fast', 'takes 2.00 times as long')
    """
    if number.median < 1:
        return f"takes {1 / number:{form}} times as long"
    return f"is {number:{form}} times as fast"


def rows_of(results: Sequence[Record]) -> List[Row]:
    """The rows of these runs of one question, oldest first. A number has the values of all runs, None where a run lacks
    the case. Facts are the last run's, ``cores`` those of its machine."""
    newest: Dict[str, Record] = {}
    processes: Dict[str, List[Record]] = {}
    runs: List[int] = []
    for number, result in enumerate(results):
        for row in result["rows"]:
            newest[row["label"]] = row
            processes.setdefault(row["label"], [{}] * len(runs)).extend(row["processes"])
        # All rows get as many values of each run: a number divides another one process by process.
        most = max(map(len, processes.values()), default=0)
        runs += [number] * (most - len(runs))
        for own in processes.values():
            own += [{}] * (most - len(own))
    rows = []
    for label, row in newest.items():
        known = {
            "cores": results[-1]["environment"]["cores"],
            "oracle": row["oracle"],
            **row["case"],
            **row["facts"],
            "device_names": row["devices"],
            **by_name(processes[label], partial(Number, runs=runs, label=label)),
        }
        rows.append(Row(label, row["reference"], known))
    return rows


def complete(results: Sequence[Record]) -> Tuple[List[Record], List[str]]:
    """The runs that have every number that any of them has; and of each other run why it is left out. What the first
    process of every run measures alone, the others need not have."""
    had = [_had(result) for result in results]
    by_first = set().union(*(own[0] for own in had))
    by_others = set().union(*chain(*(own[1:] for own in had)))
    whole = []
    left_out = []
    for result, (first, *others) in zip(results, had):
        missing = by_first.union(*others) - first
        for names in others:
            missing |= by_others - names
        if not missing:
            whole.append(result)
            continue
        label, name = min(missing)
        known = any(row["label"] == label for row in result["rows"])
        what = f"{name!r} of {label!r}" if known else f"the case {label!r}"
        left_out.append(f"The run of {result['started']} is left out: it lacks {what}.")
    return whole, left_out


def _had(result: Record) -> List[Set[Had]]:
    """What each process of a run has."""
    had: List[Set[Had]] = [set()]
    for row in result["rows"]:
        for at, process in enumerate(row["processes"]):
            if at == len(had):
                had.append(set())
            had[at] |= {(row["label"], name) for name in _numbers(process)}
    return had


def _numbers(process: Record) -> Set[str]:
    """The names of a process's numbers, also those in its dicts. NaN and infinity are no numbers."""
    names = set()
    for name, value in process.items():
        if isinstance(value, dict):
            names |= {f"{name} {entry}" for entry in _numbers(value)}
        elif isinstance(value, (int, float)) and math.isfinite(value):
            names.add(name)
    return names


def told(question: Any, results: Sequence[Record]) -> Told:
    """What ``question`` (or None, if it is not installed) tells today of these runs of it, without those that are not
    :func:`complete`. If a case is missing or the question can't tell, it has no answer, and columns of all plain
    numbers."""
    trouble = ""
    whole, left_out = complete(results)
    about = Told(rows_of(whole or results))
    ended = all(result["status"] in ("ok", "skipped") and result["rows"] for result in results)
    if question is not None and list(about):
        try:
            with without_exit():
                settings = Settings({**question.preset("full"), **results[-1]["settings"]})
                question.tell(about, settings)
        except Exception as error:
            about = Told(rows_of(whole or results))  # without what was told until then
            trouble = f" ({type(error).__name__}: {error})"
    if not about.columns:
        known = chain.from_iterable(vars(row).items() for row in about)
        for name in dict.fromkeys(name for name, value in known if isinstance(value, Number)):
            about.column(name, "s" if name == "seconds" else "", form=",.6g")
    if not about.panels:
        about.bars()
    if whole:
        about.left_out = left_out
    else:
        trouble = f" ({' '.join(left_out)})"
    if not (ended and whole and about.sentence):
        about.sentence = ""
        if list(about):
            about.answer(NO_ANSWER + trouble if ended else NO_ANSWER)
        about.claims = {}
        about.explanation = ""
    return about
