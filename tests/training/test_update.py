"""SGD with momentum, whole and in shards: equal to NumPy's, and to each other."""

from __future__ import annotations

import shutil
import sys

import numpy as onp
import pytest

from mxdp.backend import mx, np
from mxdp.collectives import GradientSync
from mxdp.collectives.shards import ShardedSync
from mxdp.datasets import load
from mxdp.scratch import get_params, in_sync, init_lenet
from mxdp.training import TrainStep, train
from mxdp.training.update import Update

SMALL = load("synthetic").take(60, 20)
SHAPES = [(3, 4), (5,), (), (0, 2), (70,), (2, 0), (3, 0, 1)]


def devices(n):
    return [mx.cpu(number) for number in range(n)]


def replicas(n, shapes=SHAPES):
    params = [np.arange(int(onp.prod(shape)), dtype="float32").reshape(shape) for shape in shapes]
    return [get_params(params, device) for device in devices(n)]


def fill(device_params, step):
    """Whole numbers, whose sums are exact."""
    for device, params in enumerate(device_params):
        for number, param in enumerate(params):
            values = (onp.arange(param.size).reshape(param.shape) + 3 * device + number) * (step + 1)
            np.array(values, dtype="float32").copyto(param.grad)


def by_numpy(n, steps, momentum, lr=0.5, samples=4):
    params = [param.asnumpy() for param in replicas(1)[0]]
    momenta = [onp.zeros_like(param) for param in params]
    for step in range(steps):
        made = replicas(n)
        fill(made, step)
        for number, (param, v) in enumerate(zip(params, momenta)):
            gradient = sum(replica[number].grad.asnumpy() for replica in made)
            v[...] = momentum * v - lr / samples * gradient
            param += v
    return params, momenta


@pytest.mark.parametrize("kind", [GradientSync, ShardedSync])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_replicas_and_momentum_are_numpys(kind, momentum, n):
    device_params = replicas(n)
    sync = kind(device_params)
    update = Update(sync, 0.5, momentum)
    for step in range(3):
        fill(device_params, step)
        sync()
        update(4)
    params, momenta = by_numpy(n, 3, momentum)
    for replica in device_params:
        onp.testing.assert_equal([param.asnumpy() for param in replica], params)
    state = [onp.array(x if isinstance(x, onp.ndarray) else x.asnumpy()) for x in update.state()]
    onp.testing.assert_equal(state, momenta if momentum else [])


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (2, 1)])
@pytest.mark.parametrize("sharded", [(True, True), (True, False), (False, True)])
def test_a_state_continues_in_other_shards(sharded, before, after):
    state, start = [], replicas(1)[0]
    for n, shard, steps in ((before, sharded[0], (0, 1)), (after, sharded[1], (2, 3))):
        device_params = [get_params(start, device) for device in devices(n)]
        sync = (ShardedSync if shard else GradientSync)(device_params)
        update = Update(sync, 0.5, 0.5)
        update.load(state)
        for step in steps:
            fill(device_params[:1], step)  # the others' gradients stay, so set them to zero
            for params in device_params[1:]:
                for param in params:
                    param.grad[()] = 0
            sync()
            update(4)
        start = device_params[0]
        state = [x if isinstance(x, onp.ndarray) else x.asnumpy() for x in update.state()]
    params, momenta = by_numpy(1, 4, 0.5)
    onp.testing.assert_equal([param.asnumpy() for param in start], params)
    onp.testing.assert_equal(state, momenta)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_step_in_shards_has_the_bits_of_a_whole_one(n):
    """Also with fewer samples than devices, and after micro-batches."""
    rng, results = onp.random.RandomState(0), []
    batches = [(rng.rand(b, 1, 28, 28).astype("float32"), rng.randint(0, 10, b).astype("int32")) for b in (9, 1, 6, 8)]
    for kind in (GradientSync, ShardedSync):
        device_params = [get_params(init_lenet(0), device) for device in devices(n)]
        sync = kind(device_params)
        step = TrainStep(device_params, devices(n), 0.1, sync, momentum=0.9)
        for X, y in batches:
            step(X, y)
        assert in_sync(device_params)
        results.append([param.asnumpy() for param in device_params[0]])
    for one, other in zip(*results):
        if n < 3:
            onp.testing.assert_array_equal(one, other)
        else:  # another order of addition
            onp.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def quiet(*args, **options):
    return train(*args, kind="cpu", data=SMALL, report=lambda line: None, **options)


def test_training_continues_on_other_devices(tmp_path):
    """Bit for bit with as many devices, and else nearly: sums have another order."""
    expected = quiet(2, 12, 0.1, num_epochs=3, momentum=0.9)
    options = dict(momentum=0.9, shard_optimizer=True)
    quiet(2, 12, 0.1, num_epochs=2, checkpoint=tmp_path / "two epochs", **options)
    for after in (1, 2, 3):
        shutil.copytree(tmp_path / "two epochs", tmp_path / f"on {after}")
        continued = quiet(after, 12, 0.1, num_epochs=3, checkpoint=tmp_path / f"on {after}", **options)
        for one, other in zip(continued.device_params[0], expected.device_params[0]):
            if after == 2:
                onp.testing.assert_array_equal(one.asnumpy(), other.asnumpy())
            else:
                onp.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("sharded", [False, True])
def test_train_cuts_the_momentum_if_it_is_told_to(sharded, monkeypatch):
    made = []

    class Spy(ShardedSync):
        def __init__(self, *arguments, **more):
            super().__init__(*arguments, **more)
            made.append(self)

    monkeypatch.setattr(sys.modules[train.__module__], "ShardedSync", Spy)
    quiet(2, 12, 0.1, num_epochs=1, momentum=0.9, shard_optimizer=sharded)
    sizes = [[sum(part.weight.size for part in parts) for parts in sync.parts] for sync in made]
    whole = sum(param.size for param in init_lenet(0))
    assert sizes == [[whole / 2] * 2] * sharded
