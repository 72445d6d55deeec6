"""A process's place among ranks; and several ranks as threads of this process (:mod:`fake_mpi`): what they exchange,
agree on and refuse."""

import gc
import os
import sys
import tempfile
from itertools import combinations
from unittest import mock

import fake_mpi
import numpy as onp
import pytest
from gate import Gate, SlowReader
from hypothesis import given, settings
from hypothesis import strategies as st

import mxdp
from mxdp import devices, engine, process
from mxdp.backend import mx, np
from mxdp.collectives import tuning
from mxdp.datasets import load
from mxdp.errors import MxdpError
from mxdp.gluon import Store
from mxdp.processes import ALONE, Ranks, World, world
from mxdp.processes.leaving import STEPS, launchers_file
from mxdp.processes.order import agree_values
from mxdp.processes.world import Note
from mxdp.training import train


@pytest.mark.parametrize("astray", [None, 0, 1, 2])
def test_in_sync_compares_all_ranks(astray):
    """A rank whose sums are wrong has replicas that equal each other."""

    class Astray(World):
        def sum(self, arrays, note=None):
            super().sum(arrays, note)
            for array in arrays if self.rank == astray else ():
                array[:1] += 1  # of the last parameter alone

    lines, drawn = [], []
    options = dict(kind="cpu", data=load("synthetic").take(34, 10), report=lines.append)
    options["draw"] = lambda *what: drawn.append(fake_mpi.rank())
    fake_mpi.run(3, lambda world: train(2, 10, 0.1, 1, world=world, **options), make=Astray)
    assert drawn == [0]
    assert lines[-1].endswith(f"in each of 3 processes; replicas in sync: {astray is None}")


def test_a_batch_has_a_sample_for_each_device_of_all_ranks():
    options = dict(kind="cpu", data=load("synthetic").take(34, 10))
    for error in fake_mpi.outcomes(3, lambda world: train(2, 5, 0.1, 1, world=world, **options))[0]:
        assert str(error).startswith("batch_size 5 gives 6 devices less than a sample each")


def test_an_error_inside_the_engine_ends_all_ranks():
    """Here of MPI, where a rank brings another length; nobody waits for the array."""
    _, aborted = fake_mpi.outcomes(2, lambda world: world.sum([np.zeros((3 + world.rank,))]))
    assert any("Truncated" in text for text in aborted)


@pytest.mark.parametrize("dtype", ["bool", "float16"])
def test_a_type_that_mpi_can_not_add_is_refused(dtype):
    for error in fake_mpi.outcomes(2, lambda world: world.sum([np.zeros((3,)), np.zeros((3,), dtype=dtype)]))[0]:
        assert repr(error).startswith(f"TypeError(\"MPI can't add numbers of dtype {dtype}")


@pytest.mark.parametrize("do", ["sum", "broadcast"])
def test_an_exchange_outlives_its_world_and_leaves_nothing_behind(do):
    """What a function began with a World of its own is done after it, whenever Python collects its garbage."""

    def work(mpi):
        arrays = [np.full((2,), mpi.COMM_WORLD.rank + 1.0), np.ones((0,)), np.full((3,), 2, dtype="int32")]
        gate = Gate(arrays[0])
        if do == "broadcast":  # which waits for its arrays before it begins
            gate.open()
        getattr(World(mpi), do)(arrays)
        gc.collect()
        gate.open()
        return arrays

    for arrays in fake_mpi.run(3, work, make=lambda mpi: mpi):
        first, _, last = (array.asnumpy().tolist() for array in arrays)
        assert (first, last) == (([6.0] * 2, [6] * 3) if do == "sum" else ([1.0] * 2, [2] * 3))
    engine._finish()
    assert not engine._jobs


def test_a_broadcast_waits_for_work_that_only_reads():
    """An inference pass that is still running may change the layout of its weights: the job would wait for itself."""

    def work(world):
        weights = np.full((3,), float(world.rank))
        reader = SlowReader(weights, np.zeros((1,)))
        world.broadcast([weights])
        return reader.ended, weights.asnumpy().tolist()

    assert fake_mpi.run(2, work) == [(True, [0.0] * 3)] * 2


@pytest.mark.parametrize("threads", range(4))
def test_an_mpi_without_calls_from_several_threads_is_refused(threads):
    errors, _ = fake_mpi.outcomes(2, lambda w: w, make=lambda mpi: World(fake_mpi.MPI(mpi.COMM_WORLD, threads)))
    assert all(("MPI_THREAD_MULTIPLE" in str(error)) == (threads < 3) for error in errors)


class OnGpu(np.ndarray):
    """To World, an array on a GPU."""

    __slots__ = ()
    ctx = property(lambda self: mx.gpu(0))


