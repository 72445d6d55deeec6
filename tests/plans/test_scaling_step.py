"""A step on a cluster: what makes up its time, and when each part runs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.plans.cost.cluster import NODE_ALLREDUCES, Cluster
from mxdp.plans.cost.layer_lists import NETWORKS, shared_out
from mxdp.plans.cost.link import Link
from mxdp.plans.cost.machine import MIB
from mxdp.plans.cost.step import LINKS, Network, TimedLayer, Way, predict_step, slowest

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
    assert len({net, way, *step.spans}) >= 2  # nobody changes them
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
