"""Two checkouts measured in turns: which cases became faster or slower. Two folders of results are only shown.

Results of different hours differ by more than their intervals say, so they are never judged. Measured in turns, process
by process, a ratio is of the same minute.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from mxdp.errors import UsageError
from mxdp.experiments.lab import result
from mxdp.experiments.lab.module import Question, Settings
from mxdp.experiments.lab.provenance import ROOT
from mxdp.experiments.lab.rows import Number
from mxdp.experiments.lab.run import Run, measure
from mxdp.experiments.lab.told import rows_of
from mxdp.experiments.show import style
from mxdp.experiments.show.terminal import NOTHING, Cells, View, for_terminal

FASTER, SLOWER, OPEN = "faster", "slower", "undecided"
Compared = Dict[str, Any]


def measured(
    a: str, b: str, questions: Sequence[Question], preset: str, settings: Mapping[str, Settings], view: View
) -> List[Compared]:
    """Measure these questions in both checkouts, in turns, and judge each ratio of B's time over A's.

    ``a`` and ``b`` are folders, or commits of this one.

    Raises:
        UsageError: one of them is neither.
    """
    compared = []
    with checkout(a) as first, checkout(b) as second:
        for question in questions:
            folder = Path("runs") / "compare"
            runs = [Run(question, preset, settings[question.name], folder, root) for root in (first, second)]
            view.begin(question.name)
            measure(runs, view.progress)
            results = [run.result() for run in runs]
            errors = {name: record["error"] for name, record in zip("AB", results) if record["error"]}
            compared.append(_compared(question.name, question.question, [results[0]], [results[1]], True, errors))
    return compared


@contextmanager
def checkout(which: str) -> Iterator[Path]:
    """The folder of a checkout of mxdp, or of a commit of this one, which is gone at the end."""
    if (Path(which) / "mxdp" / "experiments" / "lab").is_dir():
        yield Path(which).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="mxdp-commit-") as folder:
        place = Path(folder) / "mxdp"
        git = ["git", "-C", str(ROOT), "worktree"]
        made = subprocess.run([*git, "add", "--detach", str(place), which], capture_output=True, text=True)
        try:
            if made.returncode or not (place / "mxdp" / "experiments" / "lab").is_dir():
                raise UsageError(
                    f"{which} is neither a folder with a checkout of mxdp that has this laboratory nor such a commit; "
                    "or leave NAME out to show two folders of results"
                )
            yield place
        finally:
            subprocess.run([*git, "remove", "--force", str(place)], capture_output=True)


def side_by_side(a: Path, b: Path) -> List[Compared]:
    """Every question that is in both folders of results, for the JSON.

    Raises:
        UsageError: they have none in common.
        MxdpError: a result is damaged.
    """
    old, new = result.read_folder(a), result.read_folder(b)
    both = [name for name in old if name in new]
    if not both:
        raise UsageError(f"no experiment is both in {a} and in {b}; give two runs of the same experiment")
    return [_compared(name, new[name][-1]["question"], old[name], new[name], False, {}) for name in both]


def _compared(
    name: str, question: str, a: List[Dict[str, Any]], b: List[Dict[str, Any]], judged: bool, errors: Mapping[str, str]
) -> Compared:
    olds, rows = {row.label: row.seconds for row in rows_of(a)}, []
    for row in rows_of(b):
        old: Optional[Number] = olds.get(row.label)
        if old is None:
            continue
        record = {"label": row.label, "a": _ends(old), "b": _ends(row.seconds)}
        if judged:
            ratio = row.seconds / old
            side = ratio.at_most(1.0)
            word = OPEN if side is None or ratio.low == 1 or ratio.high == 1 else FASTER if side else SLOWER
            record.update(ratio=_ends(ratio), verdict=word)
        rows.append(record)
    return {"experiment": name, "question": question, "judged": judged, "errors": dict(errors), "rows": rows}


def _ends(number: Number) -> Dict[str, Any]:
    return dict(result.plain({"median": number.median, "low": number.low, "high": number.high}))


def print_compared(compared: Sequence[Compared], as_json: bool) -> None:
    """Print it: for each question a table, and how many cases became faster or slower."""
    if as_json:
        print(json.dumps(compared, indent=2))
        return
    console = Console()
    for one in compared:
        console.print(Text.assemble("\n", (one["experiment"], "bold"), ": ", one["question"]))
        for name, error in one["errors"].items():
            console.print(Text(f"{name}: {error}", style="red"))
        console.print(Padding(for_terminal(_cells(one), console.width - 2), (1, 0, 1, 2)))
        words = [row.get("verdict") for row in one["rows"]]
        if one["judged"]:
            counts = ", ".join(f"{word} in {words.count(word)}" for word in (FASTER, SLOWER, OPEN))
            console.print(f"B is {counts}.", highlight=False)
        else:
            console.print(
                "Measured at different times, so nothing is judged: one hour differs from the next. `compare A B NAME` "
                "measures two checkouts in turns.",
                highlight=False,
            )


def _cells(one: Compared) -> Cells:
    lines = []
    for row in one["rows"]:
        times = [_text(row[run]) for run in "ab"]
        lines.append([row["label"], *times, *([_text(row["ratio"]), row["verdict"]] if one["judged"] else [])])
    headings = ["", "A, s", "B, s", *(["B / A", "B is"] if one["judged"] else [])]
    return Cells(headings, lines, [], [False, True, True, True, False][: len(headings)])


def _text(ends: Mapping[str, Any]) -> str:
    if ends["median"] is None:
        return NOTHING
    if ends["low"] is None:
        return style.number(ends["median"])
    return f"{style.number(ends['median'])} ({style.number(ends['low'])}-{style.number(ends['high'])})"
