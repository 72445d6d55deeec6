"""Results for people: on the terminal, and as ``report.html`` with a picture for each experiment.

All of it comes from the JSON (:mod:`mxdp.experiments.harness.results`). Nothing is measured; MXNet is not needed.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Literal, Optional, Tuple, Union

import jinja2
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from mxdp.experiments.harness import results
from mxdp.experiments.harness.experiment import Column, Experiment, Result, Row, discover
from mxdp.experiments.report import pictures, rows, style
from mxdp.experiments.report.words import answer, claim_lines, mark, oracle_line, sureness

Term = Tuple[str, str]
"""A term and what to say of it."""

NOTHING = "–"
# A number and at most a short unit: "12.3 ms", "1.98x" and "83 %" line up to the right, "2 devices" does not.
NUMERIC = re.compile(r"[<>~≈]?[-+−]?\d[\d.,]*(e[-+]?\d+)?\s?\S{0,4}")
COLOURS = {"yes": "bold green", "no": "bold yellow", "unknown": "bold cyan", "bad": "bold red"}


@dataclass(frozen=True)
class Cells:
    """A table in text: a line is a row's label and its cells; ``right`` marks columns of numbers."""

    headings: List[str]
    rows: List[List[str]]
    references: List[List[str]]
    right: List[bool]


def table(result: Result, experiment: Optional[Experiment]) -> Cells:
    """The columns of ``experiment``, or without one (it is not installed here) the time and every plain metric.

    A row may lack a number (a reference has not all metrics; a NaN is null): the cell is a dash. A format that does not
    fit its number is a defect, shown as ``?`` rather than thrown at a reader who waited for the other rows.
    """
    return _cells(experiment.columns() if experiment else _plain_columns(result), result["rows"], result["references"])


def more(result: Result, experiment: Optional[Experiment]) -> Optional[Cells]:
    """The second table, if ``experiment`` has one and any row has its numbers."""
    columns = experiment.more_columns() if experiment else []
    cells = _cells(columns, [row for row in result["rows"] if any(rows.cell(column, row) for column in columns)], [])
    return cells if cells.rows else None


def _cells(columns: List[Column], own: List[Row], others: List[Row]) -> Cells:
    lines, references = (
        [[row["label"], *(_cell(column, row) for column in columns)] for row in part] for part in (own, others)
    )
    right = [False]
    for index in range(1, len(columns) + 1):
        filled = [line[index] for line in lines + references if line[index] not in (NOTHING, "?", "")]
        right.append(bool(filled) and all(NUMERIC.fullmatch(text) for text in filled))
    return Cells(["", *(column.heading for column in columns)], lines, references, right)


def print_result(result: Result, console: Console, explain: bool = False) -> None:
    """Print one result: question, prediction, table, comparison with the serial run, claims, answer; with ``explain``
    how to read it, too."""
    kind, words = mark(result)
    console.print()
    console.print(Text.assemble((result["experiment"], "bold"), ": ", result["question"]))
    before = [
        (key.replace("_", " "), Text(result[key], style="dim")) for key in ("prediction", *["how_to_read"] * explain)
    ]
    console.print(_facts([fact for fact in before if fact[1]]))
    if result["rows"] or result["references"]:
        experiment = discover().get(result["experiment"])
        for cells in filter(None, (table(result, experiment), more(result, experiment))):
            console.print(Padding(_rich_table(cells, console.width - 2), (1, 0, 1, 2)))
    after = []
    oracle_kind, sentence = oracle_line(result)
    if sentence:
        after.append(("oracle", Text(sentence, style="" if oracle_kind == "yes" else COLOURS[oracle_kind])))
    if result["error"]:
        after.append(("reason", Text(_reason(result), style="red" if kind == "bad" else "")))
    if sureness(result):
        after.append(("rounds", Text(sureness(result), style="dim")))
    for each, held, sentence in claim_lines(result):
        after.append(("claim", Text.assemble((held, COLOURS[each]), f": {sentence}")))
    said = answer(result)
    after.append(("answer", Text.assemble((words, COLOURS[kind]), f". {said}" if said else "")))
    console.print(_facts(after))


def write_report(folder: Union[str, Path], note: Optional[Callable[[str], None]] = None) -> Path:
    """Read the results in ``folder``; write ``<experiment>.svg`` for each and ``report.html``, beside and renamed.

    Args:
        folder: what a run wrote.
        note: is told, in a sentence each, which files are passed over (standard error by default).

    Returns:
        The path of ``report.html``.

    Raises:
        UsageError: there is no such folder, or no result in it.
        MxdpError: a result is damaged, or a file can't be written.
    """
    folder = Path(folder)
    found = results.read_folder(folder, note)
    known = discover()
    # Not select_autoescape: it goes by the ending, and ".j2" is plain text to it.
    loader = jinja2.FileSystemLoader(str(Path(__file__).parent / "templates"))
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    shared = _shared(found)
    sections = [_section(result, known.get(result["experiment"]), folder, shared) for result in found]
    page = environment.get_template("report.html.j2").render(sections=sections, about=_about(found, shared))
    results.write_beside(folder / "report.html", page)
    return folder / "report.html"


