from __future__ import annotations

import pytest

from mxdp.plans.costs import Link, allreduce_seconds, jobs_ratio, speedup
from mxdp.plans.schedules import naive, ring

LINK = Link(alpha=1e-5, beta=2e-10)


@pytest.mark.parametrize("n", range(1, 9))
def test_ring_is_the_textbook_formula(n):
    nbytes = 840 * 1000
    assert allreduce_seconds(ring(n), nbytes, LINK) == pytest.approx(2 * (n - 1) * (1e-5 + nbytes / n * 2e-10))


@pytest.mark.parametrize("n", range(1, 9))
def test_naive_is_the_textbook_formula(n):
    assert allreduce_seconds(naive(n), 10**6, LINK) == pytest.approx(2 * (n - 1) * (1e-5 + 10**6 * 2e-10))


def test_small_messages_favour_fewer_steps_only_when_there_are_fewer():
    assert allreduce_seconds(ring(4), 4, LINK) == pytest.approx(allreduce_seconds(naive(4), 4, LINK), rel=1e-3)
    assert allreduce_seconds(ring(4), 10**7, LINK) < 0.3 * allreduce_seconds(naive(4), 10**7, LINK)


@pytest.mark.parametrize(
    ("devices", "cores", "exposed", "expected"),
    [(1, 8, 0.3, 1.0), (2, 2, 0.0, 2.0), (4, 2, 0.0, 2.0), (2, 1, 0.0, 1.0), (8, 8, 1.0, 1.0), (2, 2, 0.5, 4 / 3)],
)
def test_speedup_is_amdahls(devices, cores, exposed, expected):
    assert speedup(devices, cores, exposed) == pytest.approx(expected)


@pytest.mark.parametrize(("jobs", "cores", "expected"), [(1, 1, 1.0), (2, 1, 2.0), (2, 2, 1.0), (3, 2, 1.5)])
def test_jobs_share_the_cores(jobs, cores, expected):
    assert jobs_ratio(jobs, cores) == expected
