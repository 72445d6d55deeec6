"""Exercise 11: the two halves of an all-reduce.

A reduce-scatter adds up vectors and leaves chunk k of the sum on device k. An all-gather brings all chunks to every
device. One after the other they are an all-reduce. Sharded training (ZeRO, FSDP) keeps them apart: it adds up gradients
by a reduce-scatter, updates each shard on its own device, and fetches a layer's parameters by an all-gather. Three
devices, with the chunks a, b, c; capitals are complete sums::

                     cpu(0)          cpu(1)          cpu(2)
    data             a0  b0  c0      a1  b1  c1      a2  b2  c2
    reduce-scatter   A               B               C                  each device returns its chunk of the sum
    all-gather       A   B   C       A   B   C       A   B   C          each device returns the whole vector

With n devices and vectors of length N, all devices together send (n - 1) N numbers in either half, and no more: each
device sends its part of chunk k to device k alone, and its finished chunk to each other device once. (You may also send
one chunk a step around a ring, as in exercise 2.) If n doesn't divide N, the first chunks have one number more, as
``np.array_split`` cuts them. With fewer numbers than devices, the last chunks are empty.

You need: ``np.array_split(x, n)``, ``x.as_in_ctx(device)``, ``x.ctx``, ``x.size`` and ``np.concatenate(chunks)``.

Read: `python -m mxdp.plans reduce-scatter 3`, `python -m mxdp.plans fully-sharded 2`, and
experiments/lessons/06_other_splits.py.
Check: python -m mxdp.exercises check experiments/exercises/11_two_halves.py
"""

from mxdp.backend import devices, np


def allreduce(data):
    """Add up the vectors of ``data``, one on each device, in place. This one is put together already: it works as soon
    as both halves do."""
    for x, total in zip(data, all_gather(reduce_scatter(data))):
        x[:] = total


def reduce_scatter(data):
    """Return a list with chunk k of the sum of all vectors of ``data`` on device k.

    >>> data = [np.array([1, 2, 3], ctx=devices(2)[0]), np.array([10, 20, 30], ctx=devices(2)[1])]
    >>> print(*reduce_scatter(data))
    [11. 22.] [33.]
    """
    raise NotImplementedError


def all_gather(chunks):
    """Return a list with a vector on each device: all ``chunks``, of which one lies on each device, side by side.

    >>> chunks = [np.array([11, 22], ctx=devices(2)[0]), np.array([33], ctx=devices(2)[1])]
    >>> print(*all_gather(chunks))
    [11. 22. 33.] [11. 22. 33.]
    """
    raise NotImplementedError
