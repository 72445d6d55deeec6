"""All-reduces on links and on nodes: against their plans, walked send by send. A step on a cluster: what makes up its
time, and when each part runs."""

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.plans.collective.algorithms import plan
from mxdp.plans.collective.one_hop import direct, naive, sharded, shared_memory
from mxdp.plans.collective.rings import ring
from mxdp.plans.collective.schedule import ADD, COPY
from mxdp.plans.collective.trees import tree
from mxdp.plans.cost.cluster import HALVES, NODE_ALLREDUCES, Cluster, patterns
from mxdp.plans.cost.layer_lists import NETWORKS, shared_out
from mxdp.plans.cost.link import Link, allreduce_seconds, bus_bandwidth, fit_link, jobs_ratio, speedup
from mxdp.plans.cost.machine import MIB
from mxdp.plans.cost.step import LINKS, Network, TimedLayer, Way, predict_step, slowest

ANY = st.builds(Link, st.sampled_from([0.0, 1e-6, 3e-4]), st.sampled_from([0.0, 1e-9, 1e-8]))
SIDES = st.integers(1, 6)


def walked(algorithm, cluster, nbytes):
    """Seconds, from every send by itself. The devices of a node share one link to the others."""
    total = 0.0
    schedule = plan(algorithm, cluster.count)
    size = nbytes / schedule.chunks
    for step in schedule.steps:
        out, into, crossing = Counter(), Counter(), Counter()
        for send in step:
            here, there = send.source // cluster.devices, send.target // cluster.devices
            seconds = (cluster.inside if here == there else cluster.between).seconds(size)
            out[send.source] += seconds
            into[send.target] += seconds + (size * cluster.add if send.action == ADD else 0.0)
            if here != there:
                crossing["out of", here] += size * cluster.between.beta
                crossing["into", there] += size * cluster.between.beta
        together = [cluster.between.alpha + seconds for seconds in crossing.values()]
        total += max([*out.values(), *into.values(), *together], default=0.0)
    return total


@settings(max_examples=60)
@given(
    algorithm=st.sampled_from(list(NODE_ALLREDUCES)),
    cluster=st.builds(Cluster, SIDES, SIDES, ANY, ANY, st.sampled_from([0.0, 3e-9])),
)
def test_on_nodes_it_is_the_plan_walked_send_by_send(algorithm, cluster):
    if algorithm == "two-level":  # two rings, one in each node and one over them: each device adds its part alone
        cluster = replace(cluster, add=0.0)
        within, across = replace(cluster, nodes=1), replace(cluster, devices=1)
        expected = walked("ring", within, 1e6) + walked("ring", across, 1e6)
    else:
        expected = walked(algorithm, cluster, 1e6)
    found = cluster.exchange(algorithm, 1e6)
    assert found.seconds == pytest.approx(expected)
    for reason, costs in (("start", "alpha"), ("bytes", "beta")):
        if not any(getattr(link, costs) for link in (cluster.inside, cluster.between)):
            assert getattr(found, reason) == 0
    assert found.sums == 0 or cluster.add
    if algorithm in HALVES:
        first, second = (cluster.exchange(algorithm, 1e6, (action,)) for action in (ADD, COPY))
        assert first.and_then(second) == pytest.approx(found)
        assert second.sums == 0
        free = replace(cluster, inside=Link(0.0, 0.0), between=Link(0.0, 0.0), add=1.0)
        assert free.exchange(algorithm, cluster.count) == pytest.approx((0, 0, cluster.count - 1))


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


@given(st.dictionaries(st.sampled_from([4, 1000, 10**5, 10**8]), st.floats(1e-6, 1e-1), min_size=2))
def test_no_link_near_by_has_smaller_relative_errors(times):
    def errors(alpha, beta):
        return sum(((alpha + nbytes * beta) / seconds - 1) ** 2 for nbytes, seconds in times.items())

    alpha, beta = fit_link([*times.items()]).alpha, fit_link([*times.items()]).beta
    assert min(alpha, beta) >= 0
    later, slower = 1e-3 * min(times.values()), 1e-3 * min(seconds / nbytes for nbytes, seconds in times.items())
    for others in ((alpha + later, beta), (max(0, alpha - later), beta), (alpha, beta + slower)):
        assert errors(alpha, beta) <= errors(*others) + 1e-9
    assert errors(alpha, beta) <= errors(alpha, max(0, beta - slower)) + 1e-9


