"""Gradients summed in shards: each device of each rank updates its part alone, and all end with NumPy's result; and the
checksums by which ranks see that they have."""

from __future__ import annotations

from itertools import chain

import numpy as onp
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_numbers import UNSHRUNK, on_ranks

from mxdp.backend import mx, np
from mxdp.collectives.checksums import Checksums
from mxdp.collectives.shards import ShardedSync
from mxdp.scratch import get_params

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
