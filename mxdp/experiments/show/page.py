"""Results for people: on the terminal, as ``report.html`` with a picture for each experiment, and as slides.

All of it comes from the JSON (:mod:`mxdp.experiments.harness.results`). Nothing is measured; MXNet is not needed.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import math
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import jinja2
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from mxdp.errors import plural
from mxdp.experiments.harness import results
from mxdp.experiments.harness.disturbance import disturbed
from mxdp.experiments.harness.experiment import Experiment, Result, discover
from mxdp.experiments.report import pictures, style
from mxdp.experiments.report.tables import NOTHING, answering, for_terminal, more, table, watched
from mxdp.experiments.report.words import (
    claim_lines,
    duration,
    explanation,
    mark,
    oracle_line,
    spoken,
    sureness,
    today,
    why_so_many,
)
from mxdp.plans.show.files import write_beside

Term = Tuple[str, str]
"""A term and what to say of it."""

COLOURS = {"yes": "bold green", "no": "bold yellow", "unknown": "bold cyan", "bad": "bold red"}


def print_result(result: Result, console: Console, explain: bool = False, guess: str = "") -> None:
    """Print one result: question, prediction (after the reader's own ``guess``), table, comparison with the serial run,
    answer, claims; with ``explain`` how to read it, too."""
    experiment = discover().get(result["experiment"])
    console.print()
    result = today(result, experiment)
    console.print(Text.assemble((result["experiment"], "bold"), ": ", result["question"]))
    before = {"your guess": guess, "prediction": result["prediction"]}
    if explain:
        before.update({"how to read": result["how_to_read"], "why so many": why_so_many(result)})
    console.print(_facts([(term, Text(text, style="dim")) for term, text in before.items() if text]))
    if result["rows"] or result["references"]:
        short = answering(result, experiment)
        for cells in filter(None, (table(short, experiment), more(short, experiment))):
            console.print(Padding(for_terminal(cells, console.width - 2), (1, 0, 0, 2)))
        left = len(result["rows"]) - len(short["rows"])
        said = f"{plural(left, 'more row')}: in report.html and {result['experiment']}.json" if left else ""
        console.print(Padding(Text(said, style="dim"), (0, 0, 1 if left else 0, 2)))
    console.print(_facts([fact for fact in _after(result) if fact[1]]))


def _after(result: Result) -> Iterator[Tuple[str, Text]]:
    """What stands below the table; what there is nothing to say of is empty."""
    oracle_kind, sentence = oracle_line(result)
    yield "oracle", Text(sentence, style="" if oracle_kind == "yes" else COLOURS[oracle_kind])
    ended, said = mark(result), result["verdict"]["text"]
    yield "reason", Text(_reason(result), style="red" if ended and ended[0] == "bad" else "")
    yield "rounds", Text(sureness(result), style="dim")
    yield ("ended", Text(ended[1], style=COLOURS[ended[0]])) if ended else ("answer", Text(said, style="bold"))
    yield "why", Text(explanation(result))
    for kind, held, sentence in claim_lines(result):
        yield "claim", Text.assemble((held, COLOURS[kind]), f": {sentence}")


def write_report(folder: Union[str, Path], note: Optional[Callable[[str], None]] = None, slides: bool = False) -> Path:
    """Read the results in ``folder``; write ``<experiment>.svg`` for each and ``report.html``, beside and renamed.
    A picture that is there already, and the same, is not written again.

    Args:
        folder: what a run wrote.
        note: is told, in a sentence each, which files are passed over (standard error by default).
        slides: write ``slides.html`` instead, and nothing else: one panel of a picture and one sentence a page.

    Returns:
        The path of the page.

    Raises:
        UsageError: there is no such folder, or no result in it.
        MxdpError: a result is damaged, or a file can't be written.
    """
    folder = Path(folder)
    known = discover()
    found = [today(result, known.get(result["experiment"])) for result in results.read_folder(folder, note)]
    # Not select_autoescape: it goes by the ending, and ".j2" is plain text to it.
    loader = jinja2.FileSystemLoader(str(Path(__file__).parent / "templates"))
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    shared = _shared(found)
    pictured = None if slides else folder
    sections = [_section(result, known.get(result["experiment"]), pictured, shared) for result in found]
    path = folder / ("slides.html" if slides else "report.html")
    # Only this script may run, and only where there is a timeline for it.
    script = (Path(__file__).parent / "templates" / "timeline.js").read_text(encoding="utf-8")
    page = environment.get_template(f"{path.name}.j2").render(
        sections=sections,
        about=_about(found, shared),
        script=script if any(section["timelines"] for section in sections) else "",
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    write_beside(path, page)
    return path


def written(value: Any) -> str:
    """A value of a metric or a setting, for people."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
    if isinstance(value, list):
        return ", ".join(map(written, value)) or "none"
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


def _section(
    result: Result, experiment: Optional[Experiment], folder: Optional[Path], shared: List[Term]
) -> Dict[str, Any]:
    """What the template shows of one result; ``shared`` is what stands at the top of the page. For slides, ``folder``
    is None."""
    oracle_kind, oracle = oracle_line(result)
    picture, no_picture = pictures.picture(result, experiment, folder)
    machine = _machine(result["environment"])
    variables = [(key, str(value)) for key, value in result["environment"]["variables"].items()]
    short, marks = answering(result, experiment), disturbed(result["disturbance"])
    return {
        **result,
        "error": _reason(result),
        "claims": claim_lines(result),
        "answer": result["verdict"]["text"],
        "sentence": spoken(result["verdict"]["text"]),
        "explanation": explanation(result),
        "sureness": " ".join(filter(None, [sureness(result), why_so_many(result)])),
        "ended": mark(result),
        "oracle_kind": oracle_kind,
        "oracle": oracle,
        "tables": list(filter(None, (table(short, experiment), more(short, experiment)))),
        "all_rows": table(result, experiment) if len(short["rows"]) < len(result["rows"]) else None,
        "watched": watched(result["disturbance"]),
        "any_disturbed": any(marks),
        "picture": picture,
        "no_picture": no_picture,
        "timelines": pictures.timelines(result, folder),
        "settings": [(key, written(value)) for key, value in result["settings"].items()],
        "own_environment": [term for term in machine if term not in shared] + variables,
        "samples": [
            (row.label, ", ".join(_marked(row.samples, marks))) for row in result["rows"] + result["references"]
        ],
        "started": _when(result["started"]),
        "elapsed": style.number(float(result["elapsed_seconds"])),
    }


def _marked(samples: Sequence[float], marks: Sequence[bool]) -> Iterator[str]:
    """Each of them, with a star in a disturbed round."""
    for sample, star in zip(samples, chain(marks, repeat(False))):
        yield style.number(sample, 4) + "*" * star


def _machine(environment: Dict[str, Any]) -> List[Term]:
    """Where something was measured, as terms and what to say of each."""
    memory = environment["memory_bytes"]
    parts = [environment["cpu_model"] or "unknown processor", f"{environment['cores']} cores"]
    parts += [f"{memory / 2**30:.1f} GiB of memory"] if memory else []
    versions = {"Python": environment["python"], **environment["versions"]}
    return [
        ("Machine", ", ".join(parts)),
        ("GPUs", written(environment["gpus"])),
        ("System", environment["platform"]),
        ("Versions", ", ".join(f"{name} {version or 'unknown'}" for name, version in versions.items())),
        ("Threads", written(environment["threads"])),
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
    about = [("Measured", f"{_when(first)}, {duration(seconds)} in all"), *shared]
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
