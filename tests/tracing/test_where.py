"""Planted delays must appear in the right part; margins are half of the planted delay.

Planted work sleeps on the device's thread, so its length does not depend on the processor's speed or other users.
"""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
import time

import numpy as onp
import pytest

from mxdp import allreduce, devices, get_params, process, train_batch
from mxdp.backend import mx, np
from mxdp.scratch import init_lenet, ring_allreduce
from mxdp.tracing import section, where, where_the_time_went

ONE, TWO = mx.cpu(0), mx.cpu(1)
SLEEP = 0.1
WORK, COPY = b"planted work", b"CopyCPU2CPU"
"""Names for MXNet's profiler, which keeps these pointers."""


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
def _sleep(_, microseconds):
    time.sleep(microseconds / 1e6)


@pytest.fixture(scope="module")
def busy():
    """A function that keeps a device busy for this many seconds and returns the array that is ready then; it doesn't
    wait. The work appears under ``name``."""
    arrays = {device: np.ones((3,), ctx=device) for device in (ONE, TWO)}

    def push(device, seconds, x=None, name=WORK):
        x = arrays[device] if x is None else x
        context, written = (ctypes.c_int * 2)(device.device_typeid, device.device_id), (ctypes.c_void_p * 1)(x.handle)
        mx.base.check_call(
            mx.base._LIB.MXEnginePushSyncND(
                _sleep, ctypes.c_void_p(round(seconds * 1e6)), None, context, None, 0, written, 1, None, 0, name
            )
        )
        return x

    return push


def split(step, steps):
    """The least disturbed of three recordings: other programs can only make a step longer."""
    return min((where_the_time_went(step, steps, 0) for _ in range(3)), key=lambda result: result.wall_clock)


@pytest.mark.parametrize(("name", "part"), [("input", "input"), ("other", "front_end")])
def test_a_sleep_in_python(busy, name, part):
    def step():
        with section(name):
            time.sleep(SLEEP)
        busy(ONE, 0.002)

    result = split(step, 2).as_dict()
    assert result.pop(part) >= SLEEP * 0.9
    assert sum(result.values()) < SLEEP / 2


def test_a_sleep_in_the_input_path_that_the_device_hides_is_not_counted(busy):
    def step():
        busy(ONE, 2 * SLEEP)
        with section("input"):
            time.sleep(SLEEP / 2)

    result = split(step, 2)
    assert result.input + result.front_end + result.waiting < SLEEP / 4


def test_a_planted_wait(busy):
    """Python needs 100 ms a step: the device's work of 200 ms hides them, but not after a wait."""

    def step():
        busy(ONE, 2 * SLEEP).asnumpy()
        time.sleep(SLEEP)

    result = split(step, 2)
    assert result.waiting > SLEEP * 0.75
    assert result.front_end + result.input + result.rest < SLEEP / 2


def test_a_planted_slow_copy(busy):
    source = np.ones((3,), ctx=ONE)

    def step():
        source.copyto(TWO)
        busy(ONE, 0.01)
        busy(ONE, SLEEP, name=COPY)

    result = split(step, 2)
    assert result.device == "cpu(0)"
    assert result.exposed_communication > SLEEP * 0.9
    assert result.compute > 0.009
    assert result.input + result.front_end + result.waiting + result.rest < SLEEP / 2


def test_a_pipeline_of_two_stages(busy):
    """The second stage has a third of the work; while one stage works, the other is idle."""
    last = []

    def step():
        x = busy(ONE, 0.06, last[0] if last else None).copyto(TWO)
        last[:] = [busy(TWO, 0.02, x).copyto(ONE)]

    result = split(step, 3)
    one, two = result.by_device["cpu(0)"], result.by_device["cpu(1)"]
    assert result.device == "cpu(0)"
    assert one.compute > 2 * two.compute
    for device, other in ((one, two), (two, one)):
        assert device.waiting == pytest.approx(other.compute, rel=0.5)
        assert device.waiting > 2 * (device.front_end + device.rest)
        assert device.exposed_communication > 0


@pytest.mark.parametrize("summed", [ring_allreduce, allreduce], ids=["ring", "planned"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_lenet_step_is_taken_apart(count, summed):
    """How much of it stays unexplained depends on the machine: the experiment where-the-time-went judges that."""
    on = devices(count, "cpu")
    replicas = [get_params(init_lenet(), device) for device in on]
    random = onp.random.RandomState(0)
    X, y = random.rand(64, 1, 28, 28).astype("float32"), random.randint(0, 10, 64).astype("int32")
    run = where_the_time_went(lambda: train_batch(X, y, replicas, on, 0.1, summed), 3, 1)
    assert list(run.by_device) == [str(device) for device in on]
    for parts in (run, *run.by_device.values()):
        assert parts.total == pytest.approx(run.wall_clock, abs=1e-9)
    assert run.compute > 0
    assert (run.exposed_communication > 0) == (count == 2)


def test_steps_and_warm_up_are_counted_apart():
    calls = []

    def step():
        calls.append(1)
        np.ones((3,), ctx=ONE)

    result = where_the_time_went(step, steps=3, warm_up=2)
    assert len(calls) == 5
    assert result.steps == 3
    assert result.wall_clock * 3 == pytest.approx(result.timeline.length)
    assert sum(event.name == "step" for event in result.timeline.lanes["python"]) == 3
    assert sum(result.shares().values()) == pytest.approx(1)
    with pytest.raises(ValueError, match="at least one step, not 0"):
        where_the_time_went(step, 0)


def on_processor(rounds=3):
    """The share of a device's working time in which it had a processor: the most without other programs of ours, and
    the least beside two for each processor. What else the machine does may change at any time, so both are measured
    alternately."""
    weight, alone, beside = np.ones((300, 300), ctx=ONE) / 300, [], []

    def step():
        x = weight
        for _ in range(100):
            x = np.dot(x, weight)

    for _ in range(rounds):
        alone.append(where_the_time_went(step, 1, 0).on_processor)
        with contextlib.ExitStack() as programs:
            for _ in range(2 * process.cores()):
                loop = programs.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
                programs.callback(loop.kill)
            beside.append(where_the_time_went(step, 1, 0).on_processor)
    return max(alone), min(beside)


needs_linux = pytest.mark.skipif(
    not any(where.THREADS.glob("*/schedstat")), reason="this system does not tell how long a thread waited"
)


@needs_linux
def test_other_programs_take_the_processor_from_a_device_that_works():
    alone, beside = on_processor()
    assert 0 < beside < 0.8
    assert beside < alone <= 1


@needs_linux
def test_a_share_that_counts_no_waiting_is_noticed(monkeypatch):
    right = where._threads
    monkeypatch.setattr(where, "_threads", lambda: {thread: (ran, 0) for thread, (ran, _) in right().items()})
    assert on_processor(rounds=1) == (1, 1)


@pytest.mark.parametrize("text", [None, "0 0 0", "nonsense"])
def test_where_the_system_does_not_tell_the_share_is_unknown(busy, monkeypatch, tmp_path, text):
    if text:
        (tmp_path / "7").mkdir()
        (tmp_path / "7" / "schedstat").write_text(text)
    monkeypatch.setattr(where, "THREADS", tmp_path if text else tmp_path / "none")
    assert where_the_time_went(lambda: busy(ONE, 0.01), 1, 1).on_processor is None
