"""What a result says, in words that the terminal and the report share."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Estimate
from mxdp.experiments.harness.disturbance import disturbed
from mxdp.experiments.harness.experiment import Result

HELD = {True: ("yes", "holds"), False: ("no", "does not hold"), None: ("unknown", "can't tell")}
SHOWN = 3
"""How many rows' numbers stand beside a claim, and how many disturbed rounds are named; all are in the JSON."""


def mark(result: Result) -> Tuple[str, str]:
    """How it ended: a kind (``yes``, ``no``, ``unknown``, ``bad``) and words. Wrong numbers allow no verdict."""
    words = {"failed": ("bad", "failed"), "timeout": ("bad", "timed out"), "skipped": ("unknown", "skipped")}
    if result["oracle"]["wrong"]:
        return "bad", "failed" if result["status"] == "failed" else "wrong numbers"
    if result["status"] in words:
        return words[result["status"]]
    return HELD[result["verdict"]["holds"]] if result["verdict"]["claims"] else ("unknown", "answered")


def claim_lines(result: Result) -> List[Tuple[str, str, str]]:
    """For each claim how it was judged, a kind and words, and the sentence with its source and the numbers."""
    lines = []
    for claim in result["verdict"]["claims"]:
        kind, words, numbers = verdict(claim)
        here = f" Here: {numbers}." if numbers else ""
        lines.append((kind, words, f"{claim['sentence']} ({claim['source']}){here}"))
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


def _ends(measured: Dict[str, float]) -> Tuple[float, Optional[float], Optional[float]]:
    """Its median and interval; of a count that was the same in every round, no interval."""
    median, low, high = (measured[key] for key in ("median", "low", "high"))
    return (median, None, None) if low == high else (median, low, high)


def sureness(result: Result) -> str:
    """How many rounds there were, what they cover, and whether anything disturbed them; empty for an older result."""
    rows, settings, verdict = result["rows"] + result["references"], result["settings"], result["verdict"]
    if "repeats" not in settings or not rows:
        return ""
    rounds, repeats = max(len(row["seconds"]["samples"]) for row in rows), settings["repeats"]
    if repeats > 1:
        said = f"{rounds} of each case, in {rounds // settings['rounds']} processes, whose spread the intervals cover"
    else:
        said = f"{rounds} of each case, in one process, so the intervals do not cover how processes differ"
    added = {1: "none here", 2: "once here"}.get(result["looks"], f"{result['looks'] - 1} times here")
    looks = f"; more are added while a claim is open ({added})" if settings.get("looks", 1) > 1 else ""
    sentences = [f"{said}{looks}.", *disturbances(result["disturbance"])]
    if verdict["noise"]:
        same = Estimate(verdict["noise"]["median"], verdict["noise"]["low"], verdict["noise"]["high"])
        sentences.append(f"{verdict['noise']['label']} measured twice, as two cases: {same:.3f} times as long.")
    return " ".join(sentences)


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


def answer(result: Result) -> str:
    """The answer to the question, after what kept it from being one."""
    busy, text = result["verdict"]["busy"], result["verdict"]["text"]
    return f"This machine was busy: {busy:.0%} of its time went elsewhere. {text}" if busy else str(text)


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
