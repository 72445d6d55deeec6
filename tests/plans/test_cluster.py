"""All-reduces on links and on nodes: against their plans, walked send by send."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.plans.collective.algorithms import plan
from mxdp.plans.collective.one_hop import direct, naive, sharded, shared_memory
from mxdp.plans.collective.rings import all_gather, reduce_scatter, ring
from mxdp.plans.collective.schedule import ADD, COPY
from mxdp.plans.collective.trees import tree
from mxdp.plans.cost.cluster import HALVES, NODE_ALLREDUCES, Cluster, patterns
from mxdp.plans.cost.link import Link, allreduce_seconds, bus_bandwidth, fit_link, jobs_ratio, speedup

LINKS = st.builds(Link, st.sampled_from([0.0, 1e-6, 3e-4]), st.sampled_from([0.0, 1e-9, 1e-8]))
SIDES = st.integers(1, 6)


def steps_of(algorithm, devices, nodes):
    """(action, sends, share): every step of the plan, every send."""
    n = devices * nodes
    if algorithm != "two-level":
        schedule = plan(algorithm, n)
        return [(step[0].action, [(s.source, s.target) for s in step], 1 / schedule.chunks) for step in schedule.steps]

    def of(part, share, groups):
        for step in part.steps:
            yield step[0].action, [(group[s.source], group[s.target]) for group in groups for s in step], share

    within = [range(node * devices, (node + 1) * devices) for node in range(nodes)]
    across = [range(first, n, devices) for first in range(devices)]
    return [
        *of(reduce_scatter(devices), 1 / devices, within),
        *of(ring(nodes), 1 / n, across),
        *of(all_gather(devices), 1 / devices, within),
    ]


def walked(algorithm, cluster, nbytes):
    """Seconds, from every send by itself. The devices of a node share one link to the others."""
    total = 0.0
    for action, sends, share in steps_of(algorithm, cluster.devices, cluster.nodes):
        out, into, crossing = Counter(), Counter(), Counter()
        for source, target in sends:
            here, there = source // cluster.devices, target // cluster.devices
            seconds = (cluster.inside if here == there else cluster.between).seconds(share * nbytes)
            out[source] += seconds
            into[target] += seconds + (share * nbytes * cluster.add if action == ADD else 0.0)
            if here != there:
                crossing["out of", here] += share * nbytes * cluster.between.beta
                crossing["into", there] += share * nbytes * cluster.between.beta
        together = [cluster.between.alpha + seconds for seconds in crossing.values()]
        total += max([*out.values(), *into.values(), *together], default=0.0)
    return total


@settings(max_examples=60)
@given(
    algorithm=st.sampled_from(list(NODE_ALLREDUCES)),
    cluster=st.builds(Cluster, SIDES, SIDES, LINKS, LINKS, st.sampled_from([0.0, 3e-9])),
)
def test_on_nodes_it_is_the_plan_walked_send_by_send(algorithm, cluster):
    found = cluster.exchange(algorithm, 1e6)
    assert {cluster: 1}[cluster.of(cluster.count)]  # nobody changes it
    assert found.seconds == pytest.approx(walked(algorithm, cluster, 1e6))
    for reason, costs in (("start", "alpha"), ("bytes", "beta")):
        if not any(getattr(link, costs) for link in (cluster.inside, cluster.between)):
            assert getattr(found, reason) == 0
    assert found.sums == 0 or cluster.add
    if algorithm in HALVES:
        first, second = (cluster.exchange(algorithm, 1e6, (action,)) for action in (ADD, COPY))
        assert first.and_then(second) == pytest.approx(found)
        assert second.sums == 0


@pytest.mark.parametrize("algorithm", NODE_ALLREDUCES)
def test_its_own_work_grows_no_faster_than_n_log_n(algorithm):
    for nodes in (2, 16, 128):
        n, sends = 8 * nodes, sum(len(pairs) for *_, pairs in NODE_ALLREDUCES[algorithm](8, nodes))
        assert sends <= 4 * n * math.log2(n)
        assert sum(len(pattern.loads) for pattern in patterns(algorithm, 8, nodes)) <= 6 * n


def test_part_of_a_cluster():
    cluster = Cluster(4, 8, Link(1e-5, 1e-9), Link(5e-5, 1e-8))
    assert [str(cluster.of(n)) for n in (1, 3, 4)] == ["1 device", "3 devices", "4 devices"]
    assert [str(cluster.of(n)) for n in (8, 32)] == ["2 nodes of 4 devices", "8 nodes of 4 devices"]
    assert cluster.of(8).count == 8
    with pytest.raises(ValueError, match="6 devices do not fill nodes of 4"):
        cluster.of(6)
    with pytest.raises(ValueError, match="'rign'; did you mean 'ring'"):
        cluster.exchange("rign", 1.0)


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
