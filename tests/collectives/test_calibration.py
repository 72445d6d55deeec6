"""That numbers are measured and where they go; how large they are depends on the machine."""

from __future__ import annotations

import pytest

from mxdp import process
from mxdp.backend import mx
from mxdp.collectives.calibration import calibrate, push_seconds, start_seconds
from mxdp.plans.algorithms import plan
from mxdp.plans.replay import predict

SMALL = (1 << 16, 1 << 18)


def test_a_machine_that_plans_can_be_played_through_on():
    machine = calibrate([mx.cpu(0), mx.cpu(1)], SMALL)
    assert machine.cores == process.cores()
    assert machine.push > 0
    for rate in (machine.copy, machine.add):
        assert rate.start > 0
        for curve in (rate.alone, rate.together):
            assert [size for size, _ in curve] == list(SMALL)
            assert all(0 < seconds < 1e-6 for _, seconds in curve)
    assert 0 < predict(plan("ring", 2), 1 << 20, machine) < 10


def test_one_device_has_no_link():
    with pytest.raises(ValueError, match="a link needs two devices, not 1"):
        calibrate([mx.cpu(0)])


def test_times_are_of_one_call_and_one_hop():
    assert 0 < push_seconds(mx.cpu(0), calls=50) < 0.1
    assert 0 < start_seconds(mx.cpu(0), mx.cpu(1), hops=20) < 0.1
