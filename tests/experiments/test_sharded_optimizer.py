"""The optimiser's state in shards: what the claims and the answer say, and what the oracle finds."""

from __future__ import annotations

import pytest

from mxdp.collectives.shards import ShardedSync
from mxdp.experiments.data_parallel.work import sharded_optimizer as work
from mxdp.experiments.harness.experiment import Case
from mxdp.experiments.measure.oracle import count
from mxdp.gluon.sharded import Shards

SETTINGS = dict(devices=[2], kind="cpu", seed=0, batch_size=2, steps=1, width=4, units=64)


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
