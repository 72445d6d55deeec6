"""The common form of all strategies. The data that a step moves, and the part that grows with the batch::

    data        an all-reduce of all gradients                         only one loss a sample
    pipeline    the activations at each cut, and their gradients       everything
    layerwise   an all-reduce for each pair of layers and direction    everything
    sharded     gradients once, parameters once or twice               only one loss a sample
    tile        halos in both directions, an all-reduce of gradients   the halos
    combined    what each group moves, all-reduces over the groups     as in the groups

``Data``, ``FullySharded`` and ``Tile`` also move batch normalisations' statistics, which don't grow with the batch.
"""

from __future__ import annotations

from typing import Iterator, List, Optional, Sequence

from mxdp.backend import Batch, Devices, NDArray, check_device_list
from mxdp.collectives.buckets import BucketSync
from mxdp.collectives.gradients import GradientSync
from mxdp.layers import (
    BatchNorm,
    Layer,
    Net,
    Relu,
    Residual,
    Shape,
    apply,
    normalise,
    outputs,
)
from mxdp.parallel import traffic
from mxdp.parallel.footprint import Footprint
from mxdp.parallel.traffic import NetParams, flat, like, to_host
from mxdp.plans.partition import bounds
from mxdp.scratch import Arrays, Replicas, in_sync, sgd


