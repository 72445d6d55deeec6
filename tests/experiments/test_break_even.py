"""When a second device pays: the arithmetic of the answer, and what the oracle finds."""

from __future__ import annotations

import math

import pytest
from littles import little

from mxdp.backend import devices
from mxdp.experiments.data_parallel import break_even as question
from mxdp.experiments.data_parallel import scaling
from mxdp.experiments.lab import Case, Row
from mxdp.experiments.lab.module import Question
from mxdp.experiments.networks import network
from mxdp.experiments.oracle import count
from mxdp.plans.cost.link import Link
from mxdp.plans.cost.step import break_even, step_seconds

S = little(Question(question), kind="cpu", width=8, at_least=0.001, lenet=[4, 64], mlp=[4, 64], resnet=[4])


@pytest.mark.parametrize(
    ("small", "large", "expected"),
    [
        ("yes", "yes", "from 4 for LeNet"),
        ("open", "yes", "from 64 for LeNet (4: open)"),
        ("no", "yes", "from 64 for LeNet (4: no)"),
        ("yes", "no", "nowhere for LeNet (64: no)"),
    ],
)
def test_the_answer_is_the_batch_from_which_all_measured_ones_pay_and_what_is_known_below(small, large, expected):
    rows = [Row("", False, dict(net="lenet", batch=batch, pays=pays)) for batch, pays in ((4, small), (64, large))]
    assert question._tell_batches("lenet", S, rows) == expected


@pytest.mark.parametrize("cores", [2, 4, 8, None])
@pytest.mark.parametrize("python", [0.0, 1e-4])
@pytest.mark.parametrize("n", [2, 4])
def test_at_the_break_even_both_take_the_same_time(cores, python, n):
    device = Link(1e-3, 1e-3)
    least = break_even(device, python, n, cores, allreduce=2e-3)
    assert 0 < least < math.inf
    expected = step_seconds(device.seconds(least), python, n, cores, 2e-3)
    assert device.seconds(n * least) == pytest.approx(expected)


@pytest.mark.parametrize(("net", "n", "batch"), [("lenet", 1, 4), ("lenet", 3, 7), ("mlp", 2, 5), ("resnet", 2, 3)])
def test_its_oracle_finds_nothing_wrong_and_finds_a_missing_all_reduce(net, n, batch, monkeypatch):
    case, s = Case("", n, net=net, batch=batch), little(Question(question), kind="cpu", devices=[n], width=8)
    checked, wrong = count(question.oracle(case, s))
    assert wrong == 0
    model = network(net, 16 if net == "mlp" else 8, tuple(devices(n, "cpu")), 0)
    monkeypatch.setattr(model, "sums", False)
    assert (count(question.oracle(case, s))[1] > checked / 10) == (n > 1)


def test_devices_share_a_sample_or_more():
    cases = scaling.cases(little(Question(scaling), devices=[4], lenet=1))
    assert [(case.devices, case.batch) for case in cases][:3] == [(1, 1), (1, 2), (4, 4)]


def test_the_all_reduce_is_predicted_for_the_bytes_of_all_numbers(monkeypatch):
    monkeypatch.setattr(question, "predict", lambda plan, nbytes, machine: nbytes)
    assert question.sums_seconds([10, 1 << 23, 5], devices(2, "cpu"), None) == 4 * ((1 << 23) + 15)
