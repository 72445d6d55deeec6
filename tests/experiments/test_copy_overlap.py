from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from mxdp import memory
from mxdp.backend import mx, np
from mxdp.engine import prepare
from mxdp.errors import MemoryShortage
from mxdp.experiments.automatic_parallelism.copy_overlap import (
    CopyOverlap,
    expected_over_sum,
)
from mxdp.experiments.automatic_parallelism.work import copy_overlap as work
from mxdp.experiments.automatic_parallelism.work.copy_overlap import (
    FreshArrays,
    KeptArrays,
    Size,
    balanced,
    described,
    places,
    seconds_of_parts,
    square,
)
from mxdp.experiments.automatic_parallelism.work.products import factors
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.measure.child import one_round
from mxdp.experiments.measure.oracle import count
from mxdp.experiments.measure.timelines import recorded
from mxdp.tracing import Timeline

HERE, THERE = mx.cpu(0), mx.cpu(1)
SETTINGS = dict(kind="cpu", seed=0, rounds=2, timeout=60.0, products=3, size=24, run_seconds=1e-4, nbytes=4096)
CASES = {case.label: case for case in CopyOverlap().cases(SETTINGS)}


@pytest.fixture(autouse=True)
def as_in_a_new_process():
    """What the cases of a process share is measured anew."""
    balanced.cache_clear()


def rows(chain=(1.0, 1.0, 1.05)):
    found = []
    for case in CASES.values():
        parts = described(*(chain if case.label == "chain, 2 workers" else (1.0, 0.5, 1.5)))
        place = {"devices": ["cpu(0)", "cpu(1)"], "products": 10, "copies": 2, "width": 24, "rate": 4e10}
        own = {**case.settings, **place, "product_seconds": 0.1, "copy_seconds": 0.05}
        found.append(Row(case.label, own, metrics=parts, rounds={name: [value] * 6 for name, value in parts.items()}))
    CopyOverlap().finish(found, [], SETTINGS)
    return found


def test_each_work_in_each_environment():
    assert list(CASES)[:3] == ["slides, stock", "slides, 1 worker", "slides, 2 workers"]
    assert len(CASES) == 9
    assert {case.environment["MXNET_CPU_WORKER_NTHREADS"] for case in CASES.values()} == {None, "1", "2"}


@pytest.mark.parametrize("label", CASES)
def test_the_oracle_compares_every_result_and_every_copy(label):
    copies = 1 if label.startswith("slides") else 3
    assert count(work.oracle(CASES[label], SETTINGS)) == (4 * (1 + copies) * 33 * 33, 0)


def copy_the_one_before(broken):
    """Each copy is of the result before: what happens if a copy doesn't wait for its own."""

    def kept(lefts, w, chain, landed):
        job = broken(lefts, w, chain, landed)
        before = [job.results[0], *job.results[:-1]]
        job._copies = [prepare("_copyto", [y], target) for y, own in zip(before, landed) for target in own]
        return job

    return kept


def copy_nothing(broken):
    def kept(lefts, w, chain, landed):
        job = broken(lefts, w, chain, landed)
        job._copies = []
        return job

    return kept


def restart_the_chain(broken):
    return lambda lefts, w, chain, landed: broken(lefts, w, not chain, landed)


@pytest.mark.parametrize("fault", [copy_the_one_before, copy_nothing, restart_the_chain])
@pytest.mark.parametrize("label", ["chain, 1 worker", "indep., 1 worker"])
def test_the_oracle_catches(fault, label, monkeypatch):
    monkeypatch.setattr(work, "KeptArrays", fault(KeptArrays))
    assert count(work.oracle(CASES[label], SETTINGS))[1] > 1000


def test_the_oracle_catches_an_old_result_in_the_slides_code(monkeypatch):
    class Stale(FreshArrays):
        def run(self):
            super().run()
            self.results[2] = self.results[1]

    monkeypatch.setattr(work, "FreshArrays", Stale)
    assert count(work.oracle(CASES["slides, stock"], SETTINGS))[1] > 1000


@pytest.mark.parametrize(("label", "copies"), [("slides, 1 worker", 1), ("chain, 1 worker", None)])
def test_a_round_is_all_three_parts(label, copies):
    ready = work.set_up(CASES[label], SETTINGS)
    assert list(map(str, ready.devices)) == ["cpu(0)", "cpu(1)"]
    assert ready.case["products"] == 3
    assert ready.case["copies"] == copies or copies is None
    for _ in range(2):
        done = one_round(ready)
        assert done.seconds == done.metrics["overlapped_seconds"] > 0
        assert done.metrics == described(*(done.metrics[f"{part}_seconds"] for part in ("run", "copy", "overlapped")))


