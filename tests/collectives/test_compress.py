"""Gradients in fewer bytes: what is sent, what is kept, and what a sum of some steps leaves."""

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_numbers import UNSHRUNK

from mxdp.backend import autograd, devices, mx, np
from mxdp.collectives import GradientSync
from mxdp.collectives.compress import BFLOAT16, FLOAT16, FLOAT32, CompressedSync, largest, two_bits
from mxdp.scratch import get_params

FORMS = {"float32": FLOAT32, "float16": FLOAT16, "bfloat16": BFLOAT16, "2 bits": two_bits(0.5), "10 %": largest(0.1)}
FINITE = st.floats(-1e4, 1e4, width=32)
ODD = st.sampled_from([onp.inf, -onp.inf, onp.nan])
TIES = st.sampled_from([1 + 2**-8, 1 + 3 * 2**-8, -1 - 3 * 2**-8, 1 + 2**-8 + 2**-20, 0.5, -0.5])
"""In the middle between two of bfloat16, and a little more; and the thresholds."""
ANY_VECTORS = st.lists(st.one_of(FINITE, ODD, TIES), max_size=40)


def largest_by_numpy(x):
    """Of twenty numbers two, of twenty-one three."""
    size = onp.where(onp.isfinite(x), abs(x), onp.inf)
    sent = onp.argsort(-size, kind="stable")[: max(-(-len(x) // 10), sum(size == onp.inf))]
    return onp.where(onp.isin(range(len(x)), sent), x, 0)


def bfloat16_by_numpy(x):
    """Eight significant bits; a tie becomes even."""
    with onp.errstate(invalid="ignore"):
        _, exponent = onp.frexp(x.astype("float64"))
        step = 2.0 ** (onp.maximum(exponent, -125) - 8)
        return onp.where(onp.isfinite(x), onp.rint(x / step) * step, x)


BY_NUMPY = {
    "float32": lambda x: x,
    "float16": lambda x: x.astype("float16"),
    "bfloat16": bfloat16_by_numpy,
    "2 bits": lambda x: onp.where(onp.isfinite(x), onp.where(abs(x) < 0.5, 0, onp.copysign(0.5, x)), x),
    "10 %": largest_by_numpy,
}


@pytest.mark.parametrize("name", FORMS)
@given(numbers=ANY_VECTORS)
def test_each_form_says_what_numpy_says_and_the_same_again(name, numbers):
    form, x = FORMS[name], onp.array(numbers, "float32")
    data = form.encode(x)
    said = form.decode(data, x.size)
    assert (said.dtype, said.shape) == (x.dtype, x.shape)
    onp.testing.assert_array_equal(said, BY_NUMPY[name](x).astype("float32"))
    if name != "10 %":  # zeros that were sent may be others
        assert form.encode(said) == data
    onp.testing.assert_array_equal(x, onp.array(numbers, "float32"))
    said[:] = 7  # the caller's by now
    onp.testing.assert_array_equal(form.decode(data, x.size), BY_NUMPY[name](x).astype("float32"))


def test_two_bits_lie_as_in_mxnet():
    form = two_bits(0.5)
    data = form.encode(onp.array([0.5, -0.5, 0.49, 7, -9], "float32"))
    assert data == bytes([0b11100011, 0b10000000])
    assert form.decode(data, 5).tolist() == [0.5, -0.5, 0, 0.5, -0.5]
    assert len(form.encode(onp.zeros(1600, "float32"))) == 400


def replicas(n):
    return [get_params([np.ones((3, 5)), np.zeros(7)], device) for device in devices(n, "cpu")]


def fill(params, vector):
    ends = onp.cumsum([param.size for param in params])[:-1]
    for param, part in zip(params, onp.split(vector, ends)):
        param.grad[()] = np.array(part.reshape(param.shape), ctx=param.ctx)


def grads(params):
    return onp.concatenate([param.grad.asnumpy().ravel() for param in params])


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=20, phases=UNSHRUNK)
@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=12),
    n=st.integers(1, 4),
    feedback=st.booleans(),
    every=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_a_sum_with_its_rest_is_numpys_over_several_rounds(name, sizes, n, feedback, every, seed):
    """Also of steps on shards: then the parameters are the mean of those that went apart."""
    random, lr = onp.random.RandomState(seed), 0.25
    replicas_ = [get_params([np.ones(size) for size in sizes], device) for device in devices(n, "cpu")]
    sync = CompressedSync(replicas_, FORMS[name], feedback, every)
    rests, waiting = [0] * n, [0] * n
    own = [onp.ones(sum(sizes), "float32")] * n
    start, nbytes = own, 0
    for turn in range(1, 2 * every + 2):
        vectors = [(random.randint(-64, 65, sum(sizes)) / 32).astype("float32") for _ in range(n)]
        for params, vector in zip(replicas_, vectors):
            fill(params, vector)
        sync()
        waiting = [sum(pair) for pair in zip(waiting, vectors)]
        sums = [n * vector for vector in vectors]
        if turn % every == 0:
            whole = [sum(pair) for pair in zip(rests, waiting)]
            said = [BY_NUMPY[name](vector).astype("float32") for vector in whole]
            rests = [(vector - heard) * feedback for vector, heard in zip(whole, said)]
            sums, waiting, own = [sum(said)] * n, [0] * n, start
            nbytes += len(FORMS[name].encode(whole[0]))
        own = [held - lr / n * total for held, total in zip(own, sums)]
        start = own if turn % every == 0 else start
        for params, total in zip(replicas_, sums):
            onp.testing.assert_array_equal(grads(params), total)
            for param in params:
                param[()] = param - lr / n * param.grad  # divided by the workers
        for params, held in zip(replicas_, own):
            found = onp.concatenate([param.asnumpy() for param in params])
            onp.testing.assert_allclose(found, held, rtol=1e-6, atol=1e-6)
        for kept, pair in zip(sync.kept, zip(rests, waiting)):
            onp.testing.assert_array_equal(kept, sum(pair))
    assert sync.sent == nbytes


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@settings(max_examples=15, phases=UNSHRUNK)
@given(vectors=st.lists(st.lists(st.one_of(FINITE, ODD), min_size=22, max_size=22), min_size=2, max_size=2))
def test_infinity_and_nan_are_in_the_sum_as_in_a_full_sum_and_in_no_later_one(form, feedback, vectors):
    both = replicas(2)
    sync = CompressedSync(both, form, feedback)
    for params, vector in zip(both, vectors):
        fill(params, onp.array(vector, "float32"))
    sync()
    with onp.errstate(invalid="ignore"):
        full = onp.array(vectors, "float32").sum(axis=0)
    odd = ~onp.isfinite(full)
    for params in both:
        onp.testing.assert_array_equal(grads(params)[odd], full[odd])
        assert onp.isfinite(grads(params)[~odd]).all()
    for params in both:
        fill(params, onp.zeros(22, "float32"))
    sync()
    assert all(onp.isfinite(grads(params)).all() for params in both)


def test_what_float16_says_as_infinity_is_not_kept():
    (params,) = replicas(1)
    sync = CompressedSync([params], FLOAT16, feedback=True)
    for value, summed in ((1e6, onp.inf), (1.0, 1.0)):
        fill(params, onp.full(22, value, "float32"))
        sync()
        assert (grads(params) == summed).all()


def test_what_another_sum_adds_up_is_refused_until_it_is_summed():
    both = replicas(2)
    plain, sync = GradientSync(both), CompressedSync(both, FLOAT32)

    def passes():
        with autograd.record():
            losses = [params[0].sum() + params[1].sum() for params in both]
        autograd.backward(losses)

    with plain.no_sync():
        passes()
    passes()
    with pytest.raises(RuntimeError, match="no_sync has added up"):
        sync()
    plain()
    assert (grads(both[1]) == 4).all(), "nothing of what was added up is lost"
    passes()
    sync()
    assert (grads(both[1]) == 2).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *[(lambda bad=bad: two_bits(bad), "threshold must be a finite number") for bad in (0, "a", onp.nan)],
        *[(lambda bad=bad: largest(bad), "share ") for bad in (0, 1.5, "a", onp.nan, True)],
        (lambda: CompressedSync(replicas(2), "float16"), "form must be one of"),
        (lambda: CompressedSync(replicas(2), FLOAT16, "yes"), "feedback is True or False"),
        *[(lambda bad=bad: CompressedSync(replicas(2), FLOAT16, every=bad), "every must be") for bad in (0, 1.5, True)],
        (lambda: CompressedSync([replicas(1)[0]] * 2, FLOAT16), "devices must be different"),
        (lambda: CompressedSync([[param.detach() for param in replicas(1)[0]]], FLOAT16), "lacks a gradient"),
        (lambda: CompressedSync([get_params([np.ones(2, dtype="float64")], mx.cpu())], FLOAT16), "of float32, not of"),
        (lambda: CompressedSync(replicas(2), FLOAT16, world=2), "world"),
    ],
)
def test_arguments_are_checked(make, message):
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
