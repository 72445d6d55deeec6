"""What a result says, in words that the terminal and the report share."""

from __future__ import annotations

import re
import statistics
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from mxdp.errors import plural
from mxdp.experiments.lab.module import Question, discover
from mxdp.experiments.lab.provenance import BUSY
from mxdp.experiments.lab.rows import RUNS, Number, Record
from mxdp.experiments.lab.told import Claim, Told, told
from mxdp.experiments.show import style, together

HELD = {True: ("yes", "holds"), False: ("no", "does not hold"), None: ("unknown", "undecided")}
ENDINGS = {
    "failed": ("bad", "failed"),
    "timeout": ("bad", "timed out"),
    "skipped": ("unknown", "skipped"),
}
NOT_JUDGED = "not judged here"
Runs = Sequence[Record]
SHOWN = 3  # numbers that stand beside a claim; all are in the JSON
DISTURBED = 0.25
"""From this part of the processes on, disturbed by other programs, the answer is marked."""
SPOKEN = 20  # the most words of a slide's sentence, beside its numbers


class Shown(NamedTuple):
    """A question's runs, of which ``latest`` is the last, and what it tells of them today. ``question``: None if it is
    not installed here; ``title`` is the question itself. ``left_out``: runs that are unlike these, in words."""

    question: Optional[Question]
    title: str
    runs: Runs
    latest: Record
    told: Told
    left_out: Sequence[str]


class Judged(NamedTuple):
    """A claim as it is shown: how it was judged, a kind (``yes``, ``no``, ``unknown``) and words; and its numbers."""

    kind: str
    words: str
    sentence: str
    source: str
    numbers: str

    @property
    def text(self) -> str:
        """The sentence, its source and its numbers."""
        here = f" Here: {self.numbers}." if self.numbers else ""
        return f"{self.sentence} ({self.source}){here}"


def shown(runs: Runs, across_commits: bool = False) -> Shown:
    """Those of these runs of one question that can be shown :func:`~mxdp.experiments.show.together.together`, as it
    tells of them today."""
    alike = together.together(runs, across_commits)
    return told_of(alike, together.left_out(runs, across_commits))


def told_of(runs: Runs, left_out: Sequence[str] = ()) -> Shown:
    """All of these runs of one question, as it tells of them today."""
    latest = runs[-1]
    question = discover().get(latest["experiment"])
    title = question.question if question else latest["question"]
    return Shown(question, title, runs, latest, told(question, runs), left_out)


def mark(s: Shown) -> Optional[Tuple[str, str]]:
    """If there is no answer to trust, why: a kind (``bad``, ``unknown``) and words."""
    if any(run["oracle"]["wrong"] for run in s.runs):
        return "bad", "wrong numbers"
    return ENDINGS.get(s.latest["status"])


def claim_lines(s: Shown) -> List[Judged]:
    """How each claim was judged. On a busy machine only what has no noise is."""
    lines = []
    busy = on_busy_machine(s)
    for claim in s.told.claims.values():
        kind, words = HELD[claim.holds]
        if not claim.numbers:
            words = NOT_JUDGED
        elif busy and not claim.exact:
            share = statistics.median(_elsewhere(s)[1])
            kind = "unknown"
            words = f"can't tell: other programs took {share:.0%}"
        shown = [f"{number.label} {_number(claim, number)}" for number in claim.numbers[:SHOWN]]
        if claim.numbers[SHOWN:]:
            shown.append(f"and {plural(len(claim.numbers) - SHOWN, 'more row')}")
        lines.append(Judged(kind, words, claim.sentence, claim.source, ", ".join(shown)))
    return lines


def _number(claim: Claim, number: Number) -> str:
    """The number with its interval; in an exact claim with the least and the largest value, by which that is judged. If
    it was computed with a plain number, both are shown: what is 0.932 may be 1.864 / 2."""
    if number.truth:
        return "yes" if all(number.different) else "no"
    made = ""
    if number.made:
        of, sign, plain = number.made
        made = f"{style.number(of.median, 4)} {sign} {style.number(plain)} = "
    if not claim.exact:
        return f"{made}{number:.3g}"
    ends = ""
    if len(number.different) > 1:
        ends = f" ({number.different[0]:.3g} to {number.different[-1]:.3g})"
    return f"{made}{number.median:.3g}{ends}"


def summary(s: Shown) -> str:
    """One line: how sure it is, whether the oracle was met, and how many claims hold."""
    parts = [sureness(s).rstrip(".")]
    if s.latest["oracle"]["checked"] and not s.latest["oracle"]["wrong"]:
        parts.append("equal to the serial run")
    judged = [claim.kind for claim in claim_lines(s) if claim.words != NOT_JUDGED]
    if judged:
        hold = "holds" if len(judged) == 1 else "hold"
        said = f"{judged.count('yes')} of {plural(len(judged), 'claim')} {hold}"
        if open_ones := judged.count("unknown"):
            said += f", {open_ones} undecided"
        parts.append(said)
    return "; ".join(filter(None, parts))


