"""Ranks as threads of this process, where those that MPI starts would take seconds."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as onp

from mxdp.backend import mx, npx
from mxdp.processes import World


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
