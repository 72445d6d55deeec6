"""Halos along one axis of a picture in tiles: what each tile holds, what its windows see, and which tile holds that.

A convolution or a pooling moves a window over the picture. Near an inner border the window reaches into the neighbour's
tile. The rows that it sees there, the *halo*, must be sent before the layer. Nine rows in two tiles, windows of three
rows with a padding of one::

    row              0  1  2  3  4  5  6  7  8
    tile 0 holds     o  o  o  o  o                       0:5
    tile 0 needs  .  o  o  o  o  o  h                    0:6 and one row of padding before
    tile 1 holds                    o  o  o  o           5:9
    tile 1 needs                 h  o  o  o  o  .        4:9 and one row of padding after

The output of each layer is cut anew by :func:`mxdp.plans.partition.bounds`, so the tiles stay nearly equal for all
sizes. With a stride, or with a window without padding, the cuts of input and output don't match. Then a halo may be
larger than half a window, and a tile may hold rows that it does not need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Tuple

from mxdp.plans.partition import Bounds, bounds


@dataclass(frozen=True)
class Window:
    """A square of side ``kernel`` that moves by ``stride`` over a picture with ``padding`` around it. Raises a
    ValueError for a number out of range, or so much padding that a window sees nothing else."""

    kernel: int
    stride: int = 1
    padding: int = 0

    def __post_init__(self) -> None:
        if self.kernel < 1 or self.stride < 1 or not 0 <= self.padding < self.kernel:
            raise ValueError(
                f"a window needs kernel >= 1, stride >= 1 and a padding from 0 to kernel - 1, not {self}"
            )

    def places(self, length: int) -> int:
        """The number of places that the window takes along an axis of this length."""
        return (length + 2 * self.padding - self.kernel) // self.stride + 1

    def reach(self, start: int, stop: int) -> Bounds:
        """The rows that the places from ``start`` to ``stop`` see. Rows below 0 or beyond the length are padding."""
        first = start * self.stride - self.padding
        last = (stop - 1) * self.stride - self.padding
        return first, last + self.kernel


@dataclass(frozen=True)
class Piece:
    """A tile along one axis, before one layer. All numbers are rows (or columns) of the whole picture. ``own``: the
    rows that it holds. ``needs``: the rows that its layer takes, without ``padding`` (before, after). ``parts``: which
    pieces hold these, in order, as (piece, (start, stop)). ``makes``: its rows of the output."""

    own: Bounds
    needs: Bounds
    padding: Tuple[int, int]
    parts: Tuple[Tuple[int, Bounds], ...]
    makes: Bounds

    @property
    def kept(self) -> Bounds:
        """The rows of its own that it needs; may be empty."""
        start, stop = _common(self.own, self.needs)
        return start, max(start, stop)

    @property
    def padded(self) -> Bounds:
        """The rows that it needs, with the padding around them."""
        before, after = self.padding
        return self.needs[0] - before, self.needs[1] + after


def cut_axis(length: int, parts: int, window: Window) -> List[Piece]:
    """The pieces of one axis, for one layer. Raises a ValueError for more parts than rows of input or output, or if a
    piece needs rows from beyond its neighbours."""
    places = window.places(length)
    if min(length, places) < parts:
        raise ValueError(
            f"{length} -> {places} can't be cut into {parts}: each tile needs at least one; use fewer"
        )
    holders = bounds(length, parts)
    pieces = []
    for number, makes in enumerate(bounds(places, parts)):
        start, stop = window.reach(*makes)
        needs = max(start, 0), min(stop, length)
        held = []
        for holder, rows in enumerate(holders):
            first, behind = _common(rows, needs)
            if first >= behind:
                continue
            if abs(holder - number) > 1:
                raise ValueError(
                    f"tile {number} of {parts} holds {span(holders[number])} and needs {span(needs)} of {length}, "
                    "which is more than its neighbours hold: the tiles are smaller than the halo; use fewer"
                )
            held.append((holder, (first, behind)))
        padding = needs[0] - start, stop - needs[1]
        pieces.append(Piece(holders[number], needs, padding, tuple(held), makes))
    return pieces


def span(piece: Bounds) -> str:
    """The piece as a slice, ``0:5``."""
    return f"{piece[0]}:{piece[1]}"


def extent(piece: Bounds) -> int:
    """The number of its rows, or columns."""
    start, stop = piece
    return stop - start


def _common(a: Bounds, b: Bounds) -> Bounds:
    return max(a[0], b[0]), min(a[1], b[1])
