from __future__ import annotations

import numpy as onp
import pytest

from mxdp.backend import autograd, mx, np, npx
from mxdp.collectives import ALGORITHMS, GradientSync
from mxdp.errors import BackendError
from mxdp.experiments.stamps import Gate, Stamp
from mxdp.replicas import get_params

SHAPES = [(2, 3), (), (5,), (0, 4), (1,)]
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
@pytest.mark.parametrize("dtypes", [("float32",), ("float32", "float64", "float16")])
@pytest.mark.parametrize("bucket_mb", [25, 2e-5])
def test_every_gradient_of_every_replica_is_the_sum(algorithm, n, dtypes, bucket_mb):
    device_params = replicas(n, dtypes)
    sync = GradientSync(device_params, algorithm, bucket_mb)
    for _ in range(2):  # the second time with what the first has kept
        expected = fill(device_params)
        assert sync() is None
        for rank, params in enumerate(device_params):
            for param, total in zip(params, expected):
                assert param.grad.ctx == mx.cpu(rank)
                assert param.grad.shape == param.shape
                assert param.grad.dtype == param.dtype
                onp.testing.assert_array_equal(param.grad.asnumpy(), total)


def test_the_oracle_catches_a_bucket_left_out_and_gradients_moved_elsewhere():
    device_params = replicas(2, shapes=[(100,), (300,)])
    sync = GradientSync(device_params, bucket_mb=ONE_KB)
    assert [bucket.params for bucket in sync.buckets] == [(1,), (0,)]
    expected = fill(device_params)
    sync.buckets[0].program()
    assert wrong(device_params, expected) > 0
    sync.buckets[1].program()
    assert wrong(device_params, expected) == 0

    for params in device_params:
        params[0].attach_grad()
    expected = fill(device_params)
    sync()
    assert wrong(device_params, expected) > 0


def test_buckets_are_filled_from_the_last_parameter():
    sync = GradientSync(replicas(2, shapes=[(200,), (20,), (200,), (10,)]), bucket_mb=ONE_KB)
    assert [bucket.params for bucket in sync.buckets] == [(3, 2, 1), (0,)]
    assert [bucket.nbytes for bucket in sync.buckets] == [920, 800]


def test_a_bucket_has_one_all_reduce():
    """2 copies and 2 sums for any number of gradients, by recursive doubling on two devices."""
    sync = GradientSync(replicas(2, shapes=[(3,)] * 7), "doubling")
    assert [len(bucket.program.calls) for bucket in sync.buckets] == [4]


def test_sharded_sends_one_message_a_device_not_one_a_gradient():
    sync = GradientSync(replicas(2, shapes=[(3,)] * 7), "sharded")
    assert [len(bucket.program.calls) for bucket in sync.buckets] == [2 * (1 + 1 + 1)]


def test_auto_names_what_it_chose():
    sync = GradientSync(replicas(2), "auto")
    assert {bucket.algorithm for bucket in sync.buckets} <= set(ALGORITHMS)


def backward(params, factor=1.0):
    with autograd.record():
        loss = factor * ((params[0] ** 2).sum() + 5 * params[1].sum())
    loss.backward()


def test_backward_writes_into_the_bucket():
    params = get_params([np.array([1.0, 2.0]), np.array([[3.0]])], mx.cpu(1))
    sync = GradientSync([params])
    backward(params)
    onp.testing.assert_array_equal(sync.gradients[0][0].asnumpy(), [2, 4])
    onp.testing.assert_array_equal(sync.gradients[0][1].asnumpy(), [[5]])
    sync.gradients[0][1][:] = 7
    assert params[1].grad.item() == 7


def test_one_all_reduce_for_three_micro_batches():
    device_params = [get_params([np.array([1.0, 2.0]), np.array([[3.0]])], mx.cpu(rank)) for rank in range(2)]
    sync = GradientSync(device_params)
    for _ in range(2):
        with sync.no_sync():
            for micro_batch in range(2):
                for rank, params in enumerate(device_params):
                    backward(params, factor=1 + rank + micro_batch)
                sync()  # nothing, in here
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


def is_the_last_gradient_summed_before_backward_is_done(bucket_mb, limit):
    """Three products, each among more operators than MXNet pushes at once (15); the first one's gradient is held up."""
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
    stamps = [Stamp([params[-1].grad]) for params in device_params]
    try:
        times = [stamp.wait(limit) for stamp in stamps]
    except BackendError:
        return False
    finally:
        gate.open()
        npx.waitall()
    return all(times)


def test_the_first_bucket_is_summed_while_backward_works_on_the_others():
    assert is_the_last_gradient_summed_before_backward_is_done(bucket_mb=1e-4, limit=60)
    assert not is_the_last_gradient_summed_before_backward_is_done(bucket_mb=25, limit=0.3)


def test_no_sync_forgets_what_an_earlier_step_left():
    device_params = [get_params([np.array([1.0]), np.array([3.0])], mx.cpu(rank)) for rank in range(2)]
    sync = GradientSync(device_params)
    for params in device_params:
        backward(params, factor=100.0)
    sync()
    with sync.no_sync():
        for params in device_params:
            backward(params)
    sync()
    assert [params[1].grad.item() for params in device_params] == [10, 10]


def test_accumulate_leaves_zeroing_to_the_caller():
    params = get_params([np.array([1.0]), np.array([3.0])], mx.cpu(0))
    GradientSync([params], accumulate=True)
    backward(params)
    backward(params)
    assert params[1].grad.item() == 10


@pytest.mark.parametrize(
    ("device_params", "message"),
    [
        ([], "at least one replica"),
        ([[]], "at least one parameter"),
        ([[onp.zeros(3)], [onp.zeros(4)]], r"replica 1 has other shapes .*\(4,\).*, not .*\(3,\)"),
        ([[onp.zeros(3)], [onp.zeros(3), onp.zeros(3)]], "replica 1 has other shapes"),
    ],
)
def test_replicas_that_differ_are_named(device_params, message):
    arrays = [[np.array(array) for array in replica] for replica in device_params]
    with pytest.raises(ValueError, match=message):
        GradientSync(arrays)


def test_an_unknown_algorithm_is_named():
    with pytest.raises(ValueError, match="'rnig'; did you mean 'ring'"):
        GradientSync(replicas(2), "rnig")


def test_a_bucket_must_have_room():
    with pytest.raises(ValueError, match="bucket_mb must be more than 0, not 0"):
        GradientSync(replicas(2), bucket_mb=0)
