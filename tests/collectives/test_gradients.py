from __future__ import annotations

import gc
import math
import time
import weakref
from collections import Counter

import numpy as onp
import pytest
from gate import Gate

from mxdp.backend import autograd, mx, np, npx
from mxdp.collectives import ALGORITHMS, GradientSync
from mxdp.engine import CompletionEvent
from mxdp.plans.cost.machine import Machine, Rate
from mxdp.scratch import get_params

SHAPES = [(2, 3), (), (5,), (0, 4), (1,), (3, 0), (2, 0, 5)]
ONE_KB = 1 / 1024


def replicas(n, dtypes=("float32",), shapes=SHAPES):
    params = [np.zeros(shape, dtype=dtype) for shape in shapes for dtype in dtypes]
    return [get_params(params, mx.cpu(rank)) for rank in range(n)]


def fill(device_params):
    """Gradients that depend on rank, parameter and index; their exact sums."""
    for rank, params in enumerate(device_params):
        for number, param in enumerate(params):
            values = onp.arange(param.size).reshape(param.shape) * (rank + 1) + number
            np.array(values, dtype=param.dtype).copyto(param.grad)
    return [sum(params[i].grad.asnumpy() for params in device_params) for i in range(len(device_params[0]))]


def wrong(device_params, expected):
    return sum(
        int((param.grad.asnumpy() != total).sum()) for params in device_params for param, total in zip(params, expected)
    )


@pytest.mark.parametrize("algorithm", [*sorted(ALGORITHMS), "auto"])
@pytest.mark.parametrize("n", range(1, 6))
@pytest.mark.parametrize("bucket_mb", [25, 2e-5])
def test_every_gradient_of_every_replica_is_the_sum(algorithm, n, bucket_mb):
    device_params = replicas(n, ("float32", "float64", "float16"))
    sync = GradientSync(device_params, algorithm, bucket_mb)
    for _ in range(2):  # the second time with the kept buffers
        expected = fill(device_params)
        assert sync() is None
        for rank, params in enumerate(device_params):
            for param, total in zip(params, expected):
                assert param.grad.ctx == mx.cpu(rank)
                assert param.grad.shape == param.shape
                assert param.grad.dtype == param.dtype
                onp.testing.assert_array_equal(param.grad.asnumpy(), total)


def test_the_oracle_catches_a_bucket_left_out():
    device_params = replicas(2, shapes=[(100,), (300,)])
    sync = GradientSync(device_params, bucket_mb=ONE_KB)
    assert [bucket.params for bucket in sync.buckets] == [(1,), (0,)]
    expected = fill(device_params)
    sync.buckets[0].program()
    assert wrong(device_params, expected) > 0
    sync.buckets[1].program()
    assert wrong(device_params, expected) == 0


REPLACED = {
    "one gradient, by hand": lambda device_params: device_params[1][2].attach_grad(),
    "all gradients of a replica": lambda device_params: [param.attach_grad() for param in device_params[0]],
    "another GradientSync": GradientSync,
    "one that sums a part": lambda device_params: GradientSync([params[1:3] for params in device_params]),
    "no gradient": lambda device_params: autograd.mark_variables(
        [device_params[0][4]], [np.zeros(SHAPES[4])], grad_reqs="null"
    ),
}


@pytest.mark.parametrize("how", REPLACED)
def test_gradients_that_were_replaced_are_not_summed_in_silence(how):
    """Also before any computation, when the new gradient's memory may not be allocated yet."""
    device_params = replicas(2)
    sync = GradientSync(device_params)
    sync()
    npx.waitall()
    REPLACED[how](device_params)
    for call in (sync, sync.no_sync().__enter__):
        with pytest.raises(RuntimeError, match=r"^GradientSync can't sum: the gradient of .* another GradientSync"):
            call()
    again = GradientSync(device_params)
    expected = fill(device_params)
    again()
    assert wrong(device_params, expected) == 0


