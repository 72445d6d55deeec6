"""Two splits at once: what the claims and the answer of ``combined`` say, and what its oracle finds."""

from __future__ import annotations

import pytest

from mxdp.backend import devices
from mxdp.collectives import GradientSync
from mxdp.experiments.harness import claims
from mxdp.experiments.harness.rows import Row, find
from mxdp.experiments.measure.child import one_round
from mxdp.experiments.measure.oracle import count
from mxdp.experiments.other_splits.combined import TOO_FEW, TwoSplits
from mxdp.experiments.other_splits.split import COMBINED
from mxdp.experiments.other_splits.work import combined as work
from mxdp.experiments.other_splits.work.split import Speeds, SplitNet, network, predict_step
from mxdp.experiments.other_splits.work.strategies import ODD, _split
from mxdp.layers import param_shapes
from mxdp.parallel import traffic
from mxdp.parallel.layer_costs import LayerCost
from mxdp.plans.cost.link import Link

SETTINGS = dict(TwoSplits.presets["quick"], kind="cpu", **TwoSplits.little)
BOTH = [case for case in TwoSplits().cases(SETTINGS) if case.settings["strategy"] in COMBINED]


def finished(moved=None, memory=None):
    """Each split alone moves 6 MB in 2 MB; the combinations move ``moved`` MB in ``memory`` MB, by default 4 in 1."""
    rows = []
    for case in TwoSplits().cases(SETTINGS):
        both = case.settings["strategy"] in COMBINED
        metrics = dict(bytes_moved=(moved or 4e6) if both else 6e6, peak_bytes=(memory or 1e6) if both else 2e6)
        metrics.update(predicted_peak_bytes=1e6)
        own = {**case.settings, "devices": [f"cpu({k})" for k in range(case.devices)]}
        rounds = {"predicted_seconds": [0.1] * 12, "bytes_moved": [metrics["bytes_moved"]] * 12}
        memories = metrics["peak_bytes"]
        rounds["peak_bytes"] = [memories] * 12 if isinstance(memories, float) else memories
        rows.append(Row(case.label, own, [0.1] * 12, metrics, rounds))
    TwoSplits().finish(rows, [], SETTINGS)
    return rows


def test_the_answer_is_what_is_moved_and_kept():
    assert TwoSplits().answer(finished(), [], SETTINGS) == (
        "Two splits on 2 x 2 devices move 0.67 of the better one's bytes, and with small batches need 0.50 (0.50 to "
        "0.50) of data parallelism's memory."
    )
    why = TwoSplits().explanation(finished(), [], SETTINGS)
    assert "With a batch of 429 it moves 0.67 of the lesser split's bytes and needs 0.50 (0.50 to 0.50) of" in why
    assert "with 26 it moves 0.7 times as many as the lesser" in why


def test_where_memory_cannot_be_counted_the_answer_is_about_bytes():
    rows = finished()
    for row in rows:
        row.metrics["peak_bytes"] = None
        row.metrics.pop("memory_of_data", None)
        row.rounds = {"predicted_seconds": [0.1] * 12, "bytes_moved": row.rounds["bytes_moved"]}
    TwoSplits().finish(rows, [], SETTINGS)
    assert TwoSplits().answer(rows, [], SETTINGS).endswith("move 0.67 of the better one's bytes.")
    assert not [row for row in rows if "needs_less" in row.rounds]


def test_memory_is_what_each_process_has_counted():
    """Half of them need more than data parallelism: the last alone does not decide, and nothing is called exact."""
    rows = finished(memory=[1e6, 1e6, 2.2e6, 2.2e6] * 3)
    assert find(rows, net="wide", strategy=COMBINED[1]).rounds["memory_of_data"] == [0.5, 0.5, 1.1, 1.1] * 3
    assert "need 0.80 (0.50 to 1.10) of data" in TwoSplits().answer(rows, [], SETTINGS)
    assert claims.judged("needs_less", TwoSplits.claims["needs_less"], rows)["holds"] is None


