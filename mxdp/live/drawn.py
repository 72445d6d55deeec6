"""Tables, bars and curves, as HTML and SVG. Each drawing stands beside its numbers."""

from __future__ import annotations

import math
from itertools import groupby
from typing import Any, Callable, List, Mapping, Sequence, Tuple

from mxdp.experiments.show.style import number

WIDTH = 360
HEIGHT = 230
"""Of a picture of curves."""
X = (58, 344)
Y = (206, 8)
"""The ends of its axes."""
Ticks = Mapping[Any, str]
"""Where they are, and what they say. The first and the last are the ends of an axis."""
Series = Mapping[str, Mapping[Any, float]]
"""Lines by their names, with their points; or rows, with their parts."""
UNITS = ("bytes", "KiB", "MiB", "GiB")


def milliseconds(seconds: float) -> str:
    """For a reader."""
    return f"{number(1e3 * seconds)} ms"


def as_bytes(nbytes: float) -> str:
    """In the largest unit of which there is one.

    >>> as_bytes(4), as_bytes(96 << 20), as_bytes(1e5)
    ('4 bytes', '96 MiB', '97.66 KiB')
    """
    power = min(len(UNITS) - 1, int(math.log2(max(1, nbytes))) // 10)
    return f"{nbytes / 1024**power:.4g} {UNITS[power]}"


def beside(left: str, right: str) -> str:
    """Both, where the page is wide enough."""
    return f'<div class="beside">{left}<div>{right}</div></div>'


def scrolled(label: str, html: str) -> str:
    """What may be wider than the page."""
    return f'<div class="scroll" tabindex="0" role="group" aria-label="{label}">{html}</div>'


def table(caption: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose rows begin with their names. The cells are HTML."""
    lines = ["".join(f"<th>{heading}</th>" for heading in headings)]
    for name, *others in rows:
        cells = "".join(f"<td>{text}</td>" for text in others)
        lines.append(f'<th scope="row">{name}</th>{cells}')
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return scrolled(caption, f"<table><caption>{caption}</caption>{body}</table>")


def alike(values: Mapping[Any, str]) -> List[List[str]]:
    """Rows of a table, one for neighbours with the same value.

    >>> alike({1: "2 ms", 2: "2 ms", 3: "1 ms"})
    [['1 to 2', '2 ms'], ['3', '1 ms']]
    """
    rows = []
    for value, members in groupby(values, values.__getitem__):
        first, *others = members
        rows.append([f"{first} to {others[-1]}" if others else str(first), value])
    return rows


def bars(caption: str, heading: str, rows: Series, limit: float = 0) -> str:
    """A table of parts, which are the same in all rows, with their sum; and each row's bar. ``heading``: what a row is;
    ``limit``: a value that is drawn as a line across the bars."""
    longest = max(limit, *(sum(parts.values()) for parts in rows.values()))
    lines = []
    for name, parts in rows.items():
        drawn = ""
        for at, value in enumerate(parts.values()):
            drawn += f'<i class="c{at}" style="width:{98 * value / longest:.2f}%"></i>'
        if limit:
            drawn += f'<b style="left:{98 * limit / longest:.2f}%"></b>'
        numbers = (*parts.values(), sum(parts.values()))
        cells = (number(float(value)) if value else "0" for value in numbers)
        lines.append([f'{name}<span class="bar">{drawn}</span>', *cells])
    kinds = [f'<i class="c{at}"></i> {kind}' for at, kind in enumerate(parts)]
    return table(caption, [heading, *kinds, "sum"], lines)


def curves(caption: str, lines: Series, x: Ticks, y: Ticks, log: bool = True) -> str:
    """Lines through points, over a logarithmic axis. ``log``: the other axis is logarithmic, too."""

    def across(value: float) -> float:
        return _between(X, value, x, math.log)

    def down(value: float) -> float:
        return _between(Y, value, y, math.log if log else float)

    drawn = ""
    keys = ""
    for at, text in x.items():
        drawn += f'<text x="{across(at):.1f}" y="{HEIGHT - 6}">{text}</text>'
    for at, text in y.items():
        drawn += f'<text class="left" x="{X[0] - 4}" y="{down(at) + 4:.1f}">{text}</text>'
        drawn += f'<path d="M{X[0]} {down(at):.1f}H{WIDTH}"/>'
    for place, (name, points) in enumerate(lines.items()):
        path = " ".join(f"{across(a):.1f},{down(b):.1f}" for a, b in points.items())
        drawn += f'<polyline class="l{place}" points="{path}"/>'
        sample = f'<svg viewBox="0 0 30 8"><polyline class="l{place}" points="0,4 30,4"/></svg>'
        keys += f"<li>{sample} {name}</li>"
    picture = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{caption}">{drawn}</svg>'
    return f"<figure><figcaption>{caption}</figcaption>{picture}<ul>{keys}</ul></figure>"


def _between(
    ends: Tuple[int, int], value: float, ticks: Ticks, scale: Callable[[float], float]
) -> float:
    """The place of a value on an axis between these ``ends``."""
    least, *_, most = map(scale, ticks)
    first, last = ends
    return first + (last - first) * (scale(value) - least) / (most - least)
