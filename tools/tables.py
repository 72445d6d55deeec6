"""Writes from the reference results what quotes them: the tables of the pages, and what ``list`` says.

A page marks each table. What lies between ``<!-- KIND: WORDS -->`` and ``<!-- end -->`` is written by the function of
that KIND; the words name questions, and without any it is about all. ``tests/test_page_tables.py`` fails where a file
differs from what would be written.

The results of a release are in ``experiments/reference/<machine>/<version>``. They are shown together, also if commits
came between them. ``--check`` says what has changed since: it measures the tour's questions at the newest of these
commits and at HEAD, in turns, and writes the table into ``docs/experiments.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence

from mxdp.errors import MxdpError
from mxdp.experiments.data_parallel.bugs import BUGS
from mxdp.experiments.data_parallel.bugs import diff as bug_diff
from mxdp.experiments.lab import provenance, result
from mxdp.experiments.lab.module import Question, discover
from mxdp.experiments.predict.published import HEADINGS, figures, how_far_off
from mxdp.experiments.show import measured, terminal, together, words
from mxdp.files import write_beside

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "experiments" / "reference"
MACHINES = [REFERENCE / name for name in ("amd-epyc-2-cores", "nvidia-h200")]
"""The machine whose results are shown, and one for the questions that need a GPU. Of a question that both have, the
later one's counts."""
PAGES = (ROOT / "README.md", ROOT / "experiments" / "README.md", *sorted((ROOT / "docs").glob("**/*.md")))
LISTED = ROOT / "mxdp" / "experiments" / "reference.json"
"""The file from which ``list`` takes each experiment's time and answer."""
COMPARED = REFERENCE / "compared.json"
"""What ``--check`` has found."""
HOW = ("--preset", "full", "--processes", "12")
"""The options with which ``--check`` measures."""


class Known(NamedTuple):
    """A question's runs and what they tell; ``otherwise``: measured than most, in words."""

    shown: words.Shown
    otherwise: str

    @property
    def marks(self) -> str:
        """How it was measured otherwise than most, few runs, and a busy machine, in brackets; or nothing."""
        marks = "; ".join(filter(None, [self.otherwise, *words.marks(self.shown)]))
        return f" ({marks})" if marks else ""

    @property
    def answer(self) -> str:
        """The answer with its marks, or why there is none."""
        text = self.shown.told.sentence
        if words.mark(self.shown):
            text = f"No answer: {self.shown.latest['error']}."
        return text + self.marks


All = Mapping[str, Known]
"""The questions that a page quotes, by name."""
Line = Sequence[str]


def answers(known: All, names: str, path: Path) -> List[str]:
    """The answers of these experiments, of those that were measured."""
    chosen = [known[name] for name in names.split() if name in known]
    lines = [[one.shown.title, one.answer] for one in chosen]
    return _markdown(["question", "answer"], lines)


def experiments(known: All, _: str, path: Path) -> List[str]:
    """Every experiment of mxdp, those of a lesson together: the first that names it."""
    lessons = {}
    for file in sorted((ROOT / "experiments" / "lessons").glob("*.py"), reverse=True):
        for code in re.findall("`([^`]*)`", file.read_text("utf-8")):
            for named in re.findall(r"\brun ((?:[\w-]+ ?)+)", re.sub(r"\n# ?", " ", code)):
                lessons.update(dict.fromkeys(named.split(), file))
    lines = []
    for question in _ours():
        link = terminal.NOTHING  # a question that no lesson names yet
        answer = "not measured yet"
        if question.name in lessons:
            lesson = lessons[question.name]
            link = f"[{lesson.stem[:2]}]({Path(os.path.relpath(lesson, path.parent)).as_posix()})"
        if question.name in known:
            answer = known[question.name].answer
        command = f"`python -m mxdp.experiments run {question.name}`"
        lines.append([link, question.question, command, answer])
    lines.sort(key=lambda line: line[0])
    return _markdown(["lesson", "question", "command", "answer"], lines)


