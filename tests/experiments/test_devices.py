from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from mxdp.backend import mx
from mxdp.experiments import devices as work
from mxdp.experiments.devices import devices_of, mean_seconds, timed
from mxdp.experiments.lab import Case, Settings

CPUS = [mx.cpu(0), mx.cpu(1)]


@pytest.mark.parametrize(
    ("case", "counts", "expected"),
    [
        (Case("one GPU is not compared with two CPUs"), [1, 2], [CPUS[:1]]),
        (Case("two", 2), [1, 2], [CPUS]),
        (Case("one GPU alone is used"), [1], [[mx.gpu(0)]]),
        (Case("processes get a device each", processes=2), [1, 2], [CPUS[:1], CPUS[1:]]),
        (Case("ranks that exchange share what there is", processes=2, engine="mpi"), [1], [[mx.gpu(0)]] * 2),
    ],
    ids=lambda value: getattr(value, "label", None),
)
def test_the_largest_case_decides_the_kind_for_all(monkeypatch, case, counts, expected):
    """On a machine with one GPU."""
    machine = lambda n, kind: [mx.gpu(0)] if n == 1 and kind != "cpu" else [mx.cpu(i) for i in range(n)]  # noqa: E731
    monkeypatch.setattr(work, "devices", machine)
    for case.process, devices in enumerate(expected):
        assert devices_of(case, Settings(devices=counts, kind="auto")) == devices


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
    assert len(calls) == 2 + work.FEWEST


def test_the_wait_is_in_the_time_and_not_in_the_front_ends(monkeypatch):
    waits = []
    monkeypatch.setattr(work, "npx", SimpleNamespace(waitall=lambda: waits.append(time.sleep(0.05))))
    pushed, done = mean_seconds(lambda: None, 1e-9)
    assert len(waits) == 1
    assert pushed < 0.05 / work.FEWEST <= done


@pytest.mark.parametrize("clock", [timed, lambda push: mean_seconds(push, 0.01)])
def test_an_error_goes_to_the_caller(clock):
    with pytest.raises(ZeroDivisionError):
        clock(lambda: 1 / 0)
