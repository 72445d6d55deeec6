"""How each engine sums gradients over its processes: a ``sync`` for :class:`mxdp.training.TrainStep`."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Callable, List, Sequence, Set, Tuple

from mxdp.backend import mx
from mxdp.collectives import GradientSync
from mxdp.experiments.lab import Case
from mxdp.experiments.lab.ranks import HOROVOD, MPI, SYNC
from mxdp.processes import World, world
from mxdp.scratch import Params

Sync = Callable[[], Any]


def join(case: Case) -> Tuple[World, Callable[[Sequence[Params]], Sync]]:
    """This process's place among those of ``case``, and what makes a ``sync`` for its replicas.

    Every ``sync`` leaves the sum over all processes in each gradient, and doesn't wait. Without an engine nothing is
    exchanged between processes.
    """
    if case.engine == MPI:
        ranks = world()
        return ranks, partial(GradientSync, world=ranks)
    return placed(case.process, case.processes), {SYNC: _by_stores, HOROVOD: _by_horovod}.get(case.engine, GradientSync)


def placed(rank: int, size: int) -> World:
    """A rank of an engine that is not mxdp's, on this host. It takes the part of a batch, and the GPUs, that a rank of
    mxdp's would."""
    ranks = World()
    ranks.rank, ranks.size, ranks.local_rank = rank, size, rank
    return ranks


@lru_cache(maxsize=None)
def store(engine: str) -> Any:
    """The store of this process: MXNet can't join its servers twice."""
    return mx.kv.create(engine)


_known: Set[int] = set()


def _by_stores(replicas: Sequence[Params]) -> Sync:
    """MXNet's own servers add up what all workers push; each pulls the sum."""
    servers, gradients = store(SYNC), _gradients(replicas)
    for key, gradient in enumerate(gradients):
        if key not in _known:
            servers.init(key, mx.nd.zeros_like(gradient))
            _known.add(key)

    def sync() -> None:
        for key, gradient in enumerate(gradients):
            servers.push(key, gradient, priority=-key)
        for key, gradient in enumerate(gradients):
            servers.pull(key, gradient, priority=-key)

    return sync


def _by_horovod(replicas: Sequence[Params]) -> Sync:
    """Horovod averages by default, since its ``step`` takes a process's own batch. Asked to, it adds up."""
    import horovod.mxnet as hvd

    hvd.init()
    gradients = _gradients(replicas)

    def sync() -> None:
        for key, gradient in enumerate(gradients):
            hvd.allreduce_(gradient, average=False, name=str(key), priority=-key)

    return sync


def _gradients(replicas: Sequence[Params]) -> List[Any]:
    (params,) = replicas
    return [param.grad.as_nd_ndarray() for param in params]
