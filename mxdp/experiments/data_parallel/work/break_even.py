"""Steps of three networks on one and on several devices, and what the prediction takes: one device, and the links."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Any, Iterable, Iterator, List, Sequence, Tuple

import numpy as onp

from mxdp import process
from mxdp.backend import HostArray, autograd, npx, upload
from mxdp.collectives.calibration import calibrate
from mxdp.collectives.tuning import choose
from mxdp.experiments.data_parallel.break_even import GRID
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.devices import devices_of
from mxdp.experiments.measure.networks import LR, Devices, network, seconds_a_step
from mxdp.experiments.measure.oracle import TOLERANCE, largest
from mxdp.experiments.measure.resnet import begin_anywhere
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.cost.machine import Machine
from mxdp.plans.cost.simulate import predict
from mxdp.plans.partition import fill_buckets

BUCKET = 25 << 20
"""Bytes of a bucket: the default of ``GradientSync`` and of ``mxdp.Trainer``."""
MOST = 200
"""Steps of one measurement."""


def _size(case: Case, settings: Settings) -> int:
    return int(settings["width" if case.settings["net"] == "resnet" else "units"])


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """One step on the case's batch. The serial run computes the shards' gradients one by one on the first device and
    adds them up on the host. (A batch normalisation takes its means over a shard, so the whole batch would differ.)"""
    devices, (X, y) = tuple(devices_of(case, settings)), _batch(case.settings["batch"], settings["seed"])
    many, one = (
        network(case.settings["net"], _size(case, settings), own, settings["seed"]) for own in (devices, devices[:1])
    )
    start = [param.asnumpy() for param in many.replicas[0]]
    expected = _summed(one, start, zip(onp.array_split(X, len(devices)), onp.array_split(y, len(devices))))
    _set(many, start)
    many.step(X, y)
    npx.waitall()
    found = [[each.asnumpy() for param in replica for each in (param.grad, param)] for replica in many.replicas]
    for number, (gradient, before) in enumerate(zip(expected, start)):
        change = -LR / len(X) * gradient
        yield found[0][2 * number], gradient, TOLERANCE
        # The change is small beside the parameter, which is rounded.
        limit = TOLERANCE * largest(change) + 2**-22 * largest(before)
        yield found[0][2 * number + 1], before + change, 1.0, limit
    for replica in found[1:]:
        for own, first in zip(replica, found[0]):
            yield own.view("u4") != first.view("u4"), onp.zeros(own.shape), 0.0


def _summed(one: Any, start: Sequence[HostArray], shards: Iterable[Tuple[HostArray, HostArray]]) -> List[HostArray]:
    """The sum of the shards' gradients, computed on one device from the parameters ``start``, in float64."""
    _set(one, start)
    device, total = one.replicas[0][0].ctx, [onp.zeros(each.shape) for each in start]
    for X, y in shards:
        with autograd.record():
            loss = one.loss(upload(X, device), upload(y, device))
        loss.backward()
        total = [sum_ + param.grad.asnumpy() for sum_, param in zip(total, one.replicas[0])]
    return total


def _set(model: Any, values: Sequence[HostArray]) -> None:
    """Set the parameters of all replicas: a step without its all-reduce leaves them different."""
    for replica in model.replicas:
        for param, own in zip(replica, values):
            param[()] = upload(own, param.ctx)


def set_up(case: Case, settings: Settings) -> Work:
    """A round is some steps, on one device. On several, it is these with the all-reduce and without it, and what the
    prediction takes: steps of one device on its shard, and the links' speeds."""
    devices, own, numbers = tuple(devices_of(case, settings)), case.settings, itertools.count()
    random = Random(os.getpid())
    on_cpu, n = devices[0].device_type == "cpu", len(devices)
    everywhere = tuple(devices_of(replace(case, devices=max(settings["devices"])), settings))
    size = _size(case, settings)
    model, one = (network(own["net"], size, each, settings["seed"]) for each in (devices, devices[:1]))
    batch = _batch(own["batch"], settings["seed"])
    shard = tuple(each[: -(-own["batch"] // n)] for each in batch)
    one.step(*shard)
    model.step(*batch)
    steps = max(1, min(MOST, round(settings["at_least"] / seconds_a_step(model, batch, 1)[0])))

    def one_round() -> Round:
        begin_anywhere(devices[0], random)
        machine = _machine(everywhere, next(numbers)) if n > 1 else None
        seconds, _ = seconds_a_step(model, batch, steps)
        if machine is None:
            return Round(seconds)
        shard_seconds, python = seconds_a_step(one, shard, steps)
        model.sums = False
        alone, _ = seconds_a_step(model, batch, steps)
        model.sums = True
        sizes = [param.size for param in model.replicas[0]]
        grid = {str(count): allreduce_seconds([count], devices, machine) for count in GRID}
        metrics = {
            "shard_seconds": shard_seconds, "python_seconds": python, "alone_seconds": alone,
            "allreduce_seconds": allreduce_seconds(sizes, devices, machine), "allreduce_by_parameters": grid,
        }  # fmt: skip
        return Round(seconds, metrics)

    return Work(devices, one_round, case={"cores": process.cores() if on_cpu else None})


def allreduce_seconds(sizes: Sequence[int], devices: Devices, machine: Machine) -> float:
    """Predicted time of the sums of all gradients (float32, ``sizes`` elements), in the buckets that the step has."""
    total = 0.0
    for numbers in fill_buckets([4 * size for size in sizes], ["float32"] * len(sizes), BUCKET):
        own = [sizes[number] for number in numbers]
        total += predict(plan(choose(devices, own, 4), len(devices), own), 4 * sum(own), machine)
    return total


@lru_cache(maxsize=None)
def _machine(devices: Devices, number: int) -> Machine:
    """The machine's speeds in round ``number``, for all cases."""
    return calibrate(devices)


def _batch(samples: int, seed: int) -> Tuple[HostArray, HostArray]:
    """Random pictures and labels, on the host."""
    random = onp.random.RandomState(seed)
    return random.uniform(size=(samples, 1, 28, 28)).astype("float32"), random.randint(0, 10, samples).astype("int32")
