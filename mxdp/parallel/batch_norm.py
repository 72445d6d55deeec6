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

Autograd can't differentiate a collective. So it goes back as far as the normalisation, which then gives the gradients
to go on with. (:class:`mxdp.parallel.data.Data` exchanges by copies, which autograd follows, and keeps no running
statistics.) All passes over x are MXNet's fused operator, since its sums over several axes take longer.

Sources: Ioffe and Szegedy, ICML 2015, section 3; for the variance of all shards Chan, Golub and LeVeque, COMPSTAT 1982.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Any, Callable, List, Sequence, Tuple

import numpy as onp

from mxdp.backend import NDArray, autograd, mx, np, npx, upload
from mxdp.collectives import AllReduce
from mxdp.collectives.allreduce import check_alike
from mxdp.layers import EPSILON

Same = Sequence[NDArray]
"""One array on each device, in the same order everywhere."""
Symbols = Tuple[Any, ...]


class SyncBatchNorm:
    """One batch normalisation in a network on several devices::

        with autograd.record():
            hs = [before(X) for X in X_shards]
            losses = [behind(y) for y in norm(hs)]
        autograd.backward(losses)                  # as far as the normalisation
        autograd.backward(hs, norm.backward())     # from there on

    To evaluate, give one device's arrays to ``npx.batch_norm`` with ``use_global_stats=True``. (Not run on a GPU.)

    Args:
        scales, shifts: parameters, an array (channels,) on each device, with a gradient: the sum over the device's
            shard, which backward writes or adds.
        means, variances: running statistics, likewise, without gradients. A call writes them in place, by MXNet's rule:
            ``momentum`` times the old ones, and the rest of the batch's. They stay equal, bit for bit.

    Raises a ValueError for arrays that don't fit each other, are not one on each device, or are given twice, and for
    other numbers than float32 or float64. A scale or shift without a gradient is refused, too, and a momentum that is
    not from 0 to 1.
    """

    def __init__(
        self,
        scales: Same,
        shifts: Same,
        means: Same,
        variances: Same,
        momentum: float = 0.9,
    ) -> None:
        check_alike(scales, "SyncBatchNorm")
        kinds = [_kind(x) for x in scales]
        for what, arrays in (("shifts", shifts), ("means", means), ("variances", variances)):
            if [_kind(x) for x in arrays] != kinds:
                raise ValueError(
                    f"SyncBatchNorm needs {what} like scales: as many, on the same devices, of one shape"
                )
        dtype = onp.dtype(scales[0].dtype)
        if dtype not in (onp.float32, onp.float64):
            raise ValueError(f"SyncBatchNorm takes float32 or float64, not {dtype}")
        if scales[0].ndim != 1 or any(x.grad is None for x in (*scales, *shifts)):
            raise ValueError(
                "SyncBatchNorm needs scales and shifts (channels,) with gradients: call attach_grad()"
            )
        if not 0 <= momentum <= 1:
            raise ValueError(
                f"momentum is the share of the old statistics, from 0 to 1, not {momentum!r}"
            )
        kept = [list(arrays) for arrays in (scales, shifts, means, variances)]
        if len(set(map(id, chain(*kept)))) < 4 * len(scales):
            raise ValueError(
                "SyncBatchNorm needs arrays of their own as scales, shifts, means and variances: one was given twice"
            )
        self._scales = kept[0]
        self._devices = [scale.ctx for scale in scales]
        self._arrays = tuple(kept)
        self._merge = _in_one_call(
            partial(_merged, momentum), "counts", "means", "inverses", "mean", "variance"
        )
        self._correct = _in_one_call(_correction, "a", "b", "scale", "variance", "counts")
        # [0]: a mean from each device; [1]: 1 / deviation. A sum with zeros in place of the others' is an all-gather.
        self._moments = [_zeros(scale, 2, len(scales)) for scale in scales]
        # Where each device writes its own: a row of both.
        self._shares = [
            (means[device], inverses[device])
            for device, (means, inverses) in enumerate(self._moments)
        ]
        self._gather = AllReduce(self._moments, "naive")
        self._sums = [_zeros(scale, 2) for scale in scales]
        self._reduce = AllReduce(self._sums, "naive")
        # Added to shift and scale: backward writes a and b as the gradients of these zeros, while those of shift and
        # scale may add up over several batches.
        self._zeros = [(_zeros(scale), _zeros(scale)) for scale in scales]
        for zeros, sums in zip(self._zeros, self._sums):
            autograd.mark_variables(zeros, list(sums))
        self._kept: List[Tuple[NDArray, ...]] = []

    def __call__(self, xs: Same) -> List[NDArray]:
        """Normalise ``xs``, a shard (n, channels) or (n, channels, height, width) on each device; n may differ. Doesn't
        wait. Raises a ValueError for shards that are elsewhere, empty or of other shapes, and for one number a channel.
        """
        self._check(xs)
        sizes = [[x.size / x.shape[1]] for x in xs]
        with autograd.pause(train_mode=True):
            shards = zip(xs, self._shares, self._moments, *self._arrays)
            for x, share, moments, *arrays in shards:
                moments[:] = 0
                # Scale and shift don't matter: only the statistics of x are used.
                _, *statistics = npx.batch_norm(
                    x, *arrays, eps=EPSILON, fix_gamma=False, output_mean_var=True
                )
                for value, place in zip(statistics, share):
                    value.copyto(place)
            self._gather()
        ys = []
        self._kept = []
        recording = autograd.is_recording()
        host = onp.array(sizes, dtype=xs[0].dtype)
        shards = zip(xs, self._moments, self._sums, self._zeros, *self._arrays)
        for x, (means, inverses), sums, (no_shift, no_scale), scale, shift, *running in shards:
            with autograd.pause():
                counts = upload(host, x.ctx)
                mean, variance, *new = self._merge(counts, means, inverses, *running)
                for value, place in zip(new, running):
                    value.copyto(place)
            x = x.detach()
            if recording:
                x.attach_grad()
                sums[:] = 0  # should no loss depend on this device's y
                self._kept.append((x, scale, mean, variance, counts))
            ys.append(_normalise(x, scale + no_scale, shift + no_shift, mean, variance))
        return ys

    def backward(self) -> List[NDArray]:
        """The gradients of the last ``xs``, after autograd has gone back from the losses. Doesn't wait. Raises a
        RuntimeError if the last call was not recorded, or its gradients were fetched already."""
        if not self._kept:
            raise RuntimeError(
                "SyncBatchNorm.backward needs a call inside autograd.record() before it, one for each"
            )
        kept = self._kept
        self._kept = []
        self._reduce()
        gradients = []
        for (x, scale, mean, variance, counts), sums in zip(kept, self._sums):
            factor, shift = self._correct(*sums, scale, variance, counts)
            # MXNet took the statistics for constants: x.grad is scale / deviation * dy.
            gradients.append(x.grad + _normalise(x, factor, shift, mean, variance))
        return gradients

    def _check(self, xs: Same) -> None:
        devices = [x.ctx for x in xs]
        if devices != self._devices:
            placed = ", ".join(map(str, self._devices))
            given = ", ".join(map(str, devices)) or "none"
            raise ValueError(
                f"SyncBatchNorm needs a shard on each of {placed}, in this order, not on {given}"
            )
        scale = self._scales[0]
        for x in xs:
            fits = x.shape[1:2] == scale.shape and x.dtype == scale.dtype
            if x.ndim not in (2, 4) or not fits:
                allowed = f"(n, {scale.size}) or (n, {scale.size}, height, width)"
                raise ValueError(
                    f"SyncBatchNorm takes shards {allowed} of its scales' dtype, not {x.shape}"
                )
            if x.shape[2:] != xs[0].shape[2:] or not x.size:
                raise ValueError(
                    f"SyncBatchNorm takes shards with samples, of one height and width, not {x.shape}"
                )
        if sum(x.size for x in xs) == scale.size:
            raise ValueError(
                "one number a channel has no variance: give SyncBatchNorm a larger batch"
            )


