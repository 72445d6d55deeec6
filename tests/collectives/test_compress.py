"""Gradients in fewer bytes: what is sent, what is kept, and what a sum of some steps leaves."""

from __future__ import annotations

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.backend import autograd, devices, mx, np
from mxdp.collectives import GradientSync
from mxdp.collectives.compress import BFLOAT16, FLOAT16, FLOAT32, CompressedSync, largest, two_bits
from mxdp.scratch import get_params

FORMS = {"float32": FLOAT32, "float16": FLOAT16, "bfloat16": BFLOAT16, "2 bits": two_bits(0.5), "10 %": largest(0.1)}
FINITE = st.floats(-1e4, 1e4, width=32)
VECTORS = st.lists(FINITE, min_size=1, max_size=40)
ODD = st.sampled_from([onp.inf, -onp.inf, onp.nan])
ANY_VECTORS = st.lists(st.one_of(FINITE, ODD), max_size=40)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@given(numbers=ANY_VECTORS)
def test_what_was_said_once_is_said_again_in_the_same_bytes(form, numbers):
    x = onp.array(numbers, "float32")
    data = form.encode(x)
    said = form.decode(data, x.size)
    assert (said.dtype, said.shape) == (x.dtype, x.shape)
    if form is not FORMS["10 %"]:  # zeros that were sent may be others
        assert form.encode(said) == data
    onp.testing.assert_array_equal(said[~onp.isfinite(x)], x[~onp.isfinite(x)])
    assert onp.isfinite(said[onp.isfinite(x)]).all()


@given(numbers=VECTORS)
def test_halves_are_the_nearest(numbers):
    x = onp.array(numbers, "float32")
    assert FLOAT16.decode(FLOAT16.encode(x), x.size).tolist() == x.astype("float16").astype("float32").tolist()
    said = BFLOAT16.decode(BFLOAT16.encode(x), x.size)
    assert (said.view("<u4") & 0xFFFF == 0).all()
    assert (abs(said - x) <= abs(x) * 2**-8 + 1e-40).all()  # half of the distance to the next


def test_bfloat16_rounds_ties_to_even_and_not_down():
    x = onp.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1 - 3 * 2**-8], "float32")
    assert BFLOAT16.decode(BFLOAT16.encode(x), 4).tolist() == [1, 1 + 2**-6, 1 + 2**-7, -1 - 2**-6]


def test_two_bits_lie_as_in_mxnet():
    form = two_bits(0.5)
    data = form.encode(onp.array([0.5, -0.5, 0.49, 7, -9], "float32"))
    assert data == bytes([0b11100011, 0b10000000])
    assert form.decode(data, 5).tolist() == [0.5, -0.5, 0, 0.5, -0.5]
    assert len(form.encode(onp.zeros(1600, "float32"))) == 400


def test_the_largest_are_sent_with_their_places_and_of_equal_ones_the_first():
    form = largest(0.4)
    data = form.encode(onp.array([1, -3, 3, 2, -3], "float32"))
    assert len(data) == 2 * 8
    assert form.decode(data, 5).tolist() == [0, -3, 3, 0, 0]
    assert len(largest(0.001).encode(onp.ones(5, "float32"))) == 8, "at least one"


def replicas(n, start=1.0):
    return [get_params([np.full((3, 5), start), np.zeros(7)], device) for device in devices(n, "cpu")]


def fill(params, vector):
    for param, part in zip(params, onp.split(vector, [15])):
        param.grad[()] = np.array(part.reshape(param.shape), ctx=param.ctx)


def grads(params):
    return onp.concatenate([param.grad.asnumpy().ravel() for param in params])


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("form", [FORMS["2 bits"], FORMS["10 %"]], ids=["2 bits", "10 %"])
def test_with_feedback_nothing_is_lost_in_the_sum_of_many_steps(form, feedback):
    both, random = replicas(2), onp.random.RandomState(0)
    sync, said, given_ = CompressedSync(both, form, feedback), onp.zeros(22), onp.zeros(22)
    for _ in range(20):
        for params in both:
            vector = (random.randint(-64, 65, 22) / 32).astype("float32")
            fill(params, vector)
            given_ += vector
        sync()
        assert (grads(both[0]) == grads(both[1])).all()
        said += grads(both[0])
    assert ((said + sum(sync.kept) == given_).all()) == feedback


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@settings(max_examples=25, deadline=None)
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


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_parameters_without_elements_are_summed_too(form):
    both = [get_params([np.zeros((3, 0)), np.zeros((0,))], device) for device in devices(2, "cpu")]
    CompressedSync(both, form, feedback=True)()