CALLS = ("sum", "broadcast", "reduce_scatter", "all_gather", "gather", "barrier")
KINDS = st.tuples(
    st.sampled_from([0, 1, 5, 7]), st.sampled_from(["float32", "float64", "int32", "uint8"]), st.booleans()
)


def exchanged(call, of_ranks):
    """What the call makes of each rank's array."""
    n, total = len(of_ranks), sum(of_ranks)
    shards = [Ranks(rank, n).shard(total.size) for rank in range(n)]
    if call == "reduce_scatter":
        ours = [array.copy() for array in of_ranks]
        for array, shard in zip(ours, shards):
            array[shard] = total[shard]
        return ours
    joined = onp.concatenate([array[shard] for array, shard in zip(of_ranks, shards)])
    return [{"sum": total, "broadcast": of_ranks[0], "all_gather": joined}[call]] * n


@settings(max_examples=40)
@given(
    n=st.integers(2, 3),  # of more, the engine's threads here would all wait for another's sum
    kinds=st.lists(KINDS, min_size=3, max_size=11),
    calls=st.lists(st.tuples(st.sampled_from(CALLS), st.integers(0, 10)), min_size=3, max_size=25),
)
def test_every_exchange_is_exact_counted_and_carries_one_note(n, kinds, calls):
    """Some arrays lie on a GPU, as World believes. By the counts, a rank that has ended knows that another one waits
    (:mod:`mxdp.processes.leaving`). A note travels with the first sum that isn't empty, after its arrays are ready."""

    def start(rank, size, dtype):
        return onp.arange(size).astype(dtype) * (rank + 1) + rank

    def work(world):
        arrays = []
        for size, dtype, on_gpu in kinds:
            arrays.append(np.array(start(world.rank, size, dtype), dtype=dtype))
            arrays[-1].__class__ = OnGpu if on_gpu else np.ndarray
        note = Note(bytes([world.rank]) * 2, [np.full((3,), world.rank)])
        for number, (call, which) in enumerate(calls):
            array = arrays[which % len(arrays)]
            arguments = {"sum": ([array], note), "reduce_scatter": (array, note), "broadcast": ([array],)}
            arguments.update(all_gather=(array,), gather=((number, world.rank),), barrier=())
            told = getattr(world, call)(*arguments[call])
            assert told == ([(number, rank) for rank in range(n)] if call == "gather" else None)
        values = [array.asnumpy() for array in arrays]
        theirs = note.wait() if note.carrier is not None else note.theirs
        return values, world.begun, theirs, len(world._staging)

    values = [[start(rank, size, dtype) for size, dtype, _ in kinds] for rank in range(n)]
    arrays_of = [(call, which % len(kinds)) for call, which in calls if call not in ("gather", "barrier")]
    moved = [(call, place) for call, place in arrays_of if kinds[place][0]]
    for call, place in moved:
        for of_rank, array in zip(values, exchanged(call, [of_rank[place] for of_rank in values])):
            of_rank[place] = array
    begun = [len(moved), len(calls) - len(arrays_of)]
    staged = {kinds[place][:2] for _, place in moved if kinds[place][2]}
    carried = any(call in ("sum", "reduce_scatter") for call, _ in moved)
    notes = [bytes([rank]) * 2 + onp.full(3, rank).astype("float32").tobytes() for rank in range(n)]
    allgather = fake_mpi.Comm.Allgather
    with mock.patch.object(fake_mpi.Comm, "Allgather", autospec=True, side_effect=allgather) as travelled:
        ranks = fake_mpi.run(n, work)
    assert travelled.call_count == n * carried
    for (theirs, *others), of_rank in zip(ranks, values):
        for its, expected in zip(theirs, of_rank):
            assert its.dtype == expected.dtype
            onp.testing.assert_array_equal(its, expected)
        assert others == [begun, notes if carried else [], len(staged)]


def mine(rank):
    raise MxdpError(f"mine, of rank {rank}")


def broke(rank):
    raise OSError(5, f"rank {rank} broke")


@given(does=st.lists(st.sampled_from([mine, broke, lambda rank: rank * 2]), min_size=2, max_size=5))
def test_what_fails_together_fails_on_all_with_the_first_ones_words(does):
    ends, aborted = fake_mpi.outcomes(len(does), lambda world: world.together(lambda: does[world.rank](world.rank)))
    assert aborted == []
    failed = [rank for rank, do in enumerate(does) if do in (mine, broke)]
    if not failed:
        assert ends == [[2 * rank for rank in range(len(does))]] * len(does)
        return
    for rank, end in enumerate(ends):
        first = rank if rank in failed else failed[0]
        assert type(end) is (OSError if does[rank] is broke else MxdpError)
        assert (f"rank {first} broke" if does[first] is broke else f"mine, of rank {first}") in str(end)
        tells = rank not in failed and does[first] is broke
        assert str(end).startswith(f"rank {first} of {len(does)} ranks can't go on: ") == tells


