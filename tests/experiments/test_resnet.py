"""ResNet-18 through gluon: what the claims and the answer say, and what the oracle finds."""

from __future__ import annotations

from random import Random

import pytest

from mxdp import process
from mxdp.backend import gluon, mx
from mxdp.experiments.data_parallel.resnet import ResNet
from mxdp.experiments.data_parallel.work import break_even, sharded_optimizer
from mxdp.experiments.data_parallel.work import resnet as work
from mxdp.experiments.harness.experiment import Case
from mxdp.experiments.measure import resnet
from mxdp.experiments.measure.oracle import count
from mxdp.experiments.measure.resnet import begin_anywhere, resnet18
from mxdp.plans.cost.machine import CPU

SETTINGS = dict(devices=[1, 2], kind="cpu", seed=0, batch_size=2, steps=1, width=4)
CASES = ResNet().cases(SETTINGS)


def test_the_network_is_the_books():
    net = resnet18()
    net.initialize()
    net(work.np.zeros((2, 1, 28, 28)))
    sizes = [param.data().size for param in net.collect_params().values() if param.grad_req != "null"]

    def convolution(inputs, outputs, kernel):
        """Its weights and biases, and the scales and shifts behind it."""
        return inputs * outputs * kernel**2 + 3 * outputs

    expected = convolution(1, 64, 3) + 512 * 10 + 10
    for inputs, outputs in ((64, 64), (64, 128), (128, 256), (256, 512)):
        expected += convolution(inputs, outputs, 3) + 3 * convolution(outputs, outputs, 3)
        expected += (inputs * outputs + outputs) * (inputs < outputs)  # the shortcut, which is not normalised
    assert sum(sizes) == expected
    assert net(work.np.zeros((2, 1, 28, 28))).shape == (2, 10)


@pytest.mark.parametrize("case", [CASES[1], CASES[3], CASES[6]], ids=lambda case: case.label)
def test_its_oracle_finds_nothing_wrong(case):
    checked, wrong = count(work.oracle(case, SETTINGS))
    assert checked > 0
    assert wrong == 0


def test_its_oracle_finds_gradients_that_are_not_summed(monkeypatch):
    monkeypatch.setattr(gluon.Trainer, "_allreduce_grads", lambda self: None)
    assert count(work.oracle(CASES[2], SETTINGS))[1] > 0


@pytest.mark.parametrize(
    ("its_work", "case"),
    [
        (work, CASES[-1]),
        (sharded_optimizer, Case("", 2, settings={"net": "resnet", "optimizer": "sgd", "sharded": False})),
        (break_even, Case("", 2, settings={"net": "resnet", "batch": 2})),
    ],
)
def test_rounds_of_few_steps_begin_anywhere(monkeypatch, its_work, case):
    """Else one place, where a step takes half as long again, may be every process's."""
    begun = []
    monkeypatch.setattr(its_work, "begin_anywhere", lambda device, random: begun.append((device, random.random())))
    monkeypatch.setattr(break_even, "calibrate", lambda devices: CPU)
    ready = its_work.set_up(case, {**SETTINGS, "units": 8, "at_least": 0.01})
    for _ in range(2):
        ready.round()
    assert [device for device, _ in begun] == [mx.cpu(0)] * 2
    assert begun[0] != begun[1]


def test_anywhere_is_each_place_of_the_turn(monkeypatch):
    taken = []
    monkeypatch.setattr(resnet.np, "dot", lambda a, b: taken.append(a.ctx))
    counts = []
    for seed in range(200):
        taken.clear()
        begin_anywhere(mx.cpu(1), Random(seed))
        assert set(taken) <= {mx.cpu(1)}
        counts.append(len(taken))
    assert max(counts) < process.SMALL_TEMP_COPY
    assert len(set(counts)) > 80
