"""Write from the reference results what quotes them: the tables of the pages, and what ``list`` says.

    python tools/tables.py

A page marks each table. What lies between ``<!-- KIND: WORDS -->`` and ``<!-- end -->`` is written by the function of
that KIND. ``tests/test_page_tables.py`` fails where a file differs from what would be written.

A result is marked as older where the code that it ran has changed since, or where the newest result was measured with
another MXNet or NumPy. (Those that are installed don't count: a page must be the same on every Python.)
"""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, Dict, Iterable, List, Sequence, Tuple

from mxdp.errors import MxdpError
from mxdp.experiments.data_parallel.bugs import BUGS
from mxdp.experiments.data_parallel.bugs import diff as bug_diff
from mxdp.experiments.harness import provenance, results
from mxdp.experiments.harness.experiment import Experiment, Result, discover, find
from mxdp.experiments.harness.rows import find_all
from mxdp.experiments.predict.published import as_cells, summary
from mxdp.experiments.report import tables as shown
from mxdp.experiments.report import words
from mxdp.plans.show.files import write_beside

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "experiments" / "reference" / "amd-epyc-2-cores"
"""The machine whose results are shown. Its results in ``quick`` are in the folder ``quick`` inside."""
WITH_GPU = FOLDER.with_name("nvidia-h200")
"""The same of a machine with a GPU, for the questions that need one."""
ANOTHER = FOLDER.with_name("intel-xeon-processor-2-cores")
"""What was measured there since, until ``FOLDER``'s machine is at hand again."""
PAGES = (ROOT / "README.md", ROOT / "experiments" / "README.md", *sorted((ROOT / "docs").glob("**/*.md")))
LISTED = ROOT / "mxdp" / "experiments" / "reference.json"
"""From which ``list`` says how long each experiment takes, and what its answer is."""
PRESETS = ("full", "quick")
Known = Dict[Tuple[str, str], Result]
"""Results by preset and name; ``older`` says of each whether it is, and ``elsewhere`` which machine's it is, if that is
not the one of most."""
OLDER = "Older: measured before a change of the code."


def answers(known: Known, names: str, path: Path) -> List[str]:
    """The answers of these experiments, of those that were measured."""
    lines = [[find(name).question, _answer(known, name)] for name in names.split() if _result(known, name)[1]]
    shown = [_result(known, name)[1] for name in names.split()]
    return [_measured([result for result in shown if result]), "", *_markdown(["question", "answer"], lines)]


def experiments(known: Known, _: str, path: Path) -> List[str]:
    """Every experiment of mxdp, those of a lesson together: the first that names it."""
    lessons = {}
    for file in sorted((ROOT / "experiments" / "lessons").glob("*.py"), reverse=True):
        code = re.sub(r"\n# ?", " ", " ".join(re.findall("`([^`]*)`", file.read_text(encoding="utf-8"))))
        named = " ".join(re.findall(r"\brun ((?:[\w-]+ ?)+)", code))
        lessons.update(dict.fromkeys(named.split(), file))
    lines = []
    for each in _ours():
        lesson = lessons[each.name]
        link = f"[{lesson.stem[:2]}]({Path(os.path.relpath(lesson, path.parent)).as_posix()})"
        times = [words.duration(_seconds(known, preset).get(each.name)) for preset in PRESETS[::-1]]
        command = f"`python -m mxdp.experiments run {each.name}`"
        lines.append([link, each.question, command, *times, _answer(known, each.name)])
    lines.sort(key=lambda line: line[0])
    measured = _measured([_result(known, name)[1] for name in sorted({name for _, name in known})])
    return [measured, "", *_markdown(["lesson", "question", "command", *PRESETS[::-1], "answer"], lines)]


