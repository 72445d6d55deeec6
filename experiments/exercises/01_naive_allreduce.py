"""Exercise 1: the naive all-reduce.

Every device holds an array of the same shape, such as its gradients. Afterwards every device holds the sum of all::

                   cpu(0)      cpu(1)      cpu(2)
    before         [1 2]       [10 20]     [100 200]
    device 0 adds     +  <-------  .           .
    all arrays        +  <-------------------  .
    and sends the     .  ------->  .           .
    sum back          .  ------------------->  .
    after          the sum     the sum     the sum

The sums are written into the arrays that were given ("in place"). Nothing is returned.

You need: ``x.ctx``, the device of an array; ``x.copyto(device)``, a copy on another device; ``x.copyto(y)``, which
overwrites y; ``x += y``, which adds to x in place, where both are on one device.

Read: the first part of experiments/lessons/02_allreduce.py.
Check: python -m mxdp.exercises check experiments/exercises/01_naive_allreduce.py
"""

from mxdp.backend import devices, np


def naive_allreduce(data):
    """Sum the arrays of ``data``, one on each device, in place.

    >>> data = [np.array([1, 2], ctx=devices(2)[0]), np.array([10, 20], ctx=devices(2)[1])]
    >>> naive_allreduce(data)
    >>> print(*data)
    [11. 22.] [11. 22.]
    """
    raise NotImplementedError
