"""Exercise 6: gradient buckets.

An all-reduce of a small array costs as much as its start. So gradients travel together, in buckets. Backward produces
the last parameter's gradient first, and a bucket can travel as soon as it is full, while backward goes on::

    parameter     0     1     2     3     4
    bytes         6     2     3     3     1
    backward      <------------------------
    room for 6    [  0  ][ 2     1 ][ 4  3 ]      travels first: 4 and 3, with 4 bytes

Take the gradients in backward's order. A gradient goes into the current bucket if it fits; if not, it opens the next.
One that is larger than the room has a bucket of its own.

You need: Python's lists.

Read: `python -m mxdp.experiments run buckets`, and its picture in the report.
Check: python -m mxdp.exercises check experiments/exercises/06_fill_buckets.py
"""


def fill_buckets(nbytes, room):
    """Return the buckets, as lists of parameter numbers, in the order in which backward fills them.

    ``nbytes[i]``: the size of parameter i's gradient. ``room``: the most bytes in a bucket.

    >>> fill_buckets([6, 2, 3, 3, 1], room=6)
    [[4, 3], [2, 1], [0]]
    """
    raise NotImplementedError