def claims(known: Known, _: str, path: Path) -> List[str]:
    """What each experiment claims, and how that was judged: in full, or if it was not, in quick. What was judged by
    another bound than today's is not shown."""
    lines = []
    for each in _ours():
        judged = {
            (claim["name"], claim["bound"], claim["least"]): (preset, claim)
            for preset in PRESETS[::-1]
            if (preset, each.name) in known
            for claim in known[preset, each.name]["verdict"]["claims"]
        }
        for name, claim in each.claims.items():
            preset, own = judged.get((name, claim.bound, claim.least), ("", None))
            here = shown.NOTHING
            if own:
                _, held, numbers = words.verdict(own)
                decides = [said.rstrip(".") for said in words.undecided(known[preset, each.name], own)]
                said = "; ".join(filter(None, [numbers, *(text[0].lower() + text[1:] for text in decides)]))
                here = f"{held}{_marks(known, preset, each.name)}{': ' * bool(said)}{said}"
            lines.append([f"`{each.name}`", claim.sentence, claim.source, here])
        if not each.claims:
            lines.append([f"`{each.name}`", "(an answer, no claim)", "", ""])
    legend = [OLDER, ""] if any("older)" in here for *_, here in lines) else []
    return [*legend, *_markdown(["experiment", "claim", "source", "here"], lines)]


def table(known: Known, chosen: str, path: Path) -> List[str]:
    """The table of the experiment that is the first word; of its rows those whose label the other words, a regular
    expression, match. Columns in which these rows have nothing are left out."""
    name, _, pattern = chosen.partition(" ")
    preset, result = _result(known, name)
    if not result or not result["rows"]:
        return [f"`{name}` was not measured yet."]
    cells = shown.table(result, find(name))
    lines = [line for line in cells.rows + cells.references if re.fullmatch(pattern or ".*", line[0])]
    if not lines:
        raise MxdpError(f"{path}: no row of {name} matches {pattern!r}; the first one is {cells.rows[0][0]!r}.")
    kept = [index for index in range(len(cells.headings)) if any(line[index] != shown.NOTHING for line in lines)]
    headings, right, *lines = ([line[index] for index in kept] for line in (cells.headings, cells.right, *lines))
    return [f"**{result['question']}**{_marks(known, preset, name)}", "", *_markdown(headings, lines, right)]


def bugs(known: Known, _: str, path: Path) -> List[str]:
    """The bugs of ``silent-bugs``: each one's diff, and what became of it."""
    _, result = _result(known, "silent-bugs")
    lines = [_measured([result]), ""] if result else []
    for bug in BUGS:
        lines += [f"### {bug.name}", f"{bug.title[0].upper()}{bug.title[1:]}. Source: {bug.source}.", ""]
        for row in find_all(result["rows"] if result else (), bug=bug.name):
            shown = row.metrics["shown_after"]
            seen = f"shown after {shown} steps" if shown else "never surely shown"
            found = f"{row.estimate('behind'):.3f} behind, {seen}; {row.metrics['wrong']:,} numbers wrong"
            lines += [f"- {row.case['optimizer']}: {found}"]
        lines += [*([""] if lines[-1] else []), "```diff", bug_diff(bug), "```", ""]
    return lines


def published(known: Known, _: str, path: Path) -> List[str]:
    """What others measured of many devices, and what `predict` says."""
    headings = ["figure", "published", "predicted", "off", "source"]
    right = [False, True, True, True, False]
    return [*_markdown(headings, as_cells(), right), "", summary()]


KINDS = {each.__name__: each for each in (answers, experiments, claims, table, bugs, published)}
BLOCK = re.compile(rf"(<!-- ({'|'.join(KINDS)})(?:: (.*?))? -->\n)(?:(?!<!--).)*(<!-- end -->)", re.S)


