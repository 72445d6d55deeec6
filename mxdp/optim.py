"""Minibatch stochastic gradient descent, as a function."""

from __future__ import annotations

from typing import Sequence

from mxdp.backend import NDArray


def sgd(params: Sequence[NDArray], lr: float, batch_size: int) -> None:
    """Step every parameter, in place, against its gradient: ``param -= lr / batch_size * param.grad``. Doesn't wait.

    The gradient is a sum over the whole batch (all shards of it), so ``batch_size`` is the whole batch's too.
    """
    rate = lr / batch_size
    for param in params:
        param -= rate * param.grad
