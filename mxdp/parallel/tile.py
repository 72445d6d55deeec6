"""Tiled processing: each device has a part of every picture.

A grid of 2 x 2, seen from device 0, before a layer with 3 x 3 windows::

    device 0 | device 1        o  o  o | h         o: its own tile
             |                 o  o  o | h         h: the halo, a copy of its neighbours' border
    ---------+---------        o  o  o | h
    device 2 | device 3        ---------
             |                 h  h  h   h

Before each convolution and each pooling, the tiles exchange halos (:mod:`mxdp.plans.layers.halo` plans who sends what)
and are padded at the picture's outer borders. Batch normalisation takes its statistics over all tiles. Each device has
all parameters of these layers, and an all-reduce sums their gradients. A dense layer needs the whole picture: the first
device gathers the tiles, and computes the first dense layer and all behind it alone.

Source: the slides on tiled processing; Dryden et al., "Improving Strong-Scaling of CNN Training by Exploiting
Finer-Grained Parallelism", IPDPS 2019.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from mxdp.backend import Batch, Devices, NDArray, autograd, check_arrays, mx, np
from mxdp.collectives import GradientSync
from mxdp.layers import Conv, Dense, Layer, Net, Pool, Shape, apply
from mxdp.parallel import traffic
from mxdp.parallel.footprint import Footprint
from mxdp.parallel.strategy import Strategy
from mxdp.parallel.traffic import NetParams, copy_to, flat, like
from mxdp.plans.layers.halo import Exchange, Grid, exchanges, squarest, tiles
from mxdp.plans.layers.halo_axis import Window
from mxdp.plans.partition import Bounds
from mxdp.scratch import Arrays, cross_entropy, get_params


class Tile(Strategy):
    """Tiles on a grid of devices: a :class:`~mxdp.parallel.strategy.Strategy`.

    ``input_shape`` is (channels, height, width). ``grid``: rows and columns of tiles, by default the squarest;
    ``devices`` has one for each tile, row by row. ``halo=False`` replaces each halo by zeros, to show what goes wrong
    at the seams. Tied are the parameters of the layers before the first dense one; without a dense layer,
    :meth:`scores` returns whole pictures. Raises a ValueError also for other than one device a tile, inputs that are
    not pictures, and tiles smaller than a halo or than a pixel.
    """

    def __init__(
        self,
        net: Net,
        params: NetParams,
        input_shape: Shape,
        devices: Devices,
        grid: Optional[Grid] = None,
        halo: bool = True,
    ) -> None:
        if len(input_shape) != 3:
            raise ValueError(
                f"tiles are cut from pictures (channels, height, width), not from {input_shape}"
            )
        super().__init__(net, params, input_shape, devices)
        self._refuse_residual("into tiles")
        self.grid = squarest(len(devices)) if grid is None else grid
        self.halo = halo
        dense = [number for number, layer in enumerate(net) if isinstance(layer, Dense)]
        count = dense[0] if dense else len(self.net)
        self._image = self.net[:count]
        self._head = self.net[count:]
        _, height, width = input_shape
        windows = [_window(layer) for layer in self._image]
        self.exchanges = exchanges(windows, height, width, self.grid)
        rows, columns = self.grid
        if rows * columns != len(devices):
            raise ValueError(f"{rows} x {columns} tiles need as many devices, not {len(devices)}")
        image = flat(params[:count])
        self._tied = [get_params(image, device) for device in devices]
        self._head_params = get_params(flat(params[count:]), devices[0])
        self.held = [[*self._tied[0], *self._head_params], *self._tied[1:]]
        self.tied = len(image)
        if image:
            self._sync = GradientSync(self._tied, "auto")
            self.buckets = self._sync.buckets

    def step(self, X: Batch, y: Batch) -> NDArray:
        """Forward, backward, all-reduce of the gradients over the tiles."""
        traffic.check_label_count(X, y)
        self.traffic.clear()
        xs = self._cut(X)
        labels = copy_to(y, self.devices[0])
        with autograd.record():
            losses = cross_entropy(self._forward(xs), labels)
        losses.backward()
        self._sum_gradients()
        return losses

    def scores(self, X: Batch) -> NDArray:
        """Forward pass. The scores are on the first device."""
        check_arrays(X=X)
        self.traffic.clear()
        return self._forward(self._cut(X))

    def bytes_moved(self, batch_size: int) -> int:
        """Halos and the tiles that the first device gathers, both there and back; statistics; gradients."""
        count = len(self.exchanges)
        features = self.shapes[count]
        ways = [2 if back else 1 for back in self._back]
        gathered = traffic.elements(features) - self._tile_size(0, features)
        numbers = ways[count] * gathered
        for plan, shape, way in zip(self.exchanges, self.shapes, ways):
            if plan is not None and self.halo:
                rows, columns = plan.steps
                numbers += way * shape[0] * sum(halo.elements for halo in rows + columns)
        nbytes = batch_size * numbers * self.itemsize
        return nbytes + self.statistics_bytes() + sum(self.gradient_bytes())

    def footprints(self, batch_size: int) -> Iterator[Footprint]:
        """Give the footprint of tiles before the first dense layer; from there on of whole samples, on the first
        device."""
        n = len(self.devices)
        count = len(self.exchanges)
        images = self.shapes[: count + 1]
        features, *after = traffic.sizes(self.shapes[count:], batch_size)
        for tile in range(n):
            sizes = [batch_size * self._tile_size(tile, shape) for shape in images]
            footprint = Footprint(sizes[0])
            footprint.keep()
            layers = zip(self.net, self.exchanges, self.shapes, sizes, sizes[1:], self._back)
            for layer, plan, shape, size, made, back in layers:
                if plan is not None:
                    for step in plan.steps:
                        if step:
                            # The tile's copy of its part, of `set_apart`.
                            footprint.replace(size, back)
                    for area in plan.areas(tile):
                        footprint.replace(batch_size * shape[0] * area, back)
                    if back and any(plan.steps):
                        footprint.keep()
                        footprint.cut()
                footprint.add(layer, made, split=n > 1)
            if tile == 0:
                if n > 1:
                    footprint.replace(features)
                for layer, size in zip(self._head, after):
                    footprint.add(layer, size)
            yield footprint

    def _tile_size(self, tile: int, shape: Shape) -> int:
        channels, height, width = shape
        (top, bottom), (left, right) = tiles(height, width, self.grid)[tile]
        return channels * (bottom - top) * (right - left)

    def _cut(self, X: Batch) -> Arrays:
        if tuple(X.shape[1:]) != self.shapes[0]:
            raise ValueError(
                f"the net was made for samples of shape {self.shapes[0]}, not {tuple(X.shape[1:])}"
            )
        spans = tiles(X.shape[2], X.shape[3], self.grid)
        parts = [X[:, :, slice(*rows), slice(*columns)] for rows, columns in spans]
        return [copy_to(part, device) for part, device in zip(parts, self.devices)]

    def _forward(self, xs: Arrays) -> NDArray:
        count = len(self._image)
        replicas = [like(self._layout[:count], replica) for replica in self._tied]
        layers = zip(self._image, self.exchanges, self._back, *replicas)
        for layer, plan, back, *params in layers:
            if plan is not None and isinstance(layer, (Conv, Pool)):
                xs = self._exchange(xs, plan, layer, back)
                layer = replace(layer, padding=0)
            xs = self._pass_layer(layer, xs, params, back)
        x = self._whole(xs)
        head_params = like(self._layout[count:], self._head_params)
        for layer, params in zip(self._head, head_params):
            x = apply(layer, x, params)
        return x

    def _exchange(self, xs: Arrays, plan: Exchange, layer: Layer, back: bool) -> Arrays:
        """Each tile with its halo, and with the layer's padding at the picture's border."""
        for axis in (0, 1):
            xs = self._extend(xs, plan, axis, back)
        fill = -float("inf") if isinstance(layer, Pool) and layer.kind == "max" else 0.0
        padded = []
        for tile, x in enumerate(xs):
            rows, columns = plan.pieces(tile)
            padded.append(_padded(x, [rows.padding, columns.padding], fill))
        return padded

    def _extend(self, xs: Arrays, plan: Exchange, axis: int, back: bool) -> Arrays:
        """One step of the exchange: along ``axis`` 0 (rows) or 1 (columns)."""
        halos = plan.steps[axis]
        pieces = [plan.pieces(tile)[axis] for tile in range(len(xs))]
        copies = [traffic.set_apart(x, back) for x in xs] if halos else xs
        # For each tile: its rows or columns by their place in the picture, its own and those that arrive.
        parts: List[Dict[Bounds, NDArray]] = [{} for _ in xs]
        for x, piece, strips in zip(copies, pieces, parts):
            if piece.kept[0] < piece.kept[1]:
                strips[piece.kept] = _strip(x, axis, piece.kept, piece.own[0])
        for halo in halos:
            span = halo.columns if axis else halo.rows
            target = self.devices[halo.target]
            strip = _strip(xs[halo.source], axis, span, pieces[halo.source].own[0])
            if self.halo:
                strip = self.traffic.send(strip, target, "halo", back)
            else:
                strip = np.zeros(strip.shape, dtype=strip.dtype, ctx=target)
            parts[halo.target][span] = strip
        extended = []
        for strips in parts:
            in_order = [strips[span] for span in sorted(strips)]
            extended.append(_joined(in_order, 2 + axis))
        return extended

    def _whole(self, xs: Arrays) -> NDArray:
        back = self._back[len(self._image)]
        arrived = [self.traffic.send(x, self.devices[0], "gather", back) for x in xs]
        columns = self.grid[1]
        starts = range(0, len(arrived), columns)
        rows = [_joined(arrived[start : start + columns], 3) for start in starts]
        return _joined(rows, 2)


def _window(layer: Layer) -> Optional[Window]:
    if isinstance(layer, Conv):
        return Window(layer.kernel, layer.stride, layer.padding)
    if isinstance(layer, Pool):
        return Window(layer.kernel, layer.step, layer.padding)
    return None


def _strip(x: NDArray, axis: int, span: Bounds, origin: int) -> NDArray:
    """Rows (``axis`` 0) or columns (1) ``span`` of the picture, from a tile ``x`` that begins at ``origin``."""
    start = span[0] - origin
    stop = span[1] - origin
    if (start, stop) == (0, x.shape[2 + axis]):
        return x
    return x[:, :, start:stop] if axis == 0 else x[:, :, :, start:stop]


# These use MXNet's classic operators. np.concatenate takes 20 times as long along the last axis, and np.pad pads with
# zeros whatever value it is given (MXNet 1.9.1).
def _padded(x: NDArray, padding: Sequence[Tuple[int, int]], fill: float) -> NDArray:
    """``x`` with rows and columns of ``fill`` around it: ``padding`` is ((above, below), (left, right))."""
    if not any(map(any, padding)):
        return x
    (above, below), (left, right) = padding
    width = (0, 0, 0, 0, above, below, left, right)
    padded = mx.nd.pad(x.as_nd_ndarray(), mode="constant", pad_width=width, constant_value=fill)
    return padded.as_np_ndarray()


def _joined(parts: Arrays, axis: int) -> NDArray:
    if len(parts) == 1:
        return parts[0]
    return mx.nd.concat(*[part.as_nd_ndarray() for part in parts], dim=axis).as_np_ndarray()
