from __future__ import annotations

import numpy as onp
import pytest

from mxdp import memory
from mxdp.backend import mx, np, npx
from mxdp.errors import MemoryShortage
from mxdp.experiments.automatic_parallelism.big_results import BigResults, at_most
from mxdp.experiments.measure.memory import Peak

CPU = mx.cpu(0)
JOB = BigResults(size=6, products=5)


def test_bytes_are_those_of_its_arrays():
    assert JOB.result_bytes == 4 * (6 * 6 + 6 + 6 * 64)
    assert JOB.fixed_bytes == 4 * 2 * 6 * 64
    assert JOB.needed(3) == JOB.fixed_bytes + 3 * JOB.result_bytes


@pytest.mark.parametrize("pieces", [[(0, 5)], [(0, 2), (2, 5)], [(number, number + 1) for number in range(5)]])
def test_however_it_is_cut_it_gives_the_same(pieces):
    sums = JOB.run(CPU, 3, pieces)
    assert sums.shape == (5, 6)
    assert (sums == JOB.serial(3)).all()
    assert len(onp.unique(sums[:, 0])) > 1


def test_a_job_that_fits_is_not_cut():
    assert JOB.pieces(CPU, None, cut=False) == [(0, 5)]
    assert JOB.pieces(CPU, JOB.needed(5), cut=True) == [(0, 5)]


def test_one_that_does_not_is_refused_or_cut():
    with pytest.raises(MemoryShortage):
        JOB.pieces(CPU, JOB.needed(5) - 1, cut=False)
    assert JOB.pieces(CPU, JOB.needed(5) - 1, cut=True) == [(0, 3), (3, 5)]
    assert JOB.pieces(CPU, JOB.needed(2), cut=True) == [(0, 2), (2, 4), (4, 5)]
    with pytest.raises(MemoryShortage, match="one slice needs"):
        JOB.pieces(CPU, JOB.needed(1) - 1, cut=True)
    assert [JOB.refused(CPU, limit) for limit in (JOB.needed(5) - 1, JOB.needed(5))] == [True, False]


def test_without_a_limit_the_machine_is_one(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda device: JOB.needed(2))
    assert JOB.pieces(CPU, None, cut=True) == [(0, 2), (2, 4), (4, 5)]
    assert JOB.pieces(CPU, 10**9, cut=True) == [(0, 2), (2, 4), (4, 5)]


@pytest.mark.parametrize(("pieces", "at_once"), [([(0, 20)], 20), ([(0, 10), (10, 20)], 10)])
def test_the_bytes_are_what_a_job_takes(pieces, at_once):
    job = BigResults(size=1000, products=20)
    found = []
    for _ in range(3):
        with Peak() as peak:
            job.run(CPU, 0, pieces)
        found.append(peak.bytes)
    # What other tests have left of the heap can only make it more.
    assert job.needed(at_once) * 0.9 < min(found) < job.needed(at_once) * 1.1


def arrays_of(megabytes):
    arrays = [np.ones((1 << 18,)) for _ in range(megabytes)]
    npx.waitall()
    return arrays


def test_the_system_refuses_more_than_it_was_told_to():
    with at_most(64 << 20), pytest.raises((mx.MXNetError, MemoryError)):
        arrays_of(megabytes=512)
    assert arrays_of(megabytes=512)[-1][0] == 1
