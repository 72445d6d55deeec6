"""Data parallelism: all layers on every device, a shard of the batch on each.

Two devices, a batch of five::

    device 0   samples 0 1 2   all parameters   forward, backward  |  gradients  |  the same SGD step
    device 1   samples 3 4     all parameters   forward, backward  |   summed    |  the same SGD step

What :func:`mxdp.train_batch` does, as the common form. Sent: the gradients, whatever the batch; and for each batch
normalisation two numbers a channel, there and back, since the statistics are the whole batch's.

Source: Dive into Deep Learning, "Training on Multiple GPUs".
"""

from __future__ import annotations

from typing import List, Sequence

from mxdp.backend import Batch, Device, NDArray, autograd, np
from mxdp.collectives import GradientSync
from mxdp.layers import BatchNorm, LayerParams, Net, Shape, apply, normalise, outputs
from mxdp.parallel import traffic
from mxdp.parallel.footprint import Footprint
from mxdp.plans.partition import bounds
from mxdp.scratch import cross_entropy, get_params, in_sync, sgd, split_and_load, split_batch


class Data:
    """A replica on each device. Fulfils :class:`mxdp.parallel.strategy.Strategy`; all parameters are tied.

    Args:
        net, params: the network and its parameters, which are copied.
        input_shape: of one sample.
        devices: one or more.
        algorithm: of the gradients' all-reduce, as :class:`mxdp.GradientSync` takes it.

    Raises:
        ValueError: no devices, or one twice; a net that doesn't fit ``input_shape``; an unknown algorithm.
    """

    def __init__(
        self,
        net: Net,
        params: Sequence[LayerParams],
        input_shape: Shape,
        devices: Sequence[Device],
        algorithm: str = "auto",
    ) -> None:
        traffic.check_devices(devices)
        self.net, self.devices, self.traffic = list(net), list(devices), traffic.Traffic()
        self._shapes = [tuple(input_shape), *outputs(net, input_shape)]
        self._layout = [list(layer) for layer in params]
        self._replicas = [get_params(traffic.flat(params), device) for device in devices]
        self._sync = GradientSync(self._replicas, algorithm)
        self._back = traffic.has_gradient(self.net)

    def step(self, X: Batch, y: Batch) -> NDArray:
        """Forward, backward, gradients summed. Shards may be uneven.

        Raises:
            ValueError: as :func:`mxdp.split_batch`.
        """
        self.traffic.clear()
        X_shards, y_shards = split_batch(X, y, self.devices)
        with autograd.record():
            losses = [cross_entropy(*pair) for pair in zip(self._forward(X_shards), y_shards)]
        autograd.backward(losses)
        self._sync()
        for bucket in self._sync.buckets:
            self.traffic.note("gradients", traffic.BACKWARD, self._bucket_bytes(bucket.algorithm, bucket.nbytes))
        return self._join(losses, "losses")

    def update(self, lr: float, batch_size: int) -> None:
        """The same step on every replica."""
        for replica in self._replicas:
            sgd(replica, lr, batch_size)

    def scores(self, X: Batch) -> NDArray:
        """Forward pass of each shard on its device; joined on the first."""
        self.traffic.clear()
        return self._join(self._forward(split_and_load(X, self.devices)), "scores")

    def params(self) -> List[LayerParams]:
        """A copy of the first replica, on ``cpu(0)``. Waits."""
        return traffic.to_host(traffic.like(self._layout, self._replicas[0]))

    def gradients(self) -> List[LayerParams]:
        """A copy of the first replica's gradients, on ``cpu(0)``. Waits."""
        return traffic.to_host(traffic.like(self._layout, [param.grad for param in self._replicas[0]]))

    def in_step(self) -> bool:
        """Are all replicas the same bits? Waits."""
        return in_sync(self._replicas)

    def bytes_moved(self, batch_size: int) -> int:
        """Gradients, statistics, and the other devices' losses."""
        itemsize = self._itemsize()
        total = sum(self._bucket_bytes(bucket.algorithm, bucket.nbytes) for bucket in self._sync.buckets)
        for layer, shape, back in zip(self.net, self._shapes, self._back):
            if isinstance(layer, BatchNorm):
                total += traffic.statistics_bytes(len(self.devices), shape[0], itemsize, back)
        first = bounds(batch_size, len(self.devices))[0][1]
        return total + (batch_size - first) * itemsize

    def param_bytes(self) -> List[int]:
        """All parameters, on every device."""
        return [sum(map(traffic.nbytes, replica)) for replica in self._replicas]

    def lasting_bytes(self, batch_size: int) -> List[int]:
        """Parameters and gradients. What the gradients' all-reduce keeps for what arrives is left out."""
        return [2 * each for each in self.param_bytes()]

    def peak_bytes(self, batch_size: int) -> List[int]:
        """Predicted (:mod:`mxdp.parallel.footprint`)."""
        peaks = []
        for start, stop in bounds(batch_size, len(self.devices)):
            sizes = [(stop - start) * traffic.elements(shape) for shape in self._shapes]
            footprint = Footprint(sizes[0])
            footprint.keep()
            for layer, size in zip(self.net, sizes[1:]):
                footprint.add(layer, size, split=len(self.devices) > 1)
            peaks.append(footprint.peak() * self._itemsize())
        return peaks

    def _forward(self, xs: Sequence[NDArray]) -> List[NDArray]:
        """Scores of each shard, layer by layer on all devices, so that the statistics can be put together."""
        per_device = [traffic.like(self._layout, replica) for replica in self._replicas]
        for layer, back, *own in zip(self.net, self._back, *per_device):
            if isinstance(layer, BatchNorm):
                statistics = traffic.moments_of_all(xs, self.traffic, back)
                xs = [normalise(x, *both, *params) for x, both, params in zip(xs, statistics, own)]
            else:
                xs = [apply(layer, x, params) for x, params in zip(xs, own)]
        return list(xs)

    def _join(self, parts: Sequence[NDArray], what: str) -> NDArray:
        """In the batch's order, on the first device."""
        arrived = [self.traffic.send(part, self.devices[0], what, back=False) for part in parts]
        return np.concatenate(arrived) if len(arrived) > 1 else arrived[0]

    def _bucket_bytes(self, algorithm: str, nbytes: int) -> int:
        itemsize = self._itemsize()
        return traffic.allreduce_bytes(algorithm, self.devices, nbytes // itemsize, itemsize)

    def _itemsize(self) -> int:
        return traffic.itemsize(self._replicas[0][0])
