"""The pictures of a result: the question's panels, for the report, a slide or a file, and a timeline for each row that
has recorded one."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Union
from urllib.parse import quote

from mxdp.errors import MxdpError, UsageError, did_you_mean
from mxdp.experiments.lab import result
from mxdp.experiments.lab.module import EXTRA_MODULES
from mxdp.experiments.lab.rows import Row
from mxdp.experiments.lab.told import Bars, Panel, Told
from mxdp.experiments.show import style
from mxdp.experiments.show.words import Shown, shown
from mxdp.files import write_beside
from mxdp.tracing import Timeline, draw
from mxdp.tracing.chrome import write_chrome_trace
from mxdp.tracing.gantt import boxes

FORMATS = ("png", "pdf", "svg")
# What a file of that format does not say, so that the same drawing gives the same bytes.
DATES = {
    "svg": ("Date", "Creator"),
    "pdf": ("CreationDate", "Creator", "Producer"),
    "png": ("Software",),
}


class Picture(NamedTuple):
    """An ``img`` of a page that stands alone: the SVG is in its address. Without ``source``, ``problem`` says why."""

    source: str = ""
    alt: str = ""
    problem: str = ""


def saved(
    draw: Callable[[style.Figure], Any],
    salt: str,
    form: str,
    slide: bool = False,
) -> bytes:
    """What ``draw`` draws on an empty figure in our style, as a file of the format ``form``. The same drawing gives the
    same bytes: identifiers come from ``salt``. Whatever ``draw`` raises goes through.

    ``slide``: in the size of a slide's picture, and no text is smaller than may stand on a slide.
    """
    import matplotlib.style
    from matplotlib.figure import Figure
    from matplotlib.text import Text

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.style.use(Path(__file__).with_name("templates") / "pictures.mplstyle")
        matplotlib.rcParams["axes.prop_cycle"] = f"cycler(color={style.COLOURS})"
        matplotlib.rcParams["svg.hashsalt"] = salt
        figure = Figure(figsize=style.SLIDE if slide else None)
        draw(figure)
        if slide:
            figure.set_size_inches(style.SLIDE)
            for text in figure.findobj(Text):
                text.set_fontsize(max(text.get_fontsize(), style.SMALLEST))
        target = io.BytesIO()
        figure.savefig(target, format=form, dpi=200, metadata=dict.fromkeys(DATES[form]))
    return target.getvalue()


def draw_told(about: Told, figure: style.Figure, panel: Optional[int] = None) -> None:
    """The panels of a result, one below the other; or one of them (from 1), as high as the figure. Raises a
    UsageError if there is no such panel."""
    panels = [_panel(about, given) for given in about.panels]
    if panel is None:
        heights = [one.height for one in panels]
        figure.set_figheight(sum(heights))
        grid = figure.subplots(len(panels), squeeze=False, height_ratios=heights)
        for axes, one in zip(grid[:, 0], panels):
            one.draw(axes)
    elif 0 < panel <= len(panels):
        panels[panel - 1].draw(figure.subplots())
    else:
        had = "only panel 1" if len(panels) == 1 else f"panels 1 to {len(panels)}"
        raise UsageError(f"this picture has {had}, and no panel {panel}; give one that it has")


def _panel(about: Told, given: Union[Panel, Bars]) -> Panel:
    """How a part of a picture is drawn, and its height."""
    if isinstance(given, Panel):
        return given
    rows = given.rows or [row for row in about if row.get(given.name) is not None]
    bars = given._replace(rows=rows)
    return Panel(lambda axes: style.row_bars(axes, *bars), len(rows) * style.BAR_HEIGHT + 0.9)


def drawn(s: Shown, form: str, panel: Optional[int] = None) -> bytes:
    """A result's picture as a file of that format, or one panel of it (from 1), in the size of a slide's picture.
    Raises a UsageError if there is no such question or panel, or nothing was measured; else an MxdpError if it can't be
    drawn."""
    name = s.latest["experiment"]
    why = ""
    if s.question is None:
        why = f"this installation has no experiment of that name; {EXTRA_MODULES} names modules with more"
    elif not s.told.rows:
        why = "nothing was measured; measure it again"
    if why:
        raise UsageError(f"there is no picture of {name}: {why}")
    try:
        slide = panel is not None
        return saved(lambda figure: draw_told(s.told, figure, panel), name, form, slide)
    except UsageError:
        raise
    except Exception as error:
        why = f"({type(error).__name__}: {error})"
        raise MxdpError(f"the picture of {name} can't be drawn {why}") from error


def export(
    folder: Path, name: str, form: str, panel: Optional[int] = None, across_commits: bool = False
) -> Path:
    """Write the picture of the question ``name`` to ``folder``, or one panel of it; its path. ``across_commits``: of
    runs of different commits. Raises what :func:`drawn` and :func:`mxdp.experiments.lab.result.read_folder` raise, and
    an MxdpError if it can't be written."""
    known = result.read_folder(folder)
    if name not in known:
        raise UsageError(f"there is no result of {name!r} in {folder}; {did_you_mean(name, known)}")
    path = folder / (f"{name}.{form}" if panel is None else f"{name}-panel-{panel}.{form}")
    write_beside(path, drawn(shown(known[name], across_commits), form, panel))
    return path


