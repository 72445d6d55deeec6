from __future__ import annotations

import os
import subprocess
import sys

import numpy as onp
import pytest

from mxdp.backend import mx, npx
from mxdp.collectives import AllReduce, GradientSync, allreduce, jobs
from mxdp.collectives.program import Program, places
from mxdp.plans import moves
from mxdp.plans.one_hop import shared_memory
from mxdp.plans.rings import ring


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """As if everything were large, with pieces of 64 bytes."""
    monkeypatch.setattr(moves, "IN_PLACE_BYTES", 1)
    monkeypatch.setattr(jobs, "PIECE_BYTES", 64)


def numbers(rank, size, dtype="float32"):
    return (onp.arange(size) * (rank + 1) % 101).astype(dtype)


def vectors(devices, size, dtype="float32"):
    return [mx.nd.array(numbers(rank, size, dtype), ctx=mx.cpu(rank), dtype=dtype) for rank in range(devices)]


def total(devices, size, dtype="float32"):
    return sum(numbers(rank, size, dtype) for rank in range(devices))


def busy(device):
    """Some 100 ms of work for ``device``: whatever it is given after that has to wait."""
    x = mx.nd.ones((1500, 1500), ctx=device)
    npx.waitall()
    return [mx.nd.dot(x, x) for _ in range(2)]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int64"])
@pytest.mark.parametrize(("devices", "size"), [(1, 5), (2, 1), (2, 33), (3, 100), (4, 7), (5, 999), (8, 64), (8, 3)])
def test_all_hold_the_exact_sum_again_and_again(devices, size, dtype):
    xs = vectors(devices, size, dtype)
    run = AllReduce(xs, "shared-memory")
    for round_number in range(3):
        run()
        for x in xs:
            assert x.asnumpy().tolist() == total(devices, size, dtype).tolist(), round_number
        for rank, x in enumerate(xs):
            x[:] = mx.nd.array(numbers(rank, size, dtype), ctx=x.ctx, dtype=dtype)


def test_one_call_does_not_wait_and_so_takes_boxes(monkeypatch):
    monkeypatch.setattr(jobs, "alias", None)
    xs = vectors(3, 10)
    allreduce(xs, "shared-memory")
    assert xs[2].asnumpy().tolist() == total(3, 10).tolist()


def test_a_mean():
    xs = vectors(2, 50)
    AllReduce(xs, "shared-memory", op="mean")()
    assert xs[1].asnumpy().tolist() == (total(2, 50) / 2).tolist()


def test_gradients_in_buckets():
    replicas = [[mx.np.ones(shape, ctx=mx.cpu(rank)) for shape in [(3, 5), (40,)]] for rank in range(3)]
    sync = GradientSync(replicas, "shared-memory")
    for rank, own in enumerate(sync.gradients):
        for gradient in own.values():
            gradient[:] = rank + 1
    sync()
    assert all((gradient.asnumpy() == 6).all() for own in sync.gradients for gradient in own.values())


def test_who_reads_before_sees_what_was_there():
    xs = vectors(2, 64)
    run = AllReduce(xs, "shared-memory")
    keep = busy(mx.cpu(1))
    before = xs[1] + 0
    run()
    assert before.asnumpy().tolist() == numbers(1, 64).tolist()
    del keep


def test_who_reads_after_sees_the_sum():
    xs = vectors(2, 64)
    run = AllReduce(xs, "shared-memory")
    keep = busy(mx.cpu(0))
    run()
    after = xs[1] + 0
    assert after.asnumpy().tolist() == total(2, 64).tolist()
    del keep


@pytest.mark.parametrize("check", [test_who_reads_before_sees_what_was_there, test_who_reads_after_sees_the_sum])
def test_without_its_guards_it_goes_wrong(monkeypatch, check):
    """The guards before the jobs, and those behind them."""
    whole = jobs.jobs

    def broken(todo, spots):
        calls = whole(todo, spots)
        return calls[len(spots) :] if check is test_who_reads_before_sees_what_was_there else calls[: -len(spots)]

    monkeypatch.setattr("mxdp.collectives.program.jobs", broken)
    with pytest.raises(AssertionError):
        check()


@pytest.mark.parametrize("spoil", [lambda calls: calls[:-1], lambda calls: calls[1:]], ids=["no copy", "no sum"])
def test_a_move_left_out_is_found(monkeypatch, spoil):
    whole = jobs._in_bulk
    monkeypatch.setattr(jobs, "_in_bulk", lambda calls: whole(spoil(calls)))
    with pytest.raises(AssertionError):
        test_a_mean()


TWO_WORKERS = """
import contextlib, sys
import mxdp
from mxdp.backend import mx, npx
if sys.argv[1] == "no bulk":
    mx.engine.bulk = lambda size: contextlib.nullcontext()
xs = [mx.nd.full((1 << 22,), 1 + rank, ctx=mx.cpu(rank)) for rank in range(2)]
run = mxdp.AllReduce(xs, "shared-memory")
for _ in range(5):
    run()
npx.waitall()
print(sum(int((x.asnumpy() != 48).sum()) for x in xs))
"""


@pytest.mark.parametrize(("how", "right"), [("as it is", True), ("no bulk", False)])
def test_a_job_is_one_piece_of_work(how, right):
    """On two workers a device, a copy would overtake the sum before it: only a bulk keeps them in order."""
    done = subprocess.run(
        [sys.executable, "-c", TWO_WORKERS, how],
        env={**os.environ, "MXNET_CPU_WORKER_NTHREADS": "2"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert (int(done.stdout) == 0) == right


def test_jobs_and_guards():
    def calls(schedule, size, again=True):
        return Program(schedule, [places(schedule, vector) for vector in vectors(schedule.devices, size)], again).calls

    assert len(calls(shared_memory(3), 100)) == 3 + 3 + 3
    assert len(calls(shared_memory(3), 2)) == 3 + 2 + 3
    assert len(calls(shared_memory(3), 100, again=False)) == 3 + 6 + 3
    assert len(calls(ring(2), 100)) == 6


def test_an_alias_is_the_same_memory():
    x = mx.nd.zeros((4,), ctx=mx.cpu(1))
    jobs.alias(x[1:3])[:] = 7
    npx.waitall()
    assert x.asnumpy().tolist() == [0, 7, 7, 0]