def claims(known: All, _: str, path: Path) -> List[str]:
    """The claims of each experiment, and how they were judged."""
    lines = []
    for name, one in sorted(known.items()):
        for claim in words.claim_lines(one.shown):
            here = claim.words + one.marks
            if claim.numbers:
                here += f": {claim.numbers}."
            lines.append([f"`{name}`", claim.sentence, claim.source, here])
    return _markdown(["experiment", "claim", "source", "here"], lines)


def sizes(known: All, names: str, path: Path) -> List[str]:
    """What explains the answers of these experiments, or of all."""
    lines = []
    for name in names.split() or sorted(known):
        explanation = known[name].shown.told.explanation if name in known else ""
        if explanation:
            lines.append([f"`{name}`", explanation + known[name].marks])
    return _markdown(["experiment", "beside its answer"], lines)


def table(known: All, chosen: str, path: Path) -> List[str]:
    """The table of the experiment that is the first word; of its rows those whose label the other words, a regular
    expression, match. Columns in which these rows have nothing are left out."""
    name, _, pattern = chosen.partition(" ")
    one = known.get(name)
    if not one or not list(one.shown.told):
        return [f"`{name}` was not measured yet."]
    cells = terminal.tables(one.shown.told, one.shown.told.rows)[0]
    lines = [line for line in cells.rows + cells.references if re.fullmatch(pattern or ".*", line[0])]
    if not lines:
        raise MxdpError(f"{path}: no row of {name} matches {pattern!r}; the first one is {cells.rows[0][0]!r}.")
    kept: List[Any] = []
    for column in zip(cells.headings, cells.right, *lines):
        if {*column[2:]} != {terminal.NOTHING}:
            kept.append(column)
    headings, right, *lines = zip(*kept)
    made = [f"**{one.shown.title}**{one.marks}", "", *_markdown(headings, lines, right)]
    return [*made, "", cells.note] if cells.note else made


def bugs(known: All, name: str, path: Path) -> List[str]:
    """The bugs of ``silent-bugs``: each one's diff, and what became of it."""
    lines: List[str] = []
    for bug in BUGS:
        lines += [f"### {bug.name}", f"{bug.title[0].upper()}{bug.title[1:]}. Source: {bug.source}.", ""]
        rows = known[name].shown.told.find(bug=bug.name) if name in known else []
        for row in rows:
            seen = f"seen from step {row.shown_after} on" if row.shown_after else "not seen"
            lines.append(f"- {row.optimizer}: {row.behind:.3f} behind, {seen}; {row.wrong.median:,.0f} numbers wrong")
        if rows:
            lines.append("")
        lines += ["```diff", bug_diff(bug), "```", ""]
    return lines


def published(known: All, _: str, path: Path) -> List[str]:
    """Figures that others measured on many devices, and what `predict` says."""
    right = [False, True, True, True, False]
    lines = [[*figure.cells(), figure.source] for figure in figures("figure")]
    return [*_markdown([*HEADINGS, "source"], lines, right), "", how_far_off()]


def compared(known: All, _: str, path: Path) -> List[str]:
    """What ``--check`` has found."""
    if not COMPARED.exists():
        return ["The code of today was not compared with that of the results yet."]
    found = json.loads(COMPARED.read_text("utf-8"))
    lines = []
    for one in found["compared"]:
        for row in one["rows"]:
            ratio = "{median:.2f} ({low:.2f} to {high:.2f})".format(**row["ratio"])
            lines.append([f"`{one['experiment']}`", row["label"], ratio, row["verdict"]])
    new = found["b"][:7]
    headings = ["experiment", "", f"time at {new} over that at {found['a'][:7]}", f"{new} is"]
    return _markdown(headings, lines, [False, False, True, False])


