"""Data-parallel steps equal the serial run's; and what would make them unequal is found."""

from __future__ import annotations

from functools import partial

import pytest

from mxdp.backend import autograd
from mxdp.backend import devices as devices_of_kind
from mxdp.collectives import allreduce
from mxdp.experiments.data_parallel.lenet_steps import check_step, synced_step
from mxdp.experiments.oracle import count
from mxdp.scratch import cross_entropy, lenet, sgd, split_batch, train_batch


def cpus(n):
    return devices_of_kind(n, "cpu")


@pytest.mark.parametrize("algorithm", ["doubling", "naive", "ring", "GradientSync"])
@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_equals_the_serial_run(algorithm, devices):
    by_parameter = partial(train_batch, allreduce=partial(allreduce, algorithm=algorithm))
    step = synced_step() if algorithm == "GradientSync" else by_parameter
    checked, wrong = count(check_step(cpus(devices), batch_size=13, step=step))
    assert checked == 3 * 129068 * (2 * devices + 2 * (devices - 1))
    assert wrong == 0


def mean_instead_of_sum(data):
    allreduce(data)
    for x in data:
        x /= len(data)


def rebinding(data):
    total = sum(x.copyto(data[0].ctx) for x in data)
    data[:] = [total.copyto(x.ctx) for x in data]


def divides_by_the_shard(X, y, device_params, devices, lr):
    """The gradient is not divided by the whole batch, but by each shard's own length."""
    X_shards, y_shards = split_batch(X, y, devices)
    with autograd.record():
        losses = [cross_entropy(lenet(X, params), y) for X, y, params in zip(X_shards, y_shards, device_params)]
    autograd.backward(losses)
    for same in zip(*device_params):
        allreduce([param.grad for param in same])
    for params, shard in zip(device_params, X_shards):
        sgd(params, lr, len(shard))


BROKEN = {
    "no all-reduce": partial(train_batch, allreduce=lambda data: None),
    "mean": partial(train_batch, allreduce=mean_instead_of_sum),
    "rebinding": partial(train_batch, allreduce=rebinding),
    "shard": divides_by_the_shard,
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_variants_are_caught(name):
    _, wrong = count(check_step(cpus(2), batch_size=13, step=BROKEN[name]))
    assert wrong > 1000
