"""Windows over a picture in tiles, along one axis: what each piece holds, what its windows see, and who has that.

A convolution or a pooling looks through windows, and near an inner border a window reaches into the neighbour's piece.
What it sees there, the *halo*, has to be sent before the layer. Nine rows in two pieces, windows of three with a
padding of one::

    row              0  1  2  3  4  5  6  7  8
    tile 0 holds     o  o  o  o  o                       0:5
    tile 0 needs  .  o  o  o  o  o  h                    0:6 and one of padding before
    tile 1 holds                    o  o  o  o           5:9
    tile 1 needs                 h  o  o  o  o  .        4:9 and one of padding behind

Each layer's output is cut anew by :func:`mxdp.plans.partition.bounds`, so that the tiles stay alike however odd the
sizes are. Where the cuts of input and output don't match (a stride, a window without padding), what a tile is sent may
be more than half a window, and some of what it holds may be of no use to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Tuple

from mxdp.plans.partition import Bounds, bounds


@dataclass(frozen=True)
class Window:
    """A square of side ``kernel`` that moves by ``stride`` over a picture with ``padding`` around it.

    Raises:
        ValueError: no such window; or so much padding that it sees nothing else somewhere.
    """

    kernel: int
    stride: int = 1
    padding: int = 0

    def __post_init__(self) -> None:
        if self.kernel < 1 or self.stride < 1 or not 0 <= self.padding < self.kernel:
            raise ValueError(f"a window needs kernel >= 1, stride >= 1 and a padding from 0 to kernel - 1, not {self}")

    def places(self, length: int) -> int:
        """How many places it has along an axis of that length.

        >>> Window(3, stride=2).places(9), Window(3, padding=1).places(9)
        (4, 9)
        """
        return (length + 2 * self.padding - self.kernel) // self.stride + 1

    def reach(self, start: int, stop: int) -> Bounds:
        """What the places from ``start`` to ``stop`` see: less than 0 or more than the length is padding.

        >>> Window(3, padding=1).reach(0, 5)
        (-1, 6)
        """
        return start * self.stride - self.padding, (stop - 1) * self.stride - self.padding + self.kernel


@dataclass(frozen=True)
class Piece:
    """A tile along one axis, before one layer; all numbers are rows (or columns) of the whole picture.

    ``own``: what it holds; ``needs``: what the layer is to be given, beside ``padding`` (before, behind); ``parts``: by
    whom that is held, in order, as (piece, from, to); ``makes``: its part of the layer's output.
    """

    own: Bounds
    needs: Bounds
    padding: Tuple[int, int]
    parts: Tuple[Tuple[int, Bounds], ...]
    makes: Bounds

    @property
    def kept(self) -> Bounds:
        """What it needs of its own; empty if nothing."""
        start, stop = _common(self.own, self.needs)
        return start, max(start, stop)


def cut_axis(length: int, parts: int, window: Window) -> List[Piece]:
    """The pieces of one axis, for one layer.

    >>> for piece in cut_axis(9, 2, Window(3, padding=1)):
    ...     print(piece.own, "needs", piece.needs, "padding", piece.padding, "held by", piece.parts)
    (0, 5) needs (0, 6) padding (1, 0) held by ((0, (0, 5)), (1, (5, 6)))
    (5, 9) needs (4, 9) padding (0, 1) held by ((0, (4, 5)), (1, (5, 9)))

    Raises:
        ValueError: more parts than rows, in or out; or a piece needs what none of its neighbours holds.
    """
    places = window.places(length)
    if min(length, places) < parts:
        raise ValueError(f"{length} -> {places} can't be cut into {parts}: each tile needs at least one; use fewer")
    holders, pieces = bounds(length, parts), []
    for number, makes in enumerate(bounds(places, parts)):
        start, stop = window.reach(*makes)
        needs = max(start, 0), min(stop, length)
        held = [(holder, _common(own, needs)) for holder, own in enumerate(holders)]
        held = [(holder, part) for holder, part in held if part[0] < part[1]]
        if any(abs(holder - number) > 1 for holder, _ in held):
            raise ValueError(
                f"tile {number} of {parts} holds {span(holders[number])} and needs {span(needs)} of {length}, which "
                "is more than its neighbours hold: the tiles are smaller than the halo; use fewer"
            )
        padding = needs[0] - start, stop - needs[1]
        pieces.append(Piece(holders[number], needs, padding, tuple(held), makes))
    return pieces


def span(piece: Bounds) -> str:
    """As in a slice.

    >>> span((0, 5))
    '0:5'
    """
    return f"{piece[0]}:{piece[1]}"


def _common(a: Bounds, b: Bounds) -> Bounds:
    return max(a[0], b[0]), min(a[1], b[1])
