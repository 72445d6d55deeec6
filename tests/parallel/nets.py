"""Networks that every strategy is tried on, and what their devices really copied."""

from __future__ import annotations

import json
import re
from functools import lru_cache

from serial import example, serial_run

from mxdp.backend import mx, npx
from mxdp.layers import LENET, BatchNorm, Conv, Dense, Pool, Relu

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
"""Windows that overlap, stride 2, padding; for (2, 17, 19)."""

NETS = {"lenet": (LENET, (1, 28, 28)), "stack": (STACK, (3, 17, 19)), "strided": (STRIDED, (2, 17, 19))}
DTYPES = ("float32", "float64")
SAMPLES = 6


def devices(n):
    return [mx.cpu(number) for number in range(n)]


@lru_cache(maxsize=None)
def serial(name, dtype, samples=SAMPLES):
    """(net, input_shape, params, X, y, serial run)."""
    net, shape = NETS[name]
    params, X, y = example(net, shape, samples, dtype)
    return net, shape, params, X, y, serial_run(net, params, X, y)


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
