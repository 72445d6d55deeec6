"""The times of stages, and of layers, under a clock that counts samples and numbers."""

from __future__ import annotations

import pytest
from nets import pipe, serial
from serial import run, wrong

from mxdp.parallel import stage_times
from mxdp.parallel.stage_times import measure_stages

PUSH = 0.25


class Clock:
    """Python takes ``PUSH`` for a task; a device begins when it has received the first, and works behind it."""

    def __init__(self):
        self.now = 0.0
        self._free = 0.0

    def perf_counter(self):
        return self.now

    def waitall(self):
        self.now = max(self.now, self._free)

    def timed(self, task, seconds):
        def call(*arguments):
            self.now += PUSH
            self._free = max(self._free, self.now) + seconds(*arguments)
            return task(*arguments)

        return call


@pytest.mark.parametrize("micro_batches", [1, 2, 7])
def test_stages_are_measured_alone_and_the_next_step_is_right(micro_batches, monkeypatch):
    """Stage s takes s + 1 seconds a sample forward, twice as long back, and three times to infer."""
    *_, X, y, expected = serial("lenet", micro_batches=micro_batches)
    strategy = pipe("lenet", 3, micro_batches)
    clock = Clock()
    clock._free = 100.0  # earlier work
    with monkeypatch.context() as patched:
        patched.setattr(stage_times, "time", clock)
        patched.setattr(stage_times, "npx", clock)
        for place, stage in enumerate(strategy.stages, 1):
            for name, seconds in (
                ("forward", lambda number, x, *others, n=place: n * len(x)),
                ("backward", lambda number, *others, n=place, stage=stage: 2 * n * len(stage.kept[number].x)),
                ("infer", lambda x, target, n=place: 3 * n * len(x)),
            ):
                patched.setattr(stage, name, clock.timed(getattr(stage, name), seconds))
        times = measure_stages(strategy, X, y)
        longest = -(-7 // micro_batches)
        assert times.forward == [1 * longest, 2 * longest, 3 * longest]
        assert times.backward == [2 * longest, 4 * longest, 6 * longest]
        assert times.push == PUSH
        assert measure_stages(strategy, X, None) == ([3 * longest, 6 * longest, 9 * longest], [], PUSH)
    assert wrong(run(strategy, X, y), expected) == []
