"""The pictures of a result: the experiment's own, and a timeline for each row that has recorded one."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, List, Optional, Tuple

from markupsafe import Markup

from mxdp.experiments.harness import results
from mxdp.experiments.harness.disturbance import disturbed
from mxdp.experiments.harness.experiment import Experiment, Result, Row
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import answering
from mxdp.tracing import Timeline, draw
from mxdp.tracing.chrome import write_chrome_trace


def picture(result: Result, experiment: Optional[Experiment], folder: Optional[Path]) -> Tuple[Optional[Markup], str]:
    """Draw it to ``folder/<name>.svg``: the picture for the page, or None and a sentence on why there is none.

    ``folder`` None, for a slide: nothing is written, and the lower part of a tall picture stands beside the upper one.
    """
    name = result["experiment"]
    if experiment is None:
        return None, "There is no picture: this installation has no experiment of that name."
    path = folder and folder / f"{name}.svg"
    short = answering(result, experiment)["rows"]
    numbers = "; ".join(f"{row['label']}: {style.number(row['seconds']['median'])} s" for row in short)
    alt = f"Picture for the question: {result['question']} Median times: {numbers}. All numbers are in the table."
    why = "nothing was measured"
    if result["rows"]:
        try:
            figures: List[style.Figure] = []

            def draw(figure: style.Figure) -> None:
                figures.append(figure)
                experiment.draw(marked(result), figure)

            drawn = style.svg(draw, salt=name)
            share = style.gap(figures[0]) if path is None else None
            shown = style.side_by_side(drawn, share) if share else drawn
            page = Markup(style.inline(shown, f"{name}-svg-", alt))
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        else:
            _keep(path, drawn)
            return page, ""
    if path and path.exists():
        path.unlink()  # one from an earlier report would show other numbers than the table
    return None, f"The picture could not be drawn ({why})."


def marked(result: Result) -> Result:
    """``result`` for :func:`.rows.row_bars`: if any rounds were disturbed, each row says which."""
    marks = disturbed(result["disturbance"])
    parts = ("rows", "references") if any(marks) else ()
    return {**result, **{part: [{**row, "disturbed": marks} for row in result[part]] for part in parts}}


def _keep(path: Optional[Path], drawn: str) -> None:
    """Write it there, unless it is there already."""
    if path and not (path.exists() and path.read_text(encoding="utf-8") == drawn):
        results.write_beside(path, drawn)


def timelines(result: Result, folder: Optional[Path]) -> List[Dict[str, object]]:
    """For each row with a timeline its label, its picture for the page, and the file for Perfetto.

    Writes ``<name>.<row>.svg`` and ``<name>.<row>.trace.json`` to ``folder/timelines``, unless ``folder`` is None. A
    timeline that can't be read or drawn is named in its place.
    """
    rows = result["rows"] + result["references"]
    slugs = results.slugs(row["label"] for row in rows)
    return [
        _timeline(result["experiment"], slugs[row["label"]], row, folder)
        for row in rows
        if row["metrics"].get(results.TIMELINE)
    ]


def _timeline(name: str, slug: str, row: Row, folder: Optional[Path]) -> Dict[str, object]:
    alt = f"Timeline of {row['label']}: one lane for each device, copies and sums apart from compute."
    try:
        recorded = Timeline.from_json(row["metrics"][results.TIMELINE])
        drawn = style.svg(lambda figure: draw(figure, recorded), salt=f"{name}-{slug}")
        page: Optional[Markup] = Markup(style.inline(drawn, f"{name}-{slug}-svg-", alt))
        trace = problem = ""
        if folder:
            beside = folder / "timelines"
            beside.mkdir(exist_ok=True)
            _keep(beside / f"{name}.{slug}.svg", drawn)
            trace = f"timelines/{write_chrome_trace(recorded, beside / f'{name}.{slug}.trace.json').name}"
    except Exception as error:
        page, trace, problem = None, "", f"The timeline could not be drawn ({type(error).__name__}: {error})."
    return {"label": row["label"], "picture": page, "trace": trace, "problem": problem}
