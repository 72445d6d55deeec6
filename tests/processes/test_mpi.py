"""Ranks started by mpiexec equal one process: sums, broadcasts, training, gluon."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as onp
import pytest

from mxdp import devices, train
from mxdp.backend import np
from mxdp.datasets import load
from mxdp.errors import MxdpError
from mxdp.processes import ALONE, World, world

MPIEXEC = Path(sys.executable).with_name("mpiexec")
needs_mpi = pytest.mark.skipif(not MPIEXEC.exists(), reason="no mpiexec: pip install mpi4py mpich")


@pytest.fixture
def ranks(tmp_path):
    """``ranks(n, code)`` runs ``code`` in ``n`` processes; what each gives to ``say`` comes back, in the order of
    ranks. ``fails=True``: it must end with an error, whose text comes back."""

    def run(n, code, fails=False):
        script = tmp_path / "script.py"
        script.write_text(
            "import json, pathlib, mxdp, numpy as onp\nfrom mxdp.backend import autograd, gluon, mx, np, npx\n"
            "world = mxdp.world()\n"
            f"say = lambda x: pathlib.Path({str(tmp_path)!r}, str(world.rank)).write_text(json.dumps(x))\n{code}"
        )
        done = subprocess.run(
            [MPIEXEC, "-n", str(n), sys.executable, script], capture_output=True, text=True, timeout=120
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else [json.loads((tmp_path / str(rank)).read_text()) for rank in range(n)]

    return run


def test_one_rank_does_nothing():
    alone, x = World(), np.arange(3.0)
    alone.sum([x])
    alone.broadcast([x])
    alone.barrier()
    assert x.tolist() == [0, 1, 2]
    assert (alone.rank, alone.size, alone.local_rank) == (0, 1, 0)
    assert (alone.gather("x"), alone.shard(7)) == (["x"], slice(0, 7))
    alone.agree({"seed": 1})
    assert alone.devices(2, "cpu") == devices(2, "cpu")
    hook = sys.excepthook
    assert world() is ALONE
    assert sys.excepthook is hook
    assert repr(ALONE) == "<rank 0 of 1>"


def test_without_mpi_a_launched_process_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    assert world().size == 1
    monkeypatch.setenv("PMI_SIZE", "2")
    with pytest.raises(MxdpError, match=r"PMI_SIZE.*`pip install mpi4py mpich`, or start one process"):
        world()


@needs_mpi
def test_sums_over_ranks_are_exact_and_in_order(ranks):
    """Whole numbers, so that sums are exact; a second sum of the same arrays shows that the first had ended.

    After a convolution without gradients, oneDNN keeps the weight in a layout of its own; a job that takes such an
    array's address waits for itself."""
    results = ranks(
        3,
        """
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
say([[array[-1:].tolist() for array in arrays], sent.tolist(), world.gather(world.rank * 2), world.local_rank,
     [world.shard(s).indices(s)[:2] for s in (1, 7)]])
""",
    )
    last = [[sum(k - 1 + rank for rank in range(3)) * 9] for k in (5, 100_000, 1)]
    starts = [[0, 1], [0, 3]], [[1, 1], [3, 5]], [[1, 1], [5, 7]]
    for rank, of_rank in enumerate(results):
        assert of_rank == [[[], *last], [[1.0] * 3] * 2, [0, 2, 4], rank, starts[rank]]


@needs_mpi
def test_a_failure_on_one_rank_ends_all(ranks):
    text = ranks(2, "if world.rank: raise KeyError('mine')\nworld.barrier()", fails=True)
    assert "rank 1 of 2 ranks failed" in text
    assert "KeyError: 'mine'" in text


DROPOUT = """
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
say(drawn)
"""


@needs_mpi
def test_dropout_draws_other_masks_on_each_device_of_each_rank_and_the_same_ones_again(ranks):
    """Without a seed; and where ``mx.random.seed`` was called alike on all ranks before."""
    results = ranks(3, DROPOUT)
    for name in results[0]:
        masks = [tuple(mask) for drawn in results for mask in drawn[name]]
        assert len(set(masks)) == len(masks) == 6, name
        assert not name.endswith(" again") or all(drawn[name] == drawn[name[:-6]] for drawn in results), name


TRAIN = """
data = mxdp.load("synthetic").take(101, 51)
history = mxdp.train({devices}, 30, 0.3, 2, kind="cpu", data=data, report=lambda line: None, world=world)
say([[p.asnumpy().tolist() for p in history.device_params[-1]], history.test_accuracies,
     [epoch.loss for epoch in history.epochs]])
"""
"""101 samples in batches of 30 over 2 ranks of 2 devices: shards of 8 and 7, a last batch of 11."""


def one_after_the_other(codes):
    """One script, since a process needs seconds to load MXNet: what each of ``codes`` says, in a list."""
    return "\n".join(["all_said = []", *(code.replace("say(", "all_said.append(") for code in codes), "say(all_said)"])


