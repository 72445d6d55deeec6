from __future__ import annotations

import pytest
from nets import STACK, devices
from serial import example

from mxdp.backend import np
from mxdp.layers import LENET, BatchNorm, Conv, Dense, Pool, Relu, forward
from mxdp.parallel import layerwise, traffic
from mxdp.parallel.layerwise import Layerwise

MIXED = (BatchNorm(), Pool(2), Dense(7), Relu(), Dense(9), Dense(5), Relu(), Dense(6), Relu(), Dense(10))
"""Begins with tied parameters, has two pairs that touch, and ends with a layer without a partner."""


def test_scores_may_be_pictures():
    net = (Conv(6, 3), Relu(), Conv(5, 3))
    params, X, _ = example(net, (2, 9, 8), 3)
    for length in (1, 2, 3):
        expected = forward(net[:length], np.array(X), params).asnumpy()
        scores = Layerwise(net[:length], params[:length], (2, 9, 8), devices(2)).scores(X).asnumpy()
        assert scores.shape == expected.shape
        assert abs(scores - expected).max() < 1e-5


@pytest.mark.parametrize(
    ("net", "shape", "n", "forward", "backward", "numbers"),
    [
        (LENET, (1, 28, 28), 2, 2, 1, 4 * (50 * 9 * 9 + 10 + 800)),
        (LENET, (1, 28, 28), 1, 0, 0, 0),
        (MIXED, (2, 6, 5), 2, 2, 3, 4 * (9 + 6 + 6 + 9 + 12)),  # before its first pair there are parameters
        ((Dense(6), Relu(), Dense(10)), (7,), 2, 1, 0, 4 * 10),
    ],
    ids=["lenet", "one device", "mixed", "one pair"],
)
def test_each_allreduce_is_counted_when_it_is_done(net, shape, n, forward, backward, numbers):
    params, X, y = example(net, shape, 4)
    strategy = Layerwise(net, params, shape, devices(n))
    assert strategy.allreduces == {"forward": 0, "backward": 0}
    for _ in range(2):
        strategy.step(X, y)
        assert strategy.allreduces == {"forward": forward, "backward": backward}
    moved = strategy.traffic.nbytes
    assert sum(moved[layerwise.ALL_REDUCE, way] for way in ("forward", "backward")) == 4 * 2 * numbers
    strategy.scores(X)
    assert strategy.allreduces == {"forward": forward, "backward": 0}


def test_only_what_is_whole_is_tied():
    params, _, _ = example(STACK, (3, 17, 19), 4)
    strategy = Layerwise(STACK, params, (3, 17, 19), devices(3))
    tied = 4 * sum(param.size for param in params[5])
    assert sum(strategy.param_bytes()) == 2 * tied + 4 * sum(param.size for param in traffic.flat(params))
    strategy._params[1][1][0][:] += 1  # of the device's own channels: nobody else has them
    assert strategy.in_step()
    strategy._params[2][5][0][:] += 1
    assert not strategy.in_step()


def test_fewer_outputs_than_devices_are_refused():
    net = (Conv(3, kernel=3), Relu(), Dense(10))
    params, _, _ = example(net, (1, 5, 5), 1)
    with pytest.raises(ValueError, match=r"layer 0, Conv.*has 3 outputs for 4 devices"):
        Layerwise(net, params, (1, 5, 5), devices(4))
    assert Layerwise(net, params, (1, 5, 5), devices(3)).param_bytes()
