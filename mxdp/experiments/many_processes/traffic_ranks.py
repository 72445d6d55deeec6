"""Trains LeNet with gradients in every form, in one process of two hosts: ``python -m
mxdp.experiments.many_processes.traffic_ranks FOLDER``, under mxdp's launcher. Or on two devices of one process.

And what every form must come to, in plain NumPy and without bytes, for the oracle of ``less-traffic``.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as onp

from mxdp.backend import Devices, HostArray, devices, mx, upload
from mxdp.collectives import GradientSync
from mxdp.collectives.compress import BFLOAT16, FLOAT16, FLOAT32, CompressedSync, largest, two_bits
from mxdp.datasets import Dataset, load
from mxdp.experiments.devices import timed
from mxdp.experiments.many_processes.hosts import answer
from mxdp.experiments.oracle import random_batch, same_bits
from mxdp.processes import World
from mxdp.scratch import Replicas, get_params, init_lenet
from mxdp.training import TrainStep, train_steps

WORKERS = 2
CHECKED = 10
"""Sums that are compared."""
SCALE = 0.1
"""The scale of the weights: larger than the book's, which learn nothing in few steps."""
LR = 0.125
"""The learning rate of the updates that are compared: exact in float32."""
WARM = 24
"""Steps before the clock starts. Each ``every`` that a setting may have (2, 4, 8) divides it."""
BETWEEN_HOSTS = ("full", "float16", "bfloat16", "two-bits", "largest", "careless", "every")
FULL, HALF, BFLOAT, TWO_BITS, LARGEST, CARELESS, EVERY = BETWEEN_HOSTS
MXNET = "mxnet"
KEEPING = (TWO_BITS, LARGEST, MXNET)
"""Forms with error feedback."""
Settings = Mapping[str, Any]
Vectors = List[HostArray]
Compared = Tuple[Vectors, HostArray, Optional[HostArray]]


def sync_of(
    form: str,
    replicas: Replicas,
    s: Settings,
    ranks: Optional[World] = None,
) -> Callable[[], Any]:
    """What sums the gradients of all workers in this form. ``s`` has the threshold of 2 bits, the share of the largest
    that is sent, and every how many steps local steps are summed."""
    if form == FULL:
        return GradientSync(replicas, world=ranks)
    if form == MXNET:
        return _by_store(replicas, s["threshold"])
    compressed: Dict[str, Dict[str, Any]] = {
        HALF: dict(form=FLOAT16),
        BFLOAT: dict(form=BFLOAT16),
        TWO_BITS: dict(form=two_bits(s["threshold"]), feedback=True),
        LARGEST: dict(form=largest(s["share"]), feedback=True),
        CARELESS: dict(form=largest(s["share"])),
        EVERY: dict(form=FLOAT32, every=s["every"]),
    }
    return CompressedSync(replicas, world=ranks, **compressed[form])


def _by_store(replicas: Replicas, threshold: float) -> Callable[[], None]:
    """MXNet's own store, which keeps what 2 bits can't say by itself."""
    store = mx.kv.create("device")
    gradients = []
    store.set_gradient_compression({"type": "2bit", "threshold": threshold})
    for key, of_param in enumerate(zip(*replicas)):
        gradients.append([param.grad.as_nd_ndarray() for param in of_param])
        store.init(key, mx.nd.zeros(gradients[-1][0].shape))

    def sync() -> None:
        for key, of_param in enumerate(gradients):
            store.pushpull(key, of_param, out=of_param, priority=-key)

    return sync


def known_gradient(worker: int, step: int, sizes: Sequence[int], seed: int) -> HostArray:
    """A worker's gradient in a step: multiples of 2^-10, whose sums are exact in float32, and which float16 rounds."""
    random = onp.random.RandomState([seed, worker, step])
    return (random.randint(-4096, 4097, sum(sizes)) / 1024).astype("float32")


def compared(form: str, s: Settings, on: Devices, ranks: World) -> List[Compared]:
    """What became of each replica's known gradients: the gradients after each sum; its parameters in the end, and what
    its worker has kept (None: it can't be seen). Each sum is followed by an update that is not divided. Waits."""
    replicas, _, sync = training(form, s, s["seed"], on, ranks)
    sizes = [param.size for param in replicas[0]]
    cuts = onp.cumsum(sizes)[:-1]
    after: List[Vectors] = [[] for _ in replicas]
    for step in range(CHECKED):
        for worker, params in enumerate(replicas, ranks.rank * len(on)):
            vector = known_gradient(worker, step, sizes, s["seed"])
            for param, part in zip(params, onp.split(vector, cuts)):
                param.grad[()] = upload(part.reshape(param.shape), param.ctx)
        sync()
        for params, sums in zip(replicas, after):
            sums.append(flat(param.grad for param in params))
            for param in params:
                param[()] = param - LR * param.grad
    kept = getattr(sync, "kept", [None] * len(replicas))
    return list(zip(after, map(flat, replicas), kept))


