"""Tiled processing: each device has a part of every picture.

A grid of 2 x 2, seen from device 0, before a layer with 3 x 3 windows::

    device 0 | device 1        o  o  o | h         o: its own tile
             |                 o  o  o | h         h: the halo, a copy of its neighbours' border
    ---------+---------        o  o  o | h
    device 2 | device 3        ---------
             |                 h  h  h   h

Before each convolution and pooling the tiles exchange halos (:mod:`mxdp.plans.layers.halo` says who sends what), are
padded at the picture's outer borders, and pass the layer without padding. Batch normalisation takes its statistics over
all tiles. Every device has all parameters of these layers, and the gradients are summed over the tiles.

From the first dense layer on, which sees the whole picture anyway, the first device works alone: it gathers the tiles,
and it has those layers' parameters to itself. After a few poolings that is little to send and little to do.

Source: the slides on tiled processing; Dryden et al., "Improving Strong-Scaling of CNN Training by Exploiting
Finer-Grained Parallelism", IPDPS 2019.
"""

from __future__ import annotations

from dataclasses import replace
from typing import List, Optional, Sequence, Tuple

from mxdp.backend import Batch, Device, NDArray, autograd, mx, np
from mxdp.collectives import GradientSync
from mxdp.layers import BatchNorm, Conv, Dense, Layer, LayerParams, Net, Pool, Shape, apply, normalise, outputs
from mxdp.parallel import traffic
from mxdp.parallel.footprint import Footprint
from mxdp.plans.layers.halo import Exchange, Grid, exchanges, squarest
from mxdp.plans.layers.halo_axis import Window
from mxdp.plans.partition import Bounds, bounds
from mxdp.scratch import cross_entropy, get_params, in_sync, sgd

HALO, STATISTICS, GATHER = "halo", "statistics", "gather"


