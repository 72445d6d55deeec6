"""What an object shows of itself in a notebook's cell: one line."""

from __future__ import annotations

import pytest

import mxdp
from mxdp.backend import mx
from mxdp.plans.cost.machine import CPU, GPU
from mxdp.timing import Benchmark, Timer
from mxdp.tracing import Recording

DEVICES = [mx.cpu(0), mx.cpu(1)]


def timer(*times, kind=Timer):
    made = kind()
    made.times.extend(times)
    return made


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (timer(), "<Timer: 0 times>"),
        (timer(0.5), "<Timer: 1 time, 0.5 s on average>"),
        (timer(1.0, 2.0, kind=Benchmark), "<Benchmark: 2 times, 1.5 s on average>"),
        (Recording(), "<Recording: the block has not been run: use `with mxdp.tracing.record() as recording:`>"),
        (CPU, "<Machine: push 8 us, copy 16.9 GB/s, add 6.41 GB/s, 2 cores>"),
        (GPU, "<Machine: push 4 us, copy 16 GB/s, add 300 GB/s, 64 cores>"),
    ],
)
def test_in_a_line(shown, text):
    assert repr(shown) == text


@pytest.mark.parametrize("devices", [1, 2])
def test_a_gradient_sync_shows_what_it_sums(devices):
    replicas = [mxdp.get_params(mxdp.init_lenet(), device) for device in DEVICES[:devices]]
    sync = mxdp.GradientSync(replicas, "ring", bucket_mb=0.3)
    where = "1 device" if devices == 1 else "2 devices"
    assert repr(sync) == f"<GradientSync: 8 gradients on {where}, {len(sync.buckets)} buckets: ring>"


def test_a_recording_shows_its_timeline():
    recording = Recording()
    recording._timeline = "<the timeline>"
    assert repr(recording) == "<Recording: <the timeline>>"
