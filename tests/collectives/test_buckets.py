"""Buckets of gradients: what is in them, their sums, also in shards, and the checksums of what comes of them."""

import math
import re
import time
from itertools import chain

import numpy as onp
import pytest
from gate import Gate
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_numbers import UNSHRUNK, on_ranks, turning_at

from mxdp.backend import autograd, mx, np, npx
from mxdp.collectives import ALGORITHMS, AllReduce
from mxdp.collectives.checksums import Checksums
from mxdp.collectives.gradients import GradientSync
from mxdp.collectives.shards import ShardedSync
from mxdp.engine import CompletionEvent
from mxdp.errors import MxdpError
from mxdp.scratch import get_params


def fill(device_params):
    """Gradients that depend on rank, parameter and index; their sums, which are exact in float16 (below 2048)."""
    for rank, params in enumerate(device_params):
        for number, param in enumerate(params):
            values = onp.arange(param.size).reshape(param.shape) % 127 * (rank + 1) + number
            np.array(values, dtype=param.dtype).copyto(param.grad)
    return [sum(params[i].grad.asnumpy() for params in device_params) for i in range(len(device_params[0]))]


@pytest.mark.parametrize("algorithm", [*sorted(ALGORITHMS), "auto"])
@settings(max_examples=10, phases=UNSHRUNK)
@given(
    shapes=st.lists(st.lists(st.integers(0, 6), max_size=3).map(tuple), min_size=1, max_size=12),
    n=st.integers(1, 5),
    most=st.sampled_from([16, 100, 1024, math.inf]),
    kinds=st.lists(st.tuples(st.sampled_from(["float16", "float32", "float64"]), st.booleans()), min_size=12),
)
def test_every_gradient_of_every_replica_is_the_sum_and_buckets_are_as_full_as_they_may_be(
    algorithm, shapes, n, most, kinds
):
    """``most`` bytes. A bucket holds parameters of one dtype which all are added up, or all overwritten."""
    kinds = kinds[: len(shapes)]
    params = [np.zeros(shape, dtype=dtype) for shape, (dtype, _) in zip(shapes, kinds)]
    device_params = [get_params(params, mx.cpu(rank)) for rank in range(n)]
    sync = GradientSync(device_params, algorithm, most / 2**20, accumulate=[adds for _, adds in kinds])
    for _ in range(2):  # the second time with the kept buffers
        expected = fill(device_params)
        assert sync() is None
        for rank, of_device in enumerate(device_params):
            for number, (param, total) in enumerate(zip(of_device, expected)):
                assert param.grad.ctx == mx.cpu(rank)
                assert (param.grad.shape, param.grad.dtype) == (param.shape, param.dtype)
                assert (sync.gradients[rank][number].asnumpy() == param.grad.asnumpy()).all()
                onp.testing.assert_array_equal(param.grad.asnumpy(), total)
    sync.requests.clear()
    assert sync.requests == ["add" if adds else "write" for _, adds in kinds]
    assert len(sync.buckets) == len({bucket.params for bucket in sync.buckets})
    sizes = [param.size * param.dtype.itemsize for param in params]
    last = {}
    for bucket in sync.buckets:
        (kind,) = {kinds[number] for number in bucket.params}
        assert bucket.nbytes == sum(sizes[number] for number in bucket.params)
        assert bucket.nbytes <= most or len([number for number in bucket.params if sizes[number]]) == 1
        before = last.get(kind)
        if before:
            assert before.nbytes + sizes[bucket.params[0]] > most
        last[kind] = bucket
    for kind in last:
        of_kind = [number for bucket in sync.buckets for number in bucket.params if kinds[number] == kind]
        assert of_kind == [number for number, other in enumerate(kinds) if other == kind][::-1], "from the last on"


def replicas(n, dtype, shapes):
    return [get_params([np.zeros(shape, dtype=dtype) for shape in shapes], mx.cpu(rank)) for rank in range(n)]


@pytest.mark.parametrize(("algorithm", "calls"), [("doubling", 2 + 2), ("sharded", 2 * (1 + 1 + 1))])
def test_a_bucket_has_one_all_reduce_for_any_number_of_gradients(algorithm, calls):
    """Copies and sums on two devices; "sharded" sends one message a device, not one a gradient."""
    sync = GradientSync(replicas(2, "float32", [(3,)] * 7), algorithm)
    assert [len(bucket.program.calls) for bucket in sync.buckets] == [calls]


@pytest.mark.parametrize(("dtype", "chosen"), [("float32", "doubling"), ("float64", "shared-memory")])
def test_auto_chooses_by_the_machine_and_the_bytes_of_the_dtype(dtype, chosen):
    """Messages and bytes cost the same at 6000 bytes: below that doubling wins, above it shared memory."""
    machine, device_params = turning_at(6000), replicas(4, dtype, [(1000,)])
    assert GradientSync(device_params, machine=machine).buckets[0].algorithm == chosen
    assert AllReduce([param for (param,) in device_params], "auto", machine=machine).algorithm == chosen


def test_over_ranks_rank_0_chooses_and_all_hold_the_sum_of_all():
    ranks = 3

    def work(world):
        machine = None if world.rank else turning_at(1)
        device_params = replicas(3, "float32", [(7,), (), (0, 2), (1000,)])
        sync = GradientSync(device_params, "auto", 1e-3, machine, world=world)
        for rank, params in enumerate(device_params):
            for number, param in enumerate(params):
                param.grad[()] = 10 * world.rank + rank + number
        sync()
        held = [[param.grad.asnumpy() for param in params] for params in device_params]
        return [bucket.algorithm for bucket in sync.buckets], held

    total = sum(10 * world + rank for world in range(ranks) for rank in range(3))
    for algorithms, held in on_ranks(ranks, work):
        assert algorithms == ["shared-memory"] * 2
        for arrays in held:
            for number, array in enumerate(arrays):
                assert (array == total + 3 * ranks * number).all()


