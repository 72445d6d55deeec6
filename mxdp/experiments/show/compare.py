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
from mxdp.experiments.lab.rows import Number
from mxdp.experiments.lab.run import Progress, Run, measure
from mxdp.experiments.lab.told import Column, rows_of
from mxdp.experiments.show import listing
from mxdp.experiments.show.terminal import Cells, View, for_terminal, written
from mxdp.experiments.show.together import together
from mxdp.experiments.show.words import duration

FASTER, SLOWER, OPEN = "faster", "slower", "undecided"
HEADINGS = ("", "A, s", "B, s", "B / A", "B is")
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
            yield {
                **compared,
                "logs": {side: str(logs[side]) for side in roots if logs[side].exists()},
            }


def _progress(view: View) -> Progress:
    """Tells ``view`` how far the measurement is, and how long it still takes. What is no terminal gets a line when each
    case has had one more process."""
    began, known, ahead = time.monotonic(), 0, ""

    def progress(where: str, done: int, steps: int, doing: str, _: object = None) -> None:
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
        made = subprocess.run(
            [*git, "add", "--detach", str(place), which], capture_output=True, text=True
        )
        try:
            if made.returncode or not (place / laboratory).is_dir():
                raise UsageError(
                    f"{which} is neither a folder with a checkout of mxdp that has this laboratory nor such a commit; "
                    "or leave NAME out to show two folders of results"
                )
            yield place
        finally:  # out of reach of a second Ctrl-C
            subprocess.run(
                [*git, "remove", "--force", str(place)], capture_output=True, start_new_session=True
            )


def side_by_side(a: Path, b: Path) -> List[Compared]:
    """Every question that is in both folders of results; nothing is judged. Raises a UsageError if they have none in
    common, an MxdpError if a result is damaged."""
    old, new = result.read_folder(a), result.read_folder(b)
    both = [name for name in old if name in new]
    if not both:
        raise UsageError(
            f"no experiment is both in {a} and in {b}; give two runs of the same experiment"
        )
    return [_compared(together(old[name]), together(new[name]), judged=False) for name in both]


def _compared(
    a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]], judged: bool
) -> Compared:
    """Of runs of one question. ``judged``: they took turns."""
    olds, rows = {row.label: row.seconds for row in rows_of(a)}, []
    for row in rows_of(b):
        if row.label in olds:
            rows.append({"label": row.label, "a": olds[row.label], "b": row.seconds})
            if judged:
                ratio = row.seconds / olds[row.label]
                side = ratio.at_most(1.0)
                word = (
                    OPEN
                    if side is None or 1 in (ratio.low, ratio.high)
                    else FASTER
                    if side
                    else SLOWER
                )
                rows[-1].update(ratio=ratio, verdict=word)
    latest = {"A": a[-1], "B": b[-1]}
    errors = {side: run["error"] for side, run in latest.items() if judged and run["error"]}
    failed = [side for side in errors if latest[side]["status"] != "skipped"]
    about = {"experiment": b[-1]["experiment"], "question": b[-1]["question"]}
    return {**about, "judged": judged, "errors": errors, "failed": failed, "rows": rows}


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
                console.print(
                    Text(f"What its processes printed: {one['logs'][side]}"), soft_wrap=True
                )
        shown = 5 if one["judged"] else 3
        lines = [
            [written(value, Column("", "", spread=True)) for value in row.values()]
            for row in one["rows"]
        ]
        cells = Cells([*HEADINGS[:shown]], lines, [], [False, True, True, True, False][:shown])
        console.print(Padding(for_terminal(cells, console.width - 2), (1, 0, 1, 2)))
        words = [row.get("verdict") for row in one["rows"]]
        counts = ", ".join(f"{word} in {words.count(word)}" for word in (FASTER, SLOWER, OPEN))
        unjudged = (
            "Measured at different times, so nothing is judged: one hour differs from the next. `compare A B NAME` "
            "measures two checkouts in turns."
        )
        console.print(f"B is {counts}." if one["judged"] else unjudged, highlight=False)


def _ends(number: Number) -> Any:
    """For the JSON."""
    return result.plain({"median": number.median, "low": number.low, "high": number.high})