def _plain_columns(result: Result) -> List[Column]:
    keys: Dict[str, None] = {}
    for row in result["rows"] + result["references"]:
        keys.update({key: None for key, value in row["metrics"].items() if not isinstance(value, (dict, list))})

    return [
        Column("seconds", "median s"),
        *(Column(key, key.replace("_", " "), ",.6g") for key in keys),
    ]


def _cell(column: Column, row: Row) -> str:
    try:
        found = rows.cell(column, row)
    except (TypeError, ValueError):
        return "?"
    return NOTHING if found is None else found


def _text(value: Any) -> str:
    """A value of a metric or a setting."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)


def _reason(result: Result) -> str:
    """Why it failed, without the colours of a child's terminal."""
    return Text.from_ansi(result["error"] or "").plain


def _facts(facts: List[Tuple[str, Text]]) -> Padding:
    """Terms and what to say of each, the same indent everywhere."""
    grid = RichTable.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True, min_width=len("how to read"))
    grid.add_column(overflow="fold")
    for term, text in facts:
        grid.add_row(Text(term), text)
    return Padding(grid, (0, 0, 0, 2))


def _rich_table(cells: Cells, width: int) -> RichTable:
    """For ``width`` characters. It wraps between words and keeps numbers whole, if there is room."""
    lines = cells.rows + cells.references
    least = []
    for index, heading in enumerate(cells.headings):
        texts = [line[index] for line in lines]
        unbroken = [*heading.split(), *(texts if cells.right[index] else " ".join(texts).split())]
        least.append(max(map(cell_len, unbroken), default=0))
    fits = sum(least) + 2 * len(least) - 1 <= width  # otherwise rich would cut off the rest
    made = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for heading, right, unbreakable in zip(cells.headings, cells.right, least):
        side: Literal["right", "left"] = "right" if right else "left"
        made.add_column(Text(heading), justify=side, min_width=unbreakable if fits else None, overflow="fold")
    for number, line in enumerate(lines):
        if number == len(cells.rows):
            made.add_section()
        made.add_row(*map(Text, line), style="dim" if number >= len(cells.rows) else "")
    return made


def _section(result: Result, experiment: Optional[Experiment], folder: Path, shared: List[Term]) -> Dict[str, Any]:
    """What the template shows of one result; ``shared`` is what stands at the top of the page."""
    kind, words = mark(result)
    oracle_kind, oracle = oracle_line(result)
    picture, no_picture = pictures.picture(result, experiment, folder)
    machine = _machine(result["environment"])
    variables = [(key, str(value)) for key, value in result["environment"]["variables"].items()]
    return {
        **result,
        "error": _reason(result),
        "claims": claim_lines(result),
        "answer": answer(result),
        "sureness": sureness(result),
        "kind": kind,
        "words": words,
        "oracle_kind": oracle_kind,
        "oracle": oracle,
        "tables": list(filter(None, (table(result, experiment), more(result, experiment)))),
        "picture": picture,
        "no_picture": no_picture,
        "timelines": pictures.timelines(result, folder),
        "settings": [(key, _text(value)) for key, value in result["settings"].items()],
        "environment": machine + variables,
        "own_environment": [term for term in machine if term not in shared] + variables,
        "samples": [
            (row["label"], ", ".join(style.number(sample, 4) for sample in row["seconds"]["samples"]))
            for row in result["rows"] + result["references"]
        ],
        "started": _when(result["started"]),
        "elapsed": style.number(float(result["elapsed_seconds"])),
    }


def _machine(environment: Dict[str, Any]) -> List[Term]:
    """Where something was measured, as terms and what to say of each."""
    memory = environment["memory_bytes"]
    parts = [environment["cpu_model"] or "unknown processor", f"{environment['cores']} cores"]
    parts += [f"{memory / 2**30:.1f} GiB of memory"] if memory else []
    versions = {"Python": environment["python"], **environment["versions"]}
    return [
        ("Machine", ", ".join(parts)),
        ("GPUs", _text(environment["gpus"])),
        ("System", environment["platform"]),
        ("Versions", ", ".join(f"{name} {version or 'unknown'}" for name, version in versions.items())),
        ("Threads", _text(environment["threads"])),
        ("Commit", environment["commit"] or "unknown"),
    ]


def _shared(found: List[Result]) -> List[Term]:
    """What all results say alike of the machine."""
    machines = [_machine(result["environment"]) for result in found]
    return [term for term in machines[0] if all(term in machine for machine in machines)]


def _about(found: List[Result], shared: List[Term]) -> List[Term]:
    """When and where all of ``found`` were measured."""
    first = min((result["started"] for result in found), key=_seconds)
    seconds = sum(float(result["elapsed_seconds"]) for result in found)
    about = [("Measured", f"{_when(first)}, {style.number(seconds)} s in all"), *shared]
    differ = [name for name, _ in _machine(found[0]["environment"]) if name not in dict(shared)]
    return about + [(name, "differs: see each experiment") for name in differ]


def _seconds(iso: str) -> float:
    try:
        return datetime.datetime.fromisoformat(iso).timestamp()
    except ValueError:
        return math.inf


def _when(iso: str) -> str:
    try:
        return datetime.datetime.fromisoformat(iso).strftime("%Y-%m-%d %H:%M %Z").strip()
    except ValueError:
        return iso
