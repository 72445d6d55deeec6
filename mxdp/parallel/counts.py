"""What each strategy moves between devices and keeps on them, counted from its shape alone.

What a step moves, and which part of it grows with the batch::

    data        an all-reduce of all gradients                         only one loss a sample
    pipeline    the activations at each cut, and their gradients       everything
    layerwise   an all-reduce for each pair of layers and direction    everything
    tile        halos in both directions, an all-reduce of gradients   the halos
    combined    what each group moves, all-reduces over the groups     as in the groups

``Data`` and ``Tile`` also move the statistics of batch normalisations, which do not grow with the batch. Each strategy
inherits its counts from here. The counts read only its public attributes, and never an array's content.
:class:`mxdp.parallel.strategy.Strategy` says what the methods return.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from mxdp.backend import Device, NDArray
from mxdp.collectives.gradients import BucketSync, GradientSync
from mxdp.layers import BatchNorm, Net, Shape
from mxdp.parallel import traffic
from mxdp.parallel.footprint import Footprint, lasting_numbers, step_numbers
from mxdp.parallel.traffic import Traffic, elements
from mxdp.plans.layers.column_row import ALL_GATHER, ALL_REDUCE, ROWS, Segment
from mxdp.plans.layers.halo import Exchange, Grid, tiles
from mxdp.plans.partition import Bounds, bounds, pieces
from mxdp.plans.pipeline import PipelinePlan
from mxdp.scratch import sgd


class Counts:
    """What all strategies do and count alike.

    Attributes:
        net, devices: as given.
        shapes: of the input and of each layer's output, for one sample.
        held: for each device, all parameters that it holds.
        buckets: of the gradients that an all-reduce sums.
        tied: how many parameters, the first of ``held``, all devices hold.
    """

    net: Net
    devices: Sequence[Device]
    shapes: List[Shape]
    held: List[List[NDArray]]
    buckets: Sequence[BucketSync] = ()
    tied = 0
    _sync: Optional[GradientSync] = None

    def update(self, lr: float, batch_size: int) -> None:
        """The same SGD step on every parameter of every device. Doesn't wait."""
        for own in self.held:
            sgd(own, lr, batch_size)

    def gradients_moved(self) -> None:
        """To be called after another :class:`mxdp.GradientSync` has moved the gradients. It sums tied ones, too."""
        self._sync, self.buckets = None, ()

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return next(traffic.itemsize(param) for own in self.held for param in own)

    def param_bytes(self) -> List[int]:
        """Parameters on each device."""
        return [sum(map(traffic.nbytes, own)) for own in self.held]

    def lasting_bytes(self, batch_size: int) -> List[int]:
        """Parameters and gradients. The staging buffers of an all-reduce are left out."""
        return [2 * each for each in self.param_bytes()]

    def peak_bytes(self, batch_size: int) -> List[int]:
        """Predicted (:mod:`mxdp.parallel.footprint`). What an all-reduce needs while it runs is left out."""
        return [self.itemsize * footprint.peak() for footprint in self.footprints(batch_size)]

    def footprints(self, batch_size: int) -> Iterator[Footprint]:
        """The footprint on each device. By default a shard of the batch passes all layers there."""
        n = len(self.devices)
        for start, stop in bounds(batch_size, n):
            inputs, *sizes = ((stop - start) * elements(shape) for shape in self.shapes)
            footprint = Footprint(inputs)
            footprint.keep()
            for layer, size in zip(self.net, sizes):
                footprint.add(layer, size, split=n > 1)
            yield footprint

    def gradient_bytes(self) -> List[int]:
        """What the all-reduce of each bucket of gradients moves."""
        return [
            traffic.allreduce_bytes(bucket.algorithm, self.devices, bucket.nbytes // self.itemsize, self.itemsize)
            for bucket in self.buckets
        ]

    def statistics_bytes(self) -> int:
        """What all batch normalisations move."""
        return sum(
            traffic.statistics_bytes(len(self.devices), shape[0], self.itemsize, back)
            for layer, shape, back in zip(self.net, self.shapes, traffic.has_gradient(self.net))
            if isinstance(layer, BatchNorm)
        )


class DataCounts(Counts):
    """For :class:`mxdp.parallel.data.Data`."""

    def bytes_moved(self, batch_size: int) -> int:
        """Gradients, statistics, and the other devices' losses."""
        losses = batch_size - bounds(batch_size, len(self.devices))[0][1]
        return sum(self.gradient_bytes()) + self.statistics_bytes() + self.itemsize * losses


class PipelineCounts(Counts):
    """For :class:`mxdp.parallel.pipeline.Pipeline`."""

    plan: PipelinePlan
    cuts: Sequence[int]

    def bytes_moved(self, batch_size: int) -> int:
        """The activations at each cut, gradients of the same size, and the losses, to the first device."""
        numbers = sum(2 * elements(self.shapes[cut]) for cut in self.cuts) + 1
        return batch_size * numbers * self.itemsize if self.cuts else 0

    def scores_bytes(self, samples: int) -> int:
        """What :meth:`Pipeline.scores` moves: the activations at each cut, and the scores, to the first device."""
        numbers = sum(elements(self.shapes[place]) for place in (*self.cuts, -1))
        return samples * numbers * self.itemsize if self.cuts else 0

    def lasting_bytes(self, batch_size: int) -> List[int]:
        """See :func:`mxdp.parallel.footprint.lasting_numbers`."""
        return self._of_stages(lasting_numbers, batch_size)

    def peak_bytes(self, batch_size: int) -> List[int]:
        """See :func:`mxdp.parallel.footprint.step_numbers`."""
        return self._of_stages(step_numbers, batch_size)

    def _of_stages(self, numbers: Callable[..., int], batch_size: int) -> List[int]:
        return [
            self.itemsize * numbers(self.net[start:stop], self.shapes[start], self.plan, stage, batch_size)
            for stage, (start, stop) in enumerate(pieces(len(self.net), self.cuts))
        ]


class LayerwiseCounts(Counts):
    """For :class:`mxdp.parallel.layerwise.Layerwise`."""

    algorithm = "auto"
    """Of its all-reduces."""
    cuts: Sequence[str]
    spans: List[List[Bounds]]
    segments: List[Segment]
    traffic: Traffic

    @property
    def allreduces(self) -> Dict[str, int]:
        """How many all-reduces the last step (or the last :meth:`Layerwise.scores`) has done, by direction."""
        return {way: self.traffic.messages[ALL_REDUCE, way] for way in (traffic.FORWARD, traffic.BACKWARD)}

    def allreduce_bytes(self, count: int) -> int:
        """What one all-reduce of ``count`` numbers moves."""
        return traffic.allreduce_bytes(self.algorithm, self.devices, count, self.itemsize)

    def bytes_moved(self, batch_size: int) -> int:
        """The all-reduces, and the all-gather at the end."""
        total = 0
        for segment in self.segments:
            if not segment.split:
                continue
            ends = segment.layers[0], segment.layers[-1] + 1
            before, behind = (batch_size * elements(self.shapes[number]) for number in ends)
            total += self.allreduce_bytes(before) if segment.back else 0
            if segment.then == ALL_REDUCE:
                total += self.allreduce_bytes(behind)
            else:
                total += (len(self.devices) - 1) * behind * self.itemsize
        return total

    def lasting_bytes(self, batch_size: int) -> List[int]:
        """Parameters, gradients, and the zeros that stand for another device's bias."""
        zeros = sum(shape[0] for cut, shape in zip(self.cuts, self.shapes[1:]) if cut == ROWS)
        return [2 * each + zeros * self.itemsize for each in self.param_bytes()]

    def footprints(self, batch_size: int) -> Iterator[Footprint]:
        """Inputs of a segment, their gradients and the outputs are kept to the end of the step. At both ends of a
        segment the array is reshaped: MXNet copies it, but not its gradient."""
        sizes = [batch_size * elements(shape) for shape in self.shapes]
        for rank in range(len(self.devices)):
            footprint = Footprint(sizes[0])
            for segment in self.segments:
                made = sizes[segment.layers[0] if segment.layers else -1]
                footprint.keep(made * segment.back)
                footprint.replace(made, back=False)
                for number in segment.layers:
                    made = sizes[number + 1]
                    if segment.split and self.cuts[number] != ROWS:
                        start, stop = self.spans[number][rank]
                        made = made * (stop - start) // self.shapes[number + 1][0]
                    footprint.add(self.net[number], made)
                if segment is not self.segments[-1]:
                    footprint.replace(made, back=False)
                footprint.keep()
                footprint.cut()
                if segment.then == ALL_GATHER:
                    footprint.replace(sizes[segment.layers[-1] + 1], back=False)
            yield footprint


class TileCounts(Counts):
    """For :class:`mxdp.parallel.tile.Tile`."""

    grid: Grid
    halo: bool
    exchanges: List[Optional[Exchange]]

    def bytes_moved(self, batch_size: int) -> int:
        """Halos and the tiles that the first device gathers, both there and back; statistics; gradients."""
        ways = [2 if back else 1 for back in traffic.has_gradient(self.net)]
        numbers = sum(
            way * halo.elements * shape[0]
            for plan, shape, way in zip(self.exchanges, self.shapes, ways)
            if plan is not None and self.halo
            for step in plan.steps
            for halo in step
        )
        count = len(self.exchanges)
        features = self.shapes[count]
        numbers += ways[count] * (elements(features) - self._tile_size(0, features))
        return batch_size * numbers * self.itemsize + self.statistics_bytes() + sum(self.gradient_bytes())

    def footprints(self, batch_size: int) -> Iterator[Footprint]:
        """Tiles before the first dense layer; from there on whole samples, on the first device."""
        n, backs, count = len(self.devices), traffic.has_gradient(self.net), len(self.exchanges)
        for tile in range(n):
            sizes = [batch_size * self._tile_size(tile, shape) for shape in self.shapes[: count + 1]]
            footprint = Footprint(sizes[0])
            footprint.keep()
            for layer, plan, shape, own, made, back in zip(
                self.net, self.exchanges, self.shapes, sizes, sizes[1:], backs
            ):
                if plan is not None:
                    for _ in filter(None, plan.steps):
                        footprint.replace(own, back)  # the tile's copy of its own part (`set_apart`)
                    for area in plan.areas(tile):
                        footprint.replace(batch_size * shape[0] * area, back)
                    if back and any(plan.steps):
                        footprint.keep()
                        footprint.cut()
                footprint.add(layer, made, split=n > 1)
            if tile == 0:
                features, *sizes = (batch_size * elements(shape) for shape in self.shapes[count:])
                if n > 1:
                    footprint.replace(features)
                for layer, size in zip(self.net[count:], sizes):
                    footprint.add(layer, size)
            yield footprint

    def _tile_size(self, tile: int, shape: Shape) -> int:
        """Numbers of one sample in a tile."""
        (top, bottom), (left, right) = tiles(shape[1], shape[2], self.grid)[tile]
        return shape[0] * (bottom - top) * (right - left)


class CombinedCounts(Counts):
    """For :class:`mxdp.parallel.combined.Combined`."""

    groups: List[Any]
    width: int
    """Devices in a group."""
    syncs: Dict[int, GradientSync]
    """By the device's place in its group; -1: of what all devices hold."""

    def gradient_bytes(self) -> List[int]:
        """What the all-reduce of each bucket moves, between devices of the same place in all groups, or all devices."""
        devices = {place: self.devices if place < 0 else self.devices[place :: self.width] for place in self.syncs}
        return [
            traffic.allreduce_bytes(bucket.algorithm, devices[place], bucket.nbytes // self.itemsize, self.itemsize)
            for place, sync in self.syncs.items()
            for bucket in sync.buckets
        ]

    def bytes_moved(self, batch_size: int) -> int:
        """What the groups move, the gradients, and the losses of all groups but the first."""
        losses = batch_size - bounds(batch_size, len(self.groups))[0][1]
        moved = sum(group.bytes_moved(samples) for group, samples in self._in_groups(batch_size))
        return int(moved + sum(self.gradient_bytes()) + self.itemsize * losses)

    def lasting_bytes(self, batch_size: int) -> List[int]:
        """Those of each group, with a shard as its batch. Staging buffers of the all-reduces are left out."""
        return [each for group, samples in self._in_groups(batch_size) for each in group.lasting_bytes(samples)]

    def peak_bytes(self, batch_size: int) -> List[int]:
        """Those of each group, with a shard as its batch."""
        return [each for group, samples in self._in_groups(batch_size) for each in group.peak_bytes(samples)]

    def _in_groups(self, batch_size: int) -> List[Tuple[Any, int]]:
        """Each group, and how many samples it has."""
        return [
            (group, stop - start) for group, (start, stop) in zip(self.groups, bounds(batch_size, len(self.groups)))
        ]
