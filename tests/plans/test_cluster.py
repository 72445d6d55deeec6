"""All-reduces on nodes: against their plans, walked send by send."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from mxdp.plans.collective.algorithms import plan
from mxdp.plans.collective.rings import all_gather, reduce_scatter, ring
from mxdp.plans.collective.schedule import ADD, COPY
from mxdp.plans.cost.cluster import HALVES, NODE_ALLREDUCES, Cluster, patterns
from mxdp.plans.cost.link import Link

LINKS = [(Link(1e-5, 1e-9), Link(5e-5, 1e-8)), (Link(1e-6, 1e-8), Link(3e-4, 1e-9)), (Link(0.0, 1e-9), Link(1.0, 0.0))]
PLANNED = ("naive", "tree", "doubling", "ring")


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


def walked(algorithm, cluster, nbytes, shared=True):
    """Seconds, from every send by itself. ``shared``: do the devices of a node share one link to the others?"""
    total = 0.0
    for action, sends, share in steps_of(algorithm, cluster.devices, cluster.nodes):
        out, into, node_out, node_in = (Counter() for _ in range(4))
        for source, target in sends:
            here, there = source // cluster.devices, target // cluster.devices
            seconds = (cluster.inside if here == there else cluster.between).seconds(share * nbytes)
            out[source] += seconds
            into[target] += seconds + (share * nbytes * cluster.add if action == ADD else 0.0)
            if here != there and shared:
                node_out[here] += share * nbytes * cluster.between.beta
                node_in[there] += share * nbytes * cluster.between.beta
        crossing = [cluster.between.alpha + seconds for link in (node_out, node_in) for seconds in link.values()]
        total += max([*out.values(), *into.values(), *crossing], default=0.0)
    return total


@pytest.mark.parametrize("algorithm", NODE_ALLREDUCES)
@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("devices", [1, 2, 3, 4, 8])
def test_on_nodes_it_is_the_plan_walked_send_by_send(algorithm, devices, nodes):
    for inside, between in LINKS:
        for add in (0.0, 3e-9):
            cluster = Cluster(devices, nodes, inside, between, add)
            assert cluster.exchange(algorithm, 1e6).seconds == pytest.approx(walked(algorithm, cluster, 1e6))


@pytest.mark.parametrize("algorithm", ["doubling", "two-level"])
def test_the_walk_would_see_links_that_are_not_shared(algorithm):
    cluster = Cluster(4, 4, *LINKS[0])
    assert cluster.exchange(algorithm, 1e6).seconds > 1.5 * walked(algorithm, cluster, 1e6, shared=False)


@pytest.mark.parametrize("algorithm", HALVES)
def test_the_halves_make_up_the_whole(algorithm):
    cluster = Cluster(4, 8, *LINKS[0], add=1e-9)
    first, second = (cluster.exchange(algorithm, 1e6, (action,)) for action in (ADD, COPY))
    assert first.and_then(second) == pytest.approx(cluster.exchange(algorithm, 1e6))
    assert first.sums > 0 == second.sums


@pytest.mark.parametrize("algorithm", NODE_ALLREDUCES)
def test_its_own_work_grows_no_faster_than_n_log_n(algorithm):
    for nodes in (2, 16, 128):
        n, sends = 8 * nodes, sum(len(pairs) for *_, pairs in NODE_ALLREDUCES[algorithm](8, nodes))
        assert sends <= 4 * n * math.log2(n)
        assert sum(len(pattern.loads) for pattern in patterns(algorithm, 8, nodes)) <= 6 * n


def test_part_of_a_cluster():
    cluster = Cluster(4, 8, *LINKS[0])
    sizes = [(cluster.of(n).devices, cluster.of(n).nodes) for n in (1, 3, 4, 8, 32)]
    assert sizes == [(1, 1), (3, 1), (4, 1), (4, 2), (4, 8)]
    with pytest.raises(ValueError, match="6 devices do not fill nodes of 4"):
        cluster.of(6)
    with pytest.raises(ValueError, match="'rign'; did you mean 'ring'"):
        cluster.exchange("rign", 1.0)
