"""When a second device pays: what the claims, the answer and its reasons say, and what the oracle finds."""

from __future__ import annotations

import math

import pytest
from matplotlib.figure import Figure

from mxdp.backend import devices
from mxdp.experiments.data_parallel.break_even import GRID, NETS, BreakEven, parameters, pays
from mxdp.experiments.data_parallel.work import break_even as work
from mxdp.experiments.harness import claims
from mxdp.experiments.harness.experiment import Case
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.measure.oracle import count
from mxdp.plans.cost.break_even import break_even, step_seconds
from mxdp.plans.cost.link import Link

SETTINGS = dict(devices=[1, 2], kind="cpu", seed=0, units=16, width=8, at_least=0.001)
SETTINGS.update(lenet=[4, 64], mlp=[4, 64], resnet=[4])
SHARD, ALLREDUCE = 0.001, 0.002
"""Seconds for each sample of one device, and of an all-reduce."""


def finished(small=(1.1,) * 6, large=(1.8,) * 6, allreduce=ALLREDUCE, alone=1.0):
    """Each network on one and on two devices: the speed-ups of batch 4, and of larger ones."""
    experiment, rows = BreakEven(), []
    for case in experiment.cases(SETTINGS):
        batch = case.settings["batch"]
        one, n = SHARD * batch, case.devices
        speed = 2 * list((1.0,) * 6 if n == 1 else small if batch == 4 else large)
        times = [one / each for each in speed]
        found = dict(
            shard_seconds=one / 2, python_seconds=0.0, allreduce_seconds=allreduce, alone_seconds=one / 2 * alone
        )
        info = {"devices": [f"cpu({k})" for k in range(n)], "cores": 4, **case.settings}
        metrics = {**found, "allreduce_by_parameters": {str(each): 1e-9 * each for each in GRID}}
        rounds = {name: [value] * 12 for name, value in found.items()}
        rows.append(Row(case.label, info, times, metrics if n > 1 else {}, rounds if n > 1 else {}))
    experiment.finish(rows, [], SETTINGS)
    return rows


def judged(name, rows):
    return claims.judged(name, BreakEven.claims[name], rows)


@pytest.mark.parametrize(
    ("small", "said", "below"),
    [
        ((1.1,) * 6, "from 4 for {}, from 4 for {} and from 4 for {}", ""),
        ((0.9, 1.1) * 3, "from 64 for {}, from 64 for {} and never for {}", " (4: open)"),
        ((0.9,) * 6, "from 64 for {}, from 64 for {} and never for {}", " (4: no)"),
    ],
)
def test_the_answer_is_the_batch_from_which_all_measured_ones_pay_and_what_is_known_below(small, said, below):
    nets = [f"{title}{below}" for title in NETS.values()]
    expected = f"By batch, a second device surely pays {said.format(*nets)}."
    assert BreakEven().answer(finished(small), [], SETTINGS) == expected


def test_without_one_device_there_is_nothing_to_compare():
    two = [row for row in finished() if len(row.devices) == 2]
    for row in two:
        row.rounds.pop("speedup")
        row.metrics.pop("pays")
    assert "on 1 device" in BreakEven().answer(two, [], SETTINGS)
    assert BreakEven().explanation(two, [], SETTINGS) == "Run it with --devices 1,2."


@pytest.mark.parametrize(
    ("speedup", "expected"),
    [((1.1,) * 6, True), ((0.9,) * 6, False), ((0.9, 1.1) * 3, None), ((1.1, 1.2), True), ((0.9, 0.8), False)],
)
def test_it_pays_if_the_interval_is_above_1(speedup, expected):
    assert pays(Row("", rounds={"speedup": list(speedup)})) is expected


@pytest.mark.parametrize(
    ("name", "options", "holds"),
    [
        # Batch 4 is predicted at 4 / (2 + 2) = 1.00, or with a faster all-reduce at 1.33.
        ("right_side", dict(allreduce=0.001), True),
        ("right_side", dict(allreduce=0.001, small=(0.9,) * 6), False),
        ("right_side", dict(allreduce=0.001, small=(0.9, 1.1) * 3), True),
        ("large_batch", dict(), True),
        ("large_batch", dict(large=(0.9,) * 6), False),
        ("large_batch", dict(large=(0.9, 1.1) * 3), None),
        # Batch 64 is predicted at 64 / (32 + 2) = 1.88.
        ("step_time", dict(), True),
        ("step_time", dict(large=(1.5,) * 6), False),
        ("step_time", dict(large=(2.5,) * 6), False),
    ],
)
def test_its_claims_are_judged(name, options, holds):
    assert judged(name, finished(**options))["holds"] is holds


def test_the_map_has_a_mark_for_each_point():
    figure = Figure()
    BreakEven().draw({"rows": finished()}, figure)
    (axes,) = figure.axes
    marks = [line for line in axes.lines if line.get_marker() != "None"]
    assert len(marks) == 5
    assert [text.get_text() for text in figure.legends[0].texts] == list(NETS.values())


@pytest.mark.parametrize("cores", [2, 4, 8, None])
@pytest.mark.parametrize("python", [0.0, 1e-4])
@pytest.mark.parametrize("n", [2, 4])
def test_at_the_break_even_both_take_the_same_time(cores, python, n):
    device = Link(1e-3, 1e-3)
    least = break_even(device, python, n, cores, allreduce=2e-3)
    assert 0 < least < math.inf
    expected = step_seconds(device.seconds(least), python, n, cores, 2e-3)
    assert device.seconds(n * least) == pytest.approx(expected)


@pytest.mark.parametrize("net", NETS)
def test_the_networks_have_as_many_parameters_as_the_map_says(net):
    for units, width in ((16, 4), (8, 64)):
        size = width if net == "resnet" else units
        replica = work.network(net, size, tuple(devices(1, "cpu")), 0).replicas[0]
        assert sum(param.size for param in replica) == parameters(net, units, width)


@pytest.mark.parametrize(("net", "n", "batch"), [("lenet", 1, 4), ("lenet", 3, 7), ("mlp", 2, 5), ("resnet", 2, 3)])
def test_its_oracle_finds_nothing_wrong_and_finds_a_missing_all_reduce(net, n, batch):
    case = Case("", n, settings={"net": net, "batch": batch})
    settings = {**SETTINGS, "devices": [n]}
    checked, wrong = count(work.oracle(case, settings))
    assert (checked, wrong) == (2 * n * parameters(net, 16, 8), 0)
    model = work.network(net, 8 if net == "resnet" else 16, tuple(devices(n, "cpu")), 0)
    model.sums = False
    try:
        _, wrong = count(work.oracle(case, settings))
    finally:
        model.sums = True
    assert (wrong > checked / 10) == (n > 1)


def test_its_oracle_finds_an_update_that_is_divided_by_the_shard(monkeypatch):
    case = Case("", 2, settings={"net": "mlp", "batch": 4})
    model = work.network("mlp", 16, tuple(devices(2, "cpu")), 0)
    step = model.step
    monkeypatch.setattr(model, "step", lambda X, y: step(X, y, samples=2))
    checked, wrong = count(work.oracle(case, {**SETTINGS, "devices": [2]}))
    assert 1000 < wrong < checked / 2, "the parameters, not the gradients"
