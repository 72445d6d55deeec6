"""All-reduces on nodes: against their plans, walked send by send."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.plans.collective.algorithms import plan
from mxdp.plans.collective.rings import all_gather, reduce_scatter, ring
from mxdp.plans.collective.schedule import ADD, COPY
from mxdp.plans.cost.cluster import HALVES, NODE_ALLREDUCES, Cluster, patterns
from mxdp.plans.cost.link import Link

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
