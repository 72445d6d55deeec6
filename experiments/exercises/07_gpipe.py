"""Exercise 7: GPipe's schedule.

A network is cut into stages, one on each device, and a batch into micro-batches. F0 is micro-batch 0 forward through
one stage, B0 is its gradients back. Each takes one cycle. Three stages and four micro-batches::

    cycle     0   1   2   3   4   5   6   7   8   9   10  11
    stage 0   F0  F1  F2  F3                  B3  B2  B1  B0
    stage 1       F0  F1  F2  F3          B3  B2  B1  B0
    stage 2           F0  F1  F2  F3  B3  B2  B1  B0

A stage makes all its forward passes, then all its backward passes, the last micro-batch first. F needs the F of the
stage before in an earlier cycle; B needs the B of the stage behind. Nobody waits longer than that. The empty places
are the bubble.

You need: Python's lists.

Read: experiments/lessons/07_pipelines.py, and `python -m mxdp.plans gpipe 3`.
Check: python -m mxdp.exercises check experiments/exercises/07_gpipe.py
"""


def gpipe(stages, micro_batches):
    """Return a list for each stage, with a word for each cycle: "F0", "B0", or "" where the stage is idle.

    >>> for row in gpipe(2, 2):
    ...     print(row)
    ['F0', 'F1', '', '', 'B1', 'B0']
    ['', 'F0', 'F1', 'B1', 'B0', '']
    """
    raise NotImplementedError
