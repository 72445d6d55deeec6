"""Planted delays must appear in the right part; margins are half of the planted delay."""

from __future__ import annotations

import statistics
import time

import numpy as onp
import pytest

from mxdp import devices, get_params, train_batch
from mxdp.backend import mx, np, npx
from mxdp.collectives import GradientSync
from mxdp.scratch import init_lenet
from mxdp.tracing import section, tracing_cost, where_the_time_went
from mxdp.tracing.where import Cost

ONE, TWO = mx.cpu(0), mx.cpu(1)
SLEEP = 0.05


@pytest.fixture(scope="module")
def busy():
    """A function that keeps a device busy for about this many seconds; it doesn't wait."""
    arrays = {device: np.ones((300, 300), ctx=device) / 300 for device in (ONE, TWO)}

    def push(device, count, x=None):
        x = arrays[device] if x is None else x
        for _ in range(count):
            x = np.dot(x, arrays[device])
        return x

    times = []
    for _ in range(6):
        started = time.perf_counter()
        push(ONE, 20).wait_to_read()
        times.append((time.perf_counter() - started) / 20)
    each = min(times)  # other programs can only make it slower, and then the work would be too short
    return lambda device, seconds, x=None: push(device, max(1, round(seconds / each)), x)


def test_a_sleep_in_the_input_path(busy):
    def step():
        with section("input"):
            time.sleep(SLEEP)
        busy(ONE, 0.002)

    found = where_the_time_went(step, 4)
    assert found.input >= SLEEP * 0.9
    assert found.front_end + found.waiting + found.rest < SLEEP / 2


def test_the_same_sleep_without_the_mark_is_the_front_ends(busy):
    def step():
        time.sleep(SLEEP)
        busy(ONE, 0.002)

    found = where_the_time_went(step, 4)
    assert found.front_end >= SLEEP * 0.9
    assert found.input == 0
    assert found.waiting + found.rest < SLEEP / 2


def test_a_sleep_in_the_input_path_that_the_device_hides_is_not_counted(busy):
    def step():
        busy(ONE, 0.1)
        with section("input"):
            time.sleep(SLEEP / 2)

    found = where_the_time_went(step, 4)
    assert found.input + found.front_end + found.waiting < SLEEP / 4


@pytest.mark.parametrize("wait", [lambda x: npx.waitall(), lambda x: x.wait_to_read(), lambda x: x.asnumpy()])
def test_a_planted_wait(busy, wait):
    """Python needs 50 ms a step: the device's work of 100 ms hides them, but not after a wait."""

    def step(planted):
        x = busy(ONE, 0.1)
        if planted:
            wait(x)
        time.sleep(SLEEP)

    planted, without = (where_the_time_went(lambda p=p: step(p), 3) for p in (True, False))
    assert planted.waiting > SLEEP * 0.75
    assert planted.front_end + planted.input + planted.rest < SLEEP / 2
    assert without.waiting < SLEEP / 4


def test_a_planted_slow_copy(busy):
    source, target = np.ones((1 << 24,), ctx=ONE), np.zeros((1 << 24,), ctx=TWO)

    def step(planted):
        busy(ONE, 0.005)
        for _ in range(4 * planted):
            source.copyto(target)

    planted, without = (where_the_time_went(lambda p=p: step(p), 3) for p in (True, False))
    assert planted.device == "cpu(0)"
    assert planted.exposed_communication > 0.5 * (planted.wall_clock - planted.compute)
    assert planted.exposed_communication > 2 * (planted.input + planted.front_end + planted.waiting + planted.rest)
    assert without.exposed_communication == 0


def test_a_pipeline_of_two_stages(busy):
    """The second stage has a third of the work; while one stage works, the other is idle."""
    last = []

    def step():
        x = busy(ONE, 0.04, last[0] if last else None).copyto(TWO)
        last[:] = [busy(TWO, 0.02, x).copyto(ONE)]

    found = where_the_time_went(step, 4)
    one, two = found.by_device["cpu(0)"], found.by_device["cpu(1)"]
    assert found.device == "cpu(0)"
    assert one.compute > two.compute
    for device, other in ((one, two), (two, one)):
        assert device.waiting == pytest.approx(other.compute, rel=0.5)
        assert device.waiting > 2 * (device.front_end + device.rest)
        assert device.exposed_communication > 0


@pytest.mark.parametrize("synchronised", [False, True], ids=["allreduce", "GradientSync"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_lenet_step_is_explained(count, synchronised):
    on = devices(count, "cpu")
    replicas = [get_params(init_lenet(), device) for device in on]
    sync = GradientSync(replicas) if synchronised else None
    random = onp.random.RandomState(0)
    X, y = random.rand(256, 1, 28, 28).astype("float32"), random.randint(0, 10, 256).astype("int32")
    runs = [where_the_time_went(lambda: train_batch(X, y, replicas, on, 0.1, sync=sync), 3, 1) for _ in range(5)]
    for run in runs:
        assert list(run.by_device) == [str(device) for device in on]
        for parts in run.by_device.values():
            assert parts.total == pytest.approx(run.wall_clock, abs=1e-9)
        assert run.total == pytest.approx(run.wall_clock, abs=1e-9)
        assert (run.exposed_communication > 0) == (count == 2)
    # The median, since a worker that another program interrupts between two operators counts as rest too.
    assert statistics.median(run.shares()["rest"] for run in runs) <= 0.05


def test_steps_and_warm_up_are_counted_apart():
    calls = []

    def step():
        calls.append(1)
        np.ones((3,), ctx=ONE)

    found = where_the_time_went(step, steps=3, warm_up=2)
    assert len(calls) == 5
    assert found.steps == 3
    assert found.wall_clock * 3 == pytest.approx(found.timeline.length)
    assert sum(event.name == "step" for event in found.timeline.lanes["python"]) == 3
    assert sum(found.shares().values()) == pytest.approx(1)
    with pytest.raises(ValueError, match="at least one step, not 0"):
        where_the_time_went(step, 0)


def test_the_cost_is_measured_alternately():
    calls = []

    def step():
        calls.append(1)
        np.ones((3,), ctx=ONE)

    cost = tracing_cost(step, steps=2, rounds=3)
    assert len(calls) == 1 + 2 * 2 * 3
    assert cost.plain > 0
    assert cost.recorded > 0
    assert Cost(2.0, 2.5).share == 0.25
    with pytest.raises(ValueError, match="at least one"):
        tracing_cost(step, rounds=0)
