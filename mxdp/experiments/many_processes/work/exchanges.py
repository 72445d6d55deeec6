"""How each engine sums gradients over its processes: a ``sync`` for :class:`mxdp.training.TrainStep`."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Callable, List, Sequence, Tuple

from mxdp.backend import mx
from mxdp.collectives import GradientSync
from mxdp.experiments.harness.exchanges import ALONE, HOROVOD, MPI, ONE, SYNC
from mxdp.processes import World, world
from mxdp.scratch import Params

Sync = Callable[[], Any]
Join = Callable[[], Tuple[World, Callable[[Sequence[Params]], Sync]]]


def join(engine: str) -> Tuple[World, Callable[[Sequence[Params]], Sync]]:
    """This process's place among those of ``engine``, and what makes a ``sync`` for its replicas.

    Every ``sync`` leaves the sum over all processes in each gradient, and doesn't wait.
    """
    return JOIN[engine]()


def _mxdp(ranks: World) -> Tuple[World, Callable[[Sequence[Params]], Sync]]:
    return ranks, partial(GradientSync, world=ranks)


def _alone() -> Tuple[World, Callable[[Sequence[Params]], Sync]]:
    """This process's shard; nothing is exchanged."""
    return placed(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])), GradientSync


def _stores() -> Tuple[World, Callable[[Sequence[Params]], Sync]]:
    """MXNet's own servers add up what all workers push; each pulls the sum."""
    store = mx.kv.create(SYNC)
    known: List[int] = []

    def prepare(replicas: Sequence[Params]) -> Sync:
        (params,) = replicas
        gradients = [param.grad.as_nd_ndarray() for param in params]
        for key, gradient in enumerate(gradients):
            if key not in known:
                store.init(key, mx.nd.zeros_like(gradient))
                known.append(key)

        def sync() -> None:
            for key, gradient in enumerate(gradients):
                store.push(key, gradient, priority=-key)
            for key, gradient in enumerate(gradients):
                store.pull(key, gradient, priority=-key)

        return sync

    return placed(store.rank, store.num_workers), prepare


def _horovod() -> Tuple[World, Callable[[Sequence[Params]], Sync]]:
    """Horovod averages by default, since its ``step`` takes a process's own batch. Asked to, it adds up."""
    import horovod.mxnet as hvd

    hvd.init()

    def prepare(replicas: Sequence[Params]) -> Sync:
        (params,) = replicas
        gradients = [param.grad.as_nd_ndarray() for param in params]

        def sync() -> None:
            for key, gradient in enumerate(gradients):
                hvd.allreduce_(gradient, average=False, name=str(key), priority=-key)

        return sync

    return placed(hvd.rank(), hvd.size()), prepare


def placed(rank: int, size: int) -> World:
    """A rank of an engine that is not mxdp's, on this host. It takes the part of a batch, and the GPUs, that a rank of
    mxdp's would."""
    ranks = World()
    ranks.rank, ranks.size, ranks.local_rank = rank, size, rank
    return ranks


JOIN: dict[str, Join] = {
    ONE: lambda: _mxdp(World()),
    MPI: lambda: _mxdp(world()),
    ALONE: _alone,
    SYNC: _stores,
    HOROVOD: _horovod,
}
