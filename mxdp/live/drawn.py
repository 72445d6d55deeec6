"""Tables, bars and curves, as HTML and SVG. Each drawing stands beside its numbers."""

from __future__ import annotations

import math
from itertools import groupby
from operator import itemgetter
from typing import Any, Callable, List, Mapping, Sequence

from mxdp.experiments.show.style import number

WIDTH, HEIGHT, LEFT, TOP, BELOW = 360, 230, 58, 8, 24
"""Of a picture of curves, and its margins."""
Ticks = Mapping[Any, str]
"""Where they are, and what they say. The first and the last are the ends of an axis."""
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


def table(caption: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose rows begin with their names. The cells are HTML."""
    lines = [
        f'<tr><th scope="row">{name}</th>{_cells("td", others)}</tr>' for name, *others in rows
    ]
    whole = f"<caption>{caption}</caption><tr>{_cells('th', headings)}</tr>{''.join(lines)}"
    return f'<div class="scroll" tabindex="0" role="group" aria-label="{caption}"><table>{whole}</table></div>'


def _cells(kind: str, texts: Sequence[str]) -> str:
    return "".join(f"<{kind}>{text}</{kind}>" for text in texts)


def alike(values: Sequence[str], names: Sequence[str]) -> List[List[str]]:
    """Rows of a table, one for neighbours with the same value.

    >>> alike(["2 ms", "2 ms", "1 ms"], ["1", "2", "3"])
    [['1 to 2', '2 ms'], ['3', '1 ms']]
    """
    rows = []
    for value, members in groupby(zip(values, names), itemgetter(0)):
        first, *others = (name for _, name in members)
        rows.append([f"{first} to {others[-1]}" if others else first, value])
    return rows


def bars(
    caption: str, heading: str, rows: Mapping[str, Mapping[str, float]], limit: float = 0
) -> str:
    """A table of parts, which are the same in all rows, with their sum; and each row's bar. ``heading``: what a row is;
    ``limit``: a value that is drawn as a line across the bars."""
    longest = max(limit, *(sum(parts.values()) for parts in rows.values()))
    lines: List[List[str]] = []
    for name, parts in rows.items():
        values = [*parts.values(), sum(parts.values())]
        drawn = [
            f'<i class="c{at}" style="width:{98 * value / longest:.2f}%"></i>'
            for at, value in enumerate(values[:-1])
        ]
        if limit:
            drawn.append(f'<b style="left:{98 * limit / longest:.2f}%"></b>')
        numbers = [number(float(value)) if value else "0" for value in values]
        lines.append([f'{name}<span class="bar">{"".join(drawn)}</span>', *numbers])
    headings = [f'<i class="c{at}"></i> {kind}' for at, kind in enumerate(parts)]
    return table(caption, [heading, *headings, "sum"], lines)


def curves(
    caption: str, lines: Mapping[str, Mapping[Any, float]], x: Ticks, y: Ticks, log: bool = True
) -> str:
    """Lines through points, over a logarithmic axis. ``log``: the other axis is logarithmic, too."""

    def across(value: float) -> float:
        return LEFT + (WIDTH - LEFT - 16) * _share(value, x, math.log)

    def down(value: float) -> float:
        return (
            HEIGHT - BELOW - (HEIGHT - BELOW - TOP) * _share(value, y, math.log if log else float)
        )

    drawn = [f'<text x="{across(at):.1f}" y="{HEIGHT - 6}">{text}</text>' for at, text in x.items()]
    for at, text in y.items():
        drawn.append(f'<text class="left" x="{LEFT - 4}" y="{down(at) + 4:.1f}">{text}</text>')
        drawn.append(f'<path d="M{LEFT} {down(at):.1f}H{WIDTH}"/>')
    for place, points in enumerate(lines.values()):
        path = " ".join(f"{across(a):.1f},{down(b):.1f}" for a, b in points.items())
        drawn.append(f'<polyline class="l{place}" points="{path}"/>')
    keys = [
        f'<li><svg viewBox="0 0 30 8"><polyline class="l{place}" points="0,4 30,4"/></svg> {name}</li>'
        for place, name in enumerate(lines)
    ]
    picture = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{caption}">{"".join(drawn)}</svg>'
    return f"<figure><figcaption>{caption}</figcaption>{picture}<ul>{''.join(keys)}</ul></figure>"


def _share(value: float, ticks: Ticks, scale: Callable[[float], float]) -> float:
    """Where a value is between the ends of an axis, from 0 to 1."""
    first, *_, last = map(scale, ticks)
    return (scale(value) - first) / (last - first)
