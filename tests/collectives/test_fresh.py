"""Which gradients count in a sum: those that backward has written since the last one, and where it was made to."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_numbers import UNSHRUNK

from mxdp.backend import autograd, mx, np, npx
from mxdp.collectives.compress import FLOAT32, CompressedSync
from mxdp.collectives.fresh import Fresh, gradients_of
from mxdp.collectives.gradients import GradientSync
from mxdp.collectives.sync import OwnSync
from mxdp.scratch import get_params, naive_allreduce

SHAPES = [(2, 3), (), (5,), (0, 4), (1,), (3, 0), (2, 0, 5)]


def replicas(n, shapes=SHAPES):
    return [get_params([np.zeros(shape) for shape in shapes], mx.cpu(rank)) for rank in range(n)]


def own_sync(device_params):
    def total():
        for same in zip(*device_params):
            naive_allreduce([param.grad for param in same])

    return OwnSync(device_params, total, "I can't sum")


def use(device_params, used):
    """A backward pass that writes ``factor`` as the gradient of each (rank, number)."""
    for rank, params in enumerate(device_params):
        with autograd.record():
            terms = [factor * params[number].sum() for (place, number), factor in used.items() if place == rank]
            loss = sum(terms)
        if terms:
            loss.backward()


@pytest.mark.parametrize("make", [GradientSync, own_sync, lambda replicas: CompressedSync(replicas, FLOAT32)])
@settings(max_examples=15, phases=UNSHRUNK)
@given(n=st.integers(1, 4), count=st.integers(1, 12), seed=st.integers(0, 99))
def test_what_backward_has_not_written_since_the_last_sum_counts_as_zero(make, n, count, seed):
    """Some devices have no sample in a step, some parameters are not used. Parts are the caller's to update."""
    random = onp.random.RandomState(seed)
    device_params = replicas(n, [tuple(map(int, random.randint(0, 4, 2))) for _ in range(count)])
    sync = make(device_params)
    for _ in range(4):
        used = {(r, p): random.randint(1, 9) for r in range(n) for p in range(count) if random.randint(2)}
        use(device_params, used)
        sync()
        totals = [sum(factor for (_, place), factor in used.items() if place == p) for p in range(count)]
        for params in device_params:
            for param, total in zip(params, totals):
                onp.testing.assert_array_equal(param.grad.asnumpy(), onp.full(param.shape, total))
    if make is not CompressedSync and hasattr(sync, "parts"):
        assert [[part.number for part in parts] for parts in sync.parts] == [list(range(count))] * n
        assert sync.spread() is None
        assert sync.whole(["first", "second"]) == "first"
        for params, parts in zip(device_params, sync.parts):
            assert all(part.weight is param for param, part in zip(params, parts))
            assert len({part.key for part in parts}) == count
            assert sync.requests == ["write"] * count


@settings(max_examples=30, phases=UNSHRUNK)
@given(
    used=st.dictionaries(st.tuples(st.integers(0, 1), st.integers(0, 2)), st.integers(1, 9)),
    some=st.sets(st.integers(0, 2)),
)
def test_by_hand_all_count_until_backward_or_a_step_has_written(used, some):
    """Of the parameters with other numbers none is set to zero."""
    device_params = replicas(2, [(2,), (3,), (1,)])
    fresh = Fresh(device_params, gradients_of(device_params), "nobody")
    for params in device_params:
        for param in params:
            param.grad[:] = 7
    fresh.zero_stale(range(3))
    assert fresh.by_hand
    assert {float(param.grad[0]) for params in device_params for param in params} == {7}
    use(device_params, used)
    fresh.zero_stale(some)
    assert fresh.by_hand == (not used)
    for rank, params in enumerate(device_params):
        for number, param in enumerate(params):
            stale = 0 if number in some and used else 7
            assert (param.grad.asnumpy() == used.get((rank, number), stale)).all()
    fresh.forget()
    fresh.zero_stale(range(3))
    assert not fresh.by_hand
    assert not any(param.grad.asnumpy().any() for params in device_params for param in params)


GRADIENT, ARRAYS = "the gradient of .* another GradientSync", "the replicas hold other arrays"


def no_gradient(replicas_):
    autograd.mark_variables([replicas_[0][4]], [np.zeros(SHAPES[4])], grad_reqs="null")


@pytest.mark.parametrize(
    ("replace", "message"),
    [
        (lambda replicas_: replicas_[1][2].attach_grad(), GRADIENT),
        (lambda replicas_: GradientSync([params[1:3] for params in replicas_]), GRADIENT),
        (no_gradient, GRADIENT),
        (lambda replicas_: replicas_[0].append(np.ones(2)), ARRAYS),
        (lambda replicas_: replicas_[0].__setitem__(0, replicas_[0][0].copy()), ARRAYS),
    ],
    ids=["one, by hand", "another GradientSync", "no gradient", "one more", "a copy"],
)
def test_what_was_replaced_is_not_summed_in_silence(replace, message):
    """Also before any computation, when the new gradient's memory may not be allocated yet."""
    for adding in (False, True):
        device_params = replicas(2)
        sync = GradientSync(device_params)
        sync()
        npx.waitall()
        with sync.no_sync() if adding else nullcontext():
            pass
        replace(device_params)
        for call in (sync, sync.no_sync().__enter__):
            with pytest.raises(RuntimeError, match=f"^GradientSync can't sum: {message}"):
                call()


def test_a_call_frees_what_it_takes_from_mxnet(monkeypatch):
    """``MXNDArrayGetGrad`` gives a new handle each time."""
    calls = Counter()

    class Counting:
        def __getattr__(self, name):
            def call(*arguments):
                calls[name] += 1
                return getattr(library, name)(*arguments)

            return call

    sync, library = GradientSync(replicas(2)), mx.base._LIB
    monkeypatch.setattr(mx.base, "_LIB", Counting())
    for _ in range(3):
        sync.fresh.use()
    assert calls["MXNDArrayFree"] == calls["MXNDArrayGetGrad"] == 3 * 2 * len([s for s in SHAPES if 0 not in s])