def picture(s: Shown, folder: Optional[Path]) -> Picture:
    """The picture for the page, which is also written to ``folder/<name>.svg``. ``folder`` None, for a slide: the first
    panel, and nothing is written."""
    path = folder and folder / f"{s.latest['experiment']}.svg"
    try:
        svg = drawn(s, "svg", panel=None if folder else 1)
    except MxdpError as error:
        if path and s.question:
            # One from an earlier report would show other numbers than the table.
            path.unlink(missing_ok=True)
        said = str(error)
        return Picture(problem=f"{said[0].upper()}{said[1:]}.")
    times = [f"{row.label}: {style.number(row.seconds.median)} s" for row in s.told.answering]
    alt = f"Picture for the question: {s.title} Median times: {'; '.join(times)}. All numbers are in the table."
    return _inlined(svg, alt, path)


def _inlined(svg: bytes, alt: str, path: Optional[Path]) -> Picture:
    """Also writes it to ``path``, unless it is there already."""
    if path and not (path.exists() and path.read_bytes() == svg):
        write_beside(path, svg)
    address = quote(svg, safe=" /;,=()'+{}")  # an address may hold these as they are
    return Picture(f"data:image/svg+xml,{address}", alt)


def timelines(s: Shown, folder: Optional[Path]) -> List[Dict[str, object]]:
    """What the page shows of each row with a timeline: its label, its picture, the same as data (JSON), and the file
    for Perfetto. A timeline that can't be read or drawn is named in its place.

    Writes ``<name>.<row>.svg`` and ``<name>.<row>.trace.json`` to ``folder/timelines``, unless ``folder`` is None, for
    slides.
    """
    names = slugs(row.label for row in s.told)
    drawn = []
    for row in s.told:
        if row.get("timeline"):
            drawn.append(_timeline(s.latest["experiment"], names[row.label], row, folder))
    return drawn


def _timeline(name: str, slug: str, row: Row, folder: Optional[Path]) -> Dict[str, object]:
    beside = folder and folder / "timelines" / f"{name}.{slug}.svg"
    data = ""
    trace = ""
    alt = f"Timeline of {row.label}: one lane for each device, copies and sums apart from compute."
    try:
        recorded = Timeline.from_json(row.get("timeline"))
        slide = not folder
        svg = saved(lambda figure: draw(figure, recorded), f"{name}-{slug}", "svg", slide)
        data = json.dumps(boxes(recorded), separators=(",", ":")).replace("</", "<\\/")
        if beside:
            file = write_chrome_trace(recorded, beside.with_suffix(".trace.json"))
            trace = f"timelines/{file.name}"
        shown = _inlined(svg, alt, beside)
    except Exception as error:
        problem = f"The timeline could not be drawn ({type(error).__name__}: {error})."
        shown = Picture(problem=problem)
    return {"label": row.label, "picture": shown, "data": data, "trace": trace}


def slugs(labels: Iterable[str]) -> Dict[str, str]:
    """A name for each label that files and HTML identifiers can hold: small letters, digits and ``-``, each name once.

    >>> slugs(["2 devices", "2 Devices!", "+"])
    {'2 devices': '2-devices', '2 Devices!': '2-devices-2', '+': 'case'}
    """
    names: Dict[str, str] = {}
    for label in labels:
        short = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") or "case"
        name = short
        number = 1
        while name in names.values():
            number += 1
            name = f"{short}-{number}"
        names[label] = name
    return names
