"""Synchronised batch normalisation: equal to MXNet's own on the whole batch, in one piece."""

from __future__ import annotations

import re
from contextlib import nullcontext

import numpy as onp
import pytest
from nets import devices
from serial import TOLERANCE

from mxdp.backend import autograd, np, npx
from mxdp.collectives import GradientSync
from mxdp.parallel import batch_norm
from mxdp.parallel.batch_norm import SyncBatchNorm
from mxdp.scratch import in_sync

MOMENTUM = 0.9
SHAPES = [(11, 5), (11, 4, 5, 3)]
CUTS = {1: [], 2: [7], 3: [4, 10]}
"""Of eleven samples: shards of 7 and 4; of 4, 6 and 1."""


def numbers(shape, dtype="float32", seed=0):
    """(x, dy, scale, shift): far from mean 0, where a difference of large sums would show."""
    random, channels = onp.random.RandomState(seed), shape[1:2]
    drawn = (
        random.normal(20, 1 / 8, shape),
        random.normal(1, 1, shape),
        random.normal(1, 0.3, channels),
        random.normal(size=channels),
    )
    return [array.astype(dtype) for array in drawn]


def put(array, device, gradient=False):
    copy = np.array(array, dtype=array.dtype, ctx=device)
    if gradient:
        copy.attach_grad()
    return copy


def shards(array, n, gradient=False):
    return [put(part, device, gradient) for part, device in zip(onp.split(array, CUTS[n]), devices(n))]


def arrays(shape, n, dtype="float32"):
    """scales, shifts, means and variances on n devices."""
    _, _, scale, shift = numbers(shape, dtype)
    first = [(scale, True), (shift, True), (onp.full_like(scale, 3), False), (onp.ones_like(scale), False)]
    return [[put(array, device, gradient) for device in devices(n)] for array, gradient in first]


def whole(shape, dtype, steps=2):
    """MXNet's, on one device: y, dx, the gradients of scale and shift, and the running statistics."""
    x, dy = (put(array, devices(1)[0], True) for array in numbers(shape, dtype)[:2])
    (scale,), (shift,), (mean,), (variance,) = arrays(shape, 1, dtype)
    for _ in range(steps):
        with autograd.record():
            y = npx.batch_norm(x, scale, shift, mean, variance, eps=1e-5, momentum=MOMENTUM, fix_gamma=False)
        y.backward(dy)
    return [array.asnumpy() for array in (y, x.grad, scale.grad, shift.grad, mean, variance)]


def split(shape, dtype, n, steps=2):
    """The same by n devices; of what each device has, a list."""
    xs, dys = (shards(array, n, gradient=True) for array in numbers(shape, dtype)[:2])
    scales, shifts, means, variances = arrays(shape, n, dtype)
    norm = SyncBatchNorm(scales, shifts, means, variances, MOMENTUM)
    for _ in range(steps):
        with autograd.record():
            hs = [shard * 1 for shard in xs]
            ys = norm(hs)
            heads = [y * head for y, head in zip(ys, dys)]
        autograd.backward(heads)
        autograd.backward(hs, norm.backward())
    gradients = [[array.grad for array in arrays] for arrays in (xs, scales, shifts)]
    return [[array.asnumpy() for array in arrays] for arrays in (ys, *gradients, means, variances)]


def differences(shape, dtype, n):
    """Of each of the six, the largest difference as a share of the largest number."""
    shares = []
    for number, (arrays, expected) in enumerate(zip(split(shape, dtype, n), whole(shape, dtype))):
        actual = [onp.concatenate(arrays)] if number < 2 else [sum(arrays)] if number < 4 else arrays
        shares.append(max(onp.abs(replica - expected).max() for replica in actual) / onp.abs(expected).max())
    return shares


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", SHAPES)
def test_it_equals_mxnets_on_the_whole_batch(shape, dtype, n):
    shares = differences(shape, dtype, n)
    # 20, with the deviation 1/8: rounding is 160 times as large a share of x - mean. MXNet's momentum is a float32.
    limits = [TOLERANCE[dtype] * 160] * 4 + [max(TOLERANCE[dtype], 1e-6)] * 2
    assert [difference for difference, limit in zip(shares, limits) if not difference <= limit] == [], shares


@pytest.mark.parametrize("shape", SHAPES)
def test_running_statistics_and_results_are_the_same_bits_on_all_devices(shape):
    scales, shifts, means, variances = arrays(shape, 3)
    SyncBatchNorm(scales, shifts, means, variances)(shards(numbers(shape)[0], 3))
    assert in_sync(list(zip(means, variances)))
    assert not (means[0] == 3).any()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_micro_batches_add_up_and_a_device_without_loss_counts_as_zero(n):
    """The second of two normalisations of unlike micro-batches has gradients that are not the sum of both."""

    def gradients(together):
        """Those of both inputs, and of the first scale."""
        scales, shifts, *running = arrays((11, 5), n, "float64")
        norm, sync = SyncBatchNorm(scales, shifts, *running), GradientSync(list(zip(scales, shifts)))
        of_inputs, of_scale = [], 0
        for seed in (0, 1):
            xs, dys = (shards(array, n) for array in numbers((11, 5), "float64", seed)[:2])
            if not together:
                norm = SyncBatchNorm(scales, shifts, *running)  # holds nothing of another micro-batch
            with sync.no_sync() if together and seed == 0 else nullcontext():
                with autograd.record():
                    ys = norm(xs)
                used = max(1, n - seed)  # the last device's y is in no loss of the second
                autograd.backward(ys[:used], dys[:used])
                of_inputs += [gradient.asnumpy() for gradient in norm.backward()]
            if seed == 1 or not together:
                sync()
                of_scale = of_scale + scales[0].grad.asnumpy()
        return [*of_inputs, of_scale]

    for one, other in zip(gradients(together=False), gradients(together=True)):
        onp.testing.assert_allclose(one, other, rtol=1e-12)


