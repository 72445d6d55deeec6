"""``no_sync``: gradients that add up, until the next sum."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_numbers import UNSHRUNK

from mxdp.backend import autograd, mx, np
from mxdp.collectives.gradients import GradientSync
from mxdp.scratch import get_params


def backward(params, factor=1.0):
    with autograd.record():
        loss = factor * ((params[0] ** 2).sum() + 5 * params[1].sum())
    loss.backward()


@settings(max_examples=20, phases=UNSHRUNK)
@given(
    n=st.integers(1, 4),
    steps=st.lists(st.integers(0, 3), min_size=2, max_size=4),
    adds=st.booleans(),
    bucket_mb=st.sampled_from([25, 1e-6]),
)
def test_one_sum_for_any_number_of_micro_batches(n, steps, adds, bucket_mb):
    """``steps``: how many are inside no_sync, before the last one. Where the second parameter always adds up, its
    gradient is never zero again."""
    device_params = [get_params([np.array([1.0, 2.0]), np.array([[3.0]])], mx.cpu(rank)) for rank in range(n)]
    sync = GradientSync(device_params, bucket_mb=bucket_mb, accumulate=[False, adds])
    held = onp.zeros(n)  # what the second has on each device
    for step, inside in enumerate(steps):
        factors = [[1 + rank + step + micro_batch for micro_batch in range(inside + 1)] for rank in range(n)]
        for micro_batch in range(inside + 1):
            with sync.no_sync() if micro_batch < inside else nullcontext():
                for rank, params in enumerate(device_params):
                    backward(params, factors[rank][micro_batch])
                if micro_batch < inside:
                    assert sync.requests == ["add", "add"]
                    with pytest.raises(RuntimeError, match="inside no_sync would leave each device with its own"):
                        sync()  # and nothing is lost
            own = sum(factors[-1][: micro_batch + 1])
            onp.testing.assert_array_equal(device_params[-1][1].grad.asnumpy(), [[5 * own + adds * held[-1]]])
        sync()
        assert sync.requests == ["write", "add" if adds else "write"]
        assert not sync.accumulating
        total = onp.sum([sum(its) for its in factors])
        held = onp.full(n, 5 * total + adds * held.sum())
        for rank, params in enumerate(device_params):
            onp.testing.assert_array_equal(params[0].grad.asnumpy(), [2 * total, 4 * total])
            onp.testing.assert_array_equal(params[1].grad.asnumpy(), [[held[rank]]])


def two_replicas():
    return [get_params([np.array([1.0]), np.array([3.0])], mx.cpu(rank)) for rank in range(2)]


class Stopped(KeyboardInterrupt):
    """Like Ctrl-C, but pytest does not stop."""


def add_up(device_params):
    for params in device_params:
        backward(params)


def fail_in(sync, work):
    with sync.no_sync():
        work()
        raise Stopped


def held(device_params):
    return [params[1].grad.item() for params in device_params]


@pytest.mark.parametrize("before", [0, 1])
def test_what_was_added_up_is_forgotten_where_no_sync_ends_with_an_error(before):
    """The earlier micro-batches are dropped too: the step starts again."""
    device_params = two_replicas()
    sync = GradientSync(device_params)
    for more in (0, 1):
        for _ in range(before):
            with sync.no_sync():
                add_up(device_params)
        with pytest.raises(Stopped):
            fail_in(sync, lambda: backward(device_params[0]))
        for _ in range(more):
            with sync.no_sync():
                add_up(device_params)
        add_up(device_params)
        sync()
        assert held(device_params) == [10 * (more + 1)] * 2


def test_a_no_sync_inside_another_changes_nothing():
    device_params = two_replicas()
    sync = GradientSync(device_params)
    with sync.no_sync():
        add_up(device_params)
        with sync.no_sync():
            add_up(device_params)
        with pytest.raises(RuntimeError, match="inside no_sync"):
            sync()
        with pytest.raises(Stopped):
            fail_in(sync, lambda: add_up(device_params))
        add_up(device_params)
        assert held(device_params) == [20, 20]
    for expected in (50, 10):
        add_up(device_params)
        sync()
        assert held(device_params) == [expected] * 2


def test_the_garbage_collector_may_end_a_no_sync():
    """It frees the arrays of a dead cycle before it ends generators. Marking a freed array would corrupt the heap."""
    marks = []

    class Spy(GradientSync):
        def _mark(self, *args):
            marks.append(not me or me[0]() is self)
            if not me or me[0]():
                super()._mark(*args)

    me = []
    sync = Spy(two_replicas())
    me.append(weakref.ref(sync))
    cycle = [sync.no_sync()]
    cycle[0].__enter__()
    cycle.append(cycle)
    del sync, cycle
    gc.collect()
    assert marks
    assert all(marks)
    gc.collect()
    assert me[0]() is None
