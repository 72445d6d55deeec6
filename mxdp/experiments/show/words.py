"""What a result says, in words that the terminal and the report share."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Tuple

from mxdp.errors import plural
from mxdp.experiments.harness.claims import judge, noise_factor
from mxdp.experiments.harness.disturbance import disturbed
from mxdp.experiments.harness.experiment import Experiment, Result
from mxdp.experiments.harness.measurement import NO_ANSWER
from mxdp.experiments.harness.rows import Estimate, interval

HELD = {True: ("yes", "holds"), False: ("no", "does not hold"), None: ("unknown", "undecided")}
SHOWN = 3
"""How many rows' numbers stand beside a claim, and how many disturbed rounds are named; all are in the JSON."""
CLOSE = 0.05
"""An interval within 5 % of its bound, on both sides, is not worth deciding."""
SPOKEN = 20
"""The most words of a slide's sentence, beside its numbers."""
MANY = 20
"""Nor is a claim that needs more than 20 times the processes that there were."""
LIKELY = 0.8
"""With the number of processes that is named, a claim is decided in 80 % of all cases."""


def mark(result: Result) -> Optional[Tuple[str, str]]:
    """If there is no answer to trust, why: a kind (``bad``, ``unknown``) and words."""
    words = {"failed": ("bad", "failed"), "timeout": ("bad", "timed out"), "skipped": ("unknown", "skipped")}
    if result["oracle"]["wrong"]:
        return "bad", "failed" if result["status"] == "failed" else "wrong numbers"
    return words.get(result["status"])


def claim_lines(result: Result) -> List[Tuple[str, str, str]]:
    """For each claim how it was judged, a kind and words; and the sentence with its source, the numbers, and what would
    decide it."""
    lines = []
    for claim in result["verdict"]["claims"]:
        kind, words, numbers = verdict(claim)
        here = [f"Here: {numbers}."] if numbers else []
        sentences = [f"{claim['sentence']} ({claim['source']})", *here, *undecided(result, claim)]
        lines.append((kind, words, " ".join(sentences)))
    return lines


def verdict(claim: Mapping[str, Any]) -> Tuple[str, str, str]:
    """How a claim was judged: a kind, words, and the numbers of the first rows (empty if there are none)."""
    shown = [
        f"{each['label']} {Estimate(*_ends(each)):.3g}"
        for each in claim["measured"][:SHOWN]
        if each["median"] is not None
    ]
    more = len(claim["measured"]) - SHOWN
    numbers = ", ".join(shown + ([f"and {plural(more, 'more row')}"] if more > 0 else [])) if shown else ""
    return (*(HELD[claim["holds"]] if claim["measured"] else ("unknown", "not judged here")), numbers)


def undecided(result: Result, claim: Mapping[str, Any]) -> List[str]:
    """What would decide a claim that is undecided: a sentence; none for other claims.

    The measured processes give the share of values beyond the bound. More are expected to have the same share.
    """
    if claim["holds"] is not None or not claim["measured"]:
        return []
    if result["verdict"]["busy"]:
        return ["This machine was busy; measure it on a quiet one."]
    noise = noise_factor(result["verdict"]["noise"])
    needed, done, close, bound, sides = [], 1, True, claim["bound"], len(claim["measured"])
    for row in result["rows"] + result["references"]:
        values = row.medians(claim["name"]) if claim["name"] in row.rounds else []
        if len(values) < 2:
            continue
        done, (median, low, high) = max(done, len(values)), row.estimate(claim["name"])
        wrong = median < bound if claim["least"] else median > bound
        # Noise moves each value towards the bound, or over it.
        moved = [value * noise if median < bound else value / noise for value in values]
        beyond = sum(value > bound if median < bound else value < bound for value in moved) / len(values)
        error = (1 - row.confidence) / (sides if wrong else 1)
        needed.append((not wrong, _processes(beyond, error, len(values))))
        close &= all(end is not None and abs(end - bound) <= CLOSE * abs(bound) for end in (low, high))
    if not needed:
        return ["It needs at least six processes."]
    # One row on the wrong side decides a claim, else all rows do.
    wrong_side = [more for right, more in needed if not right]
    least = min(wrong_side) if wrong_side else max(more for _, more in needed)
    if close or least > MANY * done:
        return ["Too close to the bound to be worth deciding."]
    more = max(1, math.ceil(least) - done)
    time = duration(result["elapsed_seconds"] * more / done)
    return [f"About {plural(more, 'more process')} ({time}) would decide it, if the median stays."]


