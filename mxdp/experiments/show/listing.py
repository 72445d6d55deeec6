"""All questions, with the answers of the reference results, and how long they take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Optional

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mxdp.experiments.lab import provenance, result
from mxdp.experiments.lab.module import COMMON, discover
from mxdp.experiments.show.words import duration

KNOWN = json.loads(Path(__file__).parents[1].joinpath("reference.json").read_text(encoding="utf-8"))
"""What ``tools/tables.py`` has written of the reference results, since an installed mxdp has none."""


def show(as_json: bool) -> None:
    """Print it, as a table or as JSON."""
    listed = []
    for question in discover().values():
        name = question.name
        seconds = {preset: _seconds(name, preset, question.preset(preset)["processes"]) for preset in COMMON}
        about = dict(name=name, question=question.question, source=question.SOURCE, tour=question.TOUR)
        listed.append({**about, "seconds": seconds, "answer": KNOWN["answers"].get(name)})
    if as_json:
        print(json.dumps(listed, indent=2))
        return
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 1, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for one in listed:
        times = " / ".join(map(duration, one["seconds"].values()))
        left = Text.assemble((one["name"], "bold"), f"\n{times}", "\nin the tour" if one["tour"] else "")
        table.add_row(left, Text.assemble((one["question"], "bold"), f"\n{one['answer'] or ''}"))
    console = Console()
    console.print(table)
    where = f"Times (--preset quick / full) and answers are those of {KNOWN['machine']}."
    if any(str(one["answer"]).endswith("older)") for one in listed):
        where += " Older: measured before a change of the code."
    console.print(where, highlight=False, markup=False)


def about(name: str, preset: str, processes: int) -> str:
    """The name, and how long it takes, if that is known."""
    seconds = _seconds(name, preset, processes)
    return f"{name}: about {duration(seconds)}" if seconds else name


def due(name: str, preset: str, folder: Path) -> str:
    """Why ``folder`` has no result of that question with this preset by today's code, in words; empty if it has one.
    Raises what :func:`mxdp.experiments.lab.result.read` raises."""
    runs = [result.read(path) for path in (folder / name).glob("*.json")]
    if not runs:
        return "not measured yet"
    latest = max(runs, key=lambda run: str(run["started"]))
    if latest["preset"] != preset:
        return f"measured with the preset {latest['preset']}"
    if latest["status"] != "ok":
        return f"its result is {latest['status']}"
    changed = provenance.changes(latest)
    more = f" and {len(changed) - 1} more" if changed[1:] else ""
    return f"measured before a change of {changed[0]}{more}" if changed else ""


def _seconds(name: str, preset: str, processes: int) -> Optional[float]:
    """How long that question takes, if it was measured with this preset."""
    of_one = KNOWN["seconds"].get(preset, {}).get(name)
    return None if of_one is None else round(of_one * processes, 1)
