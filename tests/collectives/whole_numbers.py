"""Whole numbers, whose sums are exact; and ranks as threads of this process, where MPI would take seconds to start."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as onp
from hypothesis import Phase

from mxdp.backend import mx, np, npx
from mxdp.plans.cost.machine import Machine, Rate
from mxdp.processes import World

UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
"""Of examples that take a tenth of a second: to shrink one would take minutes."""


def inputs(n, shape, dtype="float32"):
    """One host array for each rank: (rank + 1) * (index mod 7) + rank; sums over 8 ranks stay exact in float16."""
    index = onp.arange(int(onp.prod(shape))) % 7
    return [((rank + 1) * index + rank).astype(dtype).reshape(shape) for rank in range(n)]


def on_devices(arrays):
    return [np.array(array, dtype=array.dtype, ctx=mx.cpu(rank)) for rank, array in enumerate(arrays)]


def turning_at(nbytes):
    """A machine on which "auto" takes doubling, with few messages, up to this many bytes, and then shared memory."""
    curve = ((1.0, 0.3625 / nbytes),)
    rate = Rate(1.0, curve, curve)
    return Machine(push=0.0, copy=rate, add=rate, add_more=0.0, cores=4)


class Thread(World):
    """A rank that is a thread of this process, and waits for the others at each exchange."""

    def __init__(self, rank, said, barrier):
        super().__init__()
        self.rank, self.size = rank, len(said)
        self._said, self._barrier = said, barrier

    def gather(self, value):
        self._said[self.rank] = value
        self._barrier.wait(60)
        heard = list(self._said)
        self._barrier.wait(60)
        return heard

    def sum(self, arrays, note=None):
        for array in arrays:
            array[:] = mx.nd.array(sum(self.gather(array.asnumpy())), dtype=array.dtype)

    def reduce_scatter(self, vector, note=None):
        whole = vector.asnumpy()
        shard = self.shard(whole.size)
        whole[shard] = sum(self.gather(vector.asnumpy()))[shard]
        vector[:] = mx.nd.array(whole, dtype=whole.dtype)

    def all_gather(self, vector):
        pieces = self.gather(vector.asnumpy()[self.shard(vector.size)])
        vector[:] = mx.nd.array(onp.concatenate(pieces), dtype=vector.dtype)


def on_ranks(ranks, work):
    """``work(world)`` on each."""
    said, barrier = [None] * ranks, threading.Barrier(ranks)

    def one(rank):
        npx.set_np()
        try:
            return work(Thread(rank, said, barrier))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(one, range(ranks)))
