"""A process's place among ranks: its samples, its devices, its random numbers and its count of steps."""

from __future__ import annotations

import os
import sys
import tempfile
from itertools import combinations
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxdp import devices
from mxdp.backend import mx, np
from mxdp.processes import ALONE, World, world
from mxdp.processes.leaving import STEPS, launchers_file
from mxdp.processes.place import Ranks


@given(samples=st.integers(0, 100), size=st.integers(1, 11))
def test_shards_cover_the_batch_longer_ones_first(samples, size):
    shards = [range(samples)[Ranks(rank, size).shard(samples)] for rank in range(size)]
    assert [number for shard in shards for number in shard] == list(range(samples))
    lengths = [len(shard) for shard in shards]
    assert lengths == sorted(lengths, reverse=True)
    assert max(lengths) - min(lengths) <= 1


@given(kind=st.sampled_from(["gpu", "cpu"]), n=st.integers(1, 3), size=st.integers(1, 4), seen=st.integers(3, 12))
def test_ranks_of_one_host_take_the_next_gpus(kind, n, size, seen):
    """Those that MXNet names first, if there are too few, or each rank sees its own alone."""
    asked = []

    def first(n, kind):
        asked.append((n, kind))
        return named(range(n))

    def named(numbers):
        return [mx.Context(kind, number) for number in numbers]

    module = sys.modules[Ranks.__module__]
    with mock.patch.object(module, "find_devices", first), mock.patch.object(
        module, "usable_gpus", return_value=[mx.gpu(number) for number in range(seen)]
    ):
        for rank in range(size):
            ranks = Ranks(9, size)
            ranks.local_rank = rank
            own = range(rank * n, rank * n + n)
            enough = kind == "gpu" and own[-1] < seen
            assert ranks.devices(n, "asked") == named(own if enough else range(n))
    assert asked == [(n, "asked")] * size


def test_seeds_of_ranks_are_far_apart_and_rank_0s_is_the_users(monkeypatch):
    """MXNet seeds a thousand generators of each device by the numbers that follow."""
    seeds = []
    monkeypatch.setattr(mx.random, "seed", seeds.append)
    for size in (1, 40):
        for rank in range(size):
            Ranks(rank, size).seed(5)
    one, *several = seeds
    assert one == several[0] == 5
    assert min(abs(a - b) for a, b in combinations(several, 2)) > 127 * 100 + 1024
    Ranks(4000, 4001).seed((1 << 31) - 1)
    assert 0 <= seeds[-1] < 1 << 31, "which MXNet takes"
    drawn = []
    monkeypatch.setattr(mx.nd.random, "randint", lambda *range_: drawn.append(range_) or mx.nd.array([77]))
    for ranks in (World(), Ranks()):
        ranks.seed()
    assert drawn == [], "a single rank draws as MXNet does"
    Ranks(3, 4).seed()
    assert (drawn, seeds[-1]) == ([(0, 1 << 20)], 77 + 3 * 2**20)


def test_one_rank_does_nothing():
    alone, x = World(), np.arange(3.0)
    alone.sum([x])
    alone.broadcast([x])
    alone.reduce_scatter(x)
    alone.all_gather(x)
    alone.barrier()
    assert x.tolist() == [0, 1, 2]
    assert (alone.rank, alone.size, alone.local_rank, Ranks(2, 3).local_rank) == (0, 1, 0, 2)
    assert (alone.gather("x"), alone.together(lambda: 5), alone.shard(7)) == (["x"], [5], slice(0, 7))
    alone.agree({"seed": 1})
    assert alone.begun == [0, 0]
    assert alone.devices(2, "cpu") == devices(2, "cpu")
    assert world() is ALONE
    assert (repr(ALONE), repr(Ranks(2, 3))) == ("<rank 0 of 1>", "<rank 2 of 3>")


@pytest.mark.parametrize(("size", "named"), [(24, False), (16, False), (24, True), (32, False)])
def test_steps_are_counted_in_the_launchers_file_alone(monkeypatch, tmp_path, size, named):
    """It has no name and 24 bytes. The number may be another file's, in a process that a rank has started."""
    with open(tmp_path / "file", "w+b") if named else tempfile.TemporaryFile() as file:
        file.write(bytes(size))
        file.flush()
        for number, counts in ((str(file.fileno()), size == 24 and not named), ("x", False), ("99999", False)):
            monkeypatch.setenv(STEPS, number)
            launchers_file.cache_clear()
            for ranks in (World(), Ranks(), World()):
                ranks.step_done()
            assert (launchers_file() is not None) == counts
        expected = (3).to_bytes(8, "little") + bytes(16) if size == 24 and not named else bytes(size)
        assert os.pread(file.fileno(), 99, 0) == expected
    launchers_file.cache_clear()