def test_cases_of_a_process_share_one_size(monkeypatch):
    asked = []
    monkeypatch.setattr(work, "_measured", lambda *more: asked.append(more) or Size(8, 4, 2, 1.0, 0.5))
    monkeypatch.setattr(work, "multiply_adds_a_second", lambda device: 1e9)
    for label in ("indep., 1 worker", "chain, 1 worker"):
        assert work.set_up(CASES[label], SETTINGS).case["copies"] == 2
    assert len(asked) == 2  # with a first number of copies, and with the number that follows


# A product of 1e-4 / 3 seconds has 60 x 60 x 60.
@pytest.mark.parametrize(("size", "side"), [(24, 24), (None, 60)])
def test_without_a_size_the_slides_products_are_scaled_by_one_rate_for_all(size, side, monkeypatch):
    settings, case = {**SETTINGS, "size": size}, CASES["slides, 1 worker"]
    monkeypatch.setattr(work, "multiply_adds_a_second", lambda device: 6.5e9)
    ready = work.set_up(case, settings)
    assert (ready.case["width"], dict(ready.shared)) == (side, {"rate": 6.5e9})
    monkeypatch.setattr(work, "multiply_adds_a_second", lambda device: pytest.fail("again"))
    again = work.set_up(replace(case, settings={**case.settings, **ready.shared}), settings)
    assert (again.case["width"], again.shared) == (side, ready.shared)


@pytest.mark.parametrize("label", ["chain, 1 worker", "slides, stock", "indep., 1 worker"])
def test_both_without_a_wait_are_recorded(label):
    ready = work.set_up(CASES[label], SETTINGS)
    one_round(ready)
    if label.startswith("indep."):
        assert ready.record is None
        return
    metrics = recorded(ready.record(), ready.devices)
    kinds = [event.kind for event in Timeline.from_json(metrics["timeline"]).events]
    assert (kinds.count("compute"), kinds.count("copy")) == (3, 3 * ready.case["copies"])
    assert 0 <= metrics["beside"] < 1


