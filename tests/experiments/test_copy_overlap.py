from __future__ import annotations

import pytest
from littles import little

from mxdp import memory
from mxdp.backend import mx
from mxdp.engine import prepare
from mxdp.errors import MemoryShortage
from mxdp.experiments.automatic_parallelism import copy_overlap
from mxdp.experiments.automatic_parallelism.copy_overlap import CopiedProducts, balanced
from mxdp.experiments.lab.module import Question
from mxdp.experiments.oracle import count
from mxdp.experiments.timelines import recorded
from mxdp.tracing import Timeline

HERE, THERE = mx.cpu(0), mx.cpu(1)
SETTINGS = little(Question(copy_overlap), kind="cpu", products=3, size=24, nbytes=4096, width=8)
CASES = {case.label: case for case in copy_overlap.cases(SETTINGS)}


@pytest.fixture(autouse=True)
def as_in_a_new_process():
    """What the cases of a process share is measured anew."""
    balanced.cache_clear()


def copy_the_one_before(lefts, w, chain, landed):
    """Each copy is of the result before: what happens if a copy doesn't wait for its own."""
    job = CopiedProducts(lefts, w, chain, landed)
    before = [job.results[0], *job.results[:-1]]
    job._copies = [prepare("_copyto", [y], target) for y, own in zip(before, landed) for target in own]
    return job


@pytest.mark.parametrize("label", ["chain, 1 worker", "indep., 1 worker"])
def test_the_oracle_catches_a_copy_of_another_result(label, monkeypatch):
    monkeypatch.setattr(copy_overlap, "CopiedProducts", copy_the_one_before)
    checked, wrong = count(copy_overlap.oracle(CASES[label], SETTINGS))
    assert (checked, wrong > 900) == (4 * 4 * 33 * 33, True)


@pytest.mark.parametrize("label", ["slides, 1 worker", "chain, 1 worker"])
def test_a_round_is_products_then_copies_then_both_each_waited_for(label, monkeypatch):
    ready = copy_overlap.set_up(CASES[label], SETTINGS)
    assert (list(map(str, ready.devices)), ready.facts["products"]) == (["cpu(0)", "cpu(1)"], 3)
    assert ready.facts["copies"] == 1 or not label.startswith("slides")
    calls = []

    class Watched:
        def __init__(self, *more):
            self.push, self.copy = (lambda name=name: calls.append(name) for name in ("run", "copy"))

        def both(self):
            self.push()
            self.copy()

    monkeypatch.setattr(copy_overlap, "CopiedProducts", Watched)
    monkeypatch.setattr(copy_overlap, "timed", lambda push: (calls.append("|"), push(), float(len(calls)))[2])
    assert ready.round() == (7.0, {"run_seconds": 2.0, "copy_seconds": 4.0})
    assert calls == ["|", "run", "|", "copy", "|", "run", "copy"]


def test_cases_of_a_process_share_one_size(monkeypatch):
    asked = []
    monkeypatch.setattr(copy_overlap, "timed", lambda push: asked.append(push) or 1.0 + len(asked))
    monkeypatch.setattr(copy_overlap, "one_round", lambda job: None)
    first, second = (copy_overlap.set_up(CASES[label], SETTINGS) for label in ("indep., 1 worker", "chain, 1 worker"))
    assert first.facts == second.facts
    assert len(asked) == 8  # twice with a first number of copies, and with the number that follows


@pytest.mark.parametrize("label", ["chain, 1 worker", "slides, 2 workers"])
def test_both_without_a_wait_are_recorded(label):
    ready = copy_overlap.set_up(CASES[label], SETTINGS)
    ready.prepare()
    metrics = recorded(ready.record, ready.devices)
    kinds = [event.kind for event in Timeline.from_json(metrics["timeline"]).events]
    assert (kinds.count("compute"), kinds.count("copy")) == (3, 3 * ready.facts["copies"])


@pytest.mark.parametrize(("room", "fits"), [(10**9, 50), (30 * 40_000, 30), (40_000, 1), (39_998, 0)])
def test_as_many_results_as_half_the_memory_has_room_for(room, fits, monkeypatch):
    monkeypatch.setattr(copy_overlap, "balanced", lambda *more: 1)
    monkeypatch.setattr(copy_overlap, "one_round", lambda job: None)
    monkeypatch.setattr(memory, "available_bytes", lambda device: room if device == HERE else 10**12)
    settings = little(Question(copy_overlap), **{**SETTINGS, "products": 50, "nbytes": 20_000, "width": 5})
    if not fits:
        with pytest.raises(MemoryShortage, match=r"this job needs 20\.0 kB"):
            copy_overlap.set_up(CASES["chain, 1 worker"], settings)
        return
    assert copy_overlap.set_up(CASES["chain, 1 worker"], settings).facts["products"] == fits


# Balanced copies take as long as the product; there is one at least.
@pytest.mark.parametrize(("product", "copy", "copies"), [(2.0, 0.1, 20), (0.1, 3.0, 1)])
def test_balanced(product, copy, copies, monkeypatch):
    def timed(push):
        job = push.__self__
        return copy * sum(map(len, job.landed)) if push.__name__ == "copy" else product * len(job.results)

    monkeypatch.setattr(copy_overlap, "timed", timed)
    assert balanced(10, 10, 3, HERE, THERE, 0) == copies