@pytest.mark.parametrize(
    "samples", [[], [(4, 1e-6)], [(4, 1e-6), (4, 2e-6)], [(4, 1e-6), (8, 0.0)], [(4, -1.0), (8, 1.0)]]
)
def test_a_link_needs_two_sizes_and_times(samples):
    with pytest.raises(ValueError, match="of more than zero, of messages of at least two different sizes"):
        fit_link(samples)


VGG = shared_out(NETWORKS["vgg16"], 3e-3)


@pytest.mark.parametrize("way", [Way(), Way(accumulate=3), Way(stages=2, micro_batches=8)], ids=str)
def test_all_devices_wait_for_the_slowest_of_all(way):
    cluster = Cluster(8, 2, Link(0, 0), Link(0, 0))
    steady, spread = (predict_step(replace(VGG, spread=share), cluster, 8, way) for share in (0.0, 0.1))
    assert spread.lost["the slowest"] == pytest.approx(0.1 * slowest(16) * steady.seconds)
    assert slowest(2) == pytest.approx(1 / math.sqrt(math.pi), abs=0.03)  # the mean of the larger of two


TIMES = st.sampled_from([0.0, 1e-5, 3e-4, 1e-2])


@st.composite
def asked(draw):
    """A network, a machine, a batch and a way."""
    sizes = draw(
        st.lists(st.tuples(TIMES, TIMES, st.integers(0, 10**7), st.integers(0, 10**5)), min_size=1, max_size=6)
    )
    net = Network(
        "any", tuple(TimedLayer("", *size) for size in sizes), *draw(st.tuples(TIMES, TIMES, TIMES)), spread=0.1
    )
    devices, nodes = draw(st.sampled_from([1, 2, 3, 4, 8])), draw(st.sampled_from([1, 2, 3, 8]))
    links = [Link(draw(TIMES), draw(st.sampled_from([0.0, 1e-10, 1e-8]))) for _ in range(2)]
    cores = draw(st.sampled_from([None, 1, 2, 3, 64]))
    cluster = Cluster(devices, nodes, *links, overlap=draw(st.booleans()), cores=cores)
    stages = [count for count in range(2, len(sizes) + 1) if devices % count == 0]
    if stages and draw(st.booleans()):
        return net, cluster, 16, Way(stages=draw(st.sampled_from(stages)), micro_batches=draw(st.sampled_from([1, 8])))
    shard = draw(st.booleans())
    name = draw(st.sampled_from(["ring", "two-level"] if shard else list(NODE_ALLREDUCES)))
    return net, cluster, 16, Way(name, draw(st.sampled_from([1.0, MIB])), draw(st.sampled_from([1, 3])), shard)


@settings(max_examples=120)
@given(asked())
def test_a_step_is_as_long_as_its_parts_and_what_is_lost_makes_up_for_it(case):
    net, cluster, batch, way = case
    step = predict_step(net, cluster, batch, way)
    assert step.alone + sum(step.lost.values()) == pytest.approx(step.seconds)
    assert max((span.stop for span in step.spans), default=0) <= step.seconds * (1 + 1e-9) + 1e-12
    assert all(span.start <= span.stop for span in step.spans)
    assert step.samples == batch * way.accumulate * cluster.count
    serial = predict_step(net, replace(cluster, overlap=False), batch, way)
    assert step.seconds <= serial.seconds * (1 + 1e-9)
    exchanged = sum(span.stop - span.start for span in serial.spans if span.lane == LINKS)
    if way.stages == 1:  # one after the other: the passes, the exchanges, the update
        work = way.accumulate * net.passes(batch) + net.update / (cluster.count if way.shard_optimizer else 1)
        slow = sum(serial.lost[name] for name in ("Python and shared cores", "the slowest"))
        assert serial.seconds == pytest.approx(work + slow + exchanged)
        buckets = [span for span in step.spans if span.name.startswith("bucket")]
        assert all(before.stop <= after.start for before, after in zip(buckets, buckets[1:]))
    if step.seconds:
        assert step.efficiency == step.alone / step.seconds
    most = max(step.lost, key=step.lost.get)
    assert step.limit == ("nothing" if step.alone >= 0.995 * step.seconds else most)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        (Way("tree", shard_optimizer=True), "two halves, ring or two-level"),
        (Way(stages=3, micro_batches=3), "3 stages do not divide the 32 devices"),
        (Way(stages=32, micro_batches=3), "can't cut 16 layers into 32 stages"),
        (Way("rign"), "did you mean 'ring'"),
    ],
)
def test_what_does_not_fit_is_refused(way, message):
    with pytest.raises(ValueError, match=message):
        predict_step(VGG, Cluster(32, 2, Link(0, 0), Link(0, 0)), 8, way)