def test_an_array_that_was_replaced_in_a_list_is_not_left_out_in_silence():
    """Its gradient would lie outside of all buckets."""
    for replace in (lambda params: params.append(np.ones(2)), lambda params: params.__setitem__(0, params[0].copy())):
        device_params = replicas(2)
        sync = GradientSync(device_params)
        replace(device_params[0])
        for call in (sync, sync.no_sync().__enter__):
            with pytest.raises(RuntimeError, match=r"^GradientSync can't sum: the replicas hold other arrays"):
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


def test_while_gradients_are_added_up_none_may_be_replaced():
    device_params = replicas(2)
    sync = GradientSync(device_params)
    with sync.no_sync():
        device_params[1][0].attach_grad()
    with pytest.raises(RuntimeError, match=r"the gradient of a parameter of shape \(2, 3\) on cpu\(1\) was replaced"):
        sync()


def test_buckets_are_filled_from_the_last_parameter():
    """Up to 1024 bytes and not one number more, whatever the dtype."""
    for shapes, dtype, nbytes in [
        ([(200,), (20,), (226,), (10,)], "float32", [1024, 800]),
        ([(200,), (20,), (227,), (10,)], "float32", [948, 880]),
        ([(100,), (20,), (98,), (10,)], "float64", [1024, 800]),
        ([(400,), (20,), (482,), (10,)], "float16", [1024, 800]),
    ]:
        sync = GradientSync(replicas(2, [dtype], shapes), bucket_mb=ONE_KB)
        assert [bucket.nbytes for bucket in sync.buckets] == nbytes
        assert sorted(bucket.params for bucket in sync.buckets) in ([(0,), (3, 2, 1)], [(1, 0), (3, 2)])


def test_an_endless_bucket_holds_all_gradients_of_a_dtype():
    sync = GradientSync(replicas(2, ["float32", "float64"]), bucket_mb=math.inf)
    assert [bucket.params for bucket in sync.buckets] == [tuple(range(13, 0, -2)), tuple(range(12, -1, -2))]


@pytest.mark.parametrize(("algorithm", "calls"), [("doubling", 2 + 2), ("sharded", 2 * (1 + 1 + 1))])
def test_a_bucket_has_one_all_reduce_for_any_number_of_gradients(algorithm, calls):
    """Copies and sums on two devices; "sharded" sends one message a device, not one a gradient."""
    sync = GradientSync(replicas(2, shapes=[(3,)] * 7), algorithm)
    assert [len(bucket.program.calls) for bucket in sync.buckets] == [calls]


@pytest.mark.parametrize(
    ("dtype", "chosen"), [("float16", "doubling"), ("float32", "doubling"), ("float64", "shared-memory")]
)
def test_auto_is_the_default_and_chooses_by_the_machine_and_the_bytes_of_the_dtype(dtype, chosen):
    """Messages and bytes cost the same at 6000 bytes: below that doubling wins, above it shared memory."""
    rate = Rate(1.0, *[((1.0, 0.3625 / 6000),)] * 2)
    machine = Machine(push=0.0, copy=rate, add=rate, add_more=0.0, cores=4)
    assert GradientSync(replicas(4, [dtype], [(1000,)]), machine=machine).buckets[0].algorithm == chosen


def backward(params, factor=1.0):
    with autograd.record():
        loss = factor * ((params[0] ** 2).sum() + 5 * params[1].sum())
    loss.backward()


def test_one_all_reduce_for_three_micro_batches():
    device_params = [get_params([np.array([1.0, 2.0]), np.array([[3.0]])], mx.cpu(rank)) for rank in range(2)]
    sync = GradientSync(device_params)
    for _ in range(2):
        with sync.no_sync():
            for micro_batch in range(2):
                for rank, params in enumerate(device_params):
                    backward(params, factor=1 + rank + micro_batch)
                with pytest.raises(RuntimeError, match="inside no_sync would leave each device with its own gradients"):
                    sync()  # and nothing is lost
            onp.testing.assert_array_equal(device_params[1][1].grad.asnumpy(), [[5 * (2 + 3)]])
        for rank, params in enumerate(device_params):
            backward(params, factor=3 + rank)
        sync()
        for params in device_params:
            onp.testing.assert_array_equal(params[0].grad.asnumpy(), [2 * (6 + 9), 4 * (6 + 9)])
            onp.testing.assert_array_equal(params[1].grad.asnumpy(), [[5 * (6 + 9)]])
    for params in device_params:  # and afterwards a backward pass overwrites again
        backward(params)
        onp.testing.assert_array_equal(params[1].grad.asnumpy(), [[5]])


