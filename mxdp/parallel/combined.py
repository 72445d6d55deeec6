"""Two splits at once: data parallelism over groups of devices, and another split inside each group.

Four devices, two groups, a batch of five::

                  layers or parts of layers
                   first      second
    group 0       cpu(0) ---- cpu(1)     samples 0 1 2      a row: another split, such as a pipeline, of one shard
                    |           |
    group 1       cpu(2) ---- cpu(3)     samples 3 4        a column: replicas, whose gradients an all-reduce sums

Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", SC 2021.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, Tuple

from mxdp.backend import Batch, Devices, NDArray, check_arrays
from mxdp.collectives import GradientSync
from mxdp.layers import Net, Shape
from mxdp.parallel import traffic
from mxdp.parallel.fully_sharded import FullySharded
from mxdp.parallel.pipeline import Pipeline
from mxdp.parallel.strategy import Strategy
from mxdp.parallel.traffic import NetParams
from mxdp.plans.partition import bounds
from mxdp.scratch import Arrays, in_sync


class Combined(Strategy):
    """A :class:`~mxdp.parallel.strategy.Strategy`: groups of neighbouring devices that each train on a shard.

    A step equals the serial run's, with one exception: **batch normalisation takes the statistics of each group's
    shard** (in a pipeline, of each micro-batch).

    Args:
        split: the strategy inside a group; ``options`` are its own. All pipelines are cut where the first one is.
        groups: how many; they must divide the devices evenly.
        algorithm: of the gradients' all-reduce, as :class:`mxdp.GradientSync` takes it.

    Raises a ValueError also if the groups don't divide the devices, or ``split`` is FullySharded.
    """

    def __init__(
        self,
        net: Net,
        params: NetParams,
        input_shape: Shape,
        devices: Devices,
        split: Callable[..., Strategy],
        groups: int = 2,
        algorithm: str = "auto",
        **options: Any,
    ) -> None:
        super().__init__(net, params, input_shape, devices)
        many = len(devices)
        if not isinstance(groups, int) or groups not in range(1, many + 1) or many % groups:
            raise ValueError(
                f"{many} devices can't be divided into {groups} groups of equal size: use a number of groups "
                f"that divides {many}, or other devices"
            )
        self.width = many // groups
        self.groups: List[Strategy] = []
        for start in range(0, many, self.width):
            group = split(net, params, input_shape, devices[start : start + self.width], **options)
            if isinstance(group, FullySharded):
                raise ValueError(
                    "FullySharded keeps sums in shards, which groups can't add up: use another split"
                )
            if isinstance(group, Pipeline):  # another would measure other times, and cut elsewhere
                options["cuts"] = group.cuts
            self.groups.append(group)
        first = self.groups[0]
        self.least = groups * first.least
        self.of = first.of
        self.held = [params for group in self.groups for params in group.held]
        self.columns = [self.held[place :: self.width] for place in range(self.width)]
        # Tied parameters are summed over all devices (-1), the others over the devices of a column.
        summed = {-1: [params[: first.tied] for params in self.held]}
        for place, column in enumerate(self.columns):
            summed[place] = [params[first.tied :] for params in column]
        self.syncs = {
            place: GradientSync(params, algorithm) for place, params in summed.items() if params[0]
        }
        for group in self.groups:
            group.gradients_moved()

    def step(self, X: Batch, y: Batch) -> NDArray:
        """Each group's step on its shard; then the gradients are summed over the groups."""
        traffic.check_label_count(X, y)
        self.traffic.clear()
        shards = zip(self.groups, self._shards(X), self._shards(y))
        losses = [group.step(*shard) for group, *shard in shards]
        for sync in self.syncs.values():
            sync()
        self._sum_gradients()
        return self._gather(losses, "losses")

    def scores(self, X: Batch) -> NDArray:
        """Each group's scores of its shard; the first device gathers them."""
        check_arrays(X=X)
        self.traffic.clear()
        scores = [group.scores(x) for group, x in zip(self.groups, self._shards(X))]
        return self._gather(scores, "scores")

    def params(self) -> NetParams:
        """Copies of the first group's parameters, on ``cpu(0)``. Waits."""
        return self.groups[0].params()

    def gradients(self) -> NetParams:
        """Copies of the first group's gradients, which are the sums over all groups, on ``cpu(0)``. Waits."""
        return self.groups[0].gradients()

    def in_step(self) -> bool:
        """Whether all groups are equal, bit for bit, and each group is in step. Waits."""
        return all(group.in_step() for group in self.groups) and all(map(in_sync, self.columns))

    def gradient_bytes(self) -> List[int]:
        """Bytes that the all-reduce of each bucket moves."""
        moved = []
        for place, sync in self.syncs.items():
            devices = self.devices if place < 0 else self.devices[place :: self.width]
            moved += self._bucket_bytes(sync.buckets, devices)
        return moved

    def bytes_moved(self, batch_size: int) -> int:
        """The groups' own bytes, those of the gradients, and of the losses of all groups but the first."""
        losses = batch_size - bounds(batch_size, len(self.groups))[0][1]
        moved = sum(group.bytes_moved(samples) for group, samples in self._in_groups(batch_size))
        return moved + sum(self.gradient_bytes()) + self.itemsize * losses

    def lasting_bytes(self, batch_size: int) -> List[int]:
        """The bytes of each group, with a shard as its batch."""
        result = []
        for group, samples in self._in_groups(batch_size):
            result.extend(group.lasting_bytes(samples))
        return result

    def peak_bytes(self, batch_size: int) -> List[int]:
        """The bytes of each group, with a shard as its batch."""
        result = []
        for group, samples in self._in_groups(batch_size):
            result.extend(group.peak_bytes(samples))
        return result

    def _in_groups(self, batch_size: int) -> Iterator[Tuple[Strategy, int]]:
        for group, (start, stop) in zip(self.groups, bounds(batch_size, len(self.groups))):
            yield group, stop - start

    def _shards(self, x: Batch) -> List[Batch]:
        if len(x) < self.least:
            least = self.groups[0].least
            parts = f" with {least} {self.of} each" if least > 1 else ""
            raise ValueError(
                f"a batch of {len(x)} is too small for {len(self.groups)} groups{parts}: use at least {self.least} "
                "samples, or fewer groups"
            )
        return [x[start:stop] for start, stop in bounds(len(x), len(self.groups))]

    def _gather(self, parts: Arrays, what: str) -> NDArray:
        """All groups' parts on the first device, in the batch's order; and the groups' own traffic is added."""
        for group in self.groups:
            self.traffic.add(group.traffic)
        return super()._gather(parts, what)
