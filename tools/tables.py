"""Writes from the reference results what quotes them: the tables of the pages, and what ``list`` says.

A page marks each table. What lies between ``<!-- KIND: WORDS -->`` and ``<!-- end -->`` is written by the function of
that KIND. ``tests/test_page_tables.py`` fails where a file differs from what would be written.

A result is marked as older where the code that it ran has changed since, or where the newest result was measured with
another MXNet or NumPy. (Those that are installed don't count: a page must be the same on every Python.) ``--hold`` says
that the changes since are without effect, and why: their hashes go to ``held.json``, and the reason into the pages.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, Collection, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

from mxdp.errors import MxdpError
from mxdp.experiments.data_parallel.bugs import BUGS
from mxdp.experiments.data_parallel.bugs import diff as bug_diff
from mxdp.experiments.lab import provenance, result
from mxdp.experiments.lab.module import Question, discover
from mxdp.experiments.predict.published import HEADINGS, figures, how_far_off
from mxdp.experiments.show import terminal, words
from mxdp.plans.show.files import write_beside

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "experiments" / "reference"
FOLDERS = [REFERENCE / name for name in ("amd-epyc-2-cores", "nvidia-h200")]
"""The machine whose results are shown, and one for the questions that need a GPU. Of a question that both have, the
later one's counts."""
PAGES = (ROOT / "README.md", ROOT / "experiments" / "README.md", *sorted((ROOT / "docs").glob("**/*.md")))
LISTED = ROOT / "mxdp" / "experiments" / "reference.json"
"""The file from which ``list`` takes each experiment's time and answer."""
OLDER = "Older: measured before a change of the code."


class Known(NamedTuple):
    """A question's runs and what they tell; ``older``: than the code; ``elsewhere``: the machine, if it is not the one
    of most."""

    shown: words.Shown
    older: bool
    elsewhere: str

    @property
    def marks(self) -> str:
        """Another machine, an older result, few runs, and a busy machine, in brackets; or nothing."""
        marks = [f"on {self.elsewhere}" * bool(self.elsewhere), "older" * self.older, words.of_few_runs(self.shown)]
        marks.append(words.on_busy_machine(self.shown))
        return f" ({', '.join(filter(None, marks))})" if any(marks) else ""

    @property
    def answer(self) -> str:
        """The answer with its marks, or why there is none."""
        failed = words.mark(self.shown) and f"No answer: {self.shown.latest['error']}."
        return (failed or self.shown.told.sentence) + self.marks


All = Mapping[str, Known]
"""By the question's name."""


def answers(known: All, names: str, path: Path) -> List[str]:
    """The answers of these experiments, of those that were measured."""
    chosen = [known[name] for name in names.split() if name in known]
    lines = [[one.shown.title, one.answer] for one in chosen]
    return [_measured(chosen), "", *_markdown(["question", "answer"], lines)]


def experiments(known: All, _: str, path: Path) -> List[str]:
    """Every experiment of mxdp, those of a lesson together: the first that names it."""
    lessons = {}
    for file in sorted((ROOT / "experiments" / "lessons").glob("*.py"), reverse=True):
        code = re.sub(r"\n# ?", " ", " ".join(re.findall("`([^`]*)`", file.read_text(encoding="utf-8"))))
        named = " ".join(re.findall(r"\brun ((?:[\w-]+ ?)+)", code))
        lessons.update(dict.fromkeys(named.split(), file))
    lines = []
    for question in _ours():
        lesson = lessons[question.name]
        link = f"[{lesson.stem[:2]}]({Path(os.path.relpath(lesson, path.parent)).as_posix()})"
        command = f"`python -m mxdp.experiments run {question.name}`"
        answer = known[question.name].answer if question.name in known else terminal.NOTHING
        lines.append([link, question.question, command, answer])
    lines.sort(key=lambda line: line[0])
    return [_measured(known.values()), "", *_markdown(["lesson", "question", "command", "answer"], lines)]


def claims(known: All, _: str, path: Path) -> List[str]:
    """The claims of each experiment, and how they were judged."""
    lines = []
    for question in _ours():
        one = known.get(question.name)
        judged = list(one.shown.told.claims.values()) if one else []
        for claim, (_, held, text) in zip(judged, words.claim_lines(one.shown) if one else ()):
            numbers = text.partition(" Here: ")[2]
            here = f"{held}{one.marks}{f': {numbers}' if numbers else ''}" if one else ""
            lines.append([f"`{question.name}`", claim.sentence, claim.source, here])
    legend = [OLDER, ""] if any("older)" in here for *_, here in lines) else []
    return [*legend, *_markdown(["experiment", "claim", "source", "here"], lines)]


def sizes(known: All, names: str, path: Path) -> List[str]:
    """What explains the answers of these experiments, or of all."""
    chosen = [(name, known[name]) for name in names.split() or sorted(known) if name in known]
    lines = [
        [f"`{name}`", one.shown.told.explanation + one.marks] for name, one in chosen if one.shown.told.explanation
    ]
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
    kept = [index for index in range(len(cells.headings)) if any(line[index] != terminal.NOTHING for line in lines)]
    headings, right, *lines = ([line[index] for index in kept] for line in (cells.headings, cells.right, *lines))
    note = ["", cells.note] if cells.note else []
    return [f"**{one.shown.title}**{one.marks}", "", *_markdown(headings, lines, right), *note]