def test_noise_alone_does_not_leave_nothing_to_hide():
    given = rows(chain=(1.0, 1.0, 1.1))
    best = next(row for row in given if (row.case["work"], row.case["engine"]) == ("chain", "2 workers"))
    count = len(best.rounds["run_seconds"])
    best.rounds["run_seconds"] = [1.5, 1 / 1.5, 1.0][:count] * (count // 3)
    CopyOverlap().finish(given, [], SETTINGS)
    assert best.metrics["chain_alike"] == 1.0  # each round for itself: 0.67


def test_what_is_expected():
    expected = {row.label: row.metrics["expected_over_sum"] for row in rows()}
    assert expected["chain, 1 worker"] == expected["indep., 2 workers"] == expected["slides, 2 workers"] == 1.0
    # Ten products of 0.1 s and copies of 2 x 0.05 s each: 1.1 s of 2 s, on two cores.
    assert expected["chain, 2 workers"] in (pytest.approx(0.55), 1.0)


def kept(count=3, copies=2, chain=True):
    x, w = factors(12, 5, HERE, seed=0)
    landed = [[np.zeros(x.shape, ctx=THERE) for _ in range(copies)] for _ in range(count)]
    return KeptArrays([x] * count, w, chain, landed)


def fresh(count=3):
    x, w = factors(12, 5, HERE, seed=0)
    return FreshArrays([x] * count, w, THERE)


@pytest.mark.parametrize("make", [kept, fresh])
def test_copies_equal_the_results_and_are_elsewhere(make):
    job = make()
    job.run()
    job.copy()
    assert len(job.results) == len(job.landed) == 3
    for result, landed in zip(job.results, job.landed):
        assert result.ctx == HERE
        assert float(abs(result).sum()) > 0
        for copy in landed:
            assert copy.ctx == THERE
            assert (copy.asnumpy() == result.asnumpy()).all()


def test_what_is_fresh_is_forgotten_and_what_is_kept_stays():
    for job, left in ((fresh(), 0), (kept(), 3)):
        job.run()
        job.copy()
        job.forget()
        assert (len(job.results), len(job.landed)) == (left, left)


def test_the_parts_are_products_then_copies_then_both(monkeypatch):
    calls, job = [], fresh()
    monkeypatch.setattr(work, "seconds_of", lambda push: (calls.append("|"), push(), float(len(calls)))[2])
    for name in ("run", "copy", "forget"):
        monkeypatch.setattr(job, name, lambda name=name: calls.append(name))
    assert seconds_of_parts(job) == (2.0, 4.0, 8.0)
    assert calls == ["|", "run", "|", "copy", "forget", "|", "run", "copy"]


def test_results_go_to_the_cpu_or_to_another_cpu_device():
    assert places("cpu") == (HERE, THERE)


@pytest.mark.parametrize(("room", "fits"), [(10**9, 50), (2 * 30 * 8 * 5000, 30), (2 * 8 * 5000, 1)])
def test_as_many_results_as_half_the_memory_has_room_for(room, fits, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda device: room if device == HERE else 10**12)
    assert Size(1000, 5, 1, 1.0, 1.0).fitting(50, HERE, THERE) == fits


def test_where_not_one_fits_nothing_is_started(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda device: 2 * 8 * 5000 - 2)
    with pytest.raises(MemoryShortage, match=r"this job needs 40\.0 kB"):
        Size(1000, 5, 1, 1.0, 1.0).fitting(50, HERE, THERE)


def test_results_and_copies_are_touched(monkeypatch):
    touched = []
    monkeypatch.setattr(work, "np", SimpleNamespace(zeros=lambda shape, ctx: touched.append((shape, ctx))))
    Size(6, 4, 9, 1.0, 1.0).touch(2, HERE, THERE)
    assert touched == [((6, 4), HERE)] * 2 + [((6, 4), THERE)] * 2


def timed(monkeypatch, product, copy):
    """Let a product and a copy take these seconds each."""

    def seconds_of(push):
        job = push.__self__
        if isinstance(job, KeptArrays):
            return copy * sum(len(own) for own in job.landed)
        return product * len(job.results)

    monkeypatch.setattr(work, "seconds_of", seconds_of)


def test_balanced_copies_take_as_long_as_the_product(monkeypatch):
    timed(monkeypatch, product=2.0, copy=0.1)
    size = balanced(2.0, 4 * 32 * 100, 3, rate=3200 * 16 / 2.0, device=HERE, host=THERE)
    assert (size.height, size.width, size.copies) == (200, 16, 20)
    assert (size.product_seconds, size.copy_seconds) == (pytest.approx(2.0), pytest.approx(0.1))


def test_there_is_one_copy_at_least_and_matrices_are_never_wide(monkeypatch):
    timed(monkeypatch, product=0.1, copy=3.0)
    assert balanced(1e-9, 400, 2, rate=1e9, device=HERE, host=THERE).copies == 1
    wide = balanced(1.0, 400, 2, rate=1e9, device=HERE, host=THERE)
    assert (wide.height, wide.width) == (10, 10)


def test_the_slides_results_are_copied_once(monkeypatch):
    timed(monkeypatch, product=0.5, copy=0.25)
    assert square(20, HERE, THERE) == Size(20, 20, 1, 0.5, 0.25)


def test_a_real_measurement_has_times():
    size = balanced(1e-4, 4096, 2, rate=1e9, device=HERE, host=THERE)
    assert size.copies >= 1
    assert size.copy_seconds > 0
    assert size.product_seconds > 0


@pytest.mark.parametrize(
    ("work", "copy", "both"),
    [
        (2.0, 1.0, 2.0 + 3 * 2.0 + 1.0),  # only the last copy has nothing to hide behind
        (1.0, 2.0, 1.0 + 3 * 2.0 + 2.0),  # copies that take longer hide the products
    ],
)
def test_what_a_chain_of_four_should_take(work, copy, both):
    assert expected_over_sum(4, work, copy) == both / (4 * (work + copy))


def test_the_ratios_of_a_round():
    assert described(4.0, 1.0, 4.5) == {
        "run_seconds": 4.0,
        "copy_seconds": 1.0,
        "in_turn_seconds": 5.0,
        "overlapped_seconds": 4.5,
        "overlapped_over_longer": 4.5 / 4.0,
        "overlapped_over_sum": 4.5 / 5.0,
    }
