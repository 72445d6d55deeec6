from __future__ import annotations

import pytest

from mxdp.backend import mx
from mxdp.experiments.harness.experiment import Case
from mxdp.experiments.measure import devices as placement
from mxdp.experiments.devices import devices_of


@pytest.fixture
def machine(monkeypatch):
    """A machine with one GPU."""

    def devices(n, kind):
        return [mx.gpu(0)] if n == 1 and kind != "cpu" else [mx.cpu(i) for i in range(n)]

    monkeypatch.setattr(placement, "devices", devices)


def test_one_gpu_is_not_compared_with_two_cpus(machine):
    settings = {"devices": [1, 2], "kind": "auto"}
    assert devices_of(Case("one"), settings) == [mx.cpu(0)]
    assert devices_of(Case("two", 2), settings) == [mx.cpu(0), mx.cpu(1)]


def test_one_gpu_alone_is_used(machine):
    assert devices_of(Case("one"), {"devices": [1], "kind": "auto"}) == [mx.gpu(0)]


def test_processes_of_a_case_get_a_device_each(machine):
    settings = {"devices": [1, 2], "kind": "auto"}
    found = [devices_of(Case("both", processes=2, process=number), settings) for number in range(2)]
    assert found == [[mx.cpu(0)], [mx.cpu(1)]]