def _kind(x: NDArray) -> Tuple[Any, ...]:
    return x.ctx, x.shape, x.dtype


def _zeros(scale: NDArray, *shape: int) -> NDArray:
    """Zeros of this shape for each channel, beside ``scale``."""
    return np.zeros((*shape, scale.size), dtype=scale.dtype, ctx=scale.ctx)


def _merged(
    momentum: float,
    counts: Any,
    means: Any,
    inverses: Any,
    mean: Any,
    variance: Any,
) -> Symbols:
    """Mean and variance (channels,) of the whole batch, and the new running ones. ``means`` and ``inverses`` of the
    deviations have a row for each device, (devices, channels); ``counts`` is (devices, 1)."""
    shares = counts / counts.sum()
    m = (shares * means).sum(axis=0)
    v = (shares * (inverses**-2 + (means - m) ** 2)).sum(axis=0) - EPSILON
    new_mean = momentum * mean + (1 - momentum) * m
    new_variance = momentum * variance + (1 - momentum) * v
    return m, v, new_mean, new_variance


def _correction(a: Any, b: Any, scale: Any, variance: Any, counts: Any) -> Symbols:
    """What to multiply x' by, and what to add: -scale / deviation * b / N, -scale / deviation * a / N."""
    share = scale * (variance + EPSILON) ** -0.5 / -counts.sum()
    return share * b, share * a


def _in_one_call(function: Callable[..., Symbols], *names: str) -> Callable[..., Any]:
    """``function`` of arrays as one operator: for a few numbers a channel, Python's calls are what takes time."""
    variables = {name: mx.sym.var(name).as_np_ndarray() for name in names}
    graph = mx.sym.Group(function(**variables)).as_np_ndarray()
    order = [names.index(name) for name in graph.list_inputs()]
    operator = mx.nd.CachedOp(graph)

    def call(*arrays: NDArray) -> Any:
        return operator(*[arrays[number] for number in order])

    return call


def _normalise(
    x: NDArray,
    scale: NDArray,
    shift: NDArray,
    mean: NDArray,
    variance: NDArray,
) -> NDArray:
    return npx.batch_norm(
        x, scale, shift, mean, variance, eps=EPSILON, fix_gamma=False, use_global_stats=True
    )
