"""``no_sync``: gradients that add up, until the next sum."""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress

import numpy as onp
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from whole_numbers import UNSHRUNK

from mxdp.backend import autograd, mx, np
from mxdp.collectives.gradients import GradientSync
from mxdp.scratch import get_params


def backward(params, factor):
    with autograd.record():
        loss = factor * ((params[0] ** 2).sum() + 5 * params[1].sum())
    loss.backward()


class Stopped(KeyboardInterrupt):
    """Like Ctrl-C, but pytest does not stop."""


PASS, SUM = "a backward pass on each device", "a sum"
PLANS = st.lists(
    st.recursive(
        st.sampled_from([PASS, PASS, SUM]),
        lambda inner: st.tuples(st.lists(inner, max_size=4), st.booleans()),  # a no_sync, and whether it fails
        max_leaves=8,
    ),
    max_size=6,
)


@settings(max_examples=60, phases=UNSHRUNK)
@given(n=st.integers(1, 4), plan=PLANS, always=st.booleans(), bucket_mb=st.sampled_from([25, 1e-6]))
@example(
    n=2,
    plan=[([PASS, ([PASS], False), SUM, ([PASS], True), PASS], False), PASS, SUM, PASS, SUM],
    always=False,
    bucket_mb=25,
)
@example(n=2, plan=[([PASS], False), ([PASS], True), ([PASS], False), PASS, SUM], always=False, bucket_mb=25)
def test_backward_adds_up_from_the_first_no_sync_to_the_next_sum_or_error(n, plan, always, bucket_mb):
    """A no_sync inside another changes nothing. Where the second parameter ``always`` adds up, its gradient is never
    zero again."""
    device_params = [get_params([np.array([1.0, 2.0]), np.array([[3.0]])], mx.cpu(rank)) for rank in range(n)]
    sync = GradientSync(device_params, bucket_mb=bucket_mb, accumulate=[False, always])
    own, held, factor = onp.zeros(n), onp.zeros(n), onp.arange(1, n + 1)
    adding = fresh = False

    def one_pass(adding):
        factor[:] += 1
        for params, its in zip(device_params, factor):
            backward(params, float(its))
        own[:] = factor + adding * own
        held[:] = 5 * factor + (adding or always) * held

    def follow(plan, depth):
        nonlocal adding, fresh
        for each in plan:
            if each == PASS:
                one_pass(adding)
                fresh = True
            elif each == SUM and depth:
                with pytest.raises(RuntimeError, match="inside no_sync would leave each device with its own"):
                    sync()  # and nothing is lost
            elif each == SUM:
                sync()
                own[:] = own.sum() * (fresh or adding)
                held[:] = held.sum() * (fresh or adding or always)
                adding = fresh = False
            else:
                inside, fails = each
                with suppress(Stopped), sync.no_sync():
                    own[:] *= adding
                    held[:] *= adding or always
                    adding = True
                    follow(inside, depth + 1)
                    if fails:
                        raise Stopped
                if fails and not depth:  # the step starts again
                    adding = False
                    one_pass(adding)
                    fresh = True
            assert sync.accumulating == adding
            assert sync.requests == ["add" if adding else "write", "add" if adding or always else "write"]
            for params, x, y in zip(device_params, own, held):
                onp.testing.assert_array_equal(params[0].grad.asnumpy(), [2 * x, 4 * x])
                onp.testing.assert_array_equal(params[1].grad.asnumpy(), [[y]])

    follow(plan, depth=0)


def test_the_garbage_collector_may_end_a_no_sync():
    """It frees the arrays of a dead cycle before it ends generators. Marking a freed array would corrupt the heap."""
    marks = []

    class Spy(GradientSync):
        def _mark(self, *args):
            marks.append(not me or me[0]() is self)
            if not me or me[0]():
                super()._mark(*args)

    me = []
    sync = Spy([get_params([np.array([1.0]), np.array([3.0])], mx.cpu(rank)) for rank in range(2)])
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
