"""The order in which MXNet does a stage's work; and that nothing waits."""

from __future__ import annotations

import gc
from functools import reduce
from operator import concat

import pytest
from gate import Gate
from nets import pipe, prepared

from mxdp.backend import mx, np, npx
from mxdp.layers import apply
from mxdp.plans.pipeline import PIPELINES
from mxdp.tracing import record


def events_of_a_step(strategy, X, y):
    """Bulks and copies on each device in the order in which they ran. All were pushed before, and those that wait for
    nothing else stood in the devices' queues, behind products."""
    strategy.step(X, y)
    blocks = [np.ones((1000, 1000), ctx=device) for device in strategy.devices]
    with record(strategy.devices) as recording:
        gates = [Gate(stage.flat[0]) for stage in strategy.stages]
        strategy.step(X, y)
        for block in blocks:
            for _ in range(3):
                np.dot(block, block)
        for gate in gates:
            gate.open()
    names = {"ImperativeBulk": "task", "CopyCPU2CPU": "send"}
    events = sorted(recording.timeline.events, key=lambda event: event.start)
    return [
        [names[event.name] for event in events if event.device == str(device) and event.name in names]
        for device in strategy.devices
    ]


@pytest.fixture
def garbage(monkeypatch):
    """Before each layer Python's collector, if it may, frees an array that it alone can free."""
    rings = [[np.ones(3)] for _ in range(200)]
    for ring in rings:
        ring.append(ring)

    def littering(*arguments):
        rings.pop()
        if gc.isenabled():
            gc.collect()
        return apply(*arguments)

    monkeypatch.setattr("mxdp.parallel.stage.apply", littering)


@pytest.mark.parametrize("schedule", sorted(PIPELINES))
def test_a_message_leaves_before_the_next_task_begins(schedule, garbage):
    """Also where Python collects garbage while a task is pushed: to free an array would cut the task in two."""
    _, X, y = prepared("lenet")
    first, last = events_of_a_step(pipe("lenet", 2, 3, schedule), X, y)
    forward, backward = ["task", "send"], ["task"]
    expected = [forward if task.kind == "F" else backward for task in PIPELINES[schedule](2, 3).tasks[0]]
    assert first == reduce(concat, expected)
    assert last == ["task", "send"] * 6


def test_nothing_waits(monkeypatch):
    _, X, y = prepared("stack")
    strategy = pipe("stack", 3, 3, "1f1b")
    npx.waitall()
    for name in ("MXNDArrayWaitAll", "MXNDArrayWaitToRead", "MXNDArrayWaitToWrite", "MXNDArraySyncCopyToCPU"):

        def refuse(*arguments, name=name):
            raise AssertionError(f"{name} was called")

        monkeypatch.setattr(mx.base._LIB, name, refuse)
    with pytest.raises(AssertionError, match="MXNDArrayWaitAll was called"):
        npx.waitall()
    strategy.scores(X)
    strategy.step(X, y)
    strategy.update(0.1, len(X))
