"""What a result says, in words that the terminal and the report share."""

from __future__ import annotations

import re
import statistics
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from mxdp.errors import plural
from mxdp.experiments.lab.module import Question, discover
from mxdp.experiments.lab.provenance import BUSY
from mxdp.experiments.lab.rows import RUNS, Number
from mxdp.experiments.lab.told import Claim, Told, told
from mxdp.experiments.show import style, together

HELD = {True: ("yes", "holds"), False: ("no", "does not hold"), None: ("unknown", "undecided")}
ENDINGS = {
    "failed": ("bad", "failed"),
    "timeout": ("bad", "timed out"),
    "skipped": ("unknown", "skipped"),
}
NOT_JUDGED = "not judged here"
SHOWN = 3  # numbers that stand beside a claim; all are in the JSON
DISTURBED = (
    0.25  # from this part of the processes on, disturbed by other programs, the answer is marked
)
SPOKEN = 20  # the most words of a slide's sentence, beside its numbers


class Shown(NamedTuple):
    """A question's runs, of which ``latest`` is the last, and what it tells of them today. ``question``: None if it is
    not installed here; ``title`` is the question itself. ``left_out``: runs that are unlike these, in words."""

    question: Optional[Question]
    title: str
    runs: Sequence[Mapping[str, Any]]
    latest: Mapping[str, Any]
    told: Told
    left_out: Sequence[str]


def shown(runs: Sequence[Mapping[str, Any]], across_commits: bool = False) -> Shown:
    """Those of these runs of one question that can be shown :func:`~mxdp.experiments.show.together.together`, as it
    tells of them today."""
    alike = together.together(runs, across_commits)
    latest = alike[-1]
    question = discover().get(latest["experiment"])
    title = question.question if question else latest["question"]
    return Shown(
        question,
        title,
        alike,
        latest,
        told(question, alike),
        together.left_out(runs, across_commits),
    )


def mark(s: Shown) -> Optional[Tuple[str, str]]:
    """If there is no answer to trust, why: a kind (``bad``, ``unknown``) and words."""
    if any(run["oracle"]["wrong"] for run in s.runs):
        return "bad", "wrong numbers"
    return ENDINGS.get(s.latest["status"])


def claim_lines(s: Shown) -> List[Tuple[str, str, str]]:
    """For each claim how it was judged, a kind and words; and the sentence with its source and the numbers. On a busy
    machine only what has no noise is judged."""
    lines = []
    busy = on_busy_machine(s)
    for claim in s.told.claims.values():
        if not claim.numbers:
            kind, words = "unknown", NOT_JUDGED
        elif busy and not claim.exact:
            share = statistics.median(_elsewhere(s)[1])
            kind, words = "unknown", f"can't tell: other programs took {share:.0%}"
        else:
            kind, words = HELD[claim.holds]
        shown = [f"{number.label} {_number(claim, number)}" for number in claim.numbers[:SHOWN]]
        if claim.numbers[SHOWN:]:
            shown.append(f"and {plural(len(claim.numbers) - SHOWN, 'more row')}")
        here = f" Here: {', '.join(shown)}." if shown else ""
        lines.append((kind, words, f"{claim.sentence} ({claim.source}){here}"))
    return lines


def _number(claim: Claim, number: Number) -> str:
    """With its interval; of an exact claim with the least and the largest value, by which it is judged. If it was
    computed with a plain number, both are shown: what is 0.932 may be 1.864 / 2."""
    known = [value for value in number.values if value is not None]
    if number.truth:
        return "yes" if all(known) else "no"
    made = ""
    if number.made:
        of, sign, plain = number.made
        made = f"{style.number(of.median, 4)} {sign} {style.number(plain)} = "
    if not claim.exact:
        return f"{made}{number:.3g}"
    ends = f" ({min(known):.3g} to {max(known):.3g})" if len(set(known)) > 1 else ""
    return f"{made}{number.median:.3g}{ends}"


def summary(s: Shown) -> str:
    """One line: how sure it is, whether the oracle was met, and how many claims hold."""
    judged = [kind for kind, words, _ in claim_lines(s) if words != NOT_JUDGED]
    hold = "holds" if len(judged) == 1 else "hold"
    held = f"{judged.count('yes')} of {plural(len(judged), 'claim')} {hold}" if judged else ""
    equal = (
        ""
        if s.latest["oracle"]["wrong"] or not s.latest["oracle"]["checked"]
        else "equal to the serial run"
    )
    return "; ".join(filter(None, [sureness(s).rstrip("."), equal, held]))


