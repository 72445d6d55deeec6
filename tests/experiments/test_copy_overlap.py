from __future__ import annotations

from dataclasses import replace

import pytest

from mxdp.experiments.automatic_parallelism.copy_overlap import BALANCE, CLAIM, CopyOverlap
from mxdp.experiments.automatic_parallelism.overlap_model import describe
from mxdp.experiments.automatic_parallelism.work import copies_away
from mxdp.prepared import prepare
from mxdp.tracing import Timeline

SETTINGS = dict(kind="cpu", seed=0, rounds=2, timeout=60.0, products=3, size=24, run_seconds=1e-4, nbytes=4096)
CASES = {case.label: case for case in CopyOverlap().cases(SETTINGS)}


def rows(chain=(1.0, 1.0, 1.05), device="cpu(0)", recorded=False):
    found = []
    for case in CASES.values():
        parts = chain if case.label == "chain, 2 workers" else (1.0, 0.5, 1.5)
        place = {"devices": [device, "cpu(1)"], "products": 10, "copies": 2, "width": 24, "rate": 4e10}
        times = {"product_seconds": 0.1, "copy_seconds": 0.05}
        shares = {"beside": 0.8, "hidden": 0.9} if case.label == "chain, 2 workers" else {"beside": 0.01, "hidden": 0.0}
        metrics = {**describe([parts]), **(shares if recorded else {})}
        found.append({"label": case.label, "case": {**case.settings, **place, **times}, "metrics": metrics})
    CopyOverlap().finish(found, [], SETTINGS)
    return found


def verdict(**more):
    return CopyOverlap().verdict(rows(**more), [], SETTINGS)


def test_each_work_on_each_engine():
    assert list(CASES)[:3] == ["deck, stock", "deck, 1 worker", "deck, 2 workers"]
    assert len(CASES) == 9
    assert {case.environment["MXNET_CPU_WORKER_NTHREADS"] for case in CASES.values()} == {None, "1", "2"}


@pytest.mark.parametrize("label", CASES)
def test_the_oracle_compares_every_result_and_every_copy(label):
    copies = 1 if label.startswith("deck") else 3
    oracle = CopyOverlap().oracle(CASES[label], SETTINGS)
    assert (oracle.checked, oracle.wrong) == (4 * (1 + copies) * 33 * 33, 0)


def copy_the_one_before(broken):
    """Each copy is of the result before: what happens if a copy doesn't wait for its own."""

    def kept(lefts, w, chain, landed):
        work = broken(lefts, w, chain, landed)
        before = [work.results[0], *work.results[:-1]]
        work._copies = [prepare("_copyto", [y], target) for y, own in zip(before, landed) for target in own]
        return work

    return kept


def copy_nothing(broken):
    def kept(lefts, w, chain, landed):
        work = broken(lefts, w, chain, landed)
        work._copies = []
        return work

    return kept


def restart_the_chain(broken):
    return lambda lefts, w, chain, landed: broken(lefts, w, not chain, landed)


@pytest.mark.parametrize("fault", [copy_the_one_before, copy_nothing, restart_the_chain])
@pytest.mark.parametrize("label", ["chain, 1 worker", "indep., 1 worker"])
def test_the_oracle_catches(fault, label, monkeypatch):
    monkeypatch.setattr(copies_away, "Kept", fault(copies_away.Kept))
    assert CopyOverlap().oracle(CASES[label], SETTINGS).wrong > 1000


def test_the_oracle_catches_an_old_result_in_the_decks_code(monkeypatch):
    class Stale(copies_away.Fresh):
        def run(self):
            super().run()
            self.results[2] = self.results[1]

    monkeypatch.setattr(copies_away, "Fresh", Stale)
    assert CopyOverlap().oracle(CASES["deck, stock"], SETTINGS).wrong > 1000


@pytest.mark.parametrize(("label", "copies"), [("deck, 1 worker", 1), ("chain, 1 worker", None)])
def test_a_round_is_all_three_parts(label, copies):
    rounds = CopyOverlap().run(CASES[label], SETTINGS)
    ready = next(rounds)
    assert ready.devices == ["cpu(0)", "cpu(1)"]
    assert ready.case["products"] == 3
    assert ready.case["copies"] == copies or copies is None
    next(rounds)
    second = next(rounds)
    assert second.seconds > 0
    # Of two rounds the median is the mean.
    assert second.metrics["in_turn_seconds"] == pytest.approx(
        second.metrics["run_seconds"] + second.metrics["copy_seconds"]
    )
    assert {"overlapped_over_longer", "overlapped_over_sum"} <= set(second.metrics)


