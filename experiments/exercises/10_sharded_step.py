"""Exercise 10: an optimiser whose state is in shards (ZeRO, stage 1).

SGD with momentum keeps a velocity for each parameter. In plain data-parallel training every device keeps all of it.
Here each keeps the velocity of its shard alone, and updates that shard for all::

                     cpu(0)                        cpu(1)
    gradients        all of its own                all of its own
    reduce-scatter   the sum, of shard 0           the sum, of shard 1
    update           v0 = m v0 + sum / n           v1 = m v1 + sum / n
                     w0 -= lr v0                   w1 -= lr v1
    all-gather       w0, w1                        w0, w1

A device sends as much as in a ring all-reduce, and no more: to each other device the gradients of that device's shard,
then its own shard of the new parameters. n is the batch size.

You need: ``x[start:stop]``, ``x[start:stop] = y`` and ``x.as_in_ctx(device)``. Shards are cut as in exercise 3: the
velocities' lengths tell where. With fewer numbers than devices, the last shards are empty.

Read: `python -m mxdp.experiments run sharded-optimizer`.
Check: python -m mxdp.exercises check experiments/exercises/10_sharded_step.py
"""

from mxdp.backend import devices, np


def sharded_step(device_params, device_grads, velocities, lr, momentum, batch_size):
    """One step of SGD with momentum, in place.

    ``device_params[k]`` and ``device_grads[k]`` are vectors of the same length on device k; ``velocities[k]`` is the
    velocity of shard k, on device k.

    >>> params = [np.array([1, 2], ctx=device) for device in devices(2)]
    >>> grads = [np.array([1, 1], ctx=device) for device in devices(2)]
    >>> velocities = [np.array([0], ctx=device) for device in devices(2)]
    >>> sharded_step(params, grads, velocities, lr=0.5, momentum=0.9, batch_size=2)
    >>> print(*params, *velocities)
    [0.5 1.5] [0.5 1.5] [1.] [1.]
    """
    raise NotImplementedError
