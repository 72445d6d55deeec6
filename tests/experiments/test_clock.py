from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from mxdp.experiments.measure import clock as repeats
from mxdp.experiments.measure.clock import mean_seconds, seconds_of


def test_a_mean_is_of_many_calls_and_splits_off_the_front_end():
    calls = []

    def push():
        calls.append(time.perf_counter())
        time.sleep(0.002)

    pushed, done = mean_seconds(push, 0.05)
    assert 2 + 5 <= len(calls) <= 2 + 25
    assert 0.002 <= pushed <= done < 0.05


def test_a_long_one_is_called_a_few_times_all_the_same():
    calls = []
    mean_seconds(lambda: calls.append(time.sleep(0.01)), 1e-9)
    assert len(calls) == 2 + repeats.FEWEST


def test_the_wait_is_in_the_time_and_not_in_the_front_ends(monkeypatch):
    waits = []
    monkeypatch.setattr(repeats, "npx", SimpleNamespace(waitall=lambda: waits.append(time.sleep(0.05))))
    pushed, done = mean_seconds(lambda: None, 1e-9)
    assert len(waits) == 1
    assert pushed < 0.05 / repeats.FEWEST <= done


@pytest.mark.parametrize("clock", [seconds_of, lambda push: mean_seconds(push, 0.01)])
def test_an_error_goes_to_the_caller(clock):
    with pytest.raises(ZeroDivisionError):
        clock(lambda: 1 / 0)