@pytest.mark.parametrize(
    ("name", "wrong", "labels"),
    [
        ("moves_less", dict(moved=6.1e6), [("LeNet, batch 27", "layerwise"), ("Wide net, batch 429", "layerwise")]),
        ("needs_less", dict(memory=2.1e6), [("Wide net, batch 26", "pipeline"), ("Wide net, batch 26", "layerwise")]),
    ],
)
def test_its_claims_are_judged(name, wrong, labels):
    for rows, holds in ((finished(), True), (finished(**wrong), False)):
        found = claims.judged(name, TwoSplits.claims[name], rows)
        assert found["holds"] is holds
        assert [each["label"] for each in found["measured"]] == [f"{net}, data 2 x {split} 2" for net, split in labels]


@pytest.mark.parametrize("n", [[1], [2], [3], [5]])
def test_too_few_devices_are_said(n):
    settings = {**SETTINGS, "devices": n}
    assert not [case for case in TwoSplits().cases(settings) if case.settings["strategy"] in COMBINED]
    assert TwoSplits().predict(settings, 2) == TwoSplits().answer([], [], settings) == TOO_FEW
    assert TwoSplits().explanation([], [], settings) == ""


def test_the_prediction_is_what_the_strategies_count():
    said = TwoSplits().predict(SETTINGS, 2)
    assert "LeNet, batch 27, 4 devices: data parallelism or layerwise partitioning alone moves 3.10 MB" in said
    assert "both together 2.07 MB" in said
    for strategy, megabytes in (("data", 3.10), ("layerwise", 3.10), (COMBINED[1], 2.07)):
        case = next(case for case in TwoSplits().cases(SETTINGS) if case.settings["strategy"] == strategy)
        metrics = one_round(work.set_up(case, SETTINGS)).last
        assert metrics["bytes_moved"] / 1e6 == pytest.approx(megabytes, rel=0.02)
        assert metrics["bytes_counted"] == metrics["bytes_moved"]


@pytest.mark.parametrize("case", BOTH, ids=lambda case: case.label)
def test_its_oracle_finds_nothing_wrong(case):
    split = _split(case, SETTINGS)
    parameters = sum(traffic.elements(shape) for own in param_shapes(split.net, split.shape) for shape in own)
    assert count(work.oracle(case, SETTINGS)) == (ODD * 10 + ODD + 2 * parameters, 0)


@pytest.mark.parametrize("case", BOTH, ids=lambda case: case.label)
def test_its_oracle_finds_gradients_that_are_not_summed_over_the_groups(case, monkeypatch):
    monkeypatch.setattr(GradientSync, "__call__", lambda self: None)
    checked, wrong = count(work.oracle(case, SETTINGS))
    assert checked / 4 < wrong < checked - ODD * 11, "scores and losses of the first step are right"


# The prediction: nine layers of LeNet's that take 1 s forward and 2 s backward each, 0.5 s for the update.


@pytest.mark.parametrize(
    ("strategy", "cores", "seconds"),
    [
        (COMBINED[1], 4, (21 / 2 + 6) / 2 + 0.25),
        (COMBINED[1], 2, 2 * ((21 / 2 + 6) / 2 + 0.25)),
        # A group's pipeline, of half the batch, has one core of two, and in the end the fuller stage's update.
        (COMBINED[0], 2, 27 / 2 + 0.5 * 0.9983),
        (COMBINED[0], 1, 2 * (27 / 2 + 0.5 * 0.9983)),
    ],
)
def test_work_is_divided_twice(strategy, cores, seconds):
    options = {"micro_batches": 1, "cuts": (3,)} if strategy == COMBINED[0] else {}
    own = SplitNet(strategy, *network("lenet"), devices(4, "cpu"), 0, options)
    speeds = Speeds([LayerCost(1.0, 2.0)] * 9, 0.5, Link(0.0, 0.0))
    assert predict_step(own, own.make(), 6, speeds, cores) == pytest.approx(seconds, rel=1e-3)