def flat(arrays: Iterable[Any]) -> HostArray:
    """All of ``arrays`` in one vector. Waits."""
    return onp.concatenate([array.asnumpy().ravel() for array in arrays])


@lru_cache(maxsize=1)
def pictures(name: str, folder: Optional[str], seed: int, test: int) -> Dataset:
    """The data set, with that many samples to test with: one copy for all cases of a process."""
    data = load(name, folder, seed=seed)
    return data.take(len(data.train), test)


def training(
    form: str,
    s: Settings,
    seed: int,
    on: Devices,
    ranks: Optional[World] = None,
) -> Tuple[Replicas, Callable[[Iterable[Any]], float], Any]:
    """Replicas at the seed's start, what trains on (all ranks') batches and returns the seconds, and what sums."""
    replicas = [get_params(init_lenet(seed, SCALE), device) for device in on]
    sync = sync_of(form, replicas, s, ranks)
    step = TrainStep(replicas, on, s["lr"], sync)

    def train(batches: Iterable[Any]) -> float:
        return timed(partial(train_steps, batches, step, ranks))

    return replicas, train, sync


def in_numpy(form: str, s: Any) -> List[Compared]:
    """What each worker's gradients must be after each sum, its parameters in the end, and what it has kept."""
    start = init_lenet(s.seed, SCALE)
    sizes = [param.size for param in start]
    every = s.every if form == EVERY else 1
    kept = [onp.zeros(sum(sizes), "float32")] * WORKERS
    params = [flat(start)] * WORKERS
    after = []
    for step in range(CHECKED):
        if step % every == 0:
            together = params
        new = [known_gradient(worker, step, sizes, s.seed) for worker in range(WORKERS)]
        kept = [old + gradient for old, gradient in zip(kept, new)]
        if (step + 1) % every:
            after.append([WORKERS * gradient for gradient in new])
        else:
            said = [_said(form, vector, s) for vector in kept]
            kept = [vector - sent for vector, sent in zip(kept, said)]
            if form not in KEEPING:
                kept = [onp.zeros_like(vector) for vector in kept]
            after.append([sum(said, onp.zeros_like(said[0]))] * WORKERS)
            params = together
        params = [param - LR * gradient for param, gradient in zip(params, after[-1])]
    of_each = [list(sums) for sums in zip(*after)]
    return list(zip(of_each, params, kept))


def _said(form: str, vector: HostArray, s: Any) -> HostArray:
    """What a worker says of a vector, without any bytes."""
    if form == HALF:
        return vector.astype("float16").astype("float32")
    if form == BFLOAT:
        mantissa, exponent = onp.frexp(vector)
        rounded = onp.rint(mantissa * 256) / 256  # 8 significant bits
        return onp.ldexp(rounded, exponent).astype("float32")
    if form in (TWO_BITS, MXNET):
        signs = 1.0 * (vector >= s.threshold) - (vector <= -s.threshold)
        return onp.asarray(s.threshold * signs, "float32")
    if form in (LARGEST, CARELESS):
        count = max(1, -int(-vector.size * s.share // 1))
        few = onp.argsort(-onp.abs(vector), kind="stable")[:count]
        said = onp.zeros_like(vector)
        said[few] = vector[few]
        return said
    return vector


def one_by_one(on: Devices, s: Any) -> Iterator[Tuple[Any, ...]]:
    """For an oracle: three steps with a float32 sum every step, and with mxdp's own all-reduce, bit for bit."""
    X, y = random_batch(s.batch_size, s.seed)
    found = []
    for form in (EVERY, FULL):
        replicas, train, _ = training(form, {**s, "every": 1}, s.seed, on)
        train([(X, y)] * 3)
        found.append(map(flat, replicas))
    yield from map(same_bits, *found)


def of_each_form(s: Settings, ranks: World) -> Dict[str, Any]:
    """For each form: what became of known gradients, or the seconds of a step, of the slowest rank."""
    on = devices(1, s["kind"])
    if s["compare"]:
        return {form: compared(form, s, on, ranks)[0] for form in BETWEEN_HOSTS}
    batch = random_batch(s["batch_size"], s["seed"])
    steps = s["hosts_steps"]
    found = {}
    trains = {form: training(form, s, s["seed"], on, ranks)[1] for form in BETWEEN_HOSTS}
    for train in trains.values():  # all forms, before the first is timed
        train([batch] * WARM)
    for form, train in trains.items():
        few = s["every"] if form == EVERY else 2
        train([batch] * few)
        ranks.barrier()
        found[form] = max(ranks.gather(train([batch] * steps))) / steps
    return found


if __name__ == "__main__":
    answer(of_each_form)
