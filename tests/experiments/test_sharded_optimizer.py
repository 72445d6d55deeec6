"""The optimiser's state in shards: what the oracle finds, and what is counted."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from littles import little

from mxdp.backend import mx, np
from mxdp.collectives.shards import ShardedBuckets
from mxdp.experiments.data_parallel import sharded_optimizer
from mxdp.experiments.lab.module import Case, Question
from mxdp.experiments.oracle import count
from mxdp.gluon.bucketed import ShardedReplicas

S = little(Question(sharded_optimizer), kind="cpu")
PARAMS = 784 * 64 + 64 * 64 + 64 * 10 + 2 * 64 + 10
"""Of the MLP."""


def case(optimizer="adam", sharded=True, net="mlp", n=2):
    return Case("", n, net=net, optimizer=optimizer, sharded=sharded)


@pytest.mark.parametrize(("owner", "method"), [(ShardedReplicas, "spread"), (ShardedBuckets, "sum")])
def test_its_oracle_finds_parts_that_are_not_spread_or_not_summed(owner, method, monkeypatch):
    monkeypatch.setattr(owner, method, lambda self, _=None: None)
    assert count(sharded_optimizer.oracle(case(), S))[1] > 2 * PARAMS / 4


@pytest.mark.parametrize("n", [2, 3])
def test_it_measures_the_state_and_counts_what_is_moved(n):
    """Adam's two numbers a parameter; in shards of nearly one length. An all-reduce sends 2 (n - 1) times all bytes."""
    s = little(Question(sharded_optimizer), kind="cpu", devices=[n])
    (_, plain), (_, parts) = (
        sharded_optimizer.set_up(case(sharded=sharded, n=n), s).round() for sharded in (False, True)
    )
    assert plain == {"state_bytes": 8 * PARAMS, "moved_bytes": 12 * (n - 1) * PARAMS}
    assert parts["moved_bytes"] == 8 * (n - 1) * PARAMS
    assert parts["state_bytes"] == pytest.approx(8 * PARAMS / n, abs=8 * n)
    states = {number: np.zeros(3 + 2 * number, ctx=mx.cpu(number)) for number in (0, 1)}
    trainer = SimpleNamespace(_updaters=[SimpleNamespace(states=states)])
    assert [sharded_optimizer._state_bytes(trainer, sharded) for sharded in (True, False)] == [4 * 5, 4 * 8]