@pytest.mark.parametrize(("form", "every"), [(FLOAT32, 1), (FLOAT32, 3), (FORMS["2 bits"], 1), (FORMS["10 %"], 1)])
def test_a_device_without_a_sample_adds_nothing(form, every):
    """In a loop of one's own, where nobody sets its gradient to zero: device 1 has the last sum there."""
    both = replicas(2)
    sync = CompressedSync(both, form, every=every)
    for step, used in enumerate((both, both[:1])):
        with autograd.record():
            losses = [8.0 * (params[0].sum() + params[1].sum()) for params in used]
        autograd.backward(losses)
        sync()
        if every == 1:
            expected = form.decode(form.encode(onp.full(22, 8.0, "float32")), 22) * len(used)
            assert (grads(both[0]) == expected).all()
            assert (grads(both[1]) == expected).all()
        else:
            assert (grads(both[0]) == 16).all(), "its own gradient, times the workers"
            assert (grads(both[1]) == (0 if step else 16)).all()


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


def lacks_a_gradient():
    return [[param.detach() for param in params] for params in replicas(2)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *[(lambda bad=bad: two_bits(bad), "threshold must be a finite number") for bad in (0, -1, "a", None, onp.nan)],
        *[(lambda bad=bad: largest(bad), "share ") for bad in (0, -0.1, 1.5, "a", None, onp.nan, True)],
        (lambda: CompressedSync(replicas(2), "float16"), "form must be one of"),
        (lambda: CompressedSync(replicas(2), FLOAT16, "yes"), "feedback is True or False"),
        *[(lambda bad=bad: CompressedSync(replicas(2), FLOAT16, every=bad), "every must be") for bad in (0, 1.5, True)],
        (lambda: CompressedSync([], FLOAT16), "devices must be different ones, at least one"),
        (lambda: CompressedSync([replicas(1)[0]] * 2, FLOAT16), "devices must be different"),
        (lambda: CompressedSync(lacks_a_gradient(), FLOAT16), "lacks a gradient"),
        (lambda: CompressedSync(replicas(1)[0], FLOAT16), "must be a list of arrays"),
        (lambda: CompressedSync([get_params([np.ones(2, dtype="float64")], mx.cpu())], FLOAT16), "of float32, not of"),
        (lambda: CompressedSync(replicas(2), FLOAT16, world=2), "world"),
    ],
)
def test_arguments_are_checked(make, message):
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("n", [1, 2])
def test_float32_every_step_is_the_plain_sum_bit_for_bit(n):
    plain, said = replicas(n), replicas(n)
    syncs, random = (GradientSync(plain), CompressedSync(said, FLOAT32)), onp.random.RandomState(0)
    for _ in range(3):
        for pair in zip(plain, said):
            vector = random.normal(size=22).astype("float32")
            for params in pair:
                fill(params, vector)
        for sync in syncs:
            sync()
        for one, other in zip(plain, said):
            assert grads(one).tobytes() == grads(other).tobytes()
    assert syncs[1].sent == 3 * 4 * 22


def test_after_local_steps_the_parameters_are_the_mean_of_those_that_went_apart():
    both, h, lr = replicas(2), 3, 0.25
    sync = CompressedSync(both, FLOAT32, every=h)
    local = [onp.concatenate([onp.ones(15), onp.zeros(7)]) for _ in both]
    for step in range(2 * h):
        for number, params in enumerate(both):
            fill(params, onp.full(22, number + step, "float32"))
        sync()
        for number, params in enumerate(both):
            for param in params:
                param[()] = param - lr / 2 * param.grad  # divided by the workers
            local[number] -= lr * (number + step)
        apart = [onp.concatenate([param.asnumpy().ravel() for param in params]) for params in both]
        if (step + 1) % h == 0:
            local = [sum(local) / 2] * 2
            local = [vector.copy() for vector in local]
        for found, expected in zip(apart, local):
            assert found.tolist() == expected.tolist()


def test_it_equals_mxnet_s_own_store():
    both, random = replicas(2), onp.random.RandomState(1)
    sync, store = CompressedSync(both, two_bits(0.5), feedback=True), mx.kv.create("device")
    store.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    store.init(0, mx.nd.zeros((22,)))
    for _ in range(5):
        vectors = [random.normal(size=22).astype("float32") for _ in both]
        arrays = [mx.nd.array(vector, ctx=params[0].ctx) for vector, params in zip(vectors, both)]
        for vector, params in zip(vectors, both):
            fill(params, vector)
        sync()
        store.pushpull(0, arrays, out=arrays)
        assert arrays[1].asnumpy().tolist() == grads(both[1]).tolist()
