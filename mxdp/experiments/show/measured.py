"""Where, when and how often results were measured: a line for a page, and what one of them has otherwise."""

from __future__ import annotations

import datetime
from collections import Counter
from typing import Any, Collection, Dict, Iterable, List, NamedTuple

from mxdp.errors import plural
from mxdp.experiments.lab.rows import Record
from mxdp.experiments.show.words import Runs, Shown

HOUR = 60
"""Minutes. The table says where runs are closer, rounded to a minute."""
NAMED = 3
"""Experiments that a line names; of more it says how many."""


class Usual(NamedTuple):
    """What most results of a page have."""

    machine: str
    runs: str


def usual(results: Iterable[Shown]) -> Usual:
    """The machine of most of these, and how often it has measured most of its own."""
    by_machine: Dict[str, List[str]] = {}
    for s in results:
        by_machine.setdefault(machine(s), []).append(often(s.runs))
    most = max(by_machine, key=lambda name: len(by_machine[name]))
    return Usual(most, Counter(by_machine[most]).most_common(1)[0][0])


def sitting(results: Collection[Shown]) -> str:
    """At which code, where, when and how often these were measured, to follow "Measured". Results of another machine
    than most have a :func:`mark` of their own."""
    most = usual(results)
    runs = [run for s in results if machine(s) == most.machine for run in s.runs]
    return f"at {code(runs)}, {most.machine}, {days(runs)}: {most.runs}."


def line(results: Collection[Shown]) -> str:
    """What :func:`sitting` says, and what was left out."""
    sentences = [sitting(results)]
    names: Dict[str, List[str]] = {}
    for s in results:
        for others in s.left_out:
            names.setdefault(others, []).append(s.latest["experiment"])
    for others, of in names.items():
        few = ", ".join(of)
        if len(of) > NAMED:
            few = f"{len(of)} experiments"
        sentences.append(f"Left out of {few}: {others}.")
    return " ".join(sentences)


def mark(s: Shown, most: Usual) -> str:
    """What this result has otherwise than most, in words; or nothing."""
    if machine(s) != most.machine:
        return f"{often(s.runs)} at {code(s.runs)}, {machine(s)}, {days(s.runs)}"
    return "" if often(s.runs) == most.runs else often(s.runs)


def machine(s: Shown) -> str:
    """The processor, its cores, and GPUs that were used."""
    environment = s.latest["environment"]
    parts = [processor(environment), f"{environment['cores']} cores"]
    if environment["gpus"]:
        names = dict.fromkeys(row.processor for row in s.told if row.get("processor"))
        parts += list(names) or environment["gpus"]
    return ", ".join(parts)


def processor(environment: Record) -> str:
    """The processor in words, as in "AMD EPYC (family 25, model 17, AVX-512)"."""
    name = environment["cpu_model"] or "unknown processor"
    known = environment.get("processor", {})
    kind = [f"{word} {known[word]}" for word in ("family", "model") if known.get(word)]
    if known.get("vectors"):
        kind.append(known["vectors"])
    return f"{name} ({', '.join(kind)})" if kind else str(name)


def often(runs: Runs) -> str:
    """How many runs, and the least time from the end of one to the start of the next, if that is less than an hour."""
    count = plural(len(runs), "run")
    gaps = []
    for before, after in zip(runs, runs[1:]):
        passed = _start(after) - _start(before)
        gaps.append(round((passed.total_seconds() - before["elapsed_seconds"]) / 60))
    if gaps and min(gaps) < HOUR:
        return f"{count} {min(gaps)} min apart"
    return count


def code(runs: Runs) -> str:
    """The version and the commit, or how many commits, from the first to the last that was measured."""
    in_order = sorted(runs, key=_start)
    commits = list(dict.fromkeys(run["environment"]["commit"] for run in in_order))
    version = in_order[-1]["environment"]["versions"].get("mxdp", "")
    if len(commits) > 1:
        return f"{len(commits)} commits, {_short(commits[0])} to {_short(commits[-1])}"
    if commits[0] is None:
        return f"mxdp {version or 'of an unknown version'}"
    first = _short(commits[0])
    return f"{version} ({first})" if version else first


def days(runs: Runs) -> str:
    """The first and the last day on which a run began.

    >>> days([{"started": "2026-11-27T19:21:00+00:00"}, {"started": "2026-11-28T09:57:00+00:00"}])
    '2026-11-27 to 28'
    """
    known = [str(run["started"][:10]) for run in runs]
    first = min(known)
    last = max(known)
    if first == last:
        return first
    if first[:7] == last[:7]:
        last = last[8:]
    return f"{first} to {last}"


def _start(run: Record) -> datetime.datetime:
    return datetime.datetime.fromisoformat(run["started"])


def _short(commit: Any) -> str:
    """The first seven digits; a checkout with changes says so."""
    text = str(commit)
    return f"{text[:7]} with changes" if text.endswith("+") else text[:7]
