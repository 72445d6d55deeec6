from __future__ import annotations

import pytest

from mxdp.experiments.automatic_parallelism.operators import Operators
from mxdp.experiments.automatic_parallelism.work import operators as work
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


def test_a_row_without_its_yardstick_has_no_ratio():
    rows = [row(2, 8, 0.5)]
    Operators().finish(rows, [], SETTINGS)
    assert "over_one_worker" not in rows[0].metrics
    assert rows[0].metrics["gflops"] == pytest.approx(2 * 8 * 8**3 / 1e-3 / 1e9)