def _processes(beyond: float, error: float, done: int) -> float:
    """The number of processes that is likely to decide a claim, if in each the value lies beyond the bound with the
    probability ``beyond``. An interval of n values leaves out some at each end: it is on one side of the bound if no
    more values than those lie beyond it. Infinite if more than :data:`MANY` times as many as ``done`` are needed.

    >>> _processes(0.0, 0.05, 6), _processes(0.25, 0.05, 12), _processes(0.5, 0.05, 12)
    (6, 30, inf)
    """
    from scipy.special import bdtr  # takes longer to load than a command such as `list`

    count = max(done, 6)
    while count <= MANY * done:
        left_out = interval(range(count), error)
        if left_out and bdtr(left_out[0], count, beyond) >= LIKELY:
            return count
        count += max(1, count // 20)
    return math.inf


def _ends(measured: Dict[str, float]) -> Tuple[float, Optional[float], Optional[float]]:
    """Its median and interval; of a count that was the same in every round, no interval."""
    median, low, high = (measured[key] for key in ("median", "low", "high"))
    return (median, None, None) if low == high else (median, low, high)


def sureness(result: Result) -> str:
    """How many processes and rounds there were, and whether anything disturbed them; empty where that isn't known."""
    rows, verdict = result["rows"] + result["references"], result["verdict"]
    if not any("repeat" in row.rounds for row in rows):
        return ""
    processes, rounds = max(len(row.by_process()) for row in rows), max(len(row.samples) for row in rows)
    added = {1: "none here", 2: "once here"}.get(result["looks"], f"{result['looks'] - 1} times here")
    looks = f"; more are added while a claim is open ({added})" if result["settings"].get("looks", 1) > 1 else ""
    alone = ": a single one gives no interval" if processes == 1 else ""
    said = f"{plural(rounds, 'round')} of each case, in {plural(processes, 'process')}{alone}{looks}."
    sentences = [said, *disturbances(result["disturbance"])]
    if verdict["noise"]:
        same = Estimate(verdict["noise"]["median"], verdict["noise"]["low"], verdict["noise"]["high"])
        sentences.append(f"{verdict['noise']['label']} measured twice, as two cases: {same:.3f} times as long.")
    return " ".join(sentences)


def why_so_many(result: Result) -> str:
    """How the processes and rounds were chosen."""
    return str(result.get("plan", {}).get("why", ""))


def disturbances(rounds: Mapping[str, List[Any]]) -> List[str]:
    """A sentence on the disturbed rounds, if there are any."""
    marks = disturbed(rounds)
    numbers = [number for number, mark in enumerate(marks, 1) if mark]
    shares = [share for share, mark in zip(rounds.get("elsewhere", ()), marks) if mark]
    if not numbers:
        return []
    more = len(numbers) - SHOWN
    which = _and([*map(str, numbers[:SHOWN]), *([f"{more} more"] if more > 0 else [])])
    share = f"{min(shares):.0%} to {max(shares):.0%}" if more > 0 else _and([f"{each:.0%}" for each in shares])
    start = f"Round {which} was" if len(numbers) == 1 else f"Rounds {which} were"
    return [f"{start} disturbed: {share} of the processors' time went elsewhere."]


def _and(texts: List[str]) -> str:
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def today(result: Result, experiment: Optional[Experiment]) -> Result:
    """``result`` in today's words, its rows finished, judged and answered anew, as ``experiment`` does it today."""
    if experiment is None:
        return result
    said = {**result, "question": experiment.question, "how_to_read": experiment.how_to_read}
    if result["verdict"]["text"] == NO_ANSWER:
        return said
    rows, references = (
        [replace(row, metrics=dict(row.metrics), rounds=dict(row.rounds)) for row in result[part]]
        for part in ("rows", "references")
    )
    measured, before = rows + references, [row.rounds for row in result["rows"] + result["references"]]
    try:
        experiment.finish(rows, references, result["settings"])
        for name in experiment.claims:
            # `finish` may keep a claim's numbers in other rows today. What it keeps nowhere was measured.
            left = [row for row, was in zip(measured, before) if name in was and row.rounds.get(name) is was[name]]
            if len(left) < sum(name in row.rounds for row in measured):
                for row in left:
                    del row.rounds[name]
        verdict = judge(experiment.claims, measured, result["verdict"])
        verdict["text"] = experiment.answer(rows, references, result["settings"])
        verdict["explanation"] = experiment.explanation(rows, references, result["settings"])
    except Exception:  # a result of other code: what that code said stays
        return said
    return {**said, "rows": rows, "references": references, "verdict": verdict}


def explanation(result: Result) -> str:
    """What explains the answer, after what disturbed the measurement and before what was skipped."""
    busy, verdict = result["verdict"]["busy"], result["verdict"]
    disturbed = f"This machine was busy: {busy:.0%} of its time went elsewhere." if busy else ""
    return " ".join(filter(None, [disturbed, verdict.get("explanation"), *verdict.get("skipped", ())]))


def spoken(text: str) -> str:
    """The sentence of a slide: the answer, or of a long one the first clauses, as far as they fit into :data:`SPOKEN`
    words; at least the first clause.

    >>> spoken("It is 1.77 (1.67 to 1.89) times as fast; the best that this machine gives is 1.91.")
    'It is 1.77 (1.67 to 1.89) times as fast; the best that this machine gives is 1.91.'
    >>> spoken("It is 1.77 (1.67 to 1.89) times as fast; " + "so " * 20 + "it is.")
    'It is 1.77 (1.67 to 1.89) times as fast.'
    """
    first = re.split(r"(?<=\.)\s+(?=[A-Z])", text)[0]
    clauses = re.finditer(r"; |, (?=and |but |while )| and (?=(in )?[\d.,%]+ \()|\.$", first)
    starts = [first[: clause.start()] for clause in clauses]
    words = [re.sub(r" \([^()]+ to [^()]+\)", "", start).split() for start in starts]
    short = [start for start, own in zip(starts, words) if sum(not re.search(r"\d", word) for word in own) <= SPOKEN]
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


def oracle_line(result: Result) -> Tuple[str, str]:
    """A kind, and a sentence on the comparison with the serial run; empty if the run failed before it."""
    checked, wrong, text = (result["oracle"][key] for key in ("checked", "wrong", "text"))
    if not checked:
        return "unknown", "" if result["status"] != "ok" else "not compared with the serial run"
    start = "not equal" if wrong else "equal"
    line = f"{start} to the serial run: {checked:,} numbers checked, {wrong:,} wrong"
    return ("bad" if wrong else "yes"), f"{line} ({text})" if text else line
