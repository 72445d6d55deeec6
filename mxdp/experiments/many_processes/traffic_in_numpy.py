"""What every form of gradients must come to, in plain NumPy and without bytes, for the oracle of ``less-traffic``."""

from __future__ import annotations

import itertools
from typing import Any, Iterator, List, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray
from mxdp.experiments.many_processes import traffic_ranks
from mxdp.experiments.many_processes.traffic_ranks import (
    BFLOAT,
    CARELESS,
    EVERY,
    FULL,
    HALF,
    LARGEST,
    LR,
    MXNET,
    SCALE,
    TWO_BITS,
    WORKERS,
    known_gradient,
)
from mxdp.experiments.oracle import random_batch
from mxdp.scratch import init_lenet

KEEPING = (TWO_BITS, LARGEST, MXNET)
"""Forms with error feedback."""
Vectors = List[HostArray]


def all_gradients(s: Any) -> HostArray:
    """The sum of the gradients of all workers in all steps, in float64."""
    sizes = [param.size for param in init_lenet(s.seed, SCALE)]
    each = itertools.product(range(WORKERS), range(traffic_ranks.CHECKED))
    return sum((known_gradient(*of, sizes, s.seed) for of in each), onp.zeros(sum(sizes)))


def in_numpy(form: str, s: Any) -> Tuple[List[Vectors], Vectors, Vectors]:
    """What each worker's gradients must be after each sum, its parameters in the end, and what it has kept."""
    start = init_lenet(s.seed, SCALE)
    sizes, every = [param.size for param in start], s.every if form == EVERY else 1
    kept = [onp.zeros(sum(sizes), "float32")] * WORKERS
    params, after = [traffic_ranks.flat(start)] * WORKERS, []
    for step in range(traffic_ranks.CHECKED):
        if step % every == 0:
            together = params
        whole = [kept[worker] + known_gradient(worker, step, sizes, s.seed) for worker in range(WORKERS)]
        if (step + 1) % every:
            after.append([WORKERS * known_gradient(worker, step, sizes, s.seed) for worker in range(WORKERS)])
            kept = whole
        else:
            said = [_said(form, vector, s) for vector in whole]
            lost: Vectors = [vector - sent for vector, sent in zip(whole, said)]
            kept = lost if form in KEEPING else [onp.zeros_like(vector) for vector in lost]
            after.append([sum(said, onp.zeros_like(said[0]))] * WORKERS)
            params = together
        params = [param - LR * gradient for param, gradient in zip(params, after[-1])]
    return after, params, kept


def _said(form: str, vector: HostArray, s: Any) -> HostArray:
    """What a worker says of a vector, without any bytes."""
    if form == HALF:
        return vector.astype("float16").astype("float32")
    if form == BFLOAT:
        mantissa, exponent = onp.frexp(vector)
        return onp.ldexp(onp.rint(mantissa * 256) / 256, exponent).astype("float32")  # 8 significant bits
    if form in (TWO_BITS, MXNET):
        signs = 1.0 * (vector >= s.threshold) - (vector <= -s.threshold)
        return onp.asarray(s.threshold * signs, "float32")
    if form in (LARGEST, CARELESS):
        few = onp.argsort(-onp.abs(vector), kind="stable")[: max(1, -int(-vector.size * s.share // 1))]
        return onp.where(onp.isin(onp.arange(vector.size), few), vector, 0).astype("float32")
    return vector


def one_by_one(devices: Sequence[Device], s: Any) -> Iterator[Tuple[Any, ...]]:
    """For an oracle: three steps with a float32 sum every step, and with mxdp's own all-reduce, bit for bit."""
    X, y = random_batch(s.batch_size, s.seed)
    found = []
    for form in (EVERY, FULL):
        replicas, train, _ = traffic_ranks.training(form, {**s, "every": 1}, s.seed, devices)
        train([(X, y)] * 3)
        found.append([traffic_ranks.flat(params) for params in replicas])
    for summed, plain in zip(*found):
        yield summed.view("u4") != plain.view("u4"), onp.zeros(plain.shape), 0.0
