"""The pictures of a result: the experiment's own, for the report, a slide or a file, and a timeline for each row that
has recorded one."""

from __future__ import annotations

import io
import json
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple
from urllib.parse import quote

from mxdp.errors import MxdpError, UsageError, did_you_mean
from mxdp.experiments.lab import result
from mxdp.experiments.lab.rows import Row
from mxdp.experiments.lab.told import Told
from mxdp.experiments.show import style
from mxdp.experiments.show.words import Shown, shown
from mxdp.plans.show.files import write_beside
from mxdp.tracing import Timeline, draw
from mxdp.tracing.chrome import write_chrome_trace
from mxdp.tracing.gantt import boxes

FORMATS = ("png", "pdf", "svg")
DATES = {"svg": ("Date", "Creator"), "pdf": ("CreationDate", "Creator", "Producer"), "png": ("Software",)}
"""What a file of that format does not say, so that the same drawing gives the same bytes."""
SAFE = " /;,=()'+{}"
"""Characters of an SVG that an address may hold as they are."""
Draw = Callable[["style.Figure"], Any]


def saved(draw: Draw, salt: str, form: str, panel: Optional[int] = None) -> bytes:
    """What ``draw`` draws on an empty figure in our style, as a file of the format ``form``. The same drawing gives the
    same bytes: identifiers come from ``salt``. Whatever ``draw`` raises goes through.

    ``panel``: of its axes (without colour bars, from 0) keep only this one, over the whole of a slide's picture.

    Raises:
        UsageError: there is no such panel.
    """
    import matplotlib
    from cycler import cycler
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**style.RC, "axes.prop_cycle": cycler(color=style.COLOURS), "svg.hashsalt": salt}):
        figure = Figure(figsize=None if panel is None else style.SLIDE)
        if panel is not None:
            figure.set_size_inches = lambda *size, **how: None  # whatever is drawn, a slide keeps its size
        draw(figure)
        if panel is not None:
            panels = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
            if not 0 <= panel < len(panels):
                had = "only panel 1" if len(panels) == 1 else f"panels 1 to {len(panels)}"
                raise UsageError(f"this picture has {had}, and no panel {panel + 1}; give one that it has")
            _keep_only(figure, panels.pop(panel), panels)
        target = io.BytesIO()
        figure.savefig(target, format=form, dpi=200, metadata=dict.fromkeys(DATES[form]))
    return target.getvalue()


def _keep_only(figure: style.Figure, kept: style.Axes, others: List[style.Axes]) -> None:
    """Give ``kept`` the whole figure, the label of an axis that it shared, its own entries of the legend, and the scale
    of its colours. No text stays smaller than may stand on a slide."""
    from matplotlib.text import Text

    shared = kept.get_shared_x_axes().get_siblings(kept)
    kept.set_xlabel(kept.get_xlabel() or next(filter(None, (axes.get_xlabel() for axes in shared)), ""))
    kept_labels = kept.get_legend_handles_labels()[1]
    foreign = {label for axes in others for label in axes.get_legend_handles_labels()[1] if label not in kept_labels}
    scale = next((image.colorbar for axes in figure.axes for image in axes.images if image.colorbar), None)
    scaled = scale.ax.get_xlabel() if scale else ""
    if scale:
        scale.remove()
    for axes in others:
        axes.remove()
    part: Any = kept.figure
    if part is not figure:
        figure.subfigs = [part]
        part._subplotspec = figure.add_gridspec(1, 1)[0]  # matplotlib has no public way to move a subfigure
    kept.set_subplotspec(part.add_gridspec(1, 1)[0])
    kept.tick_params(labelbottom=True)
    if scale and kept.images:
        figure.colorbar(kept.images[0], ax=kept, label=scaled)
    for legend in list(figure.legends):
        entries = zip(legend.legend_handles, [text.get_text() for text in legend.get_texts()])
        left = [(handle, label) for handle, label in entries if label not in foreign]
        legend.remove()
        if left:
            figure.legend(*zip(*left), loc="outside lower center", ncols=min(len(left), 5))
    for text in figure.findobj(Text):
        text.set_fontsize(max(text.get_fontsize(), style.SMALLEST))


class Picture(NamedTuple):
    """An ``img`` of a page that stands alone: the SVG is in its address."""

    source: str
    alt: str


def _picture(svg: bytes, alt: str) -> Picture:
    return Picture(f"data:image/svg+xml,{quote(svg, safe=SAFE)}", alt)