def test_cases_of_a_child_share_one_size(monkeypatch):
    experiment, asked = CopyOverlap(), []
    monkeypatch.setattr(
        copies_away, "balanced", lambda *more: asked.append(more) or copies_away.Size(8, 4, 2, 1.0, 0.5)
    )
    for label in ("indep., 1 worker", "chain, 1 worker"):
        assert next(experiment.run(CASES[label], SETTINGS)).case["copies"] == 2
    assert len(asked) == 1


# A product of 1e-4 / 3 seconds has 60 x 60 x 60.
@pytest.mark.parametrize(("size", "side"), [(24, 24), (None, 60)])
def test_without_a_size_the_decks_products_are_scaled_by_one_rate_for_all(size, side, monkeypatch):
    settings, case = {**SETTINGS, "size": size}, CASES["deck, 1 worker"]
    monkeypatch.setattr(
        "mxdp.experiments.automatic_parallelism.work.products.multiply_adds_a_second", lambda device: 6.5e9
    )
    ready = next(CopyOverlap().run(case, settings))
    assert (ready.case["width"], dict(ready.shared)) == (side, {"rate": 6.5e9})
    monkeypatch.setattr(
        "mxdp.experiments.automatic_parallelism.work.products.multiply_adds_a_second",
        lambda device: pytest.fail("again"),
    )
    again = next(CopyOverlap().run(replace(case, settings={**case.settings, **ready.shared}), settings))
    assert (again.case["width"], again.shared) == (side, ready.shared)


@pytest.mark.parametrize("label", ["chain, 1 worker", "deck, stock", "indep., 1 worker"])
def test_both_without_a_wait_are_recorded_after_the_last_round(label):
    rounds = CopyOverlap().run(CASES[label], SETTINGS)
    copies = next(rounds).case["copies"]
    assert "timeline" not in next(rounds).metrics
    metrics = next(rounds).metrics
    if label.startswith("indep."):
        assert "timeline" not in metrics
        return
    kinds = [event.kind for event in Timeline.from_json(metrics["timeline"]).events]
    assert (kinds.count("compute"), kinds.count("copy")) == (3, 3 * copies)
    assert 0 <= metrics["beside"] < 1


@pytest.mark.parametrize(("both", "start"), [(1.8, "It helps where"), (1.81, "It should help where")])
def test_where_nothing_was_hidden_it_is_not_said_to_help(both, start):
    assert verdict(chain=(1.0, 1.0, both)).text.startswith(start)


def test_the_verdict_gives_the_share_that_lies_side_by_side():
    assert "Recorded" not in verdict().text
    assert (
        "Recorded, products and copies run beside each other for 80% of the time, and 90% of the copies' time is "
        "hidden so; on one worker 1%."
    ) in verdict(recorded=True).text


def test_what_is_expected():
    expected = {row["label"]: row["metrics"]["expected_over_sum"] for row in rows()}
    assert expected["chain, 1 worker"] == expected["indep., 2 workers"] == expected["deck, 2 workers"] == 1.0
    # Ten products of 0.1 s and copies of 2 x 0.05 s each: 1.1 s of 2 s, on two cores.
    assert expected["chain, 2 workers"] in (pytest.approx(0.55), 1.0)


@pytest.mark.parametrize(
    ("chain", "holds"),
    [
        ((1.0, 1.0, CLAIM), True),
        ((1.0, 1.0, CLAIM + 0.01), False),
        ((1.0, BALANCE, 1.0), True),
        ((1.0, BALANCE - 0.01, 1.0), False),  # little to hide: no proof that it was hidden
    ],
)
def test_it_holds_if_both_take_hardly_longer_than_one_of_two_equals(chain, holds):
    found = verdict(chain=chain)
    assert found.holds is holds
    assert f"{chain[2]:.2f} of the longer (asked for: at most 1.15" in found.text


def test_the_decks_own_numbers_stand_beside_ours():
    text = verdict().text
    assert "0.1232 s and 2.162 s alone, 3.1346 s both, 1.45 of the longer and 1.37 of the sum" in text
    assert "In the deck's own work, 10 products of 24 x 24 (the deck: 50 of 4000 x 4000), its single" in text
    assert "copies are 33.3% of the sum here" in text
    assert "no GPU was measured here" in text


def test_nothing_is_said_of_missing_gpus_where_one_was_measured():
    assert "no GPU" not in verdict(device="gpu(0)").text


def test_the_prediction_knows_the_cores():
    assert "1.02 of the longer for a chain" in CopyOverlap().predict({**SETTINGS, "products": 50}, 2)
    assert "2.00 of the longer for a chain" in CopyOverlap().predict({**SETTINGS, "products": 50}, 1)
