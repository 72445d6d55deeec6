from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.plans.collective.one_hop import direct, naive, sharded, shared_memory
from mxdp.plans.collective.rings import ring
from mxdp.plans.collective.trees import tree
from mxdp.plans.cost.link import Link, allreduce_seconds, bus_bandwidth, fit_link, jobs_ratio, speedup

LINK = Link(alpha=1e-5, beta=2e-10)


# Messages of the busiest device, and vectors in them, as the docstrings say.
KINDS = {
    ring: lambda n: (2 * (n - 1), 2 * (n - 1) / n),
    naive: lambda n: (2 * (n - 1), 2 * (n - 1)),
    direct: lambda n: (2 * (n - 1), 2 * (n - 1) / n),
    shared_memory: lambda n: (n - 1, (n - 1) / n),
    tree: lambda n: (2 * math.ceil(math.log2(n)), 2 * math.ceil(math.log2(n))),
}


@settings(max_examples=60)
@given(
    planner=st.sampled_from(list(KINDS)),
    devices=st.integers(1, 12),
    nbytes=st.integers(0, 10**6),
    link=st.builds(Link, st.sampled_from([0.0, 1e-5]), st.sampled_from([0.0, 2e-10])),
)
def test_each_costs_what_its_docstring_says(planner, devices, nbytes, link):
    messages, vectors = KINDS[planner](devices)
    seconds = allreduce_seconds(planner(devices), nbytes, link)
    assert seconds == pytest.approx(messages * link.alpha + vectors * nbytes * link.beta)
    if planner is ring and devices > 1 and nbytes and link.beta and not link.alpha:
        assert bus_bandwidth(nbytes, seconds, devices) == pytest.approx(1 / link.beta)


def test_sharded_costs_what_the_busiest_device_has_to_take_and_give():
    link = Link(alpha=0.0, beta=1.0)
    assert allreduce_seconds(sharded(2, [3, 1]), 4, link) == pytest.approx(3 + 3)
    assert allreduce_seconds(sharded(2, [2, 2]), 4, link) == pytest.approx(2 + 2)


def test_a_speed_up_has_its_limit_in_the_cores_and_jobs_share_them():
    assert [speedup(*pair) for pair in ((1, 8), (2, 2), (4, 2), (2, 1))] == [1, 2, 2, 1]
    assert [jobs_ratio(*pair) for pair in ((1, 1), (2, 1), (2, 2), (3, 2))] == [1, 2, 1, 1.5]


@pytest.mark.parametrize("link", [LINK, Link(0.0, 1e-9), Link(3e-6, 0.0)])
def test_a_link_is_found_again_in_its_own_times(link):
    fitted = fit_link([(nbytes, link.seconds(nbytes)) for nbytes in (4, 1024, 10**6, 10**8)])
    assert fitted.alpha == pytest.approx(link.alpha, rel=1e-6, abs=1e-12)
    assert fitted.beta == pytest.approx(link.beta, rel=1e-6, abs=1e-17)


def test_the_largest_message_does_not_drown_the_smallest():
    """Twice the time for the largest: an unweighted fit makes the start-up time negative, or 100 times too long."""
    samples = [(nbytes, LINK.seconds(nbytes)) for nbytes in (4, 1024, 10**5, 10**6, 10**7)]
    fitted = fit_link([*samples, (10**8, 2 * LINK.seconds(10**8))])
    assert fitted.alpha == pytest.approx(LINK.alpha, rel=0.05)
    assert LINK.beta < fitted.beta < 1.5 * LINK.beta


def test_no_part_of_a_link_is_less_than_zero():
    # Of these two lines through zero, 1e-8 and 1e-7 a byte, the relative errors let the first count more.
    assert fit_link([(100, 1e-6), (1000, 1e-4)]) == Link(0.0, pytest.approx(1.1e8 / 1.01e16))
    fitted = fit_link([(100, 2e-6), (1000, 1e-6)])
    assert fitted.beta == 0.0
    assert 1e-6 < fitted.alpha < 2e-6


@pytest.mark.parametrize(
    "samples", [[], [(4, 1e-6)], [(4, 1e-6), (4, 2e-6)], [(4, 1e-6), (8, 0.0)], [(4, -1.0), (8, 1.0)]]
)
def test_a_link_needs_two_sizes_and_times(samples):
    with pytest.raises(ValueError, match="of more than zero, of messages of at least two different sizes"):
        fit_link(samples)
