"""Synchronised batch normalisation: the statistics are those of the whole batch, whose shards lie on several devices.

N is how many numbers of a channel the whole batch has: samples, or samples x height x width. x' is the normalised x::

                device 0                              device 1
    forward     its shard's mean and deviation        its shard's mean and deviation
                                 all-gather: 2 numbers a channel
                the batch's mean and deviation        the same, bit for bit
                y = scale x' + shift                  y = scale x' + shift
    backward    a = sum of dy, b = sum of dy x'       a = sum of dy, b = sum of dy x'
                                 all-reduce: 2 numbers a channel
                dx = scale / deviation * (dy - (a + b x') / N)

Autograd can't differentiate a collective. So it goes back as far as the normalisation, which then says from which
gradients it goes on. All passes over x are MXNet's own fused operator, since its sums over several axes take longer.

Sources: Ioffe and Szegedy, "Batch Normalization", ICML 2015, section 3; for the variance of all shards from those of
each, Chan, Golub and LeVeque, COMPSTAT 1982.
"""

from __future__ import annotations

from typing import List, Sequence, Tuple

from mxdp.backend import NDArray, autograd, np, npx
from mxdp.collectives import all_gather, allreduce
from mxdp.collectives.allreduce import check_alike
from mxdp.layers import EPSILON

Same = Sequence[NDArray]
"""One array on each device, in the same order everywhere."""


class SyncBatchNorm:
    """One batch normalisation in a network on several devices::

        with autograd.record():
            hs = [before(X) for X in X_shards]
            losses = [behind(y) for y in norm(hs)]
        autograd.backward(losses)                  # as far as the normalisation
        autograd.backward(hs, norm.backward())     # from there on

    To evaluate, give one device's arrays to ``npx.batch_norm`` with ``use_global_stats=True``.

    Args:
        scales, shifts: parameters, an array (channels,) on each device, with a gradient, which each step overwrites:
            the sum over the device's shard.
        means, variances: running statistics, likewise, without gradients. A step writes them in place, as MXNet's own
            does: ``momentum`` times the old ones, and the rest of the batch's. They stay equal, bit for bit.

    Raises:
        ValueError: arrays of different shapes, dtypes or devices, two on one device, or none; a scale or shift without
            a gradient; a momentum that is not from 0 to 1.
    """

    def __init__(self, scales: Same, shifts: Same, means: Same, variances: Same, momentum: float = 0.9) -> None:
        check_alike(scales, "SyncBatchNorm")
        for what, arrays in (("shifts", shifts), ("means", means), ("variances", variances)):
            if [(x.ctx, x.shape, x.dtype) for x in arrays] != [(x.ctx, x.shape, x.dtype) for x in scales]:
                raise ValueError(f"SyncBatchNorm needs {what} like scales: as many, on the same devices, of one shape")
        if scales[0].ndim != 1 or any(x.grad is None for x in (*scales, *shifts)):
            raise ValueError("SyncBatchNorm needs scales and shifts (channels,) with gradients: call attach_grad()")
        if not 0 <= momentum <= 1:
            raise ValueError(f"momentum is the share of the old statistics, from 0 to 1, not {momentum!r}")
        self._scales, self._shifts, self._means, self._variances = scales, shifts, means, variances
        self._momentum = momentum
        self._kept: List[Tuple[NDArray, ...]] = []

    def __call__(self, xs: Same) -> List[NDArray]:
        """Normalise ``xs``, a shard (n, channels) or (n, channels, height, width) on each device; n may differ. Doesn't
        wait.

        Raises:
            ValueError: not one shard for each device; one is empty or has another shape; a single number a channel.
        """
        self._check(xs)
        total = sum(x.size for x in xs)
        ys, self._kept, recording = [], [], autograd.is_recording()
        with autograd.pause(train_mode=True):
            own = [_statistics(x.detach(), scale) for x, scale in zip(xs, self._scales)]
            gathered = [all_of.reshape(len(xs), 2, -1) for all_of in all_gather(own)]
        for x, all_of, *arrays in zip(xs, gathered, self._scales, self._shifts, self._means, self._variances):
            scale, shift, running_mean, running_variance = arrays
            with autograd.pause():
                parts = [(each.size / total, *statistics) for each, statistics in zip(xs, all_of)]
                mean = sum(share * its_mean for share, its_mean, _ in parts)
                spread = sum(share * (inverse**-2 + (its_mean - mean) ** 2) for share, its_mean, inverse in parts)
                variance = spread - EPSILON
                for running, new in ((running_mean, mean), (running_variance, variance)):
                    running[:] = self._momentum * running + (1 - self._momentum) * new
            x = x.detach()
            if recording:
                x.attach_grad()
                self._kept.append((x, scale, shift, mean, variance))
            ys.append(_normalise(x, scale, shift, mean, variance))
        return ys

    def backward(self) -> List[NDArray]:
        """The gradients of the last ``xs``, after autograd has gone back from the losses. Doesn't wait.

        Raises:
            RuntimeError: the last call was not recorded, or its gradients were fetched already.
        """
        if not self._kept:
            raise RuntimeError("SyncBatchNorm.backward needs a call inside autograd.record() before it, one for each")
        kept, self._kept = self._kept, []
        sums = [np.stack([shift.grad, scale.grad]) for _, scale, shift, _, _ in kept]
        allreduce(sums, "naive")
        total = sum(x.size for x, *_ in kept) // kept[0][1].size
        gradients = []
        for (x, scale, _, mean, variance), (a, b) in zip(kept, sums):
            share = scale / np.sqrt(variance + EPSILON) / total
            # MXNet took the statistics for constants: x.grad is scale / deviation * dy.
            gradients.append(x.grad + _normalise(x, -share * b, -share * a, mean, variance))
        return gradients

    def _check(self, xs: Same) -> None:
        scales = self._scales
        if [x.ctx for x in xs] != [scale.ctx for scale in scales]:
            placed, found = (", ".join(str(x.ctx) for x in arrays) or "none" for arrays in (scales, xs))
            raise ValueError(f"SyncBatchNorm needs a shard on each of {placed}, in this order, not on {found}")
        for x in xs:
            if x.ndim not in (2, 4) or (x.shape[1:2], x.dtype) != (scales[0].shape, scales[0].dtype):
                raise ValueError(
                    f"SyncBatchNorm takes shards (n, {scales[0].size}) or (n, {scales[0].size}, height, width) of its "
                    f"scales' dtype, not {x.shape}"
                )
            if x.shape[2:] != xs[0].shape[2:] or not x.size:
                raise ValueError(f"SyncBatchNorm takes shards with samples, of one height and width, not {x.shape}")
        if sum(x.size for x in xs) == scales[0].size:
            raise ValueError("one number a channel has no variance: give SyncBatchNorm a larger batch")


def _statistics(x: NDArray, like: NDArray) -> NDArray:
    """(2, channels): mean, and 1 / deviation, which is what MXNet's operator gives. The normalised x is not used."""
    one, zero = np.ones_like(like), np.zeros_like(like)
    _, *both = npx.batch_norm(x, one, zero, zero, one, eps=EPSILON, fix_gamma=False, output_mean_var=True)
    return np.stack(both)


def _normalise(x: NDArray, scale: NDArray, shift: NDArray, mean: NDArray, variance: NDArray) -> NDArray:
    return npx.batch_norm(x, scale, shift, mean, variance, eps=EPSILON, fix_gamma=False, use_global_stats=True)
