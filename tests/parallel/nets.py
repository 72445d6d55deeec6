"""Networks that every strategy is tried on, the serial runs that it must equal, and what devices really copied."""

from __future__ import annotations

import json
import re
from functools import lru_cache

from serial import example, run, serial_run, wrong

from mxdp.backend import mx, npx
from mxdp.layers import LENET, BatchNorm, Conv, Dense, Pool, Relu
from mxdp.parallel.pipeline import Pipeline

STACK = (
    Conv(8, kernel=3, padding=1), BatchNorm(), Relu(), Pool(2),
    Conv(16, kernel=3, padding=1), BatchNorm(), Relu(), Pool(2),
    Dense(10),
)  # fmt: skip
"""The slides' stack of convolution, batch normalisation, relu and pooling, for images of any size."""

STRIDED = (
    Conv(6, kernel=3, stride=2, padding=1), BatchNorm(), Relu(), Pool(3, stride=2, padding=1),
    Conv(7, kernel=3, padding=1), BatchNorm(), Relu(), Pool(2, kind="avg"),
    Dense(10),
)  # fmt: skip
"""Windows that overlap, stride 2, padding; for (2, 25, 19)."""

NETS = {"lenet": (LENET, (1, 28, 28)), "stack": (STACK, (3, 17, 19)), "strided": (STRIDED, (2, 25, 19))}
CUTS = {"lenet": [(), (3,), (3, 6), (1, 3, 6)], "stack": [(), (4,), (2, 6), (1, 4, 8)]}
"""Into 1, 2, 3 and 4 stages."""
DTYPES = ("float32", "float64")
SAMPLES = 7
"""Uneven over 2, 3 and 4 devices or micro-batches."""


def devices(n):
    return [mx.cpu(number) for number in range(n)]


@lru_cache(maxsize=None)
def prepared(name, dtype="float32", samples=SAMPLES):
    """(params, X, y)."""
    return example(*NETS[name], samples, dtype)


@lru_cache(maxsize=None)
def serial(name, dtype="float32", samples=SAMPLES, micro_batches=1):
    """(net, input_shape, params, X, y, serial run)."""
    params, X, y = prepared(name, dtype, samples)
    return *NETS[name], params, X, y, serial_run(NETS[name][0], params, X, y, micro_batches=micro_batches)


def faults(strategy, n, *given):
    """What of a strategy's run on ``n`` devices differs from the serial run ``serial(*given)``."""
    net, shape, params, X, y, expected = serial(*given)
    return set(wrong(run(strategy(net, params, shape, devices(n)), X, y), expected))


def pipe(name, n=2, micro_batches=1, schedule="gpipe", dtype="float32"):
    net, shape = NETS[name]
    return Pipeline(net, prepared(name, dtype)[0], shape, devices(n), micro_batches, schedule, CUTS[name][n - 1])


def copies(work, path):
    """How many copies from device to device MXNet made for ``work``, by its own profiler."""
    npx.waitall()
    mx.profiler.set_config(
        filename=str(path),
        profile_imperative=True,
        profile_memory=False,
        aggregate_stats=False,
        continuous_dump=False,
    )
    mx.profiler.set_state("run")
    work()
    npx.waitall()
    mx.profiler.set_state("stop")
    mx.profiler.dump()
    # Every trace of a process but its first begins with a comma.
    events = json.loads(re.sub(r'("traceEvents":\s*\[)\s*,', r"\1", path.read_text(encoding="utf-8")))["traceEvents"]
    return sum(event.get("ph") == "B" and event["name"] == "CopyCPU2CPU" for event in events)