def two_replicas():
    return [get_params([np.array([1.0]), np.array([3.0])], mx.cpu(rank)) for rank in range(2)]


class Stopped(KeyboardInterrupt):
    """Like Ctrl-C, but pytest does not stop."""


def fail_in(sync, error, work):
    with sync.no_sync():
        work()
        raise error


@pytest.mark.parametrize("error", [ZeroDivisionError, Stopped])
@pytest.mark.parametrize("before", [0, 1])
def test_what_was_added_up_is_forgotten_where_no_sync_ends_with_an_error(error, before):
    """The earlier micro-batches are dropped too: the step starts again."""
    device_params = two_replicas()
    sync = GradientSync(device_params)

    def step(micro_batches, fails=False):
        for _ in range(micro_batches):
            with sync.no_sync():
                for params in device_params:
                    backward(params)
        if fails:
            with pytest.raises(error):
                fail_in(sync, error, lambda: backward(device_params[0]))
            return
        for params in device_params:
            backward(params)
        sync()
        assert [params[1].grad.item() for params in device_params] == [10 * (micro_batches + 1)] * 2

    step(before, fails=True)
    step(0)
    step(before, fails=True)
    step(1)


def test_a_no_sync_inside_another_changes_nothing():
    device_params = two_replicas()
    sync = GradientSync(device_params)

    def add_up():
        for params in device_params:
            backward(params)

    with sync.no_sync():
        add_up()
        with sync.no_sync():
            add_up()
        with pytest.raises(RuntimeError, match="inside no_sync"):
            sync()
        with pytest.raises(Stopped):
            fail_in(sync, Stopped, add_up)
        add_up()
        add_up()
        assert [params[1].grad.item() for params in device_params] == [25, 25]
    add_up()
    sync()
    assert [params[1].grad.item() for params in device_params] == [60, 60]
    add_up()
    sync()
    assert [params[1].grad.item() for params in device_params] == [10, 10]


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


def is_the_last_gradient_summed_before_backward_is_done(bucket_mb, limit):
    """Three products, each among more operators than one bulk of MXNet (15). The gradient of the first is delayed."""
    devices = [mx.cpu(0), mx.cpu(1)]
    device_params = [get_params([np.full((8, 8), 0.1) for _ in range(3)], device) for device in devices]
    sync = GradientSync(device_params, "direct", bucket_mb)
    inputs = [np.ones((8, 8), ctx=device) for device in devices]
    with autograd.record():
        losses = []
        for h, params in zip(inputs, device_params):
            for weight in params:
                h = np.dot(h, weight)
                for _ in range(20):
                    h = h * 1.0
            losses.append(h.sum())
    npx.waitall()
    gate = Gate(inputs[0])
    autograd.backward(losses)
    sync()
    events = [CompletionEvent([params[-1].grad]) for params in device_params]
    until = time.monotonic() + limit
    while None in (summed := [event.at for event in events]) and time.monotonic() < until:
        time.sleep(0.01)
    gate.open()
    npx.waitall()
    return None not in summed


def test_the_first_bucket_is_summed_while_backward_works_on_the_others():
    assert is_the_last_gradient_summed_before_backward_is_done(bucket_mb=1e-4, limit=60)
    assert not is_the_last_gradient_summed_before_backward_is_done(bucket_mb=25, limit=0.3)


def test_accumulate_leaves_zeroing_to_the_caller():
    params = get_params([np.array([1.0]), np.array([3.0])], mx.cpu(0))
    sync = GradientSync([params], accumulate=True)
    backward(params)
    with sync.no_sync():
        backward(params)
    with pytest.raises(Stopped):
        fail_in(sync, Stopped, lambda: backward(params))
    sync()
    backward(params)
    assert params[1].grad.item() == 20
