"""Trains LeNet in the processes of an engine, which sums gradients over them in its own way."""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import count
from typing import Any, Callable, Iterator, List, Sequence, Tuple

from mxdp.backend import HostArray, devices, mx, npx, upload
from mxdp.collectives import GradientSync
from mxdp.datasets import load
from mxdp.datasets.minibatches import Stream
from mxdp.experiments.lab import Case, Settings
from mxdp.experiments.lab.ranks import HOROVOD, MPI, SYNC
from mxdp.experiments.oracle import random_batch, same_bits, tolerances_of
from mxdp.processes import Ranks, world
from mxdp.scratch import Arrays, Params, Replicas, get_params, init_lenet, train_batch
from mxdp.training import TrainStep, train_steps

STEPS = 3
"""Steps that are compared with the serial run."""
CHECKED = 60
"""Samples of their batch."""
Sync = Callable[[], Any]
KEYS = count()
"""Keys of what servers are given: they can't be given a value twice under one key."""


def join(case: Case) -> Tuple[Ranks, Callable[[Sequence[Params]], Sync]]:
    """This process's place among those of ``case``, and what makes a ``sync`` for its replicas, which leaves the sum
    over all processes in each gradient, and doesn't wait. Without an engine nothing is exchanged between processes."""
    if case.engine == MPI:
        ranks = world()
        return ranks, partial(GradientSync, world=ranks)
    # An engine's rank on this host takes the part of a batch, and the GPUs, that a rank of mxdp's would.
    return Ranks(case.process, case.processes), {SYNC: _by_stores, HOROVOD: _by_horovod}.get(
        case.engine, GradientSync
    )


@lru_cache(maxsize=None)
def store(engine: str) -> Any:
    """The store of this process: MXNet can't join its servers twice."""
    return mx.kv.create(engine)


def _by_stores(replicas: Replicas) -> Sync:
    """MXNet's own servers add up what all workers push; each pulls the sum."""
    servers = store(SYNC)
    gradients = {key: gradient for gradient, key in zip(_gradients(replicas), KEYS)}
    for key, gradient in gradients.items():
        servers.init(key, mx.nd.zeros_like(gradient))

    def sync() -> None:
        for key, gradient in gradients.items():
            servers.push(key, gradient, priority=-key)
        for key, gradient in gradients.items():
            servers.pull(key, gradient, priority=-key)

    return sync


def _by_horovod(replicas: Replicas) -> Sync:
    """Horovod averages by default, since its ``step`` takes a process's own batch. Asked to, it adds up."""
    import horovod.mxnet as hvd

    hvd.init()
    gradients = _gradients(replicas)

    def sync() -> None:
        for key, gradient in enumerate(gradients):
            hvd.allreduce_(gradient, average=False, name=str(key), priority=-key)

    return sync


def _gradients(replicas: Replicas) -> List[Any]:
    (params,) = replicas
    return [param.grad.as_nd_ndarray() for param in params]


class TrainingRank:
    """This process of ``case``: its devices, its replicas, and its part of each batch of one stream of batches."""

    def __init__(self, case: Case, s: Settings) -> None:
        self.ranks, self._sync = join(case)
        self.devices = self.ranks.devices(case.devices, s.kind)
        self.batch_size = case.get("batch_size", s.batch_size)
        self.dataset = load(s.data, s.data_dir, seed=s.seed)
        self._stream = Stream(self.dataset.train, self.batch_size, s.seed)
        self._replicas, self.step = self._trained(init_lenet(s.seed), s.lr)

    def train(self, steps: int) -> None:
        """Train ``steps`` steps, to their end."""
        self.steps(self._stream.take(steps * self.batch_size), self.step)
        npx.waitall()

    def steps(self, batches: Any, step: Callable[..., Arrays]) -> Arrays:
        """Train on whole batches, of which this rank takes its part."""
        return train_steps(batches, step, self.ranks)

    def check(self, X: HostArray, y: HostArray, params: Params) -> List[List[List[HostArray]]]:
        """The parameters of its replicas after each of a few steps on one batch. Waits after the last one alone."""
        replicas, step = self._trained(params, 0.1)
        after = []
        for _ in range(STEPS):
            self.steps([(X, y)], step)
            after.append([[param.copy() for param in replica] for replica in replicas])
        trail = []
        for copies in after:
            trail.append([[param.asnumpy() for param in replica] for replica in copies])
        return trail

    def losses(
        self,
        X: HostArray,
        y: HostArray,
        params: Params,
        lr: float,
        steps: int,
    ) -> List[float]:
        """The sum of the losses of this rank's samples before each step on one batch."""
        _, step = self._trained(params, lr)
        return sums_of_losses(lambda: self.steps([(X, y)], step), steps)

    def _trained(self, params: Params, lr: float) -> Tuple[List[Arrays], TrainStep]:
        replicas = [get_params(params, device) for device in self.devices]
        return replicas, TrainStep(replicas, self.devices, lr, self._sync(replicas))


def sums_of_losses(step: Callable[[], Arrays], steps: int) -> List[float]:
    """The sum of all samples' losses that each of ``steps`` calls of ``step`` returns, device by device. Waits."""
    sums = []
    for _ in range(steps):
        sums.append(sum(float(losses.sum()) for losses in step()))
    return sums


def compare_ranks(case: Case, s: Settings, rank: TrainingRank) -> Iterator[Tuple[Any, ...]]:
    """For an oracle: this rank's replicas after each of a few steps, against the same step on one device, and bit for
    bit with rank 0's first. Without an exchange that step is on the same part of the batch."""
    X, y = random_batch(CHECKED, s.seed)
    start = init_lenet(s.seed, scale=0.1)  # larger ones, so that gradients are
    trail = rank.check(X, y, start)
    of_rank_0 = case.share(trail)[0]
    (device,) = devices(1, s.kind)
    alone = case.processes > 1 and not case.engine
    part = rank.ranks.shard(len(X)) if alone else slice(None)
    X_part = X[part]
    lr = 0.1 * len(X_part) / len(X)
    limits = tolerances_of(len(X))
    for replicas, (of_first, *_) in zip(trail, of_rank_0):
        serial = get_params(start, device)
        train_batch(X_part, y[part], [serial], [device], lr)
        for replica in replicas:
            for param, expected, first, limit in zip(replica, serial, of_first, limits):
                yield param, expected.asnumpy(), limit
                if not alone:
                    yield same_bits(param, first)
        start = [upload(param, mx.cpu()) for param in replicas[0]]
