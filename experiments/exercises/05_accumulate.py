"""Exercise 5: gradient accumulation.

A batch that is too large for the memory goes through the network in micro-batches. Their gradients are summed, and the
parameters change once, after the last::

    micro-batch     0          1          2
    backward        g0         g1         g2
    sum             g0         g0+g1      g0+g1+g2
    update                                w -= lr / n * (g0 + g1 + g2)

n is the number of samples in all micro-batches, so the step is that of the whole batch, also where the micro-batches
differ in length. All is on one device.

You need: ``autograd.record()``; ``loss.backward()``, which overwrites ``param.grad`` each time. (After
``param.attach_grad(grad_req="add")`` it adds to it instead. Who sets it to zero then?)

Read: experiments/lessons/01_front_door.py.
Check: python -m mxdp.exercises check experiments/exercises/05_accumulate.py
"""

from mxdp.backend import autograd, np


def accumulate(micro_batches, params, lr, loss):
    """One step of SGD, in place, with the summed gradient of ``micro_batches``, a list of (X, y).

    ``loss(X, y, params)`` gives the loss of each sample (n,). The function is called again for the next step.

    >>> w = np.array([2.0])
    >>> w.attach_grad()
    >>> parts = [(np.ones(3), np.zeros(3)), (np.ones(1) * 5, np.zeros(1))]
    >>> accumulate(parts, [w], 0.5, lambda X, y, params: params[0] * X - y)
    >>> print(w)  # the gradients are 3 and 5, of 4 samples: 2 - 0.5 * 8 / 4
    [1.]
    """
    raise NotImplementedError