def picture(s: Shown, folder: Optional[Path]) -> Tuple[Optional[Picture], str]:
    """The picture for the page, which is also written to ``folder/<name>.svg``; or None and a sentence on why there is
    none. ``folder`` None, for a slide: the question's ``SLIDE_PANEL``, and nothing is written."""
    name = s.latest["experiment"]
    if s.question is None:
        return None, "There is no picture: this installation has no experiment of that name."
    path = folder and folder / f"{name}.svg"
    numbers = "; ".join(f"{row.label}: {style.number(row.seconds.median)} s" for row in s.told.answering)
    alt = f"Picture for the question: {s.title} Median times: {numbers}. All numbers are in the table."
    why = "nothing was measured"
    if s.told.rows:
        try:
            panel = None if folder else s.question.SLIDE_PANEL
            drawn = saved(partial(draw_told, s.told), name, "svg", panel)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        else:
            _keep(path, drawn)
            return _picture(drawn, alt), ""
    if path and path.exists():
        path.unlink()  # one from an earlier report would show other numbers than the table
    return None, f"The picture could not be drawn ({why})."


def draw_told(about: Told, figure: style.Figure) -> None:
    """The picture of a result: the question's own, or panels of a bar for each row."""
    if about.picture:
        about.picture(figure)
        return
    panels = about.panels or [("seconds", "s", 1.0, "", "", None)]
    shown_rows = [rows or [row for row in about if row.get(name) is not None] for name, *_, rows in panels]
    heights = [len(rows) * style.BAR_HEIGHT + 0.9 for rows in shown_rows]
    parts = figure.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
    for axes, rows, (name, unit, scale, title, colour, _) in zip(parts, shown_rows, panels):
        colours = style.coloured(rows, colour) if colour else ()
        style.row_bars(figure, rows, unit, colours, scale, axes, name=name)
        axes.set_title(title)
    figure.set_figheight(sum(heights))


def export(folder: Path, name: str, form: str, panel: Optional[int] = None) -> Path:
    """Write the picture of the question ``name`` to ``folder``, beside and renamed, or one panel of it (from 1, in the
    size of a slide's picture); its path.

    Raises:
        UsageError: there is no such folder, result, question or panel, or nothing was measured.
        MxdpError: the result is damaged, or the picture can't be drawn or written.
    """
    known = result.read_folder(folder)
    if name not in known:
        raise UsageError(f"there is no result of {name!r} in {folder}; {did_you_mean(name, known)}")
    s = shown(known[name])
    if s.question is None or not s.told.rows:
        why = "nothing was measured" if s.question else "this installation has no experiment of that name"
        raise UsageError(f"there is no picture of {name}: {why}; give a result that was measured here")
    try:
        drawn = saved(partial(draw_told, s.told), name, form, None if panel is None else panel - 1)
    except UsageError:
        raise
    except Exception as error:
        raise MxdpError(f"the picture of {name} can't be drawn ({type(error).__name__}: {error})") from error
    path = folder / (f"{name}.{form}" if panel is None else f"{name}-panel-{panel}.{form}")
    write_beside(path, drawn)
    return path


def _keep(path: Optional[Path], drawn: bytes) -> None:
    """Write it there, unless it is there already."""
    if path and not (path.exists() and path.read_bytes() == drawn):
        write_beside(path, drawn)


def timelines(s: Shown, folder: Optional[Path]) -> List[Dict[str, object]]:
    """For each row with a timeline its label, its picture for the page, the same as data (JSON), and the file for
    Perfetto.

    Writes ``<name>.<row>.svg`` and ``<name>.<row>.trace.json`` to ``folder/timelines``, unless ``folder`` is None, for
    slides. A timeline that can't be read or drawn is named in its place.
    """
    slugs = result.slugs(row.label for row in s.told)
    return [
        _timeline(s.latest["experiment"], slugs[row.label], row, folder) for row in s.told if row.get(result.TIMELINE)
    ]


def _timeline(name: str, slug: str, row: Row, folder: Optional[Path]) -> Dict[str, object]:
    alt = f"Timeline of {row.label}: one lane for each device, copies and sums apart from compute."
    try:
        recorded = Timeline.from_json(row.get(result.TIMELINE))
        panel = None if folder else 0
        drawn = saved(lambda figure: draw(figure, recorded), f"{name}-{slug}", "svg", panel)
        page: Optional[Picture] = _picture(drawn, alt)
        data = json.dumps(boxes(recorded), separators=(",", ":")).replace("</", "<\\/")
        trace = problem = ""
        if folder:
            beside = folder / "timelines"
            beside.mkdir(exist_ok=True)
            _keep(beside / f"{name}.{slug}.svg", drawn)
            trace = f"timelines/{write_chrome_trace(recorded, beside / f'{name}.{slug}.trace.json').name}"
    except Exception as error:
        page, data, trace = None, "", ""
        problem = f"The timeline could not be drawn ({type(error).__name__}: {error})."
    return {"label": row.label, "picture": page, "data": data, "trace": trace, "problem": problem}
