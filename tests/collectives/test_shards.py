"""Gradients summed in shards: each device of each rank updates its part alone, and all end with NumPy's result."""

from __future__ import annotations

import numpy as onp
from hypothesis import given, settings
from hypothesis import strategies as st
from threads import on_ranks
from whole_numbers import UNSHRUNK

from mxdp.backend import mx, np
from mxdp.collectives.shards import ShardedSync
from mxdp.scratch import get_params

LR = 0.25


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
    given_ = [[[random.randint(-8, 9, (3, *s)) for s in shapes] for _ in range(n)] for _ in range(ranks)]

    def train(world):
        first = [np.array(array, dtype=array.dtype) for array in start]
        replicas = [get_params(first, mx.cpu(number)) for number in range(n)]
        sync = ShardedSync(replicas, bucket_mb, accumulate, world)
        states = [[mx.nd.zeros_like(part.gradient) for part in parts] for parts in sync.parts]
        history = []
        for turn in range(3):
            for params, arrays in zip(replicas, given_[world.rank]):
                for param, array in zip(params, arrays):
                    param.grad[()] = np.array(array[turn], dtype=param.dtype)
            sync()
            for parts, its in zip(sync.parts, states):
                for part, state in zip(parts, its):
                    state[:] = momentum * state - LR * part.gradient
                    weight = part.weight
                    weight += state
            sync.spread()
            whole = sync.whole(states)
            history.append([[param.asnumpy() for param in params] for params in (*replicas,)])
            history[-1].append([array.copy() for array in whole])
            for array in whole:
                array[()] = onp.nan  # the caller's by now
        assert all(len({part.key for part in parts}) == len(parts) for parts in sync.parts)
        return history, [sum(part.weight.size for part in parts) for parts in sync.parts], len(sync.buckets)

    of_ranks = on_ranks(ranks, train)
    params, states = start, [onp.zeros_like(array) for array in start]
    for turn in range(3):
        for number in range(len(shapes)):
            total = sum(array[number][turn] for of_rank in given_ for array in of_rank)
            states[number] = onp.asarray(momentum * states[number] - LR * total, dtypes[number])
            params[number] = onp.asarray(params[number] + states[number], dtypes[number])
        for history, _, _ in of_ranks:
            for right, *held in zip([*params, *states], *[[*x, *history[turn][-1]] for x in history[turn][:-1]]):
                for array in held:
                    assert array.dtype == right.dtype
                    onp.testing.assert_array_equal(array, right)
    shares = [share for _, of_rank, _ in of_ranks for share in of_rank]
    assert sum(shares) == sum(array.size for array in start)
    assert max(shares) - min(shares) <= 2 * of_ranks[0][2], (
        "each bucket is cut evenly, over devices and then over ranks"
    )
