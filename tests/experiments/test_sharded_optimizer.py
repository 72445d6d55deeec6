"""The optimiser's state in shards: what the claims and the answer say, and what the oracle finds."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from mxdp.collectives.shards import ShardedSync
from mxdp.experiments.data_parallel.sharded_optimizer import ShardedOptimizer
from mxdp.experiments.data_parallel.work import sharded_optimizer as work
from mxdp.experiments.harness import claims
from mxdp.experiments.harness.experiment import Case
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.measure.oracle import count
from mxdp.gluon.sharded import Shards

SETTINGS = dict(devices=[2], kind="cpu", seed=0, batch_size=2, steps=1, width=4, units=64)


def finished(seconds=1.0, state=50, moved=100):
    """Without shards a step takes 1 s, and 100 bytes."""
    experiment, rows = ShardedOptimizer(), []
    for case in experiment.cases(SETTINGS):
        info = {"devices": ["cpu(0)", "cpu(1)"], **case.settings}
        own = (seconds, state, moved) if case.settings["sharded"] else (1.0, 100, 100)
        sizes = {"state_bytes": own[1], "moved_bytes": own[2]}
        rounds = {name: [value] * 12 for name, value in sizes.items()}
        rows.append(Row(case.label, info, [own[0]] * 12, sizes, rounds))
    experiment.finish(rows, [], SETTINGS)
    return rows


def test_the_answer_has_the_state_and_the_time():
    said = ShardedOptimizer().answer(finished(0.9), [], SETTINGS)
    assert "holds 0.50 of Adam's state" in said
    assert "takes 0.90 (0.90 to 0.90) of the plain" in said
    assert "--devices 2" in ShardedOptimizer().answer(finished()[::2], [], SETTINGS)


@pytest.mark.parametrize(
    ("name", "options", "holds"),
    [
        ("state", {}, True),
        ("state", dict(state=53), False),
        ("moved", {}, True),
        ("moved", dict(moved=101), False),
        ("time", dict(seconds=1.05), True),
        ("time", dict(seconds=1.06), False),
    ],
)
def test_its_claims_are_judged(name, options, holds):
    found = claims.judged(name, ShardedOptimizer.claims[name], finished(**options))
    assert (found["holds"], len(found["measured"])) == (holds, 4)


def test_the_picture_has_a_bar_for_each_row_in_both_panels():
    figure = Figure()
    ShardedOptimizer().draw({"rows": finished()}, figure)
    assert [len(axes.patches) for axes in figure.axes] == [8, 8]


PARAMS = 784 * 64 + 64 * 64 + 64 * 10 + 2 * 64 + 10
"""Of the MLP."""


def case(net="mlp", optimizer="adam", sharded=True):
    return Case("", 2, settings={"net": net, "optimizer": optimizer, "sharded": sharded})


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("sharded", [False, True])
def test_its_oracle_finds_nothing_wrong(optimizer, sharded):
    checked, wrong = count(work.oracle(case("mlp", optimizer, sharded), SETTINGS))
    assert (checked, wrong) == (2 * PARAMS, 0)


def test_its_oracle_finds_parts_that_are_not_spread_or_not_summed(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Shards, "spread", lambda self, numbers: None)
        checked, wrong = count(work.oracle(case(), SETTINGS))
    assert wrong > checked / 4
    monkeypatch.setattr(ShardedSync, "_sum", lambda self, bucket: None)
    checked, wrong = count(work.oracle(case(), SETTINGS))
    assert wrong > checked / 4


def test_it_measures_the_state_and_counts_what_is_moved():
    plain, own = (work.set_up(case(sharded=sharded), SETTINGS).round() for sharded in (False, True))
    assert plain.metrics == {"state_bytes": 8 * PARAMS, "moved_bytes": 12 * PARAMS}
    assert own.metrics["moved_bytes"] == 8 * PARAMS
    assert 4 * PARAMS <= own.metrics["state_bytes"] <= 4.01 * PARAMS
