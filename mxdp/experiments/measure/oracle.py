"""The serial run that a result must equal, counted number by number. Loads MXNet: import it inside ``oracle``."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray, NDArray, np
from mxdp.collectives import GradientSync
from mxdp.scratch import get_params, init_lenet, train_batch

Step = Callable[[NDArray, NDArray, Any, Sequence[Device], float], Any]

TOLERANCE = 2e-5
"""Of an array's largest value. The shards' sums are added in another order than the serial sum, and each float32
addition rounds by at most 2**-24 of its partial sum, of which there are many, and larger than the end result where
terms cancel. Seen: all but 40 in 774,408 numbers within 1e-6, and all within 1e-5."""


def count_wrong(
    actual: Any, expected: Any, tolerance: float = TOLERANCE, scale: Optional[float] = None
) -> Tuple[int, int]:
    """(numbers compared, numbers wrong): the comparison of every oracle.

    A number is wrong if it differs from the expected one by more than ``tolerance`` times ``scale``, or if either of
    the two is infinite or NaN. ``scale`` is the :func:`largest` expected number unless given. Another shape makes every
    number wrong.
    """
    actual, expected = onp.asarray(actual), onp.asarray(expected)
    if actual.shape != expected.shape:
        return expected.size, expected.size
    # The limit is finite, so that a difference that is infinite or NaN is never within it.
    limit = tolerance * (largest(expected) if scale is None else scale)
    with onp.errstate(invalid="ignore"):
        right = onp.abs(onp.subtract(actual, expected, dtype="float64")) <= limit
    return expected.size, int(expected.size - right.sum())


def largest(expected: HostArray) -> float:
    """The largest absolute value among the finite numbers, or 0 without any."""
    return float(onp.abs(expected).max(initial=0.0, where=onp.isfinite(expected)))


def whole_numbers(rank: int, count: int, seed: int) -> HostArray:
    """``count`` whole numbers from 1 to 4095, float32, other ones for each rank and seed.

    Sums of up to 4096 such numbers are exact, in any order. They repeat after 65521, a prime, so that chunks which
    change places show.
    """
    random = onp.random.RandomState([seed, rank])
    return onp.resize(random.randint(1, 4096, size=65521).astype("float32"), count)


def synced_step() -> Step:
    """The step of :func:`mxdp.train`, for one set of replicas: one all-reduce for all gradients, its buffers kept."""
    syncs: List[GradientSync] = []

    def step(X: NDArray, y: NDArray, device_params: Any, devices: Sequence[Device], lr: float) -> None:
        if not syncs:
            syncs.append(GradientSync(device_params, "auto"))
        train_batch(X, y, device_params, devices, lr, sync=syncs[0])

    return step


def check_step(
    devices: Sequence[Device],
    batch_size: int,
    seed: int = 0,
    steps: int = 3,
    step: Step = train_batch,
    layout: Callable[[Sequence[Any]], Sequence[Any]] = list,
) -> Tuple[int, int]:
    """Train LeNet for a few steps on ``devices`` with ``step``, and on the first of them alone with mxdp's own step.

    Both train on the same random batch. Compares each gradient after the first step, and each parameter after the last,
    of every replica with the one-device run's, within ``TOLERANCE``; and every replica's bits with the first one's.
    ``layout`` turns mxdp's parameters into the step's, and back. Returns (compared, wrong).
    """
    random = onp.random.RandomState(seed)
    X = np.array(random.uniform(size=(batch_size, 1, 28, 28)).astype("float32"))
    y = np.array(random.randint(0, 10, size=batch_size), dtype="int32")
    # Larger weights than the book's: with N(0, 0.01) the first layer's gradients are so small that an error could hide.
    params = init_lenet(seed, scale=0.1)

    def results(some: Sequence[Device], one_step: Step, params: Sequence[NDArray]) -> List[List[HostArray]]:
        replicas = [get_params(params, device) for device in some]
        one_step(X, y, replicas, some, 0.1)
        gradients = [_to_host([param.grad for param in replica]) for replica in replicas]
        for _ in range(steps - 1):
            one_step(X, y, replicas, some, 0.1)
        return [before + _to_host(replica) for before, replica in zip(gradients, replicas)]

    serial = results(devices[:1], train_batch, params)[0]
    parallel = [layout(replica) for replica in results(devices, step, layout(params))]
    counts = [count_wrong(*pair) for replica in parallel for pair in zip(replica, serial)]
    counts += [_differing_bits(*pair) for replica in parallel[1:] for pair in zip(replica, parallel[0])]
    return sum(checked for checked, _ in counts), sum(wrong for _, wrong in counts)


def _to_host(arrays: Sequence[NDArray]) -> List[HostArray]:
    return [array.asnumpy() for array in arrays]


def _differing_bits(a: HostArray, b: HostArray) -> Tuple[int, int]:
    width = f"u{a.dtype.itemsize}"
    bits_a, bits_b = (onp.ascontiguousarray(array).view(width) for array in (a, b))
    return a.size, int((bits_a != bits_b).sum())
