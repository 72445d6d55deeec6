"""All questions, with the answers of the reference results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mxdp.errors import plural
from mxdp.experiments.lab.module import discover
from mxdp.experiments.show.words import duration

KNOWN = json.loads(Path(__file__).parents[1].joinpath("reference.json").read_text(encoding="utf-8"))
"""What ``tools/tables.py`` has written of the reference results, since an installed mxdp has none."""


def show(as_json: bool) -> None:
    """Print it, as a table or as JSON."""
    listed = []
    for question in discover().values():
        about = dict(
            name=question.name,
            question=question.question,
            source=question.SOURCE,
            tour=question.TOUR,
            answer=KNOWN["answers"].get(question.name),
        )
        listed.append(about)
    if as_json:
        print(json.dumps(listed, indent=2))
        return
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 1, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for one in listed:
        answer = one["answer"] or "No answer yet: the reference results don't have it."
        left = Text.assemble((one["name"], "bold"), "\nin the tour" if one["tour"] else "")
        table.add_row(left, Text.assemble((one["question"], "bold"), f"\n{answer}"))
    console = Console()
    console.print(table)
    console.print(f"Answers were measured {KNOWN['measured']}", highlight=False, markup=False)
    console.print("Each takes about a minute with --preset quick.", highlight=False)


def about(name: str, settings: Mapping[str, Any]) -> str:
    """The name, and how long it takes, or how many processes."""
    if settings["processes"]:
        return f"{name}: {plural(settings['processes'], 'process')} of each case"
    return f"{name}: about {duration(60 * settings['minutes'])}"