@given(facts=st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 1), max_size=3), min_size=2, max_size=4))
def test_ranks_that_know_other_facts_are_told_which(facts):
    ends, _ = fake_mpi.outcomes(len(facts), lambda world: world.agree(facts[world.rank]))
    differ = [
        f"the ranks can't train together: rank {rank} has {name} {facts[rank].get(name)}, rank 0 has "
        f"{facts[0].get(name)}; start all with the same"
        for rank in range(len(facts))
        for name in "abc"
        if facts[rank].get(name) != facts[0].get(name)
    ]
    assert [type(end) for end in ends] == [MxdpError if differ else type(None)] * len(facts)
    assert not differ or str(ends[0]) in differ


@pytest.mark.parametrize("name", ["mxdpauto", "mxdpmpi"])
def test_a_store_broadcasts_and_sums_over_every_device_of_every_rank(name):
    def work(world):
        store = mxdp.gluon.store.by_name(name, world)
        arrays = [np.full((3, 2), 10.0 * world.rank + device, ctx=mx.cpu(device)) for device in range(3)]
        store.broadcast("w", arrays[0], arrays)
        sent = [array.tolist() for array in arrays]
        for number, array in enumerate(arrays):
            array[:] = 10 * world.rank + number
        outs = [np.zeros((3, 2), ctx=mx.cpu(device)) for device in range(4)]
        store.pushpull("w", arrays, out=outs)
        store.pushpull("w", arrays)
        return sent, [array.tolist() for array in [*arrays, *outs]]

    for sent, summed in fake_mpi.run(3, work):
        assert sent == [[[0.0] * 2] * 3] * 3
        assert summed == [[[99.0] * 2] * 3] * 7


@pytest.mark.parametrize(
    ("cores", "makers"), [([2, 1], ["AuthenticAMD"] * 2), ([2, 2], ["AuthenticAMD", "GenuineIntel"])]
)
def test_a_store_chooses_by_rank_0s_processor(cores, makers, monkeypatch):
    """400 kB on two devices: "shared-memory" on rank 0's, "naive" on rank 1's."""
    monkeypatch.setattr(process, "cores", lambda: cores[fake_mpi.rank()])
    monkeypatch.setattr("mxdp.gluon.store.maker", lambda: makers[fake_mpi.rank()])
    real, chosen = tuning.choose, {0: [], 1: []}

    def choose(*args):
        chosen[fake_mpi.rank()].append(real(*args))
        return chosen[fake_mpi.rank()][-1]

    monkeypatch.setattr(tuning, "choose", choose)
    fake_mpi.run(2, lambda w: Store(world=w).pushpull(1, [np.ones((100_000,), ctx=mx.cpu(i)) for i in range(2)]))
    assert chosen == {0: ["shared-memory"], 1: ["shared-memory"]}


@pytest.mark.parametrize("shape", [(3, 2), (6, 1)])
@pytest.mark.parametrize("call", ["broadcast", "pushpull"])
def test_ranks_with_other_arrays_under_a_key_are_refused(call, shape):
    def work(world):
        store, array = Store(world=world), np.zeros(shape if world.rank else (2, 3))
        getattr(store, call)("w", array, array)

    for error in fake_mpi.outcomes(2, work)[0]:
        assert f"rank 1 has under key 'w' float32 {shape}, rank 0 has float32 (2, 3)" in str(error)


@pytest.mark.parametrize(
    ("kind", "size", "seen", "expected"),
    [("gpu", 3, 6, [0, 1, 2, 3, 4, 5]), ("gpu", 3, 5, [0, 1, 2, 3, 0, 1]), ("cpu", 2, 9, [0, 1, 0, 1])],
)
def test_ranks_of_one_host_take_the_next_two_gpus(kind, size, seen, expected, monkeypatch):
    """Those that MXNet names first, if there are too few, or each rank sees its own alone."""
    module, taken = sys.modules[Ranks.__module__], []
    monkeypatch.setattr(module, "find_devices", lambda n, asked: [mx.Context(asked, number) for number in range(n)])
    monkeypatch.setattr(module, "usable_gpus", lambda: [mx.gpu(number) for number in range(seen)])
    for rank in range(size):
        ranks = Ranks(9, size)
        ranks.local_rank = rank
        taken += ranks.devices(2, kind)
    assert taken == [mx.Context(kind, number) for number in expected]


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
    gate = Gate(x, limit=5)
    alone.sum([x])
    alone.broadcast([x])
    alone.reduce_scatter(x)
    alone.all_gather(x)
    alone.barrier()
    agree_values(alone, [x])
    assert engine.CompletionEvent([x]).at is None, "nor has it waited"
    gate.open()
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
