"""A step on a cluster: what makes up its time, and when each part runs."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.plans.cost.cluster import NODE_ALLREDUCES, Cluster
from mxdp.plans.cost.layer_lists import NETWORKS, shared_out
from mxdp.plans.cost.link import Link
from mxdp.plans.cost.machine import MIB
from mxdp.plans.cost.simulate import last_end, pipeline_spans
from mxdp.plans.cost.step import COMPUTE, LINKS, Network, TimedLayer, Way, predict_step, slowest
from mxdp.plans.partition import balance
from mxdp.plans.pipeline import gpipe

LINK = Link(1e-5, 1e-9)


def network(layers=6, **more):
    draw = random.Random(layers)
    return Network(
        "made up",
        tuple(
            TimedLayer(str(number), draw.uniform(1e-6, 1e-5), draw.uniform(2e-6, 2e-5), draw.randrange(10**6), 1000)
            for number in range(layers)
        ),
        **more,
    )


@pytest.mark.parametrize("overlap", [True, False])
def test_a_bucket_is_summed_when_its_gradients_are_there_and_the_links_are_free(overlap):
    net, cluster = network(9), Cluster(2, 8, LINK, Link(5e-5, 4e-9), overlap=overlap)
    spans = predict_step(net, cluster, 32, Way("ring", 4 * MIB)).spans
    sums = [span for span in spans if span.lane == LINKS]
    ends = {span.name: span.stop for span in spans if span.lane == COMPUTE}
    assert len(sums) > 2
    assert all(later.start >= earlier.stop for earlier, later in zip(sums, sums[1:]))
    assert sums[0].start >= (ends["backward 8"] if overlap else ends["backward 0"])
    assert sums[-1].start >= ends["backward 0"]  # the first layer's gradient comes last
    expected = [cluster.exchange("ring", 4 * sum(layer.parameters for layer in net.layers)).bytes]
    assert [sum(span.stop - span.start for span in sums)] >= expected


ALONE = {  # seconds of plain steps of two passes, sharded ones, and 2 x 2 x 3 pipelines of 2 stages and 8 micro-batches
    "fixed": (2, 1, (8 + 1) / 2),
    "update": (1, 1 / 12, 70 / 100),
    "python": (2 * 4, 4, 8 * 2),
    "fixed on 2 cores": (2 * 4 / 2, 4 / 2, 8 * 2 / 2),
    "update on 2 cores": (4 / 2, 4 / 2 / 12, 2 / 2),
    "python on 2 cores": (2 * 4, 4, 8 * 2),
    "bytes inside": (2 * 3 / 4 * 400, 2 * 3 / 4 * 400, 2 * 1 / 2 * 4 * 70),
    "bytes between": (0, 0, 2 * 2 / 3 * 400),
}


@pytest.mark.parametrize(("term", "expected"), ALONE.items())
def test_each_cost_alone_is_what_an_independent_calculation_says(term, expected):
    """Stages, nodes and devices are unequal; every other cost is 0."""
    name, _, cores = term.partition(" on ")
    layers = tuple(TimedLayer(str(at), 0.0, 0.0, size) for at, size in enumerate((30, 20, 50)))
    net = Network("unequal", layers, **({name: 1.0} if name in ("fixed", "update", "python") else {}))
    links = [Link(0.0, float(term == f"bytes {where}")) for where in ("inside", "between")]
    cluster = Cluster(4, 3, *links, cores=2 if cores else None)
    ways = Way("two-level", accumulate=2), Way("two-level", shard_optimizer=True), Way(stages=2, micro_batches=8)
    steps = [predict_step(net, cluster, 8, way) for way in ways]
    if term == "bytes between":  # of the two-level sum, test_cluster.py has the walk
        steps, expected = steps[2:], expected[2:]
    assert [step.seconds for step in steps] == pytest.approx(list(expected))
    for step in steps:
        assert step.alone + sum(step.lost.values()) == pytest.approx(step.seconds)
    if term == "fixed":
        assert steps[2].lost["starts of micro-batches"] == pytest.approx(8 / 2 - 1)
        assert steps[2].lost["bubble and messages"] == pytest.approx(1 / 2)


@pytest.mark.parametrize("way", [Way(), Way(accumulate=3), Way(stages=2, micro_batches=8)], ids=str)
def test_all_devices_wait_for_the_slowest_of_all(way):
    cluster = Cluster(8, 2, Link(0, 0), Link(0, 0))
    steady, spread = (predict_step(network(spread=share), cluster, 8, way) for share in (0.0, 0.1))
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


@settings(max_examples=400, deadline=None)
@given(asked())
def test_no_step_is_faster_than_its_cores_its_links_and_its_slowest_part_allow(case):
    net, cluster, batch, way = case
    step = predict_step(net, cluster, batch, way)
    assert step.alone + sum(step.lost.values()) == pytest.approx(step.seconds)
    assert max((span.stop for span in step.spans), default=0) <= step.seconds * (1 + 1e-9) + 1e-12
    samples, here = batch * way.accumulate, cluster.devices / way.stages  # of a device; pipelines in a node
    assert step.samples == samples * cluster.count
    starts = way.micro_batches * here if way.stages > 1 else way.accumulate * cluster.devices
    layers = [layer.forward + layer.backward for layer in net.layers]
    updates = net.update * (1 / cluster.nodes if way.shard_optimizer else here)
    least = {
        "all devices": (samples * cluster.devices * sum(layers) + starts * net.fixed) / cluster.devices,
        "Python": starts * net.python,
        "a layer": samples * way.stages * max(layers),
        "cores": 0.0,
        "links": 0.0,
    }
    if cluster.cores:
        work = samples * cluster.devices * sum(layers) + starts * (net.fixed + net.python) + updates
        least["cores"] = work / cluster.cores
    nbytes = 4 * sum(layer.parameters for layer in net.layers)
    if cluster.nodes > 1:  # what a node sends and receives of any sum
        least["links"] = (
            2 * (1 - 1 / cluster.nodes) * nbytes * cluster.between.beta + bool(nbytes) * cluster.between.alpha
        )
    elif way.stages == 1 and cluster.count > 1:
        least["links"] = (
            2 * (1 - 1 / cluster.count) * nbytes * cluster.inside.beta + bool(nbytes) * cluster.inside.alpha
        )
    too_fast = {name: bound for name, bound in least.items() if step.seconds < bound * (1 - 1e-9)}
    assert not too_fast, (step.seconds, step.lost)
    if cluster.count == 1 and not net.python and not cluster.cores:
        assert (step.seconds, step.limit) == (pytest.approx(step.alone), "nothing")


def test_a_pipeline_alone_is_its_plan():
    net, cluster = network(8), Cluster(4, 1, LINK, LINK)
    step = predict_step(net, cluster, 16, Way(stages=4, micro_batches=8))
    borders = [0, *balance([layer.forward + layer.backward for layer in net.layers], 4), 8]
    forward, backward = (
        [8 * sum(getattr(layer, way) for layer in net.layers[a:b]) for a, b in zip(borders, borders[1:])]
        for way in ("forward", "backward")
    )
    message = [LINK.seconds(4 * 8 * 1000)] * 3
    assert step.seconds == pytest.approx(last_end(pipeline_spans(gpipe(4, 8), forward, backward, message)))


@pytest.mark.parametrize(
    ("way", "message"),
    [
        (Way("tree", shard_optimizer=True), "two halves, ring or two-level"),
        (Way(stages=3, micro_batches=3), "3 stages do not divide the 4 devices"),
        (Way(stages=4, micro_batches=3), "can't cut 3 layers into 4 stages"),
        (Way("rign"), "did you mean 'ring'"),
    ],
)
def test_what_does_not_fit_is_refused(way, message):
    with pytest.raises(ValueError, match=message):
        predict_step(network(3), Cluster(4, 2, LINK, LINK), 8, way)


PARAMETERS = dict(lenet=129_068, resnet18=11_175_818, resnet50=25_557_032, resnet101=44_549_160, vgg16=138_357_544)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_has_its_parameters_and_shares_out_its_time(name):
    step = shared_out(NETWORKS[name], 3e-4)
    assert step.passes(10) == pytest.approx(10 * 3e-4)
    assert step.parameters == PARAMETERS[name]
