"""Pictures cut into a grid of tiles: which halos each tile sends to which tile before each layer.

:mod:`mxdp.plans.layers.halo_axis` computes what a tile needs along one axis. In a grid, rows are sent first and columns
second. The columns include the rows that arrived first, so a corner arrives in two hops, by way of the tile between,
and each tile exchanges data with four others instead of eight. Tile 0 of 2 x 2, windows of three::

               step 1         step 2
    o o o      o o o          o o o 2        o: its own pixels
    o o o      o o o          o o o 2        1: from tile 2, below
               1 1 1          1 1 1 2        2: from tile 1, which has received the corner from tile 3
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple

from mxdp.plans.layers.halo_axis import Piece, Window, cut_axis, extent, span
from mxdp.plans.partition import Bounds, bounds

Grid = Tuple[int, int]
"""Rows and columns of tiles. Tile (i, j) is number i * columns + j and lies on the device of that number."""


@dataclass(frozen=True)
class Halo:
    """Tile ``source`` sends tile ``target`` these rows and columns of the whole picture."""

    source: int
    target: int
    rows: Bounds
    columns: Bounds

    @property
    def elements(self) -> int:
        """Pixels in the halo, for each channel of each sample."""
        return extent(self.rows) * extent(self.columns)

    def __str__(self) -> str:
        return f"{self.source} -> {self.target} [{span(self.rows)}, {span(self.columns)}]"


@dataclass(frozen=True)
class Exchange:
    """All halos before one layer. ``rows`` and ``columns``: the tiles along each axis. ``window``: the layer's."""

    window: Window
    rows: Tuple[Piece, ...]
    columns: Tuple[Piece, ...]

    @property
    def steps(self) -> Tuple[Tuple[Halo, ...], Tuple[Halo, ...]]:
        """First the rows, as wide as what a tile holds; then the columns, as high as what it needs."""
        across = len(self.columns)
        vertical = []
        horizontal = []
        for i, row in enumerate(self.rows):
            for j, column in enumerate(self.columns):
                tile = i * across + j
                for k, part in row.parts:
                    if k != i:
                        vertical.append(Halo(k * across + j, tile, part, column.own))
                for k, part in column.parts:
                    if k != j:
                        horizontal.append(Halo(i * across + k, tile, row.needs, part))
        return tuple(vertical), tuple(horizontal)

    def pieces(self, tile: int) -> Tuple[Piece, Piece]:
        """The rows and the columns of a tile."""
        return self.rows[tile // len(self.columns)], self.columns[tile % len(self.columns)]

    def areas(self, tile: int) -> List[int]:
        """Pixels of the arrays that are made for the input of a tile's layer: with rows joined, with columns joined,
        with padding. A step that changes nothing is left out.

        >>> exchange(5, 6, (2, 2), Window(3, padding=1)).areas(0)
        [12, 16, 25]
        """
        row, column = self.pieces(tile)
        height = extent(row.needs)
        width = extent(column.needs)
        areas = []
        if row.needs != row.own:
            areas.append(height * extent(column.own))
        if column.needs != column.own:
            areas.append(height * width)
        if any(row.padding + column.padding):
            areas.append(extent(row.padded) * extent(column.padded))
        return areas

    def __str__(self) -> str:
        low = self.rows[-1]
        right = self.columns[-1]
        window = self.window
        lines = [
            f"{low.own[1]} x {right.own[1]} in {len(self.rows)} x {len(self.columns)} tiles, window {window.kernel}, "
            f"stride {window.stride}, padding {window.padding}: {low.makes[1]} x {right.makes[1]}"
        ]
        for number, step in enumerate(self.steps, 1):
            lines.append(f"step {number}: {', '.join(map(str, step)) or 'nothing'}")
        return "\n".join(lines)

    def drawn(self, tile: int) -> str:
        """The input of a tile's layer: what the tile holds (o), what arrives in step 1 or 2, and padding (.).

        >>> print(exchange(5, 6, (2, 2), Window(3, padding=1)).drawn(0))
        . . . . .
        . o o o 2
        . o o o 2
        . o o o 2
        . 1 1 1 2
        """
        row, column = self.pieces(tile)

        def mark(y: int, x: int) -> str:
            if not (y in range(*row.needs) and x in range(*column.needs)):
                return "."
            if x not in range(*column.own):
                return "2"
            return "o" if y in range(*row.own) else "1"

        lines = []
        for y in range(*row.padded):
            lines.append(" ".join(mark(y, x) for x in range(*column.padded)))
        return "\n".join(lines)


def exchange(height: int, width: int, grid: Grid, window: Window) -> Exchange:
    """The exchange before one layer. Raises a ValueError as :func:`cut_axis`; the message begins with the axis.

    >>> print(exchange(5, 6, (2, 2), Window(3, padding=1)))
    5 x 6 in 2 x 2 tiles, window 3, stride 1, padding 1: 5 x 6
    step 1: 2 -> 0 [3:4, 0:3], 3 -> 1 [3:4, 3:6], 0 -> 2 [2:3, 0:3], 1 -> 3 [2:3, 3:6]
    step 2: 1 -> 0 [0:4, 3:4], 0 -> 1 [0:4, 2:3], 3 -> 2 [2:5, 3:4], 2 -> 3 [2:5, 2:3]
    """
    axis = "rows"
    try:
        rows = cut_axis(height, grid[0], window)
        axis = "columns"
        columns = cut_axis(width, grid[1], window)
    except ValueError as error:
        raise ValueError(f"{axis}: {error}") from None
    return Exchange(window, tuple(rows), tuple(columns))


def exchanges(
    windows: Sequence[Optional[Window]], height: int, width: int, grid: Grid
) -> List[Optional[Exchange]]:
    """The exchange before each layer of a net, or None before a layer without a window, which keeps the size. Raises a
    ValueError for no tiles, more tiles than pixels along an axis, or as :func:`exchange`, with the layer's number."""
    check_grid(grid)
    if height < grid[0] or width < grid[1]:
        raise ValueError(
            f"{height} x {width} can't be cut into {grid[0]} x {grid[1]} tiles: use fewer"
        )
    planned: List[Optional[Exchange]] = []
    for number, window in enumerate(windows):
        if window is None:
            planned.append(None)
            continue
        try:
            planned.append(exchange(height, width, grid, window))
        except ValueError as error:
            raise ValueError(f"layer {number}, {error}") from None
        height = window.places(height)
        width = window.places(width)
    return planned


def tiles(height: int, width: int, grid: Grid) -> List[Tuple[Bounds, Bounds]]:
    """Rows and columns of each tile of a picture."""
    return [
        (rows, columns) for rows in bounds(height, grid[0]) for columns in bounds(width, grid[1])
    ]


def squarest(tiles: int) -> Grid:
    """The grid of ``tiles`` tiles that is nearest to a square. It never has more columns than rows, since the pixels of
    a row lie together in memory. Raises a ValueError for less than one.

    >>> [squarest(tiles) for tiles in (1, 2, 3, 4, 6)]
    [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2)]
    """
    check_grid((tiles, 1))
    columns = math.isqrt(tiles)
    while tiles % columns:
        columns -= 1
    return tiles // columns, columns


def check_grid(grid: Grid) -> None:
    """Raise a ValueError unless both sides of the grid are whole numbers of at least one."""
    if len(grid) != 2 or any(not isinstance(side, int) or side < 1 for side in grid):
        raise ValueError(
            f"a grid of tiles has two sides, whole numbers of at least 1, not {grid!r}"
        )
