"""A page that steps through a plan: one HTML file, which asks nothing of any network.

In a notebook, ``moving(plan("ring", 4))`` as the last line of a cell shows it in place.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import NamedTuple

from mxdp.plans.show.board import Plan, board_of

MOST_CELLS = 200_000
"""Cells that change in all frames together: more than a page should hold."""


class Page(NamedTuple):
    """``html``: the whole page; ``rows``: of its board; ``title``: the plan in words."""

    html: str
    rows: int
    title: str

    def _repr_html_(self) -> str:
        height = min(560, 330 + 42 * self.rows)
        style = f"width:100%;height:{height}px;border:0"
        return f'<iframe title="{escape(self.title)}" style="{style}" srcdoc="{escape(self.html)}"></iframe>'


def moving(plan: Plan, mib: float = 64) -> Page:
    """The page of a plan. ``mib``: MiB of a vector, which a reader can change there. Raises a ValueError if the plan
    has too many cells for one page."""
    board = board_of(plan)
    cells = sum(len(frame.cells) for frame in board.frames)
    if cells > MOST_CELLS:
        raise ValueError(
            f"{board.title}: {cells:,} cells are too many for a page, which has room for {MOST_CELLS:,}"
        )
    # "</script>" must not end the script that holds the data.
    data = json.dumps(asdict(board), separators=(",", ":")).replace("</", "<\\/")
    steps = []
    for frame in board.frames:
        text = f"{frame.text} {frame.cost}." if frame.cost else frame.text
        steps.append(f"<li>{escape(text)}</li>")
    filled_in = {
        "TITLE": escape(board.title),
        "STEPS": "\n".join(steps),
        "DATA": data,
        "MIB": f"{mib:.6g}",
    }
    page = Path(__file__).with_name("moving.html").read_text(encoding="utf-8")
    # In one pass: what is filled in may look like a place to fill in.
    page = re.sub(r"\[\[([A-Z]+)\]\]", lambda place: filled_in[place.group(1)], page)
    return Page(page, len(board.rows), board.title)
