"""Synchronised batch normalisation: what one device makes of the whole batch."""

import re

import numpy as onp
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from nets import UNSHRUNK, devices

from mxdp.backend import autograd, np
from mxdp.layers import EPSILON, moments, normalise
from mxdp.parallel.batch_norm import SyncBatchNorm
from mxdp.scratch import in_sync


def put(array, device, gradient=False):
    copy = np.array(array, dtype=array.dtype, ctx=device)
    if gradient:
        copy.attach_grad()
    return copy


def parameters(n, channels, dtype="float32", random=onp.random):
    """Scales, shifts, running means and variances on n devices."""
    kinds = []
    for gradient in (True, True, False, False):
        values = random.normal(2, 0.5, channels).astype(dtype)
        kinds.append([put(values, device, gradient) for device in devices(n)])
    return kinds


@settings(max_examples=25, phases=UNSHRUNK)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    picture=st.sampled_from([(), (1, 1), (5, 3), (2, 7)]),
    channels=st.integers(1, 5),
    momentum=st.sampled_from([0.0, 0.5, 0.9, 1]),
    dtype=st.sampled_from(["float32", "float64"]),
    adds=st.booleans(),
    unused=st.booleans(),
)
def test_it_is_what_one_device_makes_of_the_whole_batch(sizes, picture, channels, momentum, dtype, adds, unused):
    """By autograd, over three batches; ``adds`` up gradients of scale and shift, or no loss depends on the last device:
    ``unused``. What was given or returned is overwritten before the next batch."""
    assume(sum(sizes) > 1)
    random, n, ends = onp.random.RandomState(0), len(sizes), onp.cumsum(sizes)[:-1]
    kinds = parameters(n, channels, dtype, random)
    scale, shift, mean, variance = [kind[0].astype("float64") for kind in kinds]
    for array in (*kinds[0], *kinds[1], scale, shift):
        array.attach_grad("add" if adds else "write")
    given_ = [list(kind) for kind in kinds]
    norm, used = SyncBatchNorm(*given_, momentum), max(1, n - unused)
    for kind in given_:
        kind.clear()
    for _ in range(3):
        shape = (sum(sizes), channels, *picture)
        # Far from mean 0, where a difference of large sums would show.
        whole, dy = random.normal(20, 1 / 8, shape).astype(dtype), random.normal(1, 1, shape).astype(dtype)
        xs = [put(part, device, True) for part, device in zip(onp.split(whole, ends), devices(n))]
        heads = [put(part, device) for part, device in zip(onp.split(dy, ends), devices(n))]
        with autograd.record():
            hs = [x * 1 for x in xs]
            ys = norm(hs)
        autograd.backward(ys[:used], heads[:used])
        back = norm.backward()
        autograd.backward(hs, back)
        dy[sum(sizes[:used]) :] = 0
        x, head = [np.array(array, dtype="float64").reshape(len(array), channels, -1, 1) for array in (whole, dy)]
        x.attach_grad()
        with autograd.record():
            moments_of_all = moments(x)
            y = normalise(x, *moments_of_all, scale, shift)
        y.backward(head)
        mean, variance = [
            momentum * old + (1 - momentum) * new.reshape(-1) for old, new in zip((mean, variance), moments_of_all)
        ]
        joined = [onp.concatenate([array.asnumpy() for array in arrays]) for arrays in (ys, [x.grad for x in xs])]
        gradients = [sum(array.grad.asnumpy() for array in kind[:used]) for kind in kinds[:2]]
        found = [*joined, *gradients, *[kind[0].asnumpy() for kind in kinds[2:]]]
        # Where terms cancel, as all of dx do with two numbers a channel, roundings are a share of the terms.
        least, most = float(moments_of_all[1].min()) + EPSILON, abs(dy).max()
        terms = [0, most * float(scale.max()) / least**0.5, most, most, 0, 0]
        # With a deviation of 1/8 around 20, rounding is 160 times as large a share of x - mean.
        limit = {"float32": 1e-2, "float64": 1e-9}[dtype]
        for array, known, size in zip(found, (y, x.grad, scale.grad, shift.grad, mean, variance), terms):
            assert array.dtype == onp.dtype(dtype)
            right = known.asnumpy().reshape(array.shape)
            assert abs(array - right).max() <= limit * max(abs(right).max(), size)
        assert in_sync(list(zip(*kinds[2:])))
        for array in (*ys, *back):
            array[:] = onp.nan


def shards(*shapes):
    return [put(onp.ones(shape, "float32"), device) for shape, device in zip(shapes, devices(4))]


def test_gradients_are_fetched_once_and_only_after_a_recording():
    norm, xs = SyncBatchNorm(*parameters(2, 3)), shards((2, 3), (1, 3))
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
        (lambda scales, *others: ([scales[0]] * 2, *others), "different devices, not on cpu(0), cpu(0)"),
        (lambda a, b, means, d: (a, b, [mean[:2] for mean in means], d), "needs means like scales"),
        (lambda a, b, c, variances: (a, b, c, variances[::-1]), "needs variances like scales"),
        (lambda a, b, c, d: (a, b, c, [d[0], c[1]]), "one was given twice"),
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
        SyncBatchNorm(*change(*parameters(2, 3)))


@pytest.mark.parametrize(
    ("xs", "message"),
    [
        (shards((2, 3)), "a shard on each of cpu(0), cpu(1), in this order, not on cpu(0)"),
        (shards((2, 3), (2, 3))[::-1], "in this order, not on cpu(1), cpu(0)"),
        (shards((2, 4), (2, 4)), "(n, 3) or (n, 3, height, width) of its scales' dtype, not (2, 4)"),
        ([x.astype("float64") for x in shards((2, 3), (2, 3))], "of its scales' dtype, not (2, 3)"),
        (shards((2, 3, 5, 5), (2, 3, 5, 4)), "of one height and width, not (2, 3, 5, 4)"),
        (shards((2, 3), (0, 3)), "shards with samples"),
    ],
)
def test_bad_shards_are_refused(xs, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        SyncBatchNorm(*parameters(2, 3))(xs)


def test_a_single_number_is_refused():
    with pytest.raises(ValueError, match="one number a channel has no variance"):
        SyncBatchNorm(*parameters(1, 3))(shards((1, 3)))
