"""Exercise 8: a halo exchange.

A picture is cut into tiles of rows, one on each device. A convolution on a tile needs the neighbours' rows next to the
border: its halo. Two tiles of two rows, each with room for a halo of one row above and below::

    cpu(0)                              cpu(1)
    row 0  zeros (outside the picture)  row 0  the halo: row 2 of cpu(0)
    row 1  own                          row 1  own
    row 2  own                          row 2  own
    row 3  the halo: row 1 of cpu(1)    row 3  zeros (outside the picture)

The tiles' own rows are given, at least as many as in a halo, and not the same number in each tile. The halos hold old
numbers. Fill them from the neighbours. The halos outside the picture stay zero. Only the rows of the halos travel.

You need: ``tile[start:stop]``, some rows of a tile; ``tile[start:stop] = rows``, which writes them;
``rows.as_in_ctx(device)``, a copy on another device.

Read: experiments/lessons/06_other_splits.py.
Check: python -m mxdp.exercises check experiments/exercises/08_exchange_halos.py
"""

from mxdp.backend import devices, np


def exchange_halos(tiles, halo):
    """Fill the halos of ``tiles``, one on each device, in place.

    ``tiles[k]`` has the shape (halo + rows + halo, width), or more dimensions, and lies below ``tiles[k - 1]``.

    >>> tiles = [np.array([[0], [1], [2], [-1]], ctx=devices(2)[0]), np.array([[-1], [3], [4], [0]], ctx=devices(2)[1])]
    >>> exchange_halos(tiles, halo=1)
    >>> print(*[tile.reshape(-1) for tile in tiles])
    [0. 1. 2. 3.] [2. 3. 4. 0.]
    """
    raise NotImplementedError
