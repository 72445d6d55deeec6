from __future__ import annotations

from dataclasses import replace

import pytest

from mxdp.experiments.automatic_parallelism.operators import Operators
from mxdp.experiments.automatic_parallelism.work import operators as work
from mxdp.experiments.harness import claims
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.measure.child import one_round
from mxdp.experiments.measure.oracle import count
from mxdp.experiments.measure.timelines import recorded
from mxdp.tracing import Timeline

SETTINGS = dict(kind="cpu", seed=0, rounds=2, timeout=60.0, products=8, sides=[8, 64, 128], round_seconds=1e-3)
CASES = {case.label: case for case in Operators().cases(SETTINGS)}


def row(workers, side, over_k, seconds=1e-3):
    return Row(
        label=f"{workers}, {side}",
        case={"devices": ["cpu(0)"], "workers": workers, "side": side},
        samples=[seconds] * 6,
        metrics={"over_k_times_one": over_k, "one_seconds": side * 1e-6},
        rounds={"over_k_times_one": [over_k] * 6},
    )


def finished(two, one=(0.9, 1.0, 1.0)):
    sides = SETTINGS["sides"]
    rows = [row(1, side, over_k) for side, over_k in zip(sides, one)]
    rows += [row(2, side, over_k, 1e-3 * over_k) for side, over_k in zip(sides, two)]
    Operators().finish(rows, [], SETTINGS)
    return rows


def test_each_side_with_one_worker_and_with_two():
    assert list(CASES) == [f"{each}, {side}" for each in ("1 worker", "2 workers") for side in (8, 64, 128)]
    assert CASES["1 worker, 8"].environment["MXNET_CPU_WORKER_NTHREADS"] == "1"
    assert CASES["2 workers, 8"].environment["MXNET_CPU_WORKER_NTHREADS"] == "2"


@pytest.mark.parametrize("products", [1, 8])
def test_the_oracle_compares_every_product(products):
    oracle = work.oracle(CASES["2 workers, 64"], {**SETTINGS, "products": products})
    assert count(oracle) == (products * 33 * 33, 0)


def into_one_array(broken):
    class Spoilt(broken):
        def __init__(self, lefts, w, chain):
            super().__init__(lefts, w, chain)
            self.results = [self.results[0]] * len(lefts)

    return Spoilt


def as_a_chain(broken):
    return lambda lefts, w, chain: broken(lefts, w, True)


@pytest.mark.parametrize("fault", [into_one_array, as_a_chain])
def test_the_oracle_catches(fault, monkeypatch):
    monkeypatch.setattr(work, "Products", fault(work.Products))
    assert count(work.oracle(CASES["1 worker, 8"], SETTINGS))[1] > 1000


def test_a_round_is_one_product_and_all_of_them(monkeypatch):
    asked = []
    times = {1: 2e-3, 8: 12e-3}

    def mean_seconds(push, at_least):
        asked.append((len(push.__self__.results), at_least))
        done = times[asked[-1][0]]
        return type("Mean", (), {"done": done})

    monkeypatch.setattr(work, "mean_seconds", mean_seconds)
    ready = work.set_up(CASES["2 workers, 64"], SETTINGS)
    assert list(map(str, ready.devices)) == ["cpu(0)"]
    first = one_round(ready)
    assert asked == [(1, 1e-3), (8, 1e-3)]
    assert first.seconds == 12e-3
    assert first.metrics == {"one_seconds": 2e-3, "over_k_times_one": pytest.approx(12 / 16)}
    times[8] = 8e-3
    assert one_round(ready).metrics["over_k_times_one"] == pytest.approx(8 / 16)


def test_the_products_nearest_to_a_middle_size_are_recorded():
    assert work.set_up(CASES["2 workers, 64"], SETTINGS).record is None
    ready = work.set_up(CASES["2 workers, 128"], SETTINGS)
    events = Timeline.from_json(recorded(ready.record(), ready.devices)["timeline"]).events
    assert [event.kind for event in events if event.kind in ("compute", "copy")] == ["compute"] * 8


def test_its_timelines(timelines):
    assert timelines("operators") == 2


@pytest.mark.parametrize(
    ("two", "holds"),
    [((2.0, 0.9, 0.65), True), ((2.0, 0.6, 0.9), False), ((2.0, 0.9, 0.66), False)],  # the largest side counts
)
def test_it_holds_if_two_workers_share_the_products(two, holds):
    judged = claims.judged("two_workers", Operators.claims["two_workers"], finished(two))
    assert judged["holds"] is holds
    assert [(each["label"], each["median"]) for each in judged["measured"]] == [("2, 128", two[-1])]


def test_the_answer_says_what_two_workers_do_and_what_one_does():
    rows = finished((3.0, 0.6, 0.5))
    assert Operators().answer(rows, [], SETTINGS) == (
        "On a device with two workers, 8 independent products of 128 x 128 take 0.50 (0.50 to 0.50) of their time "
        "one after the other; with one worker, 1.00 (1.00 to 1.00)."
    )
    assert [row.metrics["over_one_worker"] for row in rows[3:]] == pytest.approx([3.0, 0.6, 0.5])


def test_that_two_workers_cost_time_is_said_only_where_it_is_known():
    rows = finished((3.0, 0.6, 0.5))
    assert "Small products take longer with two" in Operators().explanation(rows, [], SETTINGS)
    for others in ([replace(row, busy=0.3) for row in rows], finished((1.0, 0.6, 0.5))):
        assert "longer with two" not in Operators().explanation(others, [], SETTINGS)


def test_a_row_without_its_yardstick_has_no_ratio():
    rows = [row(2, 8, 0.5)]
    Operators().finish(rows, [], SETTINGS)
    assert "over_one_worker" not in rows[0].metrics
    assert rows[0].metrics["gflops"] == pytest.approx(2 * 8 * 8**3 / 1e-3 / 1e9)


def test_the_prediction_knows_the_cores():
    assert "take 1.00 of 8 times one on a device with 1 worker, and 0.50 with 2." in Operators().predict(SETTINGS, 2)
    assert "take 1.00 of 8 times one on a device with 1 worker, and 1.00 with 2." in Operators().predict(SETTINGS, 1)
