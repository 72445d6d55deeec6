"""Two runs of the same experiments side by side: which cases became faster or slower.

Rows are matched by their ``case``. The runs are not paired, so the interval of a ratio comes from both rows' own
intervals (:func:`.rows.unpaired_ratio`). All of it comes from the JSON; nothing is measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from mxdp.errors import UsageError, plural
from mxdp.experiments.harness import results
from mxdp.experiments.harness.claims import noise_factor
from mxdp.experiments.harness.experiment import Result
from mxdp.experiments.harness.rows import Estimate, Row, unpaired_ratio
from mxdp.experiments.report import style
from mxdp.experiments.report.page import written
from mxdp.experiments.report.tables import NOTHING, Cells, for_terminal

SAME_WORK = {"rounds", "repeats", "budget", "looks", "patience", "again", "timeout", "seed", "kind", "data_dir"}
"""Settings that may differ. ``seed``: other numbers of the same shapes. ``kind``: rows are matched by their devices."""
MEASURED = {"rate", "product_seconds", "copy_seconds"}
"""What of a ``case`` was measured, and is not work."""
FASTER, SLOWER, OPEN = "faster", "slower", "undecided"
MOST = 40
"""Of a longer table the terminal shows only the rows that became faster or slower."""


def compared(old: Path, new: Path) -> Dict[str, Any]:
    """Every experiment that is in both folders (or files), for the JSON.

    Raises:
        UsageError: they have no experiment or no case in common, or an experiment did other work.
        MxdpError: a result is damaged.
    """
    paths = (old, new)
    read = [results.read_folder(path) if path.is_dir() else [results.read(path)] for path in paths]
    a, b = ({each["experiment"]: each for each in own} for own in read)
    both = [name for name in a if name in b]
    if not both:
        had = " and ".join(f"{path} has {', '.join(own)}" for path, own in zip(paths, (a, b)))
        raise UsageError(f"no experiment is in both: {had}; give two runs of the same experiment")
    found = [_experiment(a[name], b[name]) for name in both]
    if not any(each["rows"] for each in found):
        raise UsageError(
            f"no case was measured both in {old} and in {new}: a run failed, or its devices or sizes are others; give "
            "two runs on devices of the same names, with sizes that a preset file fixes"
        )
    record = {"a": str(old), "b": str(new), "not_compared": _alone([*a], [*b]), "experiments": found}
    return dict(results.plain(record))


def _alone(a: Sequence[str], b: Sequence[str]) -> Dict[str, List[str]]:
    return {"only in A": [each for each in a if each not in b], "only in B": [each for each in b if each not in a]}


def _experiment(a: Result, b: Result) -> Dict[str, Any]:
    name, settings = a["experiment"], _differing(a["settings"], b["settings"])
    other = _said({key: values for key, values in settings.items() if key not in SAME_WORK})
    if other:
        raise UsageError(f"{name} did other work in A than in B ({other}); give two runs with the same settings")
    noise = noise_factor(a["verdict"]["noise"]) * noise_factor(b["verdict"]["noise"])
    doubts = [f"{run}: {doubt}" for run, result in (("A", a), ("B", b)) for doubt in _doubts(result)]
    olds, news = a["rows"] + a["references"], b["rows"] + b["references"]
    twins = [_twin(row, olds, news) for row in olds]
    parts = [False] * len(a["rows"]) + [True] * len(a["references"])
    pairs = [(row, twin, reference) for row, twin, reference in zip(olds, twins, parts) if twin]
    lost = [row.label for row, twin in zip(olds, twins) if not twin]
    new = [row.label for row in news if not any(row is twin for twin in twins)]
    return {
        "experiment": name,
        "question": b["question"],
        "differs": {**_differing(_machine(a), _machine(b)), **settings},
        "doubts": doubts,
        "noise": noise,
        "processes": [result["settings"].get("repeats", 1) for result in (a, b)],
        "rows": [_row(*pair, noise, bool(doubts)) for pair in pairs],
        "not_compared": {**_alone(lost, new), "other work": [label for label in lost if label in new]},
    }


def _differing(a: Dict[str, Any], b: Dict[str, Any]) -> Dict[str, Tuple[Any, Any]]:
    return {key: (a.get(key), b.get(key)) for key in dict.fromkeys([*a, *b]) if a.get(key) != b.get(key)}


def _said(differs: Dict[str, Tuple[Any, Any]]) -> str:
    return "; ".join(f"{key} {written(one)} -> {written(two)}" for key, (one, two) in differs.items())


def _machine(result: Result) -> Dict[str, Any]:
    of = result["environment"]
    memory = of["memory_bytes"] and f"{of['memory_bytes'] / 2**30:.1f} GiB"
    same = {key: of[key] for key in ("cores", "platform", "python", "commit", "threads", "gpus")}
    return {"processor": of["cpu_model"], "memory": memory, **same, **of["versions"], **of["variables"]}


def _doubts(result: Result) -> List[str]:
    """Why its times allow no verdict."""
    busy, wrong = result["verdict"]["busy"], result["oracle"]["wrong"]
    doubts = [f"a busy machine ({busy:.0%} of its time went elsewhere)"] if busy else []
    return doubts + ([plural(wrong, "wrong number")] if wrong else [])


def _work(row: Row) -> Dict[str, Any]:
    return {key: value for key, value in row.case.items() if key not in MEASURED}


def _twin(row: Row, olds: List[Row], news: List[Row]) -> Optional[Row]:
    """The row of ``news`` that did the same work; of several, the one of the same label."""
    same = [each for each in news if _work(each) == _work(row)]
    labelled = [each for each in same if each.label == row.label]
    alone = len(same) == [_work(each) for each in olds].count(_work(row)) == 1
    return next(iter(labelled or (same if alone else [])), None)


def _row(a: Row, b: Row, reference: bool, noise: float, doubtful: bool) -> Dict[str, Any]:
    old, new = a.estimate(), b.estimate()
    median, low, high = unpaired_ratio(new, old)
    low, high = low and low / noise, high and high * noise
    word = FASTER if high and high < 1 else SLOWER if low and low > 1 else OPEN
    times = {"a": old._asdict(), "b": new._asdict(), "ratio": Estimate(median, low, high)._asdict()}
    row = {"label": b.label, "case": b.case, "reference": reference, "verdict": OPEN if doubtful else word}
    return {**row, **times}


def show(found: Dict[str, Any], console: Console) -> None:
    """Print it: for each experiment what differs around it, a table, and what was not compared."""
    lines = [f"A: {found['a']}", f"B: {found['b']}", *_left_out(found)]
    for each in found["experiments"]:
        rows, differs = each["rows"], _said(each["differs"])
        lines += ["", f"{each['experiment']}: {each['question']}"]
        lines += [f"Differs from A to B: {differs}" if differs else "Same machine, versions and settings."]
        console.print(Text("\n".join(lines)))
        changed = [row for row in rows if row["verdict"] != OPEN]
        shown = rows if len(rows) <= MOST else changed
        if shown:
            console.print(Padding(for_terminal(_cells(shown), console.width - 2), (1, 0, 1, 2)))
        faster = [row["verdict"] for row in changed].count(FASTER)
        said = f"B is faster in {faster}, slower in {len(changed) - faster}, undecided in {len(rows) - len(changed)}"
        lines = [f"{said}{'' if shown == rows else ' (--json prints those, too)'}."]
        lines += [f"No verdict, because of {doubt}." for doubt in each["doubts"]]
        if each["noise"] > 1:
            lines += [f"A case differed from itself: all intervals are {each['noise']:.3f} times wider at each end."]
        if min(each["processes"]) == 1:
            lines += ["One process a case gives no interval."]
        lines += _left_out(each)
    console.print(Text("\n".join(lines)))


def _left_out(found: Dict[str, Any]) -> List[str]:
    return [f"Not compared, {why}: {', '.join(names)}" for why, names in found["not_compared"].items() if names]


def _cells(rows: List[Dict[str, Any]]) -> Cells:
    scale, unit = (1e3, "ms") if min(row[run]["median"] for row in rows for run in "ab") < 0.1 else (1.0, "s")
    lines: Dict[bool, List[List[str]]] = {False: [], True: []}
    for row in rows:
        times = [style.number(row[run]["median"] * scale) for run in "ab"]
        ratio = NOTHING if row["ratio"]["median"] is None else f"{Estimate(**row['ratio']):.3f}"
        lines[row["reference"]].append([row["label"], *times, ratio, row["verdict"]])
    headings = ["", f"A, {unit}", f"B, {unit}", "B / A", "B is"]
    return Cells(headings, lines[False], lines[True], [False, True, True, False, False])
