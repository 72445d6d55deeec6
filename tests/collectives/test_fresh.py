"""Which gradients count in a sum: those that backward has written since the last one, and where it was made to; with
``no_sync`` those that add up, until the next sum."""

import gc
import weakref
from collections import Counter
from contextlib import nullcontext, suppress

import numpy as onp
import pytest
from hypothesis import example, given, settings
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
    if hasattr(sync, "parts"):
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
@example(n=2, plan=[([PASS], False), ([], False), SUM, SUM], always=False, bucket_mb=25)
@example(n=2, plan=[([PASS], False), ([PASS], True), ([PASS], False), PASS, SUM], always=False, bucket_mb=25)
def test_backward_adds_up_from_the_first_no_sync_to_the_next_sum_or_error(n, plan, always, bucket_mb):
    """A no_sync in another changes nothing. Where the second parameter ``always`` adds up, it is never zero again."""
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
