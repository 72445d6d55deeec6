from __future__ import annotations

import pytest
from littles import little

from mxdp.backend import mx, np
from mxdp.experiments.automatic_parallelism import two_jobs
from mxdp.experiments.lab.module import Case, Question
from mxdp.experiments.oracle import count

SETTINGS = little(Question(two_jobs), kind="cpu", products=3, size=24, run_seconds=0.003)
SCALED = little(Question(two_jobs), **{**SETTINGS, "size": None})
CASES = {case.label: case for case in two_jobs.cases(SETTINGS)}


@pytest.mark.parametrize("label", CASES)
def test_the_oracle_compares_three_products_of_each_job(label):
    jobs = 1 if label.endswith("alone") else 2
    assert count(two_jobs.oracle(CASES[label], SETTINGS)) == (3 * 257 * 257 * jobs, 0)


@pytest.mark.parametrize("job", [0, 1])
def test_the_oracle_catches_one_product_of_the_wrong_order(job, monkeypatch):
    def push(x, products):
        right = [np.dot(x, x) for _ in range(products)]
        return [*right[:-1], np.dot(x, x.T)] if x.ctx == mx.cpu(job) else right

    monkeypatch.setattr(two_jobs, "_push", push)
    assert 10_000 < count(two_jobs.oracle(CASES["both jobs at once"], SETTINGS))[1] <= 257 * 257


# At that rate a product of 1 ms has 200 x 200 x 200.
@pytest.mark.parametrize(("settings", "size", "shared"), [(SETTINGS, 24, {}), (SCALED, 200, {"rate": 8e9})])
@pytest.mark.parametrize("label", CASES)
def test_without_a_size_the_first_case_measures_the_rate_and_all_do_equal_work(
    label, settings, size, shared, monkeypatch
):
    def ready(case):
        ready = two_jobs.set_up(case, settings)
        assert (ready.record is not None) == label.startswith("both jobs at once")
        return ready.facts, ready.shared

    monkeypatch.setattr(two_jobs, "rate_of", lambda device: 8e9 if shared else pytest.fail("measured"))
    assert ready(CASES[label]) == ({"size": size}, shared)
    monkeypatch.setattr(two_jobs, "rate_of", lambda device: pytest.fail("measured again"))
    again = Case(label, 2, **CASES[label].settings, **shared)
    assert ready(again) == ({"size": size}, shared)


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