class Strategy:
    """One network on several devices. A method waits only if its docstring says so.

    ``input_shape`` is that of one sample. ``params`` come from :func:`mxdp.layers.init`; the strategy copies them, or
    parts, to its devices. Raises a ValueError for no devices, one twice, or a net that doesn't fit ``input_shape``.

    Attributes:
        net, devices: as given.
        shapes: of the input and of each layer's output, for one sample.
        held: for each device, all parameters that it holds.
        buckets: of the gradients that an all-reduce sums.
        tied: how many parameters, the first of ``held``, all devices hold.
        least: the fewest samples that a batch may have. ``of``: what needs a sample each, devices or micro-batches.
        traffic: what the last step has sent.
    """

    held: List[Arrays]
    buckets: Sequence[BucketSync] = ()
    tied = 0
    least = 1
    of = "devices"
    _sync: Optional[GradientSync] = None

    def __init__(
        self,
        net: Net,
        params: NetParams,
        input_shape: Shape,
        devices: Devices,
    ) -> None:
        check_device_list(devices)
        self.net = list(net)
        self.devices = list(devices)
        self.traffic = traffic.Traffic()
        self.shapes: List[Shape] = [tuple(input_shape), *outputs(net, input_shape)]
        self._layout = [list(layer) for layer in params]
        self._back = traffic.has_gradient(self.net)

    def step(self, X: Batch, y: Batch) -> NDArray:
        """Forward and backward pass of a batch: the losses (samples,), in the batch's order, on the first device. Each
        gradient is then the sum over the whole batch, also where parameters are tied. Raises a TypeError for what is
        no array (NumPy's or MXNet's), a ValueError unless there is one label for each sample, and the batch can be
        split."""
        raise NotImplementedError

    def update(self, lr: float, batch_size: int) -> None:
        """The same SGD step on every parameter: ``param -= lr / batch_size * gradient``."""
        for params in self.held:
            sgd(params, lr, batch_size)

    def scores(self, X: Batch) -> NDArray:
        """Forward pass alone: (samples, outputs) on the first device. Raises likewise."""
        raise NotImplementedError

    def params(self) -> NetParams:
        """Copies of the parameters on ``cpu(0)``, joined where they are split, in the layout of ``params``. Waits."""
        return to_host(like(self._layout, flat(self.held)))

    def gradients(self) -> NetParams:
        """Copies of the gradients of the last step, in the same layout. Waits."""
        return to_host(like(self._layout, [param.grad for param in flat(self.held)]))

    def in_step(self) -> bool:
        """Whether tied parameters are equal on all devices, bit for bit. Waits."""
        return in_sync([params[: self.tied] for params in self.held])

    def gradients_moved(self) -> None:
        """Call it after another :class:`mxdp.GradientSync`, which sums tied gradients too, has moved the gradients."""
        self._sync = None
        self.buckets = ()

    def bytes_moved(self, batch_size: int) -> int:
        """Bytes that one step of ``batch_size`` samples sends between devices, all messages together."""
        raise NotImplementedError

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return traffic.itemsize(flat(self.held)[0])

    def param_bytes(self) -> List[int]:
        """Bytes of the parameters on each device. The gradients take as many again."""
        return [sum(map(traffic.nbytes, params)) for params in self.held]

    def lasting_bytes(self, batch_size: int) -> List[int]:
        """Bytes that stay on each device from step to step: parameters, gradients, buffers; but not all-reduces'."""
        return [2 * nbytes for nbytes in self.param_bytes()]

    def peak_bytes(self, batch_size: int) -> List[int]:
        """Predicted: the most bytes that :meth:`step` uses at a time besides the lasting ones, without all-reduces'."""
        return [self.itemsize * footprint.peak() for footprint in self.footprints(batch_size)]

    def footprints(self, batch_size: int) -> Iterator[Footprint]:
        """Give the footprint of each device. By default a shard of the batch passes all layers there."""
        n = len(self.devices)
        for start, stop in bounds(batch_size, n):
            sizes = traffic.sizes(self.shapes, stop - start)
            footprint = Footprint(sizes[0])
            footprint.keep()
            for layer, size in zip(self.net, sizes[1:]):
                footprint.add(layer, size, split=n > 1)
            yield footprint

    def gradient_bytes(self) -> List[int]:
        """Bytes that the all-reduce of each bucket of gradients moves."""
        return self._bucket_bytes(self.buckets, self.devices)

    def _bucket_bytes(self, buckets: Sequence[BucketSync], devices: Devices) -> List[int]:
        size = self.itemsize
        return [
            traffic.allreduce_bytes(bucket.algorithm, devices, bucket.nbytes // size, size)
            for bucket in buckets
        ]

    def statistics_bytes(self) -> int:
        """Bytes of all batch normalisations: two numbers a channel, there and back, and so their gradients."""
        channels = 0  # twice those whose statistics have gradients
        for layer, shape, back in zip(self.net, self.shapes, self._back):
            if isinstance(layer, BatchNorm):
                channels += 2 * shape[0] if back else shape[0]
            elif isinstance(layer, Residual):
                for norm, before in zip(layer.body, [shape, *outputs(layer.body, shape)]):
                    if isinstance(norm, BatchNorm):
                        channels += 2 * before[0]
        return (len(self.devices) - 1) * 4 * channels * self.itemsize

    def _refuse_residual(self, way: str) -> None:
        for number, layer in enumerate(self.net):
            if isinstance(layer, Residual):
                raise ValueError(
                    f"layer {number} is a Residual, which can't be cut {way}: use Data or FullySharded"
                )

    def _sum_gradients(self) -> None:
        """Sum the tied gradients over the devices, unless another object does."""
        if self._sync is not None:
            self._sync()
        for nbytes in self.gradient_bytes():
            self.traffic.note("gradients", traffic.BACKWARD, nbytes)

    def _pass_layer(
        self,
        layer: Layer,
        xs: Arrays,
        params: Replicas,
        back: bool,
    ) -> Arrays:
        """A layer's outputs on all devices. Batch normalisation takes the statistics of all parts of the batch."""
        if isinstance(layer, Residual):
            ends = []
            # For the body, then for the shortcut: on each device the layers with their parameters.
            for paths in zip(*[layer.paths(own) for own in params]):
                ys = xs
                for inner in zip(*paths):
                    inner_layer = inner[0][0]
                    replicas = [own for _, own in inner]
                    ys = self._pass_layer(inner_layer, ys, replicas, back=True)
                ends.append(ys)
            return [apply(Relu(), body + shortcut, []) for body, shortcut in zip(*ends)]
        if isinstance(layer, BatchNorm):
            shards = zip(xs, traffic.moments_of_all(xs, self.traffic, back), params)
            return [normalise(x, *both, *replica) for x, both, replica in shards]
        return [apply(layer, x, replica) for x, replica in zip(xs, params)]

    def _gather(self, parts: Arrays, what: str) -> NDArray:
        first = self.devices[0]
        arrived = [self.traffic.send(part, first, what, back=False) for part in parts]
        return traffic.joined(arrived)
