"""Reduce-scatter and all-gather, the two halves of an all-reduce; and broadcast."""

from __future__ import annotations

from typing import List, Sequence

from mxdp.backend import NDArray, mx
from mxdp.collectives.allreduce import check_alike
from mxdp.collectives.program import Program, as_vector, chunk_views, divisions
from mxdp.plans.collective import rings, trees
from mxdp.plans.partition import offsets


def reduce_scatter(data: Sequence[NDArray], op: str = "sum") -> List[NDArray]:
    """Chunk i of the sum of ``data``, as a new vector on device i. Doesn't wait; ``data`` stays unchanged.

    The chunks, cut as by :func:`mxdp.plans.partition.bounds`, pass round a ring; their lengths differ by at most one,
    and may be 0. Args, errors: as for :func:`mxdp.allreduce`.
    """
    check_alike(data, "reduce_scatter")
    work = []
    for x in data:
        work.append(as_vector(x.copy()) if x.size else x.reshape(-1).as_nd_ndarray())
    schedule = rings.reduce_scatter(len(work))
    chunks = [chunk_views(schedule, vector) for vector in work]
    Program(schedule, chunks)()
    summed = [chunks[device][device] for device in range(len(work))]
    for divide in divisions(summed, op):
        divide()
    return [chunk.copy().as_np_ndarray() for chunk in summed]


def all_gather(chunks: Sequence[NDArray]) -> List[NDArray]:
    """A new vector on each device with the elements of all ``chunks``, the reverse of :func:`reduce_scatter`'s cut.

    ``chunks``: one array on each device, all of one dtype and any sizes; they stay unchanged. Doesn't wait. Raises a
    ValueError for an empty list, different dtypes, or two arrays on the same device.
    """
    check_alike([chunk.reshape(-1)[:0] for chunk in chunks], "all_gather")
    ends = offsets([chunk.size for chunk in chunks])
    size = ends[-1]
    whole = [mx.nd.empty((size,), chunk.ctx, chunk.dtype) for chunk in chunks]
    if size:
        parts = []
        for device, (chunk, vector) in enumerate(zip(chunks, whole)):
            views = [vector[start:stop] for start, stop in zip(ends, ends[1:])]
            if chunk.size:
                as_vector(chunk).copyto(views[device])
            parts.append(views)
        Program(rings.all_gather(len(whole)), parts)()
    return [vector.as_np_ndarray() for vector in whole]


def broadcast(data: Sequence[NDArray], source: int = 0) -> None:
    """Copy ``data[source]`` into all other arrays of ``data``, in place, down a binomial tree. Doesn't wait.

    ``data``: as for :func:`mxdp.allreduce`. Raises a ValueError as there, or if there is no such ``source``.
    """
    check_alike(data, "broadcast")
    spread(data, source)


def spread(data: Sequence[NDArray], source: int = 0) -> None:
    """:func:`broadcast` without checks; several arrays may lie on one device."""
    schedule = trees.broadcast(len(data), source)
    if data[0].size:
        Program(schedule, [[as_vector(x)] for x in data])()
