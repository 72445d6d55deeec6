from __future__ import annotations

from types import SimpleNamespace

import pytest
from nets import NETS, prepared

from mxdp import timing
from mxdp.backend import mx
from mxdp.layers import BatchNorm, Conv, Dense, Relu, apply, init, outputs
from mxdp.parallel import layer_costs
from mxdp.parallel.layer_costs import LayerCost, find_cuts, measure_layers
from mxdp.plans.pipeline import pipeline


def test_a_layer_takes_the_median_of_its_rounds_and_nothing_back_without_a_gradient(monkeypatch):
    """A clock that counts the numbers that are made: forward one second each, back two. The rounds are longer by one
    second and more, but for the warm-up, which is much longer."""
    net, shape = (Relu(), Conv(3, kernel=2), Relu(), BatchNorm(), Dense(10)), (2, 5, 4)
    clock = SimpleNamespace(now=0.0, waitall=lambda: None, rounds=[])
    clock.perf_counter = lambda: clock.now
    monkeypatch.setattr(timing, "time", clock)
    monkeypatch.setattr(timing, "npx", clock)
    devices = set()

    def timed(layer, x, params):
        y = apply(layer, x, params)
        devices.update(array.ctx for array in (x, *params))
        longer = (1000, 3, 1, 5)[len(clock.rounds) % 4]
        clock.rounds.append(x.shape)
        clock.now += y.size + longer

        def backward():
            y.backward()
            clock.now += 2 * (y.size + longer)

        return SimpleNamespace(backward=backward, detach=y.detach)

    monkeypatch.setattr(layer_costs, "apply", timed)
    costs = measure_layers(net, init(net, shape), shape, mx.cpu(1), samples=7)
    made = [7 * size for size in (2 * 5 * 4, 3 * 4 * 3, 3 * 4 * 3, 3 * 4 * 3, 10)]
    assert [cost.forward for cost in costs] == [size + 3 for size in made]
    assert [cost.backward for cost in costs] == [0, *[2 * (size + 3) for size in made[1:]]]
    assert [cost.seconds for cost in costs] == [made[0] + 3, *[3 * (size + 3) for size in made[1:]]]
    assert clock.rounds[::4] == [(7, *size) for size in [shape, *outputs(net, shape)[:-1]]]
    assert devices == {mx.cpu(1)}


@pytest.mark.parametrize(
    ("forward", "backward", "plan", "batch_size", "training", "cuts"),
    [
        ([1] * 9, [0, 0, 0, 5, 0, 0, 0, 0, 0], pipeline("gpipe", 3, 5), 3, True, (3, 4)),
        ([1] * 9, [9, *[0] * 8], pipeline("gpipe", 2, 2), 7, True, (1,)),
        ([1] * 9, [9, *[0] * 8], pipeline("gpipe", 2, 2), 7, False, (4,)),  # only the forward passes count
    ],
)
def test_the_slowest_stage_is_as_fast_as_can_be(forward, backward, plan, batch_size, training, cuts, monkeypatch):
    asked = []

    def measure(net, params, *arguments):
        asked.append(arguments)
        return [LayerCost(*pair) for pair in zip(forward, backward)]

    monkeypatch.setattr(layer_costs, "measure_layers", measure)
    net, shape = NETS["lenet"]
    assert find_cuts(net, prepared("lenet")[0], shape, mx.cpu(2), plan, batch_size, training=training) == cuts
    assert asked == [(shape, mx.cpu(2), max(1, -(-batch_size // plan.micro_batches)))]
