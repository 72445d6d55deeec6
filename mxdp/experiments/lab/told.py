"""What a question tells of its numbers, anew whenever a result is shown: columns, claims, the answer and pictures."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from mxdp.errors import without_exit
from mxdp.experiments.lab.module import Settings
from mxdp.experiments.lab.rows import Number, Row, by_name

NO_ANSWER = "No answer: not every case was measured."
Panel = Tuple[Callable[[Any], Any], float]


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
    as counts of bytes, so each value is compared. ``was``: the bound when it was measured, if that was another."""

    sentence: str
    source: str
    bound: float
    least: bool
    exact: bool
    numbers: List[Number] = field(default_factory=list)
    was: Optional[float] = None

    @property
    def holds(self) -> Optional[bool]:
        """None: undecided, or about no number."""
        sides = [self._side(number) for number in self.numbers]
        return False if False in sides else None if None in sides or not sides else True

    def _side(self, number: Number) -> Optional[bool]:
        if not self.exact:
            return number.at_least(self.bound) if self.least else number.at_most(self.bound)
        known = [value for value in number.values if value is not None]
        return all(value >= self.bound if self.least else value <= self.bound for value in known) if known else None


class Told:
    """The rows of a result (``rows``, and ``references``, the yardsticks), and what ``tell`` says of them. Iterating
    gives all rows, then all references."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = [row for row in rows if not row.reference]
        self.references = [row for row in rows if row.reference]
        self.columns: List[Column] = []
        self.notes: List[str] = []
        self.claims: Dict[str, Claim] = {}
        self.answering: List[Row] = self.rows
        self.sentence, self.explanation = "", ""
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
        source: str = "ours",
    ) -> None:
        """Judge ``numbers``, except None, by a bound. Calls with one sentence are one claim of several numbers."""
        bound = at_most if at_least is None else at_least
        if bound is None or None not in (at_most, at_least):
            raise ValueError(f"the claim {sentence!r} needs one bound: at_most or at_least")
        sentence = paragraph(sentence)
        claim = self.claims.setdefault(sentence, Claim(sentence, source, bound, at_least is not None, exact))
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

    def bars(self, name: str = "seconds", *how: Any, rows: Optional[Sequence[Row]] = None, **more: Any) -> None:
        """Add a panel to the picture: a bar for each row, by default for all that have this number, drawn by
        :func:`mxdp.experiments.show.style.row_bars` with these arguments (unit, scale, title, colour)."""
        self.panels.append((name, how, rows, more))

    def draw(self, panel: Callable[[Any], Any], height: float = 3.2) -> None:
        """Add a panel, ``height`` inches high: drawn by this function of matplotlib axes. A slide has the first."""
        self.panels.append((panel, height))


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
        about = {"cores": results[-1]["environment"]["cores"], "oracle": row["oracle"], **row["case"], **row["facts"]}
        numbers = by_name(processes, partial(Number, runs=runs, label=label))
        rows.append(Row(label, row["reference"], {**about, "device_names": row["devices"], **numbers}))
    return rows


def told(question: Any, results: Sequence[Mapping[str, Any]]) -> Told:
    """What ``question`` (or None, if it is not installed) tells today of these runs of it. If a case is missing or the
    question can't tell, it has no answer, and columns of all plain numbers."""
    latest, trouble, about = results[-1], "", Told(rows_of(results))
    complete = all(result["status"] in ("ok", "skipped") and result["rows"] for result in results)
    if question is not None and list(about):
        try:
            with without_exit():
                question.tell(about, Settings({**question.preset("full"), **latest["settings"]}))
        except Exception as error:
            about, trouble = Told(rows_of(results)), f" ({type(error).__name__}: {error})" * complete
    if not about.columns:
        for name in dict.fromkeys(name for row in about for name, x in vars(row).items() if isinstance(x, Number)):
            about.column(name, "s" if name == "seconds" else "", form=",.6g")
    if not about.panels:
        about.bars()
    if not complete or not about.sentence:
        about.answer(NO_ANSWER + trouble if list(about) else "")
        about.claims, about.explanation = {}, ""
    for claim in about.claims.values():
        was = latest["bounds"].get(claim.sentence)
        claim.was = None if was == claim.bound else was
    return about
