"""Ranks started by mpiexec equal one process: sums, broadcasts, masks, training. (Few starts: each takes seconds.)"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mxdp.errors import MxdpError
from mxdp.processes import world

MPIEXEC = Path(sys.executable).with_name("mpiexec")


def test_without_mpi_a_launched_process_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert world().size == 1
    monkeypatch.setenv("PMI_SIZE", "2")
    with pytest.raises(MxdpError, match=r"PMI_SIZE.*`pip install mpi4py mpich`, or start one process"):
        world()


SUMS = """
import faulthandler
faulthandler.dump_traceback_later(60, exit=True)
for do in (world.sum, world.broadcast):
    for shape in ((64, 64, 3, 3), (64, 64, 3, 3, 3)):
        weight = np.arange(64 * 64 * 3 ** len(shape[2:]), dtype="float32").reshape(shape) % 1000 + world.rank
        x = np.ones((2, 64) + (8,) * len(shape[2:]))
        npx.convolution(x, weight, kernel=shape[2:], num_filter=64, no_bias=True).wait_to_read()
        with autograd.record():
            do([weight])
        expected = onp.arange(weight.size, dtype="float32").reshape(shape) % 1000
        if do == world.sum:
            expected = sum(expected + rank for rank in range(world.size))
        onp.testing.assert_array_equal(weight.asnumpy(), expected)
arrays = [np.arange(k, dtype=d, ctx=mx.cpu(k % 2)) + world.rank for k, d in ((0, "float32"), (5, "int32"),
          (100_000, "float32"), (1, "float64"))]
for _ in range(3):
    world.sum(arrays)
sent = np.full((2, 3), world.rank + 1.0)
world.broadcast([sent])
vector = np.arange(7.0) * (world.rank + 1)
world.reduce_scatter(vector)
world.all_gather(vector)
found = [[array[-1:].tolist() for array in arrays], sent.tolist(), world.gather(world.rank * 2), world.local_rank,
         vector.tolist()]
faulthandler.cancel_dump_traceback_later()
"""
MASKS = """
import json, pathlib, sys, mxdp, numpy as onp
from mxdp.backend import autograd, gluon, mx, np, npx
world = mxdp.world()
def masks():
    with autograd.train_mode():
        return [npx.dropout(np.ones((64,), ctx=mx.cpu(i)), p=0.5).tolist() for i in range(2)]
def net(X, params):
    return npx.dropout(X.reshape(len(X), -1), p=0.5) @ params[0]
data, net_of_gluon = mxdp.load("synthetic").take(20, 10), gluon.nn.Dense(2, in_units=3)
net_of_gluon.initialize()
def trains():
    options = dict(kind="cpu", data=data, report=lambda line: None, world=world, net=net)
    history = mxdp.train(1, 10, 0.1, 1, params=[np.ones((784, 10))], **options)
    assert world.gather(history.device_params[0][0].tolist())[0] == history.device_params[0][0].tolist()
drawn = {"at the start": masks()}
def after(name, seed, do):
    for again in ("", " again"):
        seed()
        do()
        drawn[name + again] = masks()
after("train", lambda: mx.random.seed(3), trains)
after("a trainer", lambda: mx.random.seed(3), lambda: mxdp.Trainer(net_of_gluon.collect_params(), "sgd", world=world))
after("a store", lambda: mx.random.seed(3), lambda: mx.kv.create("mxdpmpi"))
after("seed", lambda: world.seed(3), list)
"""
FAILS = """
pathlib.Path(sys.argv[1], str(world.rank)).write_text(json.dumps([found, drawn]))
world.barrier()
if world.rank == 1:
    raise KeyError("mine")
world.barrier()
"""


@pytest.mark.skipif(not MPIEXEC.exists(), reason="no mpiexec: pip install mpi4py mpich")
def test_three_ranks_sum_exactly_draw_other_masks_and_end_all_when_one_fails(tmp_path):
    """Whole numbers, so that sums are exact; a second sum of the same arrays shows that the first had ended.

    After a convolution without gradients, oneDNN keeps the weight in a layout of its own; a job that takes such an
    array's address waits for itself. Dropout draws other masks on each device of each rank, and the same ones again
    after the same seed: without one, and where ``mx.random.seed`` was called alike on all ranks before."""
    command = [MPIEXEC, "-n", "3", sys.executable, "-c", MASKS + SUMS + FAILS, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    results = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(3)]
    last = [[sum(k - 1 + rank for rank in range(3)) * 9] for k in (5, 100_000, 1)]
    for rank, (found, _) in enumerate(results):
        assert found == [[[], *last], [[1.0] * 3] * 2, [0, 2, 4], rank, [6.0 * place for place in range(7)]]
    for name in results[0][1]:
        masks = [tuple(mask) for _, drawn in results for mask in drawn[name]]
        assert len(set(masks)) == len(masks) == 6, name
        assert not name.endswith(" again") or all(drawn[name] == drawn[name[:-6]] for _, drawn in results), name
    assert "rank 1 of 3 ranks failed" in done.stderr
    assert "KeyError: 'mine'" in done.stderr
