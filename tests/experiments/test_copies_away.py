from __future__ import annotations

from types import SimpleNamespace

import pytest

from mxdp import memory
from mxdp.backend import mx, np
from mxdp.errors import MemoryShortage
from mxdp.experiments.automatic_parallelism.work import copies_away
from mxdp.experiments.automatic_parallelism.work.copies_away import (
    Fresh,
    Kept,
    Size,
    balanced,
    places,
    seconds_of_parts,
    square,
)
from mxdp.experiments.automatic_parallelism.work.products import factors

HERE, THERE = mx.cpu(0), mx.cpu(1)


def kept(count=3, copies=2, chain=True):
    x, w = factors(12, 5, HERE, seed=0)
    landed = [[np.zeros(x.shape, ctx=THERE) for _ in range(copies)] for _ in range(count)]
    return Kept([x] * count, w, chain, landed)


def fresh(count=3):
    x, w = factors(12, 5, HERE, seed=0)
    return Fresh([x] * count, w, THERE)


@pytest.mark.parametrize("make", [kept, fresh])
def test_copies_equal_the_results_and_are_elsewhere(make):
    work = make()
    work.run()
    work.copy()
    assert len(work.results) == len(work.landed) == 3
    for result, landed in zip(work.results, work.landed):
        assert result.ctx == HERE
        assert float(abs(result).sum()) > 0
        for copy in landed:
            assert copy.ctx == THERE
            assert (copy.asnumpy() == result.asnumpy()).all()


def test_what_is_fresh_is_forgotten_and_what_is_kept_stays():
    for work, left in ((fresh(), 0), (kept(), 3)):
        work.run()
        work.copy()
        work.forget()
        assert (len(work.results), len(work.landed)) == (left, left)


def test_the_parts_are_products_then_copies_then_both(monkeypatch):
    calls, work = [], fresh()
    monkeypatch.setattr(copies_away, "seconds_of", lambda push: (calls.append("|"), push(), float(len(calls)))[2])
    for name in ("run", "copy", "forget"):
        monkeypatch.setattr(work, name, lambda name=name: calls.append(name))
    assert seconds_of_parts(work) == (2.0, 4.0, 8.0)
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
    monkeypatch.setattr(copies_away, "np", SimpleNamespace(zeros=lambda shape, ctx: touched.append((shape, ctx))))
    Size(6, 4, 9, 1.0, 1.0).touch(2, HERE, THERE)
    assert touched == [((6, 4), HERE)] * 2 + [((6, 4), THERE)] * 2


def timed(monkeypatch, product, copy):
    """Let a product and a copy take so many seconds each."""

    def seconds_of(push):
        work = push.__self__
        if isinstance(work, Kept):
            return copy * sum(len(own) for own in work.landed)
        return product * len(work.results)

    monkeypatch.setattr(copies_away, "seconds_of", seconds_of)


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


def test_the_decks_results_are_copied_once(monkeypatch):
    timed(monkeypatch, product=0.5, copy=0.25)
    assert square(20, HERE, THERE) == Size(20, 20, 1, 0.5, 0.25)


def test_a_real_measurement_has_times():
    size = balanced(1e-4, 4096, 2, rate=1e9, device=HERE, host=THERE)
    assert size.copies >= 1
    assert size.copy_seconds > 0
    assert size.product_seconds > 0
