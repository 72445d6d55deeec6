"""Exercise 4: one step of data-parallel training.

Every device holds a replica of the parameters, and gets a shard of the batch. One step on two devices::

                     cpu(0)                        cpu(1)
    split            shard 0 of the batch          shard 1 of the batch
    backward         gradient g0                   gradient g1
    all-reduce       g0 + g1        <--------->    g0 + g1
    update           w -= lr / n * (g0 + g1)       the same

n is the number of samples in the whole batch. The gradients are those of a sum over samples, so the step is that of
one device with the whole batch, to the last shard: also where the shards differ in length. Replicas that are equal
before the step are equal after it. With fewer samples than devices, the last devices have no shard: their gradients
are zero, and they take part in the all-reduce and in the update. (``param.grad`` holds what the last step left there.)

You need: ``split_and_load(x, devices)``, for at least as many samples as devices, and ``naive_allreduce(arrays)``
from mxdp.scratch (or your own); ``devices[: len(X)]``;
``autograd.record()`` and ``autograd.backward(list of losses)``; ``param.grad``.

Read: experiments/lessons/01_front_door.py.
Check: python -m mxdp.exercises check experiments/exercises/04_train_batch.py
"""

from mxdp.backend import autograd, devices, np
from mxdp.scratch import naive_allreduce, split_and_load


def train_batch(X, y, device_params, devices, lr, loss):
    """One step of SGD, in place, on samples ``X`` (n, ...) and labels ``y`` (n,).

    ``device_params[k]``: the parameters on ``devices[k]``, each with a gradient. ``loss(X, y, params)`` gives the loss
    of each sample (n,), on the device of its arguments.

    >>> w = [np.array([2.0], ctx=device) for device in devices(2)]
    >>> for param in w:
    ...     param.attach_grad()
    >>> train_batch(np.ones(4), np.zeros(4), [[w[0]], [w[1]]], devices(2), 0.5, lambda X, y, params: params[0] * X - y)
    >>> print(*w)  # each sample's gradient is 1, so each replica goes 0.5 down
    [1.5] [1.5]
    """
    raise NotImplementedError
