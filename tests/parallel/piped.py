"""Pipelines to try, and the serial runs that they must equal."""

from __future__ import annotations

from functools import lru_cache

from nets import STACK
from serial import example, serial_run

from mxdp.backend import mx
from mxdp.layers import LENET
from mxdp.parallel.pipeline import Pipeline

SAMPLES = 7
"""Cut unevenly into 2, 3 and 4."""
NETS = {"lenet": (LENET, (1, 28, 28)), "stack": (STACK, (3, 11, 9))}
CUTS = {
    "lenet": [(), (3,), (3, 6), (1, 3, 6)],
    "stack": [(), (4,), (2, 6), (1, 4, 8)],
}


def cpus(n):
    return [mx.cpu(number) for number in range(n)]


@lru_cache(maxsize=None)
def prepared(name, dtype="float32"):
    return example(*NETS[name], SAMPLES, dtype)


@lru_cache(maxsize=None)
def serial(name, dtype="float32", micro_batches=1):
    return serial_run(NETS[name][0], *prepared(name, dtype), micro_batches=micro_batches)


def pipe(name, devices=2, micro_batches=1, schedule="gpipe", dtype="float32"):
    cuts = CUTS[name][devices - 1]
    return Pipeline(
        NETS[name][0], prepared(name, dtype)[0], NETS[name][1], cpus(devices), micro_batches, schedule, cuts
    )
