"""The batch and the learning rate for several devices: claims, answer, picture, and what the oracle finds."""

from __future__ import annotations

import math

import pytest

from mxdp.errors import UsageError
from mxdp.experiments.data_parallel.batch_scaling import PARTS, BatchScaling
from mxdp.experiments.data_parallel.work import batch_scaling as work
from mxdp.experiments.harness.rows import Row, find
from mxdp.experiments.harness.settings import resolve
from mxdp.experiments.measure.oracle import count

EXPERIMENT = BatchScaling()
SETTINGS = dict(EXPERIMENT.presets["quick"], kind="cpu", devices=[1, 2], times=[2, 4], batch_size=8)


def finished(seconds=0.9, reached=4, settings=SETTINGS, **accuracies):
    """The smallest batch takes 1 s on two devices, 2 s on one."""
    found = {"": 0.80, "kept": 0.75, "root": 0.79, "linear": 0.80, **accuracies}
    rows = []
    for case in EXPERIMENT.cases(settings):
        devices, k, rule = (case.settings[name] for name in ("num_devices", "times", "rule"))
        own = 2 / devices if k == 1 else seconds
        known = {"test_accuracy": [found[rule] + seed / 100 for seed in range(6)], "reached": [reached] * 6}
        metrics = {"test_accuracy": found[rule], "curve": {"100": 0.5, "200": found[rule]}}
        rows.append(Row(case.label, {"devices": ["cpu"] * devices, **case.settings}, [own] * 6, metrics, known))
    EXPERIMENT.finish(rows, [], settings)
    return rows


def test_each_rule_has_its_batch_and_learning_rate():
    cases = {case.label: (case.devices, case.settings["batch"]) for case in EXPERIMENT.cases(SETTINGS)}
    assert cases == {
        "batch 8, 1 device": (1, 8), "batch 8, 2 devices": (2, 8), "batch 16, lr 0.1": (2, 16),
        "batch 16, lr 0.141": (2, 16), "batch 16, lr 0.2": (2, 16), "batch 32, lr 0.1": (2, 32),
        "batch 32, lr 0.2": (2, 32), "batch 32, lr 0.4": (2, 32),
    }  # fmt: skip


def test_the_time_to_the_target_needs_every_seed():
    rows = finished(reached=4)
    assert rows[1].metrics["to_target"] == 1.0 * 4 / PARTS
    assert "to_target" not in finished(reached=0)[1].metrics


@pytest.mark.parametrize(
    ("setting", "said"), [({"times": [1, 2]}, "whole numbers above 1"), ({"samples": 100}, f"a multiple of {PARTS}")]
)
def test_bad_settings_are_refused_before_anything_is_trained(setting, said):
    with pytest.raises(UsageError, match=said):
        resolve([EXPERIMENT], "quick", setting)


@pytest.mark.parametrize("label", ["batch 8, 1 device", "batch 16, lr 0.141", "batch 32, lr 0.4"])
def test_its_oracle_finds_nothing_wrong(label):
    checked, wrong = count(work.oracle(case_of(label), SETTINGS))
    assert (checked > 100_000, wrong) == (True, 0)


def case_of(label):
    return next(case for case in EXPERIMENT.cases(SETTINGS) if case.label == label)


@pytest.mark.parametrize("name", ["batch", "rate"])
def test_its_oracle_finds_what_is_not_scaled(name):
    case = case_of("batch 16, lr 0.2")
    case.settings[name] = case_of("batch 8, 2 devices").settings[name]
    checked, wrong = count(work.oracle(case, SETTINGS))
    assert wrong > checked / 2


def test_its_oracle_finds_a_training_that_goes_on_where_the_last_one_ended(monkeypatch):
    start = work.RepeatedTraining.start

    def once(training, seed):
        if not hasattr(training, "_stream"):
            start(training, seed)

    monkeypatch.setattr(work.RepeatedTraining, "start", once)
    assert count(work.oracle(case_of("batch 16, lr 0.2"), SETTINGS))[1] > 0


def test_each_round_has_a_seed_of_its_own(monkeypatch):
    seeds = []
    start = work.RepeatedTraining.start
    monkeypatch.setattr(work.RepeatedTraining, "start", lambda own, seed: seeds.append(seed) or start(own, seed))
    settings = dict(SETTINGS, **EXPERIMENT.little, seed=3, rounds=2)
    for repeat in (0, 1):
        case = EXPERIMENT.cases(settings)[0]
        case.settings["repeat"] = repeat
        ready = work.set_up(case, settings)
        seeds.clear()
        rounds = [ready.round(), ready.round()]
        assert seeds == [3 + 1000 * repeat, 4 + 1000 * repeat]
    assert all(math.isfinite(each.metrics["test_accuracy"]) and each.seconds > 0 for each in rounds)
    assert find(finished(), times=4, rule="linear").case["rate"] == 0.4
