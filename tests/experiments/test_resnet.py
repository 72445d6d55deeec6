from __future__ import annotations

from random import Random

import pytest
from littles import little

from mxdp import process
from mxdp.backend import gluon, mx, np
from mxdp.experiments import networks
from mxdp.experiments.data_parallel import break_even, resnet, sharded_optimizer
from mxdp.experiments.lab import Case
from mxdp.experiments.lab.module import Question
from mxdp.experiments.oracle import count
from mxdp.plans.cost.machine import CPU

SETTINGS = little(Question(resnet), kind="cpu")
CASES = {case.label: case for case in resnet.cases(SETTINGS)}


def test_the_network_is_the_books():
    net = networks.resnet18()
    net.initialize()
    assert net(np.zeros((2, 1, 28, 28))).shape == (2, 10)
    sizes = [param.data().size for param in net.collect_params().values() if param.grad_req != "null"]
    assert sum(sizes) == 11175818  # convolutions with scales and shifts, three shortcuts, one dense layer


def test_its_oracle_finds_gradients_that_are_not_summed(monkeypatch):
    monkeypatch.setattr(gluon.Trainer, "_allreduce_grads", lambda self: None)
    assert count(resnet.oracle(CASES["2 devices, mxdp's store"], SETTINGS))[1] > 0


@pytest.mark.parametrize(
    ("question", "case"),
    [
        (resnet, CASES["2 devices, mxdp.Trainer, hybrid"]),
        (sharded_optimizer, Case("", 2, net="resnet", optimizer="sgd", sharded=False)),
        (break_even, Case("", 2, net="resnet", batch=2)),
    ],
)
def test_rounds_of_few_steps_begin_anywhere(monkeypatch, question, case):
    """Else one place, where a step takes half as long again, may be every process's."""
    begun = []
    monkeypatch.setattr(question, "begin_anywhere", lambda device, random: begun.append((device, random.random())))
    monkeypatch.setattr(break_even, "calibrated", lambda devices: CPU)
    work = question.set_up(case, little(Question(question), kind="cpu", units=8, at_least=0.01))
    for _ in range(2):
        work.round()
    assert [device for device, _ in begun] == [mx.cpu(0)] * 2
    assert begun[0] != begun[1]


def test_a_rounds_time_is_that_of_a_step(monkeypatch):
    monkeypatch.setattr(resnet, "timed", lambda push: 10.0)
    assert resnet.set_up(CASES["1 device"], little(Question(resnet), kind="cpu", steps=5)).round() == 2.0


def test_anywhere_is_each_place_of_the_turn(monkeypatch):
    taken, counts = [], []
    monkeypatch.setattr(networks.np, "dot", lambda a, b: taken.append(a.ctx))
    for seed in range(200):
        taken.clear()
        networks.begin_anywhere(mx.cpu(1), Random(seed))
        assert set(taken) <= {mx.cpu(1)}
        counts.append(len(taken))
    assert max(counts) < process.SMALL_TEMP_COPY
    assert len(set(counts)) > 80
