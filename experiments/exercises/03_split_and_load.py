"""Exercise 3: split a batch, with a remainder.

Each device gets a shard of the batch: a run of samples that lie side by side. Their lengths differ by at most one, and
the longer shards come first::

    7 samples     1  2  3  4  5  6  7
    3 devices     cpu(0)   cpu(1) cpu(2)
                  1  2  3  4  5   6  7

Every sample is in exactly one shard, in the order of the batch, and keeps its dtype. With fewer samples than devices
the last shards are empty. The book's version needs a batch that the number of devices divides; an epoch seldom ends
with one.

You need: ``x[start:stop]``, some samples of x; ``x.copyto(device)``, a copy on a device.

Read: the part on split_and_load in experiments/lessons/01_front_door.py.
Check: python -m mxdp.exercises check experiments/exercises/03_split_and_load.py
"""

from mxdp.backend import devices, np


def split_and_load(x, devices):
    """Return a list with a shard of ``x`` (n, ...) for each of ``devices``, on that device.

    >>> for shard in split_and_load(np.array([1, 2, 3, 4, 5]), devices(2)):
    ...     print(shard, shard.ctx)
    [1. 2. 3.] cpu(0)
    [4. 5.] cpu(1)
    """
    raise NotImplementedError
