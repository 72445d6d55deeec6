from __future__ import annotations

import pytest
from nets import NETS, prepared

from mxdp.backend import mx
from mxdp.layers import BatchNorm, Conv, Dense, Relu, apply, init, outputs
from mxdp.parallel import layer_costs
from mxdp.parallel.layer_costs import LayerCost, find_cuts, measure_layers
from mxdp.plans.pipeline import pipeline


def test_every_layer_is_measured(monkeypatch):
    net, shape = NETS["stack"]
    inputs = []
    monkeypatch.setattr(
        layer_costs, "apply", lambda layer, x, params: (inputs.append(x.shape), apply(layer, x, params))[1]
    )
    costs = measure_layers(net, prepared("stack")[0], shape, mx.cpu(1), samples=5)
    assert len(costs) == len(net)
    assert all(cost.forward > 0 and cost.backward > 0 for cost in costs)
    assert all(cost.seconds == cost.forward + cost.backward for cost in costs)
    assert inputs[::4] == [(5, *size) for size in [shape, *outputs(net, shape)[:-1]]]


def test_what_has_no_gradient_takes_no_time_back():
    net = (Relu(), Conv(3, kernel=2), Relu(), BatchNorm(), Dense(10))
    costs = measure_layers(net, init(net, (2, 5, 4)), (2, 5, 4), mx.cpu(0), samples=2)
    assert [cost.backward > 0 for cost in costs] == [False, True, True, True, True]


@pytest.fixture
def cuts(monkeypatch):
    """``find_cuts`` for LeNet, whose layers take the seconds that are given."""

    def find(forward, backward, plan, batch_size=32, **options):
        asked = []

        def measure(net, params, input_shape, device, samples):
            asked.append((input_shape, device, samples))
            return [LayerCost(*pair) for pair in zip(forward, backward)]

        monkeypatch.setattr(layer_costs, "measure_layers", measure)
        net, shape = NETS["lenet"]
        borders = find_cuts(net, prepared("lenet")[0], shape, mx.cpu(2), plan, batch_size, **options)
        assert asked == [(shape, mx.cpu(2), -(-batch_size // plan.micro_batches))]
        return borders

    return find


def test_the_slowest_stage_is_as_fast_as_can_be(cuts):
    assert cuts([1, 1, 1, 5, 1, 1, 1, 1, 1], [0] * 9, pipeline("gpipe", 3, 4)) == (3, 4)
    assert cuts([0] * 9, [1, 1, 1, 5, 1, 1, 1, 1, 1], pipeline("gpipe", 3, 5)) == (3, 4)


def test_for_answers_only_the_forward_passes_count(cuts):
    both = [1] * 9, [9, *[0] * 8]
    assert cuts(*both, pipeline("gpipe", 2, 1)) == (1,)
    assert cuts(*both, pipeline("gpipe", 2, 1), training=False) == (4,)
