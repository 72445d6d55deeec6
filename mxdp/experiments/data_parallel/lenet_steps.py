"""What questions that train LeNet share: the data, the serial run of a step, and the parts of a recorded one."""

from __future__ import annotations

from functools import lru_cache
from statistics import fmean
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from mxdp.backend import Device, NDArray, Shares, np
from mxdp.datasets import Dataset, Split, load
from mxdp.datasets.minibatches import Stream
from mxdp.errors import plural
from mxdp.experiments.devices import WARM_UP, devices_of
from mxdp.experiments.lab import Case, Row, Settings
from mxdp.experiments.oracle import random_batch, same_bits, tolerances_of
from mxdp.plans.cost.link import speedup
from mxdp.scratch import get_params, init_lenet, train_batch
from mxdp.tracing import TimeSplit, where_the_time_went
from mxdp.training import TrainStep

Step = Callable[[NDArray, NDArray, Any, Sequence[Device], float], Any]
PARTS = {
    "compute": "compute",
    "hidden_communication": "all-reduce beside compute",
    "exposed_communication": "all-reduce waited for",
    "input": "input",
    "front_end": "Python",
    "waiting": "waiting",
    "rest": "unexplained",
}
"""The parts of a recorded step (:class:`mxdp.tracing.Parts`), in words."""


def pictures(s: Settings) -> Dataset:
    """The data set of these settings, with at most ``test`` test samples if they say so: one copy a process."""
    return _pictures(s.data, s.data_dir, s.seed, s.get("test"))


@lru_cache(maxsize=1)
def _pictures(name: str, folder: Optional[str], seed: int, test: Optional[int]) -> Dataset:
    data = load(name, folder, seed=seed)
    return data.take(len(data.train), test)


def expect_speedups(s: Settings, cores: int) -> str:
    """The speed-ups over one device if nothing but compute took time, in words."""
    known = [f"{speedup(n, cores):.2f} on {plural(n, 'device')}" for n in s.devices if n > 1]
    return f"{', '.join(known) or '1.00'} ({plural(cores, 'core')})"


def synced_step(weights: Shares = None) -> Step:
    """The step of :func:`mxdp.train`, for one set of replicas. ``weights``: of the devices' shards."""
    steps: List[TrainStep] = []

    def step(
        X: NDArray, y: NDArray, device_params: Any, devices: Sequence[Device], lr: float
    ) -> None:
        if not steps:
            steps.append(TrainStep(device_params, devices, lr, weights=weights))
        steps[0](X, y)

    return step


def check_step(
    devices: Sequence[Device],
    batch_size: int,
    seed: int = 0,
    steps: int = 3,
    step: Step = train_batch,
    layout: Callable[[Sequence[Any]], Sequence[Any]] = list,
) -> Iterator[Tuple[Any, ...]]:
    """Train LeNet for a few steps on one random batch with ``step``, for an oracle. Each step is repeated on the first
    device by mxdp's own, from the parameters that replica 0 had before it. Yields each gradient and parameter of every
    replica after each step with the one-device step's, and every replica's bits with the first one's. ``layout`` turns
    mxdp's parameters into the step's, and back. Nothing waits between the steps.

    A serial run of its own would not do, since its parameters soon differ in the last bits. A relu whose input differs
    from 0 by no more has another gradient, 1 or 0. With 256 samples that happened to seven of eight seeds.
    """
    X, y = random_batch(batch_size, seed)
    X = np.array(X, dtype=X.dtype)
    y = np.array(y, dtype=y.dtype)
    # Larger weights than the book's: with N(0, 0.01) the first layer's gradients are so small that an error could hide.
    params = init_lenet(seed, scale=0.1)
    tolerances = [tolerance for tolerance in tolerances_of(batch_size) for _ in range(2)]
    replicas = [get_params(layout(params), device) for device in devices]
    trail: List[List[List[NDArray]]] = []
    for _ in range(steps):
        step(X, y, replicas, devices, 0.1)
        trail.append([_copies(replica) for replica in replicas])
    for copies in trail:
        serial = get_params(params, devices[0])
        train_batch(X, y, [serial], devices[:1], 0.1)
        expected = [array.asnumpy() for array in _copies(serial)]
        on_host = []
        for replica in copies:
            arrays = layout([array.asnumpy() for array in replica])
            on_host.append(arrays)
            yield from zip(arrays, expected, tolerances)
        first, *others = on_host
        for arrays in others:
            yield from map(same_bits, arrays, first)
        params = [np.array(param) for param in first[1::2]]


def _copies(replica: Sequence[NDArray]) -> List[NDArray]:
    """Each parameter's gradient, and the parameter. Doesn't wait."""
    return [array.copy() for param in replica for array in (param.grad, param)]


def oracle(case: Case, s: Settings) -> Iterator[Tuple[Any, ...]]:
    """The oracle of a question about the steps of :func:`mxdp.train`."""
    return check_step(devices_of(case, s), 61, s.seed, step=synced_step())


def recorder(
    data: Split, batch_size: int, seed: int, step: Callable[..., Any], devices: Sequence[Device]
) -> Callable[[int], TimeSplit]:
    """A function that trains by ``step(X, y)`` for that many steps more and returns their split. Some steps warm up."""
    batches = Stream(data, batch_size, seed).take(1 << 60)  # samples: it never ends
    for _ in range(WARM_UP):
        step(*next(batches))
    return lambda steps: where_the_time_went(lambda: step(*next(batches)), steps, devices=devices)


def mean_shares(row: Row) -> Dict[str, float]:
    """Each part's mean over the processes: they add up to 1, as medians would not. Empty if none was recorded."""
    means = {}
    for part in PARTS:
        share = row.get(part)
        if share is not None:
            means[part] = fmean(value for value in share.values if value is not None)
    return means