@pytest.mark.parametrize(
    ("dtype", "shapes", "bucket_mb", "what"),
    [
        ("float64", [(3,), (5,)], 25, "parameter 0 float64 (3,), rank 0 has float32 (3,)"),
        ("float32", [(3,), (6,)], 25, "parameter 1 float32 (6,), rank 0 has float32 (5,)"),
        ("float32", [(3,), (5,)], 5, "bucket_mb 5, rank 0 has 25"),
    ],
)
def test_ranks_with_other_buckets_are_refused_on_every_rank(dtype, shapes, bucket_mb, what):
    def work(world):
        mine = (dtype, shapes, bucket_mb) if world.rank == 2 else ("float32", [(3,), (5,)], 25)
        with pytest.raises(MxdpError, match=re.escape(f"rank 2 has {what}")):
            GradientSync(replicas(2, *mine[:2]), bucket_mb=mine[2], world=world)
        return True

    assert on_ranks(3, work) == [True] * 3


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


LR, TURNS = 0.25, 3


@settings(max_examples=30, phases=UNSHRUNK)
@given(
    shapes=st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), min_size=1, max_size=12),
    n=st.integers(1, 4),
    ranks=st.integers(1, 3),
    bucket_mb=st.sampled_from([25, 4e-5]),
    momentum=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 99),
)
def test_momentum_in_shards_is_numpys_of_each_array(shapes, n, ranks, bucket_mb, momentum, seed):
    """Whole numbers and powers of two: so equal to the bit. Of two dtypes, some of which are added up."""
    random = onp.random.RandomState(seed)
    dtypes = [random.choice(["float32", "float64"]) for _ in shapes]
    accumulate = [bool(random.randint(2)) for _ in shapes]
    start = [random.randint(-8, 9, shape).astype(dtype) for shape, dtype in zip(shapes, dtypes)]
    gradients = [random.randint(-8, 9, (ranks, n, TURNS, *shape)) for shape in shapes]

    def train(world):
        first = [np.array(array, dtype=array.dtype) for array in start]
        replicas = [get_params(first, mx.cpu(number)) for number in range(n)]
        sync = ShardedSync(replicas, bucket_mb, accumulate, world)
        states = [[mx.nd.zeros_like(part.gradient) for part in parts] for parts in sync.parts]
        for turn in range(TURNS):
            for device, params in enumerate(replicas):
                for param, array in zip(params, gradients):
                    param.grad[()] = np.array(array[world.rank, device, turn], dtype=param.dtype)
            sync()
            for part, state in zip(chain(*sync.parts), chain(*states)):
                state[:] = momentum * state - LR * part.gradient
                weight = part.weight
                weight += state
            sync.spread()
            for array in sync.whole(states):
                array[()] = onp.nan  # the caller's by now
        assert all(len({part.key for part in parts}) == len(parts) for parts in sync.parts)
        held = [[param.asnumpy() for param in params] for params in replicas]
        shares = [sum(part.weight.size for part in parts) for parts in sync.parts]
        return [*held, sync.whole(states)], shares, len(sync.buckets)

    expected = []
    for param, array in zip(start, gradients):
        state = onp.zeros_like(param)
        for total in array.sum((0, 1)):
            state = onp.asarray(momentum * state - LR * total, param.dtype)
            param = onp.asarray(param + state, param.dtype)
        expected.append((param, state))
    params, states = zip(*expected)
    shares = []
    for held, of_devices, buckets in on_ranks(ranks, train):
        shares += of_devices
        assert max(shares) - min(shares) <= 2 * buckets, "each is cut evenly, over devices and then over ranks"
        for arrays, right in zip(held, [params] * n + [states]):
            for array, known in zip(arrays, right):
                assert array.dtype == known.dtype
                onp.testing.assert_array_equal(array, known)
    assert sum(shares) == sum(array.size for array in start)


@settings(max_examples=40, phases=UNSHRUNK)
@given(drawn=st.data())
def test_whatever_element_differs_on_whatever_rank_its_parameter_is_named(drawn):
    """Of up to twelve parameters of three dtypes, some without elements. Whole numbers, whose squares differ."""
    shapes = drawn.draw(st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), min_size=1, max_size=12))
    dtypes = [drawn.draw(st.sampled_from(["float16", "float32", "float64"])) for _ in shapes]
    values = [onp.arange(onp.prod(shape, dtype=int)) % 9 - 4 for shape in shapes]
    params = [np.array(x.reshape(s), dtype=dtype, ctx=mx.cpu(1)) for x, s, dtype in zip(values, shapes, dtypes)]
    sums = Checksums(params)

    def told():
        sums.push()
        return b"".join(array.asnumpy().tobytes() for array in sums.arrays)

    plain = told()
    assert sorted(sums.numbers) == [number for number, param in enumerate(params) if param.size]
    squares = onp.frombuffer(plain, "float32")
    assert squares.tolist() == [(values[number] ** 2).sum() for number in sums.numbers]
    assert sums.differing([plain] * 3) == []
    full = [number for number, param in enumerate(params) if param.size]
    changed = drawn.draw(st.lists(st.sampled_from(full), max_size=3, unique=True)) if full else []
    for number in changed:
        place = drawn.draw(st.integers(0, params[number].size - 1))
        flat = params[number].as_nd_ndarray().reshape((-1,))
        flat[place : place + 1] += 1
    ranks = [plain] * 3
    ranks[drawn.draw(st.integers(0, 2))] = told()
    assert sorted(sums.differing(ranks)) == sorted(changed)
