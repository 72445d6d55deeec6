import re

import pytest

from mxdp import timing
from mxdp.timing import Benchmark, Timer


@pytest.fixture
def events(monkeypatch):
    """The order in which the fence and the clock are used."""
    seen = []
    monkeypatch.setattr(timing.npx, "waitall", lambda: seen.append("waitall"))
    monkeypatch.setattr(timing.time, "perf_counter", lambda: seen.append("clock") or 1.0)
    return seen


@pytest.mark.parametrize(("clock", "line"), [(Timer, ""), (lambda: Benchmark("on both"), r"on both: \d\.\d{4} sec\n")])
def test_there_is_a_fence_before_each_reading_of_the_clock(clock, line, events, capsys):
    with clock():
        events.append("work")
    assert events == ["waitall", "clock", "work", "waitall", "clock"]
    assert re.fullmatch(line, capsys.readouterr().out)


def test_times_are_kept_but_not_that_of_a_block_that_fails(monkeypatch, capsys):
    ticks = iter([10.0, 10.5, 20.0, 21.5, 30.0])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(ticks))
    timer = Timer()
    assert timer.avg() == 0.0
    timer.start()
    assert timer.stop() == 0.5
    with timer:
        pass
    with pytest.raises(KeyError), timer:
        raise KeyError
    assert (timer.times, timer.sum(), timer.avg()) == ([0.5, 1.5], 2.0, 1.0)
    with pytest.raises(RuntimeError, match="without"):
        timer.stop()