class Tile:
    """Tiles on a grid of devices. Fulfils :class:`mxdp.parallel.strategy.Strategy`.

    Tied are the parameters of the layers before the first dense one. If there is no dense layer, :meth:`scores` gives
    whole pictures.

    Args:
        net, params: the network and its parameters, which are copied.
        input_shape: of one sample: (channels, height, width).
        devices: as many as the grid has tiles, row by row.
        grid: rows and columns of tiles; by default the squarest.
        halo: without, what a tile would be sent is zeros, to show what goes wrong at the seams.

    Raises:
        ValueError: no devices, or one twice, or not as many as tiles; inputs that are no pictures; a net that doesn't
            fit them; tiles that are smaller than a halo, or less than a pixel.
    """

    def __init__(
        self,
        net: Net,
        params: Sequence[LayerParams],
        input_shape: Shape,
        devices: Sequence[Device],
        grid: Optional[Grid] = None,
        halo: bool = True,
    ) -> None:
        traffic.check_devices(devices)
        self.grid = squarest(len(devices)) if grid is None else grid
        if len(input_shape) != 3:
            raise ValueError(f"tiles are cut from pictures (channels, height, width), not from {input_shape}")
        self.net, self.devices, self.halo, self.traffic = list(net), list(devices), halo, traffic.Traffic()
        self._shapes = [tuple(input_shape), *outputs(net, input_shape)]
        count = next((number for number, layer in enumerate(net) if isinstance(layer, Dense)), len(self.net))
        self._image, self._head = self.net[:count], self.net[count:]
        _, height, width = input_shape
        self.exchanges = exchanges([_window(layer) for layer in self._image], height, width, self.grid)
        if self.grid[0] * self.grid[1] != len(devices):
            raise ValueError(f"{self.grid[0]} x {self.grid[1]} tiles need as many devices, not {len(devices)}")
        self._layouts = [list(layer) for layer in params[:count]], [list(layer) for layer in params[count:]]
        image, head = map(traffic.flat, self._layouts)
        self._tied = [get_params(image, device) for device in devices]
        self._own = get_params(head, devices[0])
        self._sync = GradientSync(self._tied, "auto") if image else None
        self._back = traffic.has_gradient(self.net)

    def step(self, X: Batch, y: Batch) -> NDArray:
        """Forward, backward, gradients summed over the tiles.

        Raises:
            ValueError: ``X`` and ``y`` differ in length, or ``X`` is not of the ``input_shape``.
        """
        if len(X) != len(y):
            raise ValueError(f"X has {len(X)} samples and y has {len(y)} labels: they must be as many")
        self.traffic.clear()
        xs, labels = self._cut(X), traffic.load(y, self.devices[0])
        with autograd.record():
            losses = cross_entropy(self._forward(xs), labels)
        losses.backward()
        if self._sync is not None:
            self._sync()
            self.traffic.note("gradients", traffic.BACKWARD, self._gradient_bytes())
        return losses

    def update(self, lr: float, batch_size: int) -> None:
        """The same step on every replica of the tied parameters, and on the first device's own."""
        for params in (*self._tied, self._own):
            sgd(params, lr, batch_size)

    def scores(self, X: Batch) -> NDArray:
        """Forward pass: on the first device."""
        self.traffic.clear()
        return self._forward(self._cut(X))

    def params(self) -> List[LayerParams]:
        """Copies on ``cpu(0)``: the first replica of what is tied, and the rest. Waits."""
        return self._laid_out(self._tied[0], self._own)

    def gradients(self) -> List[LayerParams]:
        """Likewise. Waits."""
        return self._laid_out([param.grad for param in self._tied[0]], [param.grad for param in self._own])

    def in_step(self) -> bool:
        """Are all replicas of the tied parameters the same bits? Waits."""
        return in_sync(self._tied)

    def bytes_moved(self, batch_size: int) -> int:
        """Halos, statistics and what is gathered, there and back; and the gradients."""
        itemsize = self._itemsize()
        numbers, others = 0, len(self.devices) - 1
        for layer, plan, shape, back in zip(self._image, self.exchanges, self._shapes, self._back):
            ways = 2 if back else 1
            if plan is not None and self.halo:
                halos = sum(halo.elements for step in plan.steps for halo in step)
                numbers += ways * halos * shape[0] * batch_size
            if isinstance(layer, BatchNorm):
                numbers += traffic.statistics_bytes(len(self.devices), shape[0], 1, back)
        features = self._shapes[len(self._image)]
        first = self._spans(features)[0]
        rest = traffic.elements(features) - features[0] * traffic.elements(tuple(stop - start for start, stop in first))
        back = self._back[len(self._image)]
        numbers += (2 if back else 1) * rest * batch_size if others else 0
        return numbers * itemsize + self._gradient_bytes()

    def param_bytes(self) -> List[int]:
        """The tied parameters everywhere, the others on the first device."""
        tied = [sum(map(traffic.nbytes, replica)) for replica in self._tied]
        return [tied[0] + sum(map(traffic.nbytes, self._own)), *tied[1:]]

    def lasting_bytes(self, batch_size: int) -> List[int]:
        """Parameters and gradients. What the gradients' all-reduce keeps for what arrives is left out."""
        return [2 * each for each in self.param_bytes()]

    def peak_bytes(self, batch_size: int) -> List[int]:
        """Predicted (:mod:`mxdp.parallel.footprint`)."""
        footprints = [self._footprint(tile, batch_size) for tile in range(len(self.devices))]
        features, *sizes = (batch_size * traffic.elements(shape) for shape in self._shapes[len(self._image) :])
        if len(self.devices) > 1:
            footprints[0].replace(features)
        for layer, size in zip(self._head, sizes):
            footprints[0].add(layer, size)
        return [each.peak() * self._itemsize() for each in footprints]

    def _footprint(self, tile: int, samples: int) -> Footprint:
        """Of the layers before the first dense one."""

        def size(shape: Shape) -> int:
            (top, bottom), (left, right) = self._spans(shape)[tile]
            return samples * shape[0] * (bottom - top) * (right - left)

        footprint = Footprint(size(self._shapes[0]))
        footprint.keep()
        for layer, plan, shape, after, back in zip(
            self._image, self.exchanges, self._shapes, self._shapes[1:], self._back
        ):
            if plan is not None:
                for _ in filter(None, plan.steps):
                    footprint.replace(size(shape), back)  # the copy of what it keeps
                for area in plan.areas(tile):
                    footprint.replace(samples * shape[0] * area, back)
                if back and any(plan.steps):
                    footprint.keep()
                    footprint.cut()
            footprint.add(layer, size(after), split=len(self.devices) > 1)
        return footprint

    def _cut(self, X: Batch) -> List[NDArray]:
        if tuple(X.shape[1:]) != self._shapes[0]:
            raise ValueError(f"the net was made for samples of shape {self._shapes[0]}, not {tuple(X.shape[1:])}")
        spans = self._spans(self._shapes[0])
        return [
            traffic.load(X[:, :, slice(*rows), slice(*columns)], device)
            for (rows, columns), device in zip(spans, self.devices)
        ]

    def _spans(self, shape: Shape) -> List[Tuple[Bounds, Bounds]]:
        """Rows and columns of each tile of a picture of that shape."""
        rows, columns = (bounds(side, parts) for side, parts in zip(shape[1:], self.grid))
        return [(row, column) for row in rows for column in columns]

    def _forward(self, xs: Sequence[NDArray]) -> NDArray:
        replicas = [traffic.like(self._layouts[0], replica) for replica in self._tied]
        for number, (layer, plan, back) in enumerate(zip(self._image, self.exchanges, self._back)):
            own = [replica[number] for replica in replicas]
            if isinstance(layer, BatchNorm):
                statistics = traffic.moments_of_all(xs, self.traffic, back)
                xs = [normalise(x, *both, *params) for x, both, params in zip(xs, statistics, own)]
                continue
            if plan is not None and isinstance(layer, (Conv, Pool)):
                xs, layer = self._exchange(xs, plan, layer, back), replace(layer, padding=0)
            xs = [apply(layer, x, params) for x, params in zip(xs, own)]
        x = self._gather(xs)
        for layer, params in zip(self._head, traffic.like(self._layouts[1], self._own)):
            x = apply(layer, x, params)
        return x

    def _exchange(self, xs: Sequence[NDArray], plan: Exchange, layer: Layer, back: bool) -> List[NDArray]:
        """Each tile with its halo, and with the layer's padding where it lies at the picture's border."""
        for axis in (0, 1):
            xs = self._extend(xs, plan, axis, back)
        fill = -float("inf") if isinstance(layer, Pool) and layer.kind == "max" else 0.0
        return [_padded(x, [piece.padding for piece in plan.pieces(tile)], fill) for tile, x in enumerate(xs)]

    def _extend(self, xs: Sequence[NDArray], plan: Exchange, axis: int, back: bool) -> List[NDArray]:
        """One step of the exchange: along ``axis`` 0 (rows) or 1 (columns)."""
        pieces = [plan.pieces(tile)[axis] for tile in range(len(xs))]
        own = [traffic.set_apart(x, back) for x in xs] if plan.steps[axis] else xs
        parts = [
            [(piece.kept, _strip(x, axis, piece.kept, piece.own[0]))] if piece.kept[0] < piece.kept[1] else []
            for x, piece in zip(own, pieces)
        ]
        for halo in plan.steps[axis]:
            span, target = (halo.rows, halo.columns)[axis], self.devices[halo.target]
            strip = _strip(xs[halo.source], axis, span, pieces[halo.source].own[0])
            if self.halo:
                strip = self.traffic.send(strip, target, HALO, back)
            else:
                strip = np.zeros(strip.shape, dtype=strip.dtype, ctx=target)
            parts[halo.target].append((span, strip))
        return [_joined([strip for _, strip in sorted(held, key=lambda each: each[0])], 2 + axis) for held in parts]

    def _gather(self, xs: Sequence[NDArray]) -> NDArray:
        """The whole pictures on the first device."""
        back = self._back[len(self._image)]
        arrived = [self.traffic.send(x, self.devices[0], GATHER, back) for x in xs]
        columns = self.grid[1]
        rows = [_joined(arrived[start : start + columns], 3) for start in range(0, len(arrived), columns)]
        return _joined(rows, 2)

    def _gradient_bytes(self) -> int:
        if self._sync is None:
            return 0
        itemsize = self._itemsize()
        return sum(
            traffic.allreduce_bytes(bucket.algorithm, self.devices, bucket.nbytes // itemsize, itemsize)
            for bucket in self._sync.buckets
        )

    def _itemsize(self) -> int:
        return traffic.itemsize([*self._tied[0], *self._own][0])

    def _laid_out(self, image: Sequence[NDArray], head: Sequence[NDArray]) -> List[LayerParams]:
        layouts = zip(self._layouts, (image, head))
        return traffic.to_host([layer for layout, arrays in layouts for layer in traffic.like(layout, arrays)])


def _window(layer: Layer) -> Optional[Window]:
    if isinstance(layer, Conv):
        return Window(layer.kernel, layer.stride, layer.padding)
    return Window(layer.kernel, layer.step, layer.padding) if isinstance(layer, Pool) else None


def _strip(x: NDArray, axis: int, span: Bounds, origin: int) -> NDArray:
    """Rows (``axis`` 0) or columns of a tile that begins at ``origin``."""
    start, stop = span[0] - origin, span[1] - origin
    if (start, stop) == (0, x.shape[2 + axis]):
        return x
    return x[:, :, start:stop] if axis == 0 else x[:, :, :, start:stop]


# MXNet's classic operators: np.concatenate takes 20 times as long along the last axis, and np.pad pads with zeros
# whatever it is given (1.9.1).
def _padded(x: NDArray, padding: Sequence[Tuple[int, int]], fill: float) -> NDArray:
    """``x`` with rows and columns of ``fill`` around it: ``padding`` is ((above, below), (left, right))."""
    if not any(map(any, padding)):
        return x
    width = (0, 0, 0, 0, *(side for pair in padding for side in pair))
    return mx.nd.pad(x.as_nd_ndarray(), mode="constant", pad_width=width, constant_value=fill).as_np_ndarray()


def _joined(parts: Sequence[NDArray], axis: int) -> NDArray:
    if len(parts) == 1:
        return parts[0]
    return mx.nd.concat(*[part.as_nd_ndarray() for part in parts], dim=axis).as_np_ndarray()
