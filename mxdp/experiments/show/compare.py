"""Two checkouts measured in turns: which cases became faster or slower. Two folders of results are only shown.

Results of different hours differ by more than their intervals say, so they are never judged. Measured in turns, process
by process, a ratio is of the same minute.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from mxdp.errors import UsageError
from mxdp.experiments.lab import result
from mxdp.experiments.lab.module import Question, Settings
from mxdp.experiments.lab.provenance import ROOT
from mxdp.experiments.lab.rows import Number, Record
from mxdp.experiments.lab.run import Progress, Run, measure
from mxdp.experiments.lab.told import Column, rows_of
from mxdp.experiments.show import listing
from mxdp.experiments.show.terminal import Cells, View, for_terminal, written
from mxdp.experiments.show.together import together
from mxdp.experiments.show.words import duration

FASTER = "faster"
SLOWER = "slower"
OPEN = "undecided"
UNJUDGED = (
    "Measured at different times, so nothing is judged: one hour differs from the next. `compare A B NAME` "
    "measures two checkouts in turns."
)
SPREAD = Column("", "", spread=True)
LOGS = Path("runs", "compare")
"""Folder for what the processes of a case that fails have printed."""
Compared = Dict[str, Any]
"""What the JSON says of a question, with a :class:`Number` for each median and its interval."""


def measured(
    a: str,
    b: str,
    questions: Sequence[Question],
    preset: str,
    settings: Mapping[str, Settings],
    view: View,
) -> Iterator[Compared]:
    """Measure each of these questions in both checkouts, in turns, and judge each ratio of B's time over A's. ``a`` and
    ``b`` are folders, or commits of this one; raises a UsageError if one of them is neither."""
    with checkout(a) as first, checkout(b) as second:
        roots = {"A": first, "B": second}
        for question in questions:
            s = settings[question.name]
            view.say(f"{listing.about(question.name, s)}; A is {a} and B is {b}, in turns")
            view.begin(question.name)
            logs = {side: LOGS / question.name / side for side in roots}
            for folder in logs.values():
                shutil.rmtree(folder, ignore_errors=True)
            runs = [Run(question, preset, s, logs[side], root) for side, root in roots.items()]
            measure(runs, _progress(view))
            one, other = ([run.result()] for run in runs)
            compared = _compared(one, other, judged=True)
            kept = {side: str(folder) for side, folder in logs.items() if folder.exists()}
            yield {**compared, "logs": kept}


def _progress(view: View) -> Progress:
    """Tells ``view`` how far the measurement is, and how long it still takes. What is no terminal gets a line when each
    case has had one more process."""
    began = time.monotonic()
    known: float = 0
    ahead = ""

    def progress(where: str, done: float, steps: float, doing: str, _: object) -> None:
        nonlocal known, ahead
        if done != known:
            known = done
            left = (time.monotonic() - began) / done * (steps - done)
            ahead = f"about {duration(left)} more" if left else ""
        if not (doing or view.console.is_terminal):
            view.say(", ".join(filter(None, [where, ahead])))
        view.progress(", ".join(filter(None, [ahead, where])), done, steps, doing)

    return progress


@contextmanager
def checkout(which: str) -> Iterator[Path]:
    """The folder of a checkout of mxdp, or of a commit of this one, which is gone at the end."""
    laboratory = Path("mxdp", "experiments", "lab")
    if (Path(which) / laboratory).is_dir():
        yield Path(which).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="mxdp-commit-") as folder:
        place = Path(folder, "mxdp")
        git = ["git", "-C", str(ROOT), "worktree"]
        add = [*git, "add", "--detach", str(place), which]
        made = subprocess.run(add, capture_output=True)
        try:
            if made.returncode or not (place / laboratory).is_dir():
                raise UsageError(
                    f"{which} is neither a folder with a checkout of mxdp that has this laboratory nor such a commit; "
                    "or leave NAME out to show two folders of results"
                )
            yield place
        finally:  # out of reach of a second Ctrl-C
            remove = [*git, "remove", "--force", str(place)]
            subprocess.run(remove, capture_output=True, start_new_session=True)


def side_by_side(a: Path, b: Path) -> List[Compared]:
    """Every question that is in both folders of results; nothing is judged. Raises a UsageError if they have none in
    common, an MxdpError if a result is damaged."""
    old = result.read_folder(a)
    new = result.read_folder(b)
    both = [name for name in old if name in new]
    if not both:
        raise UsageError(
            f"no experiment is both in {a} and in {b}; give two runs of the same experiment"
        )
    return [_compared(together(old[name]), together(new[name]), judged=False) for name in both]


def _compared(a: Sequence[Record], b: Sequence[Record], judged: bool) -> Compared:
    """What the JSON says of runs of one question in both checkouts. ``judged``: they took turns."""
    rows = []
    olds = {row.label: row.seconds for row in rows_of(a)}
    for row in rows_of(b):
        if row.label in olds:
            one = {"label": row.label, "a": olds[row.label], "b": row.seconds}
            if judged:
                one["ratio"] = row.seconds / olds[row.label]
                one["verdict"] = _verdict(one["ratio"])
            rows.append(one)
    latest = {"A": a[-1], "B": b[-1]}
    errors = {side: run["error"] for side, run in latest.items() if judged and run["error"]}
    failed = [side for side in errors if latest[side]["status"] != "skipped"]
    return dict(
        experiment=b[-1]["experiment"],
        question=b[-1]["question"],
        judged=judged,
        errors=errors,
        failed=failed,
        rows=rows,
    )


def _verdict(ratio: Number) -> str:
    """What B is, by the interval of its time over A's. If that touches 1, it is open."""
    side = ratio.at_most(1.0)
    if side is None or 1 in (ratio.low, ratio.high):
        return OPEN
    return FASTER if side else SLOWER


def print_compared(compared: Sequence[Compared], as_json: bool) -> None:
    """Print it: for each question a table, and how many cases became faster or slower."""
    if as_json:
        print(json.dumps(compared, indent=2, default=_ends))
        return
    console = Console()
    for one in compared:
        console.print(Text.assemble("\n", (one["experiment"], "bold"), ": ", one["question"]))
        for side, error in one["errors"].items():
            console.print(Text(f"{side}: {error}", style="red"))
            if side in one["logs"]:
                printed = Text(f"What its processes printed: {one['logs'][side]}")
                console.print(printed, soft_wrap=True)
        headings = ["", "A, s", "B, s"]
        right = [False, True, True]
        below = UNJUDGED
        if one["judged"]:
            headings += ["B / A", "B is"]
            right += [True, False]
            words = [row["verdict"] for row in one["rows"]]
            counts = [f"{word} in {words.count(word)}" for word in (FASTER, SLOWER, OPEN)]
            below = f"B is {', '.join(counts)}."
        lines = []
        for row in one["rows"]:
            lines.append([written(value, SPREAD) for value in row.values()])
        cells = Cells(headings, lines, [], right)
        console.print(Padding(for_terminal(cells, console.width - 2), (1, 0, 1, 2)))
        console.print(below, highlight=False)


def _ends(number: Number) -> Any:
    """What the JSON has of a number."""
    return result.plain({"median": number.median, "low": number.low, "high": number.high})
