"""A step on a cluster: what makes up its time, and when each part runs."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from mxdp.plans.cost.link import Link
from mxdp.plans.cost.simulate import pipeline_seconds
from mxdp.plans.partition import balance
from mxdp.plans.pipeline import gpipe
from mxdp.plans.scaling.cluster import STEPS, Cluster
from mxdp.plans.scaling.networks import NETWORKS, timed
from mxdp.plans.scaling.step import COMPUTE, LINKS, MIB, Layer, Network, Way, predict_step, slowest

LINK = Link(1e-5, 1e-9)


def network(layers=6, **more):
    own = random.Random(layers)
    return Network(
        "made up",
        tuple(
            Layer(str(number), own.uniform(1e-6, 1e-5), own.uniform(2e-6, 2e-5), own.randrange(10**6), 1000)
            for number in range(layers)
        ),
        **more,
    )


FULL = dict(fixed=1e-3, update=5e-4, python=2e-3, spread=0.05)
WAYS = [
    *(Way(name, room * MIB) for name in STEPS for room in (0.5, 4, 1024)),
    Way("ring", accumulate=3),
    Way("two-level", shard_optimizer=True, accumulate=2),
    Way(stages=2, micro_batches=4),
    Way(stages=4, micro_batches=16),
]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("cores", [None, 2])
@pytest.mark.parametrize("overlap", [True, False])
def test_what_is_lost_and_the_time_alone_make_up_the_step(way, cores, overlap):
    cluster = Cluster(4, 4, LINK, Link(5e-5, 4e-9), add=1e-10, overlap=overlap, cores=cores)
    found = predict_step(network(**FULL), cluster, 32, way)
    assert found.alone + sum(found.lost.values()) == pytest.approx(found.seconds)
    assert found.samples == 32 * 16 * way.accumulate
    assert max(span.stop for span in found.spans) <= found.seconds + 1e-12
    assert 0 < found.efficiency <= 1.1


def test_one_device_loses_nothing():
    own = network(**FULL)
    found = predict_step(own, Cluster(1, 1, LINK, LINK), 32)
    assert found.seconds == found.alone == pytest.approx(own.passes(32) + own.update)
    assert (found.efficiency, found.limit) == (1, "nothing")


@pytest.mark.parametrize("overlap", [True, False])
def test_a_bucket_is_summed_when_its_gradients_are_there_and_the_links_are_free(overlap):
    own, cluster = network(9), Cluster(2, 8, LINK, Link(5e-5, 4e-9), overlap=overlap)
    spans = predict_step(own, cluster, 32, Way("ring", 4 * MIB)).spans
    sums = [span for span in spans if span.lane == LINKS]
    ends = {span.name: span.stop for span in spans if span.lane == COMPUTE}
    assert len(sums) > 2
    assert all(later.start >= earlier.stop for earlier, later in zip(sums, sums[1:]))
    assert sums[0].start >= (ends["backward 8"] if overlap else ends["backward 0"])
    assert sums[-1].start >= ends["backward 0"]  # the first layer's gradient comes last
    expected = [cluster.exchange("ring", 4 * sum(layer.parameters for layer in own.layers)).bytes]
    assert [sum(span.stop - span.start for span in sums)] >= expected


def test_an_overlapped_sum_is_never_slower():
    for room in (1, 4, 25):
        with_, without = (
            predict_step(network(9), Cluster(2, 8, LINK, LINK, overlap=overlap), 32, Way("ring", room * MIB)).seconds
            for overlap in (True, False)
        )
        assert with_ <= without


def test_devices_that_share_cores_take_as_long_as_their_work_needs():
    own = network(python=1e-4)
    passes = own.passes(64)
    for devices, cores, expected in ((2, 2, passes + 1e-4), (4, 2, 2 * (passes + 1e-4)), (2, 8, passes)):
        found = predict_step(own, Cluster(devices, 1, Link(0, 0), LINK, cores=cores), 64)
        assert found.seconds == pytest.approx(expected)
    assert predict_step(replace(own, python=1.0), Cluster(4, 1, Link(0, 0), LINK), 64).seconds == pytest.approx(4.0)


def test_the_slowest_of_many_takes_longer():
    found = [slowest(n) for n in (1, 2, 8, 64, 4096)]
    assert found == sorted(found)
    assert found[1] == pytest.approx(1 / math.sqrt(math.pi), abs=0.03)  # the mean of the larger of two
    seconds = [predict_step(network(spread=0.1), Cluster(1, n, Link(0, 0), Link(0, 0)), 8).seconds for n in (1, 64)]
    assert seconds[1] / seconds[0] == pytest.approx(1 + 0.1 * slowest(64))


def test_a_pipeline_alone_is_its_plan():
    own, cluster = network(8), Cluster(4, 1, LINK, LINK)
    found = predict_step(own, cluster, 16, Way(stages=4, micro_batches=8))
    borders = [0, *balance([layer.forward + layer.backward for layer in own.layers], 4), 8]
    forward, backward = (
        [8 * sum(getattr(layer, way) for layer in own.layers[a:b]) for a, b in zip(borders, borders[1:])]
        for way in ("forward", "backward")
    )
    message = [LINK.seconds(4 * 8 * 1000)] * 3
    assert found.seconds == pytest.approx(pipeline_seconds(gpipe(4, 8), forward, backward, message))


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


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_has_its_time(name):
    title, works = NETWORKS[name]
    found = timed(title, works(), 3e-4, fixed=1e-3)
    assert found.passes(10) == pytest.approx(1e-3 + 10 * 3e-4)
    assert found.parameters == sum(work.parameters for work in works())