@needs_mpi
def test_training_equals_one_process(ranks):
    results = ranks(2, one_after_the_other(TRAIN.format(devices=devices) for devices in (1, 2)))
    assert results[0] == results[1]  # bit for bit
    data = load("synthetic").take(101, 51)
    serial, two = (train(n, 30, 0.3, 2, kind="cpu", data=data, report=lambda line: None) for n in (1, 2))
    for params, accuracies, losses in results[0]:
        for ours, expected in zip(params, serial.device_params[0]):
            onp.testing.assert_allclose(ours, expected.asnumpy(), rtol=2e-4, atol=2e-6)
        assert accuracies == serial.test_accuracies
        assert losses == pytest.approx([epoch.loss for epoch in serial.epochs], rel=1e-5)
    # Two ranks of a device have the same shards as two devices of one process, so the same bits.
    assert results[0][0][0] == [param.asnumpy().tolist() for param in two.device_params[0]]


GLUON = """
mx.random.seed({seed})
on = mxdp.devices({devices}, "cpu")
net = gluon.nn.Sequential()
net.add(gluon.nn.Dense(7, activation="relu", in_units=5), gluon.nn.Dense(3, in_units=7))
net.initialize(ctx=on)
options = dict(learning_rate=0.1, momentum=0.9)
trainer = {trainer}
random, loss = onp.random.RandomState(0), gluon.loss.L2Loss()
for _ in range(4):
    X, y, own = random.rand(10, 5).astype("float32"), random.rand(10, 3).astype("float32"), world.shard(10)
    with autograd.record():
        losses = [loss(net(X), y) for X, y in zip(*mxdp.split_batch(X[own], y[own], on))]
    autograd.backward(losses)
    trainer.step(10)
say([p.data(on[-1]).asnumpy().tolist() for p in net.collect_params().values()])
"""


PLAIN = 'gluon.Trainer(net.collect_params(), "sgd", options, kvstore="device")'
TRAINERS = [
    # Other initial values on each rank: rank 0's count.
    ("world.rank", 'mxdp.Trainer(net.collect_params(), "sgd", options, world=world)'),
    ("world.rank", 'mxdp.Trainer(net.collect_params(), "sgd", options, kvstore="mxdpmpi")'),
    ("0", 'gluon.Trainer(net.collect_params(), "sgd", options, kvstore=mx.kv.create("mxdpmpi"))'),
]


@needs_mpi
def test_gluon_equals_one_process(ranks):
    several = [(seed, on, trainer) for seed, trainer in TRAINERS for on in (1, 2)]
    codes = [GLUON.format(seed=seed, devices=on, trainer=trainer) for seed, on, trainer in several]
    serial = GLUON.format(seed=0, devices=1, trainer=PLAIN).replace("world.shard(10)", "slice(None)")
    results = ranks(2, one_after_the_other([serial, *codes]))
    assert results[0] == results[1]
    expected = results[0].pop(0)
    for how, params in zip(several, results[0]):
        for param, wanted in zip(params, expected):
            onp.testing.assert_allclose(param, wanted, rtol=1e-5, atol=1e-7, err_msg=str(how))


@needs_mpi
def test_a_gluon_training_continues_bit_for_bit_with_each_devices_running_means(ranks, tmp_path):
    kept = f"""
kept = mxdp.Checkpoint({str(tmp_path / "kept")!r} + str(len(on)), world=world, report=lambda line: None)
start = (kept.load(net, trainer) or dict(step=0))["step"]
random, loss"""
    code = GLUON.replace("net.initialize", "net.add(gluon.nn.BatchNorm(in_channels=3))\nnet.initialize")
    code = code.replace("random, loss", kept).replace("range(4)", "range(start, 4)")
    code = code.replace("    X, y, own", "    random.seed(step)\n    X, y, own").replace("for _ in", "for step in")
    code = code.replace("trainer.step(10)", "trainer.step(10)\n    step == 1 and kept.save(net, trainer, step=2)")
    code = code.replace("say([", "kept.wait()\nsay([start] + [")
    trainer = 'mxdp.Trainer(net.collect_params(), "sgd", options, world=world)'
    whole, continued = (
        ranks(2, one_after_the_other(code.format(seed=seed, devices=on, trainer=trainer) for on in (1, 2)))
        for seed in (0, 5)
    )
    assert [printed.pop(0) for of_run in (*whole, *continued) for printed in of_run] == [0] * 4 + [2] * 4
    assert continued == whole
    for one, other in zip(*whole):
        assert one != other  # in the running means alone


def test_a_world_is_for_stores_of_mxdp():
    import mxdp

    several = World()
    several.size = 2
    with pytest.raises(ValueError, match="not for kvstore='device'"):
        mxdp.Trainer([], "sgd", kvstore="device", world=several)
