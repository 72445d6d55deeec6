"""The loss, as a function."""

from __future__ import annotations

from mxdp.backend import NDArray, npx


def cross_entropy(y_hat: NDArray, y: NDArray) -> NDArray:
    """Softmax cross-entropy of each sample: (n,), from scores ``y_hat`` (n, classes) and labels ``y`` (n,).

    Doesn't wait.
    Not averaged: ``backward`` on it sums over the samples, and :func:`mxdp.sgd` divides by the whole batch.
    """
    return -npx.pick(npx.log_softmax(y_hat), y)
