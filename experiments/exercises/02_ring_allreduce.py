"""Exercise 2: the ring all-reduce.

The same sums as in exercise 1, with no device in the middle. Each device cuts its array into as many chunks as there
are devices, and sends one chunk at a time to its right neighbour. Three devices, with the chunks a, b, c; capitals are
complete sums::

                  cpu(0)          cpu(1)          cpu(2)
    start         a0  b0  c0      a1  b1  c1      a2  b2  c2
    reduce-scatter: the right neighbour adds what arrives
    step 0        a0  b02 c0      a1  b1  c01     a12 b2  c2        0 -c-> 1   1 -a-> 2   2 -b-> 0
    step 1        A   b02 c0      a1  B   c01     a12 b2  C         0 -b-> 1   1 -c-> 2   2 -a-> 0
    all-gather: the right neighbour overwrites with what arrives
    step 0        A   b02 C       A   B   c01     a12 B   C         0 -a-> 1   1 -b-> 2   2 -c-> 0
    step 1        A   B   C       A   B   C       A   B   C         0 -c-> 1   1 -a-> 2   2 -b-> 0

With n devices each sends 2 (n - 1) chunks: less than two arrays, however many devices there are. All devices send in
the same step, so work out which chunk each one sends before any of them has changed.

You need: ``np.array_split(x, n)``, whose chunks are copies, the longer first; ``x.reshape(-1)``, the array as a
vector; ``np.concatenate(chunks)``; and what exercise 1 needs.

Read: experiments/lessons/02_allreduce.py, and `python -m mxdp.plans ring 3`.
Check: python -m mxdp.exercises check experiments/exercises/02_ring_allreduce.py
"""

from mxdp.backend import devices, np


def ring_allreduce(data):
    """Sum the arrays of ``data``, one on each device, in place. Their length need not be a multiple of the devices.

    >>> data = [np.array([1, 2, 3], ctx=devices(2)[0]), np.array([10, 20, 30], ctx=devices(2)[1])]
    >>> ring_allreduce(data)
    >>> print(*data)
    [11. 22. 33.] [11. 22. 33.]
    """
    raise NotImplementedError
