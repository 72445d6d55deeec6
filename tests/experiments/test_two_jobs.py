from __future__ import annotations

from dataclasses import replace

import pytest

from mxdp.backend import np
from mxdp.experiments.automatic_parallelism.two_jobs import TwoJobs
from mxdp.experiments.automatic_parallelism.work import two_jobs as work
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.measure.oracle import count

SETTINGS = dict(devices=[2], kind="cpu", seed=0, rounds=2, timeout=60.0, products=3, size=24, run_seconds=0.003)
SCALED = {**SETTINGS, "size": None}
CASES = {case.label: case for case in TwoJobs().cases(SETTINGS)}
RATE = {"rate": 8e9}  # a product of 1 ms has 200 x 200 x 200


def row(run, samples, rate=None, **metrics):
    case = {"jobs": 2, "run": run, "size": 24, "devices": ["cpu(0)", "cpu(1)"], **({"rate": rate} if rate else {})}
    return Row(run, case, samples * 2, metrics)


def finished(both=(1.0, 2.0, 3.0), stock=(2.0, 4.0, 6.0), **more):
    rows = [row("alone", [1.0, 2.0, 3.0], **more), row("alone", [1.0, 2.0, 3.0])]
    rows += [row("in turn", [2.0, 4.0, 6.0]), row("at once", list(both), together=0.9)]
    references = [row("at once", list(stock), together=0.1)]
    TwoJobs().finish(rows, references, SETTINGS)
    return rows, references


def test_the_slides_in_full_and_scaled_in_quick():
    full, quick = TwoJobs.presets["full"], TwoJobs.presets["quick"]
    assert (full["products"], full["size"]) == (50, 1000)
    assert (quick["products"], quick["size"]) == (50, None)


@pytest.mark.parametrize(("label", "jobs"), [("job 2 of 2 alone", 1), ("both jobs at once", 2)])
def test_the_oracle_compares_three_products_of_each_job(label, jobs):
    assert count(work.oracle(CASES[label], SETTINGS)) == (3 * 257 * 257 * jobs, 0)


def with_the_first_jobs_factor(jobs):
    return [jobs[0]] * len(jobs)


def with_a_product_of_the_wrong_order(jobs):
    return [lambda job=job: [*job()[:-1], np.dot(job.args[0], job.args[0].T)] for job in jobs]


@pytest.mark.parametrize("fault", [with_the_first_jobs_factor, with_a_product_of_the_wrong_order])
def test_the_oracle_catches(fault, monkeypatch):
    right = work._jobs

    def wrong(*more, **named):
        devices, jobs = right(*more, **named)
        return devices, fault(jobs)

    monkeypatch.setattr(work, "_jobs", wrong)
    assert count(work.oracle(CASES["both jobs at once"], SETTINGS))[1] > 10_000


def test_a_given_size_needs_no_rate(monkeypatch):
    monkeypatch.setattr(work, "multiply_adds_a_second", lambda device: pytest.fail("measured"))
    ready = work.set_up(CASES["both jobs at once"], SETTINGS)
    assert (dict(ready.case), dict(ready.shared)) == ({"size": 24}, {})


def test_the_first_case_measures_the_rate_and_shares_it(monkeypatch):
    monkeypatch.setattr(work, "multiply_adds_a_second", lambda device: 8e9)
    ready = work.set_up(CASES["job 1 of 2 alone"], SCALED)
    assert (dict(ready.case), dict(ready.shared)) == ({"size": 200}, RATE)


@pytest.mark.parametrize("label", CASES)
def test_all_later_cases_do_equal_work(label, monkeypatch):
    monkeypatch.setattr(work, "multiply_adds_a_second", lambda device: pytest.fail("measured again"))
    told = replace(CASES[label], settings={**CASES[label].settings, **RATE})
    ready = work.set_up(told, SCALED)
    assert (dict(ready.case), dict(ready.shared)) == ({"size": 200}, RATE)


@pytest.mark.parametrize(("label", "recorded"), [("both jobs at once", True), ("both jobs, in turn", False)])
def test_both_at_once_are_recorded(label, recorded):
    assert (work.set_up(CASES[label], SETTINGS).record is not None) is recorded


def test_it_compares_three_products_of_every_job(measured):
    _, result = measured("two-jobs")
    jobs = 1 + 1 + 2 + 2 + 2  # two alone, in turn, at once, and the reference
    assert result["oracle"]["checked"] == 3 * 257 * 257 * jobs
    assert [row.case["run"] for row in result["rows"] if "both_over_one" in row.metrics] == ["at once"]


def test_a_ratio_is_of_the_same_round():
    rows, references = finished(both=(1.0, 4.0, 3.3))
    assert [each.metrics.get("over_one") for each in rows] == [1.0, 1.0, 2.0, None]
    assert rows[3].metrics["both_over_one"] == pytest.approx(1.1)
    assert rows[3].rounds["both_over_one"] == [pytest.approx(each) for each in (1.0, 2.0, 1.1)] * 2
    assert references[0].metrics["over_one"] == 2.0


def test_more_products_than_pieces_of_temporary_space_ask_for_as_many():
    many = TwoJobs().cases({**SETTINGS, "devices": [2, 4], "products": 50})
    asked = {(case.devices, case.reference): case.environment.get("MXNET_CPU_TEMP_COPY") for case in many}
    assert asked == {(2, False): None, (2, True): "4", (4, False): "200", (4, True): "4"}