def sureness(s: Shown) -> str:
    """What the intervals are of, in words, of runs or of the processes of one; and which runs were left out."""
    processes, runs = _processes(s), len(s.runs) - len(s.told.left_out)
    if not processes:
        return ""
    others = f" Left out: {'; '.join(s.left_out)}." if s.left_out else ""
    others += "".join(f" {sentence}" for sentence in s.told.left_out)
    if runs >= RUNS:
        return (
            f"{runs} runs, with {processes} processes in all; an interval is one of runs.{others}"
        )
    few = (
        ", too few for an interval"
        if processes < RUNS
        else "; another hour may differ by more than the interval"
    )
    return f"{plural(processes, 'process')} in {of_few_runs(s)}{few}.{others}"


def _processes(s: Shown) -> int:
    """How many each case had, in all runs."""
    return max((len(row.seconds.values) for row in s.told), default=0)


def of_few_runs(s: Shown) -> str:
    """How many runs an answer is of, where there are too few for an interval of runs; else nothing."""
    runs = len(s.runs) - len(s.told.left_out)
    return "" if runs >= RUNS else "one run" if runs == 1 else f"{runs} runs"


def _elsewhere(s: Shown) -> Tuple[List[float], List[float]]:
    """What other programs took of the processors' time, process by process; and where that was too much."""
    shares = [share for run in s.runs for share in run["elsewhere"] if share is not None]
    return shares, [share for share in shares if share > BUSY]


def on_busy_machine(s: Shown) -> str:
    """Whether other programs disturbed too much of it, in words; empty if the machine was quiet."""
    shares, busy = _elsewhere(s)
    return "measured on a busy machine" if busy and len(busy) >= DISTURBED * len(shares) else ""


def marks(s: Shown) -> List[str]:
    """What stands wherever the answer does: too few processes for an interval, a busy machine."""
    processes, few = _processes(s), ""
    if 0 < processes < RUNS:
        looks = "one look" if len(s.runs) == 1 else f"{len(s.runs)} runs"
        few = f"{looks}: {plural(processes, 'process')}, no interval"
    return list(filter(None, [few, on_busy_machine(s)]))


def answer(s: Shown, sentence: str = "") -> str:
    """The answer, or the ``sentence`` of it that a slide shows, with its :func:`marks`."""
    text, found = sentence or s.told.sentence, marks(s)
    return f"{text} ({'; '.join(found)})" if text and found else text


def explanation(s: Shown) -> str:
    """What explains the answer, what disturbed the measurement, and what was skipped."""
    parts, (shares, busy) = [s.told.explanation] if s.told.explanation else [], _elsewhere(s)
    if busy:
        where, share = (
            f"{len(busy)} of {plural(len(shares), 'process')}",
            f"{min(busy):.0%} to {max(busy):.0%}",
        )
        parts.append(f"In {where} other programs took {share} of the processors' time.")
    skipped: Dict[str, List[str]] = {}
    for label, why in s.latest["skipped"].items():
        skipped.setdefault(why, []).append(label)
    parts += [f"Skipped: {'; '.join(labels)} ({why})." for why, labels in skipped.items()]
    return " ".join(parts)


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
    clauses = re.finditer(r"; |, (?=and |but |while )| and (?=(in )?[\d.,%]+ \()|\.$", first)
    starts = [first[: clause.start()] for clause in clauses]
    words = [re.sub(r" \([^()]+ to [^()]+\)", "", start).split() for start in starts]
    counts = [sum(not re.search(r"\d", word) for word in spelt) for spelt in words]
    short = [start for start, count in zip(starts, counts) if count <= SPOKEN]
    return f"{[*starts[:1], *short][-1]}." if starts else first


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
    checked, wrong, text = (s.latest["oracle"][key] for key in ("checked", "wrong", "text"))
    if not checked:
        return "unknown", "" if s.latest["status"] != "ok" else "not compared with the serial run"
    line = f"{'not equal' if wrong else 'equal'} to the serial run: {checked:,} numbers checked, {wrong:,} wrong"
    return ("bad" if wrong else "yes"), f"{line} ({text})" if text else line