def written(*folders: Path) -> Dict[Path, str]:
    """What each file must hold, by its path. Of two folders' results the later one's count."""
    known: Known = {}
    for folder in folders or (FOLDER, WITH_GPU, ANOTHER):
        paths = sorted(folder.glob("*.json")) + sorted(folder.glob("quick/*.json"))
        found = [words.today(each, discover().get(each["experiment"])) for each in map(results.read, paths)]
        if not found:
            raise MxdpError(f"there is no result in {folder}; name another in tools/tables.py, or `make reference`.")
        versions = max(found, key=lambda result: datetime.fromisoformat(result["started"]))["environment"]["versions"]
        for result in found:
            result["older"] = bool(provenance.changes(result, versions))
            result["elsewhere"] = "" if folder == (folders or (FOLDER,))[0] else _machine([result])
            known[result["preset"], result["experiment"]] = result
    seconds = {preset: _seconds(known, preset) for preset in PRESETS}
    answered = {each.name: _answer(known, each.name) for each in _ours() if _result(known, each.name)[1]}
    listed = {"machine": _machine(known.values()), **seconds, "answers": answered}
    texts = {LISTED: json.dumps(listed, indent=1, ensure_ascii=False) + "\n"}
    for path in PAGES:

        def fill(block: Any, path: Path = path) -> str:
            lines = KINDS[block[2]](known, block[3] or "", path)
            return "\n".join([block[1], *lines, "", block[4]])

        texts[path] = BLOCK.sub(fill, path.read_text(encoding="utf-8"))
    return texts


def _ours() -> List[Experiment]:
    return [each for each in discover().values() if type(each).__module__.startswith("mxdp.")]


def _result(known: Known, name: str) -> Tuple[str, Any]:
    """In full if it was measured so, otherwise in quick; and which; ``("", None)`` without any."""
    return next(((preset, known[preset, name]) for preset in PRESETS if (preset, name) in known), ("", None))


def _seconds(known: Known, preset: str) -> Dict[str, int]:
    """How long each experiment took that ended well."""
    return {
        name: round(result["elapsed_seconds"])
        for (of, name), result in sorted(known.items())
        if of == preset and result["status"] == "ok"
    }


def _answer(known: Known, name: str) -> str:
    preset, result = _result(known, name)
    if not result:
        return shown.NOTHING
    text = f"No answer: {result['error']}." if words.mark(result) else result["verdict"]["text"]
    return text + _marks(known, preset, name)


def _marks(known: Known, preset: str, name: str) -> str:
    own = known[preset, name]
    marks = [*[f"on {own['elsewhere']}"] * bool(own["elsewhere"]), *["quick"] * (preset == "quick")]
    marks += ["older"] * own["older"]
    return f" ({', '.join(marks)})" if marks else ""


def _machine(shown: Iterable[Result]) -> str:
    """Where these results were measured, in a few words."""
    places = []
    for result in shown:
        machine = result["environment"]
        model = machine["cpu_model"] or "unknown processor"
        models = dict.fromkeys(row.case["processor"] for row in result["rows"] if "processor" in row.case)
        gpus = machine["gpus"] and (models or machine["gpus"])
        places.append(", ".join([model, f"{machine['cores']} cores", *gpus]))
    return "; ".join(dict.fromkeys(places))


def _measured(shown: Sequence[Result]) -> str:
    if not shown:
        return ""
    days = sorted(result["started"][:10] for result in shown)
    when = f"on {days[0]}" if days[0] == days[-1] else f"from {days[0]} to {days[-1]}"
    legend = OLDER if any(result["older"] for result in shown) else ""
    return f"Measured on {_machine(shown)}, {when}. {legend}".strip()


def _markdown(headings: Sequence[str], lines: Sequence[Sequence[str]], right: Sequence[Any] = ()) -> List[str]:
    rule = ["---:" if each else "---" for each in right] or ["---"] * len(headings)
    cells = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    return [re.sub(r" +", " ", f"| {' | '.join(line)} |") for line in [headings, rule, *cells]]


def main() -> None:
    """Write each file that differs."""
    for path, text in written().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_beside(path, text)
            print(f"written: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    try:
        main()
    except MxdpError as error:
        sys.exit(f"mxdp: {error}")