def sureness(s: Shown) -> str:
    """What the intervals are of, in words, of runs or of the processes of one; and which runs were left out."""
    processes = _processes(s)
    runs = len(s.runs) - len(s.told.left_out)
    if not processes:
        return ""
    if runs >= RUNS:
        said = f"{runs} runs, with {processes} processes in all; an interval is one of runs."
    else:
        of = "one run" if runs == 1 else f"{runs} runs"
        few = "; another hour may differ by more than the interval"
        if processes < RUNS:
            few = ", too few for an interval"
        said = f"{plural(processes, 'process')} in {of}{few}."
    if s.left_out:
        said += f" Left out: {'; '.join(s.left_out)}."
    return " ".join([said, *s.told.left_out])


def _processes(s: Shown) -> int:
    """How many each case had, in all runs."""
    return max((len(row.seconds.values) for row in s.told), default=0)


def _elsewhere(s: Shown) -> Tuple[List[float], List[float]]:
    """What other programs took of the processors' time, process by process; and where that was too much."""
    shares = [share for run in s.runs for share in run["elsewhere"] if share is not None]
    return shares, [share for share in shares if share > BUSY]


def on_busy_machine(s: Shown) -> str:
    """Whether other programs disturbed too much of it, in words; empty if the machine was quiet."""
    shares, busy = _elsewhere(s)
    if busy and len(busy) >= DISTURBED * len(shares):
        return "measured on a busy machine"
    return ""


def marks(s: Shown) -> List[str]:
    """What stands wherever the answer does: too few processes for an interval, a busy machine."""
    found = []
    processes = _processes(s)
    if 0 < processes < RUNS:
        looks = "one look" if len(s.runs) == 1 else f"{len(s.runs)} runs"
        found.append(f"{looks}: {plural(processes, 'process')}, no interval")
    if busy := on_busy_machine(s):
        found.append(busy)
    return found


def answer(s: Shown, sentence: str = "") -> str:
    """The answer, or the ``sentence`` of it that a slide shows, with its :func:`marks`."""
    text = sentence or s.told.sentence
    found = marks(s)
    if text and found:
        text += f" ({'; '.join(found)})"
    return text


def explanation(s: Shown) -> str:
    """What explains the answer, what disturbed the measurement, and what was skipped."""
    parts = [s.told.explanation]
    shares, busy = _elsewhere(s)
    if busy:
        where = f"In {len(busy)} of {plural(len(shares), 'process')} other programs took"
        parts.append(f"{where} {min(busy):.0%} to {max(busy):.0%} of the processors' time.")
    skipped: Dict[str, List[str]] = {}
    for label, why in s.latest["skipped"].items():
        skipped.setdefault(why, []).append(label)
    for why, labels in skipped.items():
        parts.append(f"Skipped: {'; '.join(labels)} ({why}).")
    return " ".join(filter(None, parts))


def how_to_read(s: Shown) -> List[str]:
    """What each column means, and notes."""
    return [
        f"'{column.heading}': {column.about}." for column in s.told.columns if column.about
    ] + s.told.notes


def spoken(text: str) -> str:
    """The sentence of a slide: the answer, or of a long one the leading clauses that fit into ``SPOKEN`` words, at
    least one.

    >>> spoken("It is 1.77 (1.67 to 1.89) times as fast; the best that this machine gives is 1.91.")
    'It is 1.77 (1.67 to 1.89) times as fast; the best that this machine gives is 1.91.'
    >>> spoken("It is 1.77 (1.67 to 1.89) times as fast; " + "so " * 20 + "it is.")
    'It is 1.77 (1.67 to 1.89) times as fast.'
    """
    first = re.split(r"(?<=\.)\s+(?=[A-Z])", text)[0]
    said = ""
    for clause in re.finditer(r"; |, (?=and |but |while )| and (?=(in )?[\d.,%]+ \()|\.$", first):
        start = first[: clause.start()]
        words = re.sub(r" \([^()]+ to [^()]+\)", "", start).split()
        plain = [word for word in words if not re.search(r"\d", word)]
        if not said or len(plain) <= SPOKEN:
            said = f"{start}."
    return said or first


def duration(seconds: Optional[float]) -> str:
    """A time that is planned with, rounded; a dash if it is not known.

    >>> duration(28.3), duration(394), duration(3590), duration(4830), duration(None)
    ('28 s', '7 min', '1 h', '1 h 20', '–')
    """
    if seconds is None:
        return "–"
    if seconds < 59.5:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(round(minutes, -1), 60)
    return f"{hours} h {rest}" if rest else f"{hours} h"


def oracle_line(s: Shown) -> Tuple[str, str]:
    """A kind, and a sentence on the comparison with the serial run; empty if the run failed before it."""
    oracle = s.latest["oracle"]
    if not oracle["checked"]:
        said = "not compared with the serial run" if s.latest["status"] == "ok" else ""
        return "unknown", said
    said = (
        f"equal to the serial run: {oracle['checked']:,} numbers checked, {oracle['wrong']:,} wrong"
    )
    if oracle["text"]:
        said += f" ({oracle['text']})"
    return ("bad", f"not {said}") if oracle["wrong"] else ("yes", said)