def broken(monkeypatch, part):
    """Without one of its three parts."""
    merged, AllReduce = batch_norm._merged, batch_norm.AllReduce

    def own_statistics(arrays):
        for number, moments in enumerate(arrays):
            moments[:] = moments[:, number : number + 1].copy()

    def collective(arrays, algorithm):
        if arrays[0].ndim == 3 and part == "statistics of the whole batch":
            return lambda: own_statistics(arrays)
        if arrays[0].ndim == 2 and part == "sums in backward":
            return lambda: None
        return AllReduce(arrays, algorithm)

    monkeypatch.setattr(batch_norm, "AllReduce", collective)
    if part == "larger shards weigh more":
        monkeypatch.setattr(batch_norm, "_merged", lambda m, counts, **others: merged(m, counts * 0 + 1, **others))


@pytest.mark.parametrize("part", ["statistics of the whole batch", "sums in backward", "larger shards weigh more"])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_lacks_a_part_is_found(monkeypatch, part, shape):
    broken(monkeypatch, part)
    shares = differences(shape, "float64", 2)
    assert shares[1] > 1e-3, shares


def test_gradients_are_fetched_once_and_only_after_a_recording():
    norm, xs = SyncBatchNorm(*arrays((11, 5), 2)), shards(numbers((11, 5))[0], 2)
    with autograd.record():
        ys = norm(xs)
    autograd.backward(ys)
    norm.backward()
    with pytest.raises(RuntimeError, match="one for each"):
        norm.backward()
    with autograd.record():
        norm(xs)
    assert onp.isfinite(norm(xs)[1].asnumpy()).all(), "without recording the statistics are the batch's, too"
    with pytest.raises(RuntimeError, match=r"inside autograd.record\(\)"):
        norm.backward()


def without_gradient(scales, *others):
    return ([put(scale.asnumpy(), scale.ctx) for scale in scales], *others)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda scales, *others: ([], *others), "the list is empty"),
        (lambda scales, *others: ([scales[0]] * 2, *others), "different devices, not on cpu(0), cpu(0)"),
        (lambda scales, shifts, *others: (scales, shifts[:1], *others), "needs shifts like scales"),
        (lambda a, b, means, d: (a, b, [mean[:2] for mean in means], d), "needs means like scales"),
        (lambda a, b, c, variances: (a, b, c, variances[::-1]), "needs variances like scales"),
        (without_gradient, "call attach_grad()"),
        (lambda *kinds: [[array.reshape(1, -1) for array in kind] for kind in kinds], "(channels,) with gradients"),
        (
            lambda *kinds: [[array.astype("float16") for array in kind] for kind in kinds],
            "float32 or float64, not float16",
        ),
        (lambda *kinds: (*kinds, 1.5), "from 0 to 1, not 1.5"),
        (lambda *kinds: (*kinds, float("nan")), "from 0 to 1, not nan"),
    ],
)
def test_bad_parameters_are_refused(change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        SyncBatchNorm(*change(*arrays((4, 3), 2)))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(2, 3)], "a shard on each of cpu(0), cpu(1), in this order, not on cpu(0)"),
        ([(2, 4), (2, 4)], "(n, 3) or (n, 3, height, width) of its scales' dtype, not (2, 4)"),
        ([(2, 3, 5), (2, 3, 5)], "not (2, 3, 5)"),
        ([(2, 3, 5, 5), (2, 3, 5, 4)], "of one height and width, not (2, 3, 5, 4)"),
        ([(2, 3, 5, 5), (2, 3)], "of one height and width, not (2, 3)"),
        ([(2, 3), (0, 3)], "shards with samples"),
    ],
)
def test_bad_shards_are_refused(shapes, message):
    norm = SyncBatchNorm(*arrays((4, 3), 2))
    with pytest.raises(ValueError, match=re.escape(message)):
        norm([put(onp.ones(shape, "float32"), device) for shape, device in zip(shapes, devices(2))])


def test_shards_of_another_dtype_or_order_and_a_single_number_are_refused():
    scales = arrays((4, 3), 2)
    xs = [put(onp.ones((2, 3), "float32"), device) for device in devices(2)]
    with pytest.raises(ValueError, match="in this order"):
        SyncBatchNorm(*scales)(xs[::-1])
    with pytest.raises(ValueError, match="of its scales' dtype"):
        SyncBatchNorm(*scales)([x.astype("float64") for x in xs])
    with pytest.raises(ValueError, match="one number a channel has no variance"):
        SyncBatchNorm(*arrays((4, 3), 1))([xs[0][:1]])