ELSEWHERE = (published, compared)
"""These quote no reference result."""
KINDS = {kind.__name__: kind for kind in (answers, experiments, claims, sizes, table, bugs, *ELSEWHERE)}
BLOCK = re.compile(rf"(<!-- ({'|'.join(KINDS)})(?:: (.*?))? -->\n)(?:(?!<!--).)*(<!-- end -->)", re.S)


def written(machines: Sequence[Path] = MACHINES) -> Dict[Path, str]:
    """The text that each file must have, by its path."""
    shown: Dict[str, words.Shown] = {}
    for machine in machines:
        for name, runs in result.read_folder(together.release(machine)).items():
            shown[name] = words.shown(runs, across_commits=True)
    known = _beside_each_other(shown)
    answered = {name: one.answer for name, one in sorted(known.items())}
    listed = {"measured": measured.line(shown.values()), "answers": answered}
    texts = {LISTED: json.dumps(listed, indent=1, ensure_ascii=False) + "\n"}
    for path in PAGES:
        texts[path] = _filled(path, shown)
    return texts


def _beside_each_other(shown: Mapping[str, words.Shown]) -> All:
    most = measured.usual(shown.values())
    return {name: Known(s, measured.mark(s, most)) for name, s in shown.items()}


def _filled(path: Path, shown: Mapping[str, words.Shown]) -> str:
    """The page with its tables. The first that quotes results says how those of the page were measured."""
    text = path.read_text("utf-8")
    chosen = [block[3] for block in BLOCK.finditer(text) if KINDS[block[2]] not in ELSEWHERE]
    names = shown if None in chosen else " ".join(chosen).split()
    quoted = {name: s for name, s in shown.items() if name in names}
    known: All = {}
    lines_above = []
    if quoted:
        known = _beside_each_other(quoted)
        lines_above = [f"Measured {measured.line(quoted.values())}", ""]

    def fill(block: Any) -> str:
        kind = KINDS[block[2]]
        lines = kind(known, block[3] or "", path)
        if kind not in ELSEWHERE:
            lines = lines_above + lines
            lines_above.clear()
        return "\n".join([block[1], *lines, "", block[4]])

    return BLOCK.sub(fill, text)


def check() -> None:
    """Measure the tour's questions at the newest commit of their results and at HEAD, in turns; keep what was found."""
    tour = [question.name for question in _ours() if question.TOUR]
    runs = result.read_folder(together.release(MACHINES[0]))
    of_tour = chain(*(runs[name] for name in tour))
    newest = max(of_tour, key=lambda run: str(run["started"]))
    old = newest["environment"]["commit"]
    new = (provenance.commit() or "HEAD").rstrip("+")
    command = [sys.executable, "-m", "mxdp.experiments", "compare", old, new, *tour, *HOW, "--json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    found = dict(a=old, b=new, compared=json.loads(done.stdout))
    errors: List[str] = []
    for one in found["compared"]:
        errors += one["errors"].values()
    if errors:
        raise MxdpError("; ".join(errors))
    write_beside(COMPARED, json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def _ours() -> List[Question]:
    return [question for question in discover().values() if question.module.__name__.startswith("mxdp.")]


def _markdown(headings: Line, lines: Sequence[Line], right: Sequence[bool] = ()) -> List[str]:
    """A table; ``right`` marks the columns of numbers."""
    rule = ["---:" if numbers else "---" for numbers in right or [False] * len(headings)]
    made = []
    for line in [headings, rule, *lines]:
        cells = " | ".join(cell.replace("|", r"\|") for cell in line)
        made.append(re.sub(r" +", " ", f"| {cells} |"))
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="first compare today's code with that of the results")
    asked = parser.parse_args()
    try:
        if asked.check:
            check()
        for path, text in written().items():
            if not path.exists() or path.read_text("utf-8") != text:
                write_beside(path, text)
                print(f"written: {path.relative_to(ROOT)}")
    except MxdpError as error:
        sys.exit(f"mxdp: {error}")
    except subprocess.CalledProcessError:
        sys.exit("mxdp: nothing was compared: see above.")
