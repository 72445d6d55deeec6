"""Data parallelism: each device has all layers, and computes on a shard of the batch.

Two devices, a batch of five::

    device 0   samples 0 1 2   all parameters   forward, backward  |  gradients  |  the same SGD step
    device 1   samples 3 4     all parameters   forward, backward  |   summed    |  the same SGD step

This is :func:`mxdp.train_batch` as a strategy (source: Dive into Deep Learning, "Training on Multiple GPUs"). The
devices send their gradients, and for each batch normalisation two numbers a channel, there and back, because the
statistics are those of the whole batch.
"""

from __future__ import annotations

from mxdp.backend import Batch, Devices, NDArray, autograd, check_device_list
from mxdp.collectives import GradientSync
from mxdp.layers import Net, Shape
from mxdp.parallel import traffic
from mxdp.parallel.strategy import Strategy
from mxdp.parallel.traffic import NetParams
from mxdp.plans.partition import bounds
from mxdp.scratch import Arrays, cross_entropy, get_params, split_and_load, split_batch


class Data(Strategy):
    """A replica on each device: a :class:`~mxdp.parallel.strategy.Strategy`. All parameters are tied. ``algorithm`` is
    that of the gradients' all-reduce, as :class:`mxdp.GradientSync` takes it."""

    def __init__(
        self,
        net: Net,
        params: NetParams,
        input_shape: Shape,
        devices: Devices,
        algorithm: str = "auto",
    ) -> None:
        super().__init__(net, params, input_shape, devices)
        self.held = [get_params(traffic.flat(params), device) for device in devices]
        self._sync = GradientSync(self.held, algorithm)
        self.buckets = self._sync.buckets
        self.tied = len(self.held[0])
        self.least = len(devices)

    def step(self, X: Batch, y: Batch) -> NDArray:
        """Forward, backward, all-reduce of the gradients. Shards may be uneven."""
        self.traffic.clear()
        X_shards, y_shards = split_batch(X, y, self.devices)
        check_device_list(self.devices, samples=len(X))
        with autograd.record():
            losses = [cross_entropy(*pair) for pair in zip(self._forward(X_shards), y_shards)]
        autograd.backward(losses)
        self._sum_gradients()
        return self._gather(losses, "losses")

    def scores(self, X: Batch) -> NDArray:
        """Forward pass of each shard on its device. The first device gathers the scores."""
        self.traffic.clear()
        shards = split_and_load(X, self.devices)
        check_device_list(self.devices, samples=len(X))
        return self._gather(self._forward(shards), "scores")

    def bytes_moved(self, batch_size: int) -> int:
        """Gradients, statistics, and the other devices' losses."""
        losses = batch_size - bounds(batch_size, len(self.devices))[0][1]
        return sum(self.gradient_bytes()) + self.statistics_bytes() + self.itemsize * losses

    def _forward(self, xs: Arrays) -> Arrays:
        """Scores of each shard, layer by layer on all devices, for the statistics of the whole batch."""
        replicas = [traffic.like(self._layout, replica) for replica in self.held]
        for layer, back, *params in zip(self.net, self._back, *replicas):
            xs = self._pass_layer(layer, xs, params, back)
        return list(xs)
