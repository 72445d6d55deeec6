from __future__ import annotations

from dataclasses import replace

import pytest
from littles import little

from mxdp.backend import mx
from mxdp.errors import MxdpError
from mxdp.experiments.allreduce import parameter_server
from mxdp.experiments.allreduce.parameter_server import summed
from mxdp.experiments.lab.module import find
from mxdp.experiments.oracle import count
from mxdp.plans.collective.one_hop import server, sharded
from mxdp.plans.collective.operations import operations
from mxdp.plans.collective.rings import ring
from mxdp.plans.collective.schedule import ADD
from mxdp.plans.cost.machine import CPU
from mxdp.plans.cost.simulate import predict

S = little(find("parameter-server"), kind="cpu", nbytes=4000)
CASES = {case.algorithm: case for case in parameter_server.cases(S)}


def cpus(count):
    return [mx.cpu(rank) for rank in range(count)]


def broken(schedule, number, change):
    """The plan with that step changed."""
    steps = list(schedule.steps)
    steps[number] = tuple(change(steps[number]))
    return replace(schedule, steps=tuple(steps))


def off_by_one(step):
    return [replace(send, chunk=(send.chunk + 1) % 3) for send in step]


@pytest.mark.parametrize(
    ("plan", "least"),
    [
        (broken(server(4), 0, lambda step: [replace(send, action=ADD) for send in step]), 2000),  # to its own numbers
        (broken(ring(3), -1, off_by_one), 900),
        (broken(sharded(3, [400] * 3), -1, off_by_one), 900),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_broken_plan_is_caught(plan, least):
    checked, wrong = count(summed(plan, cpus(plan.devices), 3, 1200, seed=0)[1])
    assert checked == 3600
    assert least <= wrong <= checked


def test_a_sum_that_is_not_made_again_is_caught(monkeypatch):
    class Once(parameter_server.Program):
        def __call__(self):
            super().__call__()
            self.calls = []

    monkeypatch.setattr(parameter_server, "Program", Once)
    checked, wrong = count(summed(ring(2), cpus(2), 2, 1000, seed=0)[1])
    assert wrong == checked == 2000


def test_a_round_has_its_prediction_and_the_time_of_one_sum(monkeypatch, virtual):
    asked = []
    monkeypatch.setattr(parameter_server, "calibrated", lambda devices: asked.append(devices) or CPU)
    for name, schedule in (("server", server(5)), ("ring", ring(4))):
        ready = parameter_server.set_up(CASES[name], S)
        assert ready.devices == cpus(schedule.devices)
        seconds, more = ready.round()
        assert seconds == len(operations(schedule)) + 1 / parameter_server.TIMED
        assert more == {"predicted_ms": predict(schedule, 4000, CPU) * 1e3}
    assert asked == [tuple(cpus(4))] * 2


def test_a_round_whose_sums_are_wrong_fails(monkeypatch):
    monkeypatch.setattr(parameter_server, "calibrated", lambda _: CPU)
    monkeypatch.setattr(parameter_server, "summed", lambda *_: (1.0, iter([([1, 2, 3], [1, 5, 6], 0.0)])))
    with pytest.raises(MxdpError, match="2 of 3 numbers of the sums that were timed are wrong"):
        parameter_server.set_up(CASES["ring"], S).round()
