"""All questions, with the answers of the reference results, and how long they take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Optional

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mxdp.experiments.lab import provenance, result
from mxdp.experiments.lab.module import COMMON, discover
from mxdp.experiments.show.words import duration


def show(as_json: bool) -> None:
    """Print it, as a table or as JSON."""
    known, questions = _reference(), discover().values()
    seconds = {
        question.name: {
            preset: _seconds(question.name, preset, question.preset(preset)["processes"]) for preset in COMMON
        }
        for question in questions
    }
    answers = {question.name: known["answers"].get(question.name) for question in questions}
    if as_json:
        listed = [
            dict(
                name=question.name, question=question.question, source=question.SOURCE, tour=question.TOUR,
                seconds=seconds[question.name], answer=answers[question.name],
            )
            for question in questions
        ]  # fmt: skip
        print(json.dumps(listed, indent=2))
        return
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 1, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for question in questions:
        times = " / ".join(map(duration, seconds[question.name].values()))
        left = Text.assemble((question.name, "bold"), f"\n{times}", "\nin the tour" if question.TOUR else "")
        table.add_row(left, Text.assemble((question.question, "bold"), f"\n{answers[question.name] or ''}"))
    console = Console()
    console.print(table)
    where = f"Times (--preset quick / full) and answers are those of {known['machine']}."
    if any(str(answer).endswith("older)") for answer in answers.values()):
        where += " Older: measured before a change of the code."
    console.print(where, highlight=False, markup=False)


def about(name: str, preset: str, processes: int) -> str:
    """The name, and how long it takes, if that is known."""
    seconds = _seconds(name, preset, processes)
    return f"{name}: about {duration(seconds)}" if seconds else name


def due(name: str, preset: str, folder: Path) -> str:
    """Why ``folder`` has no result of that question with this preset by today's code, in words; empty if it has one.
    Raises what :func:`mxdp.experiments.lab.result.read` raises."""
    runs = sorted((result.read(path) for path in (folder / name).glob("*.json")), key=lambda run: str(run["started"]))
    if not runs:
        return "not measured yet"
    if runs[-1]["preset"] != preset:
        return f"measured with the preset {runs[-1]['preset']}"
    if runs[-1]["status"] != "ok":
        return f"its result is {runs[-1]['status']}"
    changed = provenance.changes(runs[-1])
    more = f" and {len(changed) - 1} more" if changed[1:] else ""
    return f"measured before a change of {changed[0]}{more}" if changed else ""


def _reference() -> Dict[str, Any]:
    """What ``tools/tables.py`` has written of the reference results, since an installed mxdp has none."""
    known: Dict[str, Any] = json.loads(Path(__file__).parents[1].joinpath("reference.json").read_text(encoding="utf-8"))
    return known


def _seconds(name: str, preset: str, processes: int) -> Optional[float]:
    """How long that question takes, if it was measured with this preset."""
    of_one = _reference()["seconds"].get(preset, {}).get(name)
    return None if of_one is None else round(of_one * processes, 1)
