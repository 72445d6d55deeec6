"""Data parallelism: each device has all layers, and computes on a shard of the batch.

Two devices, a batch of five::

    device 0   samples 0 1 2   all parameters   forward, backward  |  gradients  |  the same SGD step
    device 1   samples 3 4     all parameters   forward, backward  |   summed    |  the same SGD step

This is :func:`mxdp.train_batch` in the form of a strategy. The devices send their gradients, whose size does not depend
on the batch. For each batch normalisation they also send two numbers a channel, there and back, because the statistics
are those of the whole batch.

Source: Dive into Deep Learning, "Training on Multiple GPUs".
"""

from __future__ import annotations

from typing import List, Sequence

from mxdp.backend import Batch, Device, NDArray, autograd, check_devices
from mxdp.collectives import GradientSync
from mxdp.layers import BatchNorm, LayerParams, Net, Shape, apply, normalise, outputs
from mxdp.parallel import traffic
from mxdp.parallel.counts import DataCounts
from mxdp.scratch import cross_entropy, get_params, in_sync, split_and_load, split_batch


class Data(DataCounts):
    """A replica on each device: a :class:`~mxdp.parallel.strategy.Strategy`. All parameters are tied.

    Args:
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
        check_devices(devices)
        self.net, self.devices, self.traffic = list(net), list(devices), traffic.Traffic()
        self.shapes = [tuple(input_shape), *outputs(net, input_shape)]
        self.held = [get_params(traffic.flat(params), device) for device in devices]
        self._layout = [list(layer) for layer in params]
        self._sync = GradientSync(self.held, algorithm)
        self.buckets, self.tied = self._sync.buckets, len(self.held[0])
        self._back = traffic.has_gradient(self.net)

    def step(self, X: Batch, y: Batch) -> NDArray:
        """Forward, backward, all-reduce of the gradients. Shards may be uneven.

        Raises:
            ValueError: as :func:`mxdp.split_batch`.
        """
        self.traffic.clear()
        X_shards, y_shards = split_batch(X, y, self.devices)
        with autograd.record():
            losses = [cross_entropy(*pair) for pair in zip(self._forward(X_shards), y_shards)]
        autograd.backward(losses)
        if self._sync is not None:
            self._sync()
        for nbytes in self.gradient_bytes():
            self.traffic.note("gradients", traffic.BACKWARD, nbytes)
        return self._gather(losses, "losses")

    def scores(self, X: Batch) -> NDArray:
        """Forward pass of each shard on its device. The first device gathers the scores."""
        self.traffic.clear()
        return self._gather(self._forward(split_and_load(X, self.devices)), "scores")

    def params(self) -> List[LayerParams]:
        """A copy of the first replica, on ``cpu(0)``. Waits."""
        return traffic.to_host(traffic.like(self._layout, self.held[0]))

    def gradients(self) -> List[LayerParams]:
        """A copy of the first replica's gradients, on ``cpu(0)``. Waits."""
        return traffic.to_host(traffic.like(self._layout, [param.grad for param in self.held[0]]))

    def in_step(self) -> bool:
        """Are all replicas equal, bit for bit? Waits."""
        return in_sync(self.held)

    def _forward(self, xs: Sequence[NDArray]) -> List[NDArray]:
        """Scores of each shard. All devices pass a layer before the next one, for the statistics of the whole batch."""
        replicas = [traffic.like(self._layout, replica) for replica in self.held]
        for layer, back, *own in zip(self.net, self._back, *replicas):
            if isinstance(layer, BatchNorm):
                statistics = traffic.moments_of_all(xs, self.traffic, back)
                xs = [normalise(x, *both, *params) for x, both, params in zip(xs, statistics, own)]
            else:
                xs = [apply(layer, x, params) for x, params in zip(xs, own)]
        return list(xs)

    def _gather(self, parts: Sequence[NDArray], what: str) -> NDArray:
        """All parts on the first device, in the batch's order."""
        return traffic.joined([self.traffic.send(part, self.devices[0], what, back=False) for part in parts])
