"""What every form of gradients must come to, in plain NumPy and without bytes, for the oracle of ``less-traffic``."""

from __future__ import annotations

from typing import Any, Iterator, List, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray
from mxdp.experiments.many_processes import traffic_ranks as forms
from mxdp.experiments.oracle import random_batch, same_bits
from mxdp.scratch import init_lenet

KEEPING = (forms.TWO_BITS, forms.LARGEST, forms.MXNET)
"""Forms with error feedback."""
Vectors = List[HostArray]


def in_numpy(form: str, s: Any) -> List[Tuple[Vectors, HostArray, HostArray]]:
    """Of each worker: what its gradients must be after each sum, its parameters in the end, and what it has kept."""
    start = init_lenet(s.seed, forms.SCALE)
    sizes, every = [param.size for param in start], s.every if form == forms.EVERY else 1
    kept = [onp.zeros(sum(sizes), "float32")] * forms.WORKERS
    params, after = [forms.flat(start)] * forms.WORKERS, []
    for step in range(forms.CHECKED):
        if step % every == 0:
            together = params
        new = [forms.known_gradient(worker, step, sizes, s.seed) for worker in range(forms.WORKERS)]
        kept = [old + gradient for old, gradient in zip(kept, new)]
        if (step + 1) % every:
            after.append([forms.WORKERS * gradient for gradient in new])
        else:
            said = [_said(form, vector, s) for vector in kept]
            lost: Vectors = [vector - sent for vector, sent in zip(kept, said)]
            kept = lost if form in KEEPING else [onp.zeros_like(vector) for vector in lost]
            after.append([sum(said, onp.zeros_like(said[0]))] * forms.WORKERS)
            params = together
        params = [param - forms.LR * gradient for param, gradient in zip(params, after[-1])]
    return [(list(sums), param, rest) for sums, param, rest in zip(zip(*after), params, kept)]


def _said(form: str, vector: HostArray, s: Any) -> HostArray:
    """What a worker says of a vector, without any bytes."""
    if form == forms.HALF:
        return vector.astype("float16").astype("float32")
    if form == forms.BFLOAT:
        mantissa, exponent = onp.frexp(vector)
        return onp.ldexp(onp.rint(mantissa * 256) / 256, exponent).astype("float32")  # 8 significant bits
    if form in (forms.TWO_BITS, forms.MXNET):
        signs = 1.0 * (vector >= s.threshold) - (vector <= -s.threshold)
        return onp.asarray(s.threshold * signs, "float32")
    if form in (forms.LARGEST, forms.CARELESS):
        few = onp.argsort(-onp.abs(vector), kind="stable")[: max(1, -int(-vector.size * s.share // 1))]
        return onp.where(onp.isin(onp.arange(vector.size), few), vector, 0).astype("float32")
    return vector


def one_by_one(devices: Sequence[Device], s: Any) -> Iterator[Tuple[Any, ...]]:
    """For an oracle: three steps with a float32 sum every step, and with mxdp's own all-reduce, bit for bit."""
    X, y = random_batch(s.batch_size, s.seed)
    found = []
    for form in (forms.EVERY, forms.FULL):
        replicas, train, _ = forms.training(form, {**s, "every": 1}, s.seed, devices)
        train([(X, y)] * 3)
        found.append(map(forms.flat, replicas))
    yield from map(same_bits, *found)