def bugs(known: All, _: str, path: Path) -> List[str]:
    """The bugs of ``silent-bugs``: each one's diff, and what became of it."""
    one = known.get("silent-bugs")
    lines = [_measured([one]), ""] if one else []
    for bug in BUGS:
        lines += [f"### {bug.name}", f"{bug.title[0].upper()}{bug.title[1:]}. Source: {bug.source}.", ""]
        for row in one.shown.told.find(bug=bug.name) if one else ():
            seen = f"seen from step {row.shown_after} on" if row.shown_after else "not seen"
            lines += [f"- {row.optimizer}: {row.behind:.3f} behind, {seen}; {row.wrong.median:,.0f} numbers wrong"]
        lines += [*([""] if lines[-1] else []), "```diff", bug_diff(bug), "```", ""]
    return lines


def published(known: All, _: str, path: Path) -> List[str]:
    """Figures that others measured on many devices, and what `predict` says."""
    right = [False, True, True, True, False]
    lines = [[*figure.cells(), figure.source] for figure in figures("figure")]
    return [*_markdown([*HEADINGS, "source"], lines, right), "", how_far_off()]


KINDS = {kind.__name__: kind for kind in (answers, experiments, claims, sizes, table, bugs, published)}
BLOCK = re.compile(rf"(<!-- ({'|'.join(KINDS)})(?:: (.*?))? -->\n)(?:(?!<!--).)*(<!-- end -->)", re.S)


def written(folders: Sequence[Path] = FOLDERS, quick: Optional[Path] = None) -> Dict[Path, str]:
    """The text that each file must have, by its path. ``quick``: results of that preset, whose times ``list`` says;
    without them it says those that it said before."""
    known: Dict[str, Known] = {}
    for folder in folders:
        measured = [words.shown(runs) for runs in result.read_folder(folder).values()]
        newest = max((run for shown in measured for run in shown.runs), key=lambda run: run["started"])
        for shown in measured:
            older = bool(provenance.changes(shown.latest, newest["environment"]["versions"]))
            elsewhere = "" if folder == folders[0] else _machine([shown])
            known[shown.latest["experiment"]] = Known(shown, older, elsewhere)
    before = json.loads(LISTED.read_text(encoding="utf-8"))["seconds"]["quick"]
    listed = {
        "machine": _machine(one.shown for one in known.values()),
        "seconds": {
            "full": _seconds({name: one.shown.runs for name, one in sorted(known.items())}),
            "quick": _seconds(result.read_folder(quick)) if quick else before,
        },
        "answers": {question.name: known[question.name].answer for question in _ours() if question.name in known},
    }
    texts = {LISTED: json.dumps(listed, indent=1, ensure_ascii=False) + "\n"}
    for path in PAGES:

        def fill(block: Any, path: Path = path) -> str:
            lines = KINDS[block[2]](known, block[3] or "", path)
            return "\n".join([block[1], *lines, "", block[4]])

        texts[path] = BLOCK.sub(fill, path.read_text(encoding="utf-8"))
    return texts


def _seconds(measured: Mapping[str, Sequence[Mapping[str, Any]]]) -> Dict[str, float]:
    """Of one process of each case, by question."""
    seconds = {}
    for name, runs in measured.items():
        if runs[-1]["status"] == "ok":
            processes = sum(run["settings"].get("processes", len(run["rows"][0]["processes"])) for run in runs)
            seconds[name] = round(sum(run["elapsed_seconds"] for run in runs) / processes, 1)
    return seconds


def _ours() -> List[Question]:
    return [question for question in discover().values() if question.module.__name__.startswith("mxdp.")]


def _machine(shown: Iterable[words.Shown]) -> str:
    """The machines of these results, in a few words."""
    places = []
    for one in shown:
        machine = one.latest["environment"]
        model = machine["cpu_model"] or "unknown processor"
        models = dict.fromkeys(row.processor for row in one.told if row.get("processor"))
        gpus = machine["gpus"] and (models or machine["gpus"])
        places.append(", ".join([model, f"{machine['cores']} cores", *gpus]))
    return "; ".join(dict.fromkeys(places))


def _measured(known: Collection[Known]) -> str:
    shown = [one.shown for one in known]
    if not shown:
        return ""
    days = sorted(run["started"][:10] for runs in shown for run in runs.runs)
    when = f"on {days[0]}" if days[0] == days[-1] else f"from {days[0]} to {days[-1]}"
    held = dict.fromkeys(reason for one in shown for reason in provenance.carried(one.latest["sources"])[1])
    legend = [OLDER] * any(one.older for one in known) + [f"Held to be without effect: {reason}." for reason in held]
    return " ".join([f"Measured on {_machine(shown)}, {when}.", *legend])


def _markdown(headings: Sequence[str], lines: Sequence[Sequence[str]], right: Sequence[Any] = ()) -> List[str]:
    rule = ["---:" if column else "---" for column in right] or ["---"] * len(headings)
    cells = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    return [re.sub(r" +", " ", f"| {' | '.join(line)} |") for line in [headings, rule, *cells]]


def hold(reason: str) -> None:
    """Record that what has changed since the shown results were measured is without effect on them."""
    changes = set()
    for runs in result.read_folder(FOLDERS[0]).values():
        then = provenance.carried(runs[-1]["sources"])[0]
        changes.update(
            (name, then[name], provenance.today(name)) for name in provenance.changes(runs[-1]) if name in then
        )
    path = provenance.ROOT / provenance.HELD
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    write_beside(path, json.dumps([*before, {"reason": reason, "changes": sorted(changes)}], indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", type=Path, metavar="DIR", help="results of that preset, whose times `list` says")
    parser.add_argument(
        "--hold", metavar="WHY", help="why what changed since the results leaves their numbers as they are"
    )
    args = parser.parse_args()
    try:
        if args.hold:
            hold(args.hold)
        for path, text in written(quick=args.quick).items():
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                write_beside(path, text)
                print(f"written: {path.relative_to(ROOT)}")
    except MxdpError as error:
        sys.exit(f"mxdp: {error}")
