"""Results as ``report.html``, with a picture for each question, and as slides. It loads no MXNet."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple, Union

import jinja2

from mxdp.experiments.lab import result
from mxdp.experiments.lab.told import Column
from mxdp.experiments.show import measured, pictures, style, words
from mxdp.experiments.show.terminal import reason, tables, written
from mxdp.files import write_beside

Term = Tuple[str, str]  # and what to say of it
PLAIN = Column("", "", form=",.15g")


def write_report(
    folder: Union[str, Path], slides: bool = False, across_commits: bool = False
) -> Path:
    """Read the results that a run wrote to ``folder``; write ``<question>.svg`` for each, unless the same is there
    already, and ``report.html``, beside and renamed; its path. ``slides``: write ``slides.html`` instead, and nothing
    else: one panel of a picture and one sentence a page. ``across_commits``: show runs of different commits together.
    Raises a UsageError if there is no such folder or no result in it, an MxdpError if a result is damaged or a file
    can't be written."""
    folder = Path(folder)
    results = [words.shown(runs, across_commits) for runs in result.read_folder(folder).values()]
    templates = Path(__file__).with_name("templates")
    # Not select_autoescape: it goes by the ending, and ".j2" is plain text to it.
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    machines = [_machine(s) for s in results]
    alike = [term for term in machines[0] if all(term in machine for machine in machines)]
    most = measured.usual(results)
    beside = None if slides else folder
    sections = [_section(s, beside, alike, measured.mark(s, most)) for s in results]
    path = folder / ("slides.html" if slides else "report.html")
    # Only this script may run; in a report only where there is a timeline for it.
    script_file = templates / ("slides.js" if slides else "timeline.js")
    script = script_file.read_text(encoding="utf-8")
    needed = slides or any(section["timelines"] for section in sections)
    page = environment.get_template(f"{path.name}.j2").render(
        sections=sections,
        about=_about(results, alike),
        script=script if needed else "",
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    write_beside(path, page)
    return path


def _section(
    s: words.Shown, folder: Optional[Path], alike: List[Term], otherwise: str
) -> Dict[str, Any]:
    """What the template shows of one question; ``alike`` stands at the top of the page, and ``otherwise`` is what this
    one has otherwise than most. ``folder`` None: for slides."""
    variables = [(key, str(value)) for key, value in s.latest["environment"]["variables"].items()]
    sureness = words.sureness(s)
    if otherwise:
        sureness += f" Here: {otherwise}."
    whole = []
    if len(s.told.answering) < len(s.told.rows):
        whole = tables(s.told, s.told.rows)[:1]
    samples = []
    for row in s.told:
        units = [style.number(value, 4) for value in row.seconds.units]
        samples.append((row.label, ", ".join(units)))
    return {
        **s.latest,
        "question": s.title,
        "source": s.question.SOURCE if s.question else "",
        "error": reason(s),
        "claims": words.claim_lines(s),
        "answer": words.answer(s),
        "sentence": words.answer(s, words.spoken(s.told.sentence)),
        "explanation": words.explanation(s),
        "how_to_read": " ".join(words.how_to_read(s)),
        "measured": measured.sitting([s]),
        "sureness": sureness.strip(),
        "ended": words.mark(s),
        "oracle": words.oracle_line(s),
        "tables": tables(s.told, s.told.answering),
        "all_rows": whole,
        "picture": pictures.picture(s, folder),
        "timelines": pictures.timelines(s, folder),
        "settings": [(key, _in_words(value)) for key, value in s.latest["settings"].items()],
        "own_environment": [term for term in _machine(s) if term not in alike] + variables,
        "samples": samples,
        "started": ", ".join(_when(run["started"]) for run in s.runs),
        "elapsed": words.duration(sum(run["elapsed_seconds"] for run in s.runs)),
    }


def _machine(s: words.Shown) -> List[Term]:
    """Where and by which code it was measured, as terms and what to say of each."""
    environment = s.latest["environment"]
    memory = environment["memory_bytes"]
    parts = [measured.processor(environment), f"{environment['cores']} cores"]
    if memory:
        parts.append(f"{memory / 2**30:.1f} GiB of memory")
    versions = [f"Python {environment['python']}"]
    for name, version in environment["versions"].items():
        versions.append(f"{name} {version or 'unknown'}")
    commits = dict.fromkeys(run["environment"]["commit"] or "unknown" for run in s.runs)
    return [
        ("Machine", ", ".join(parts)),
        ("GPUs", _in_words(environment["gpus"])),
        ("System", environment["platform"]),
        ("Versions", ", ".join(versions)),
        ("Commit", ", ".join(commits)),
    ]


def _about(results: List[words.Shown], alike: List[Term]) -> List[Term]:
    """When and where all of ``results`` were measured."""
    runs = [run for s in results for run in s.runs]
    seconds = sum(float(run["elapsed_seconds"]) for run in runs)
    sitting = f"{measured.line(results)} It took {words.duration(seconds)} in all."
    about = [("Measured", sitting), *alike]
    for name, _ in _machine(results[0]):
        if name not in dict(alike):
            about.append((name, "differs: see each experiment"))
    return about


def _when(iso: str) -> str:
    try:
        return datetime.datetime.fromisoformat(iso).strftime("%Y-%m-%d %H:%M %Z").strip()
    except ValueError:
        return iso


def _in_words(value: Any) -> str:
    """A setting, or a part of the environment."""
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return written(value, PLAIN)
