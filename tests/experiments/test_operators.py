from __future__ import annotations

from littles import little

from mxdp.experiments.automatic_parallelism import operators
from mxdp.experiments.automatic_parallelism.products import Products
from mxdp.experiments.lab.module import Question
from mxdp.experiments.oracle import count
from mxdp.experiments.timelines import recorded
from mxdp.tracing import Timeline

SETTINGS = little(Question(operators), kind="cpu", products=8, sides=[8, 64, 128])
CASES = {case.label: case for case in operators.cases(SETTINGS)}


def test_the_oracle_catches_a_chain(monkeypatch):
    monkeypatch.setattr(operators, "Products", lambda lefts, w, chain: Products(lefts, w, True))
    checked, wrong = count(operators.oracle(CASES["1 worker, 8"], SETTINGS))
    assert (checked, wrong > 1000) == (8 * 33 * 33, True)


def test_a_round_is_one_product_and_all_of_them(monkeypatch):
    asked = []

    def mean_seconds(push, at_least):
        asked.append((len(push.__self__.results), at_least))
        return 0.0, 2e-3 * asked[-1][0]

    monkeypatch.setattr(operators, "mean_seconds", mean_seconds)
    ready = operators.set_up(CASES["2 workers, 64"], SETTINGS)
    assert list(map(str, ready.devices)) == ["cpu(0)"]
    assert ready.round() == (16e-3, {"one_seconds": 2e-3})
    assert asked == [(1, 1e-3), (8, 1e-3)] * 2, "the first time to warm up"


def test_the_products_nearest_to_a_middle_size_are_recorded():
    assert operators.set_up(CASES["2 workers, 64"], SETTINGS).record is None
    ready = operators.set_up(CASES["2 workers, 128"], SETTINGS)
    events = Timeline.from_json(recorded(ready.record, ready.devices)["timeline"]).events
    assert [event.kind for event in events if event.kind in ("compute", "copy")] == ["compute"] * 8
