from __future__ import annotations

import pytest
from littles import little

from mxdp.backend import mx, np
from mxdp.experiments.automatic_parallelism import two_jobs
from mxdp.experiments.lab.module import Question
from mxdp.experiments.oracle import count

SETTINGS = little(Question(two_jobs), kind="cpu", products=3, size=24)
CASES = {case.label: case for case in two_jobs.cases(SETTINGS)}


@pytest.mark.parametrize("job", [0, 1])
def test_the_oracle_catches_one_product_of_the_wrong_order(job, monkeypatch):
    def push(x, products):
        right = [np.dot(x, x) for _ in range(products)]
        return [*right[:-1], np.dot(x, x.T)] if x.ctx == mx.cpu(job) else right

    monkeypatch.setattr(two_jobs, "_push", push)
    assert 10_000 < count(two_jobs.oracle(CASES["both jobs at once"], SETTINGS))[1] <= 257 * 257


@pytest.mark.parametrize("label", CASES)
def test_only_jobs_at_once_are_recorded(label):
    ready = two_jobs.set_up(CASES[label], SETTINGS)
    assert (ready.record is not None) == label.startswith("both jobs at once")


@pytest.mark.parametrize(("label", "waits"), [("both jobs, in turn", 2), ("both jobs at once", 0)])
def test_only_jobs_in_turn_wait_for_each_other(label, waits, monkeypatch):
    ready, happened = two_jobs.set_up(CASES[label], SETTINGS), []
    monkeypatch.setattr(two_jobs.npx, "waitall", lambda: happened.append("wait"))
    ready.round()
    assert len(happened) == waits


def test_more_products_than_pieces_of_temporary_space_ask_for_as_many():
    many = two_jobs.cases(little(Question(two_jobs), devices=[2, 4], products=50))
    asked = {(case.devices, case.reference): case.environment.get("MXNET_CPU_TEMP_COPY") for case in many}
    assert asked == {(2, False): None, (2, True): "4", (4, False): "200", (4, True): "4"}
