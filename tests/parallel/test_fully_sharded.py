"""ZeRO's stages: all have MXNet's optimisers' results, the same bits, and use nothing that was freed."""

from __future__ import annotations

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nets import UNSHRUNK, devices, example, serial

from mxdp.backend import mx, np
from mxdp.experiments import networks
from mxdp.layers import BatchNorm, Conv, Dense, Relu, Residual, outputs, resnet18
from mxdp.parallel.combined import Combined
from mxdp.parallel.fully_sharded import FullySharded
from mxdp.parallel.traffic import flat
from mxdp.plans.layers import fully_sharded as plans

STAGES = (0, 1, 2, 3)
OPTIMIZERS = st.sampled_from(
    [("sgd", {}), ("sgd", {"momentum": 0.5, "wd": 0.01}), ("adam", {}), ("adam", {"beta1": 0.5, "beta2": 0.75})]
)


def poisoned(made):
    """The strategy, which fills with NaN whatever a task frees."""
    for unit in made.units:
        if made.plan.stage == 3:
            unit.calls[plans.FREE] = [lambda unit=unit: [x.__setitem__(slice(None), onp.nan) for x in unit.vectors]]
        if made.plan.stage > 1:
            fill = [lambda: [room.__setitem__(slice(None), onp.nan) for room in made._gradient_room]]
            unit.calls[plans.REDUCE_SCATTER] = [*unit.calls[plans.REDUCE_SCATTER], *fill]
    return made


@settings(max_examples=12, phases=UNSHRUNK)
@given(
    units=st.lists(st.integers(1, 11), min_size=1, max_size=4),
    n=st.integers(1, 4),
    optimizer=OPTIMIZERS,
    rates=st.lists(st.sampled_from([0.5, 0.125]), min_size=2, max_size=4),
    normalised=st.booleans(),
)
def test_every_stage_is_what_mxnets_optimizer_makes_of_each_array(units, n, optimizer, rates, normalised):
    """Layers smaller than the devices, too. The gradients' own test is that of all strategies."""
    name, options = optimizer
    net = (*[BatchNorm()] * normalised, *[layer for size in units for layer in (Dense(size), Relu())], Dense(10))
    shape = (2, 3, 1)
    params, X, y = example(net, shape, n + 2)
    ends = []
    for stage in STAGES:
        made = poisoned(FullySharded(net, params, shape, devices(n), stage, name, **options))
        known = [param.copy().as_nd_ndarray() for param in flat(params)]
        updater = mx.optimizer.create(name, rescale_grad=1 / len(X), **options)
        states = [updater.create_state(number, param) for number, param in enumerate(known)]
        for rate in rates:
            made.step(X, y)
            gradients = flat(made.gradients())
            made.update(rate, len(X))
            updater.set_learning_rate(rate)
            for number, (param, gradient) in enumerate(zip(known, gradients)):
                updater.update(number, param, gradient.as_nd_ndarray(), states[number])
            for param, right in zip(flat(made.params()), known):
                onp.testing.assert_allclose(param.asnumpy(), right.asnumpy(), rtol=1e-5, atol=1e-6)
        ends.append([array.asnumpy().tobytes() for array in (*gradients, *flat(made.params()), made.scores(X))])
        assert made.in_step()
    assert ends[1:] == [ends[0]] * 3
    plain = FullySharded(net, params, shape, devices(n), 3)
    states = {"adam": 2, "sgd": int("momentum" in options)}[name]
    # The last device has the smallest shard of each layer.
    more = 4 * states * sum(size // n for size in made.sizes)
    assert made.lasting_bytes(1)[-1] == plain.lasting_bytes(1)[-1] + more


def test_paths_of_a_residual_layer_must_end_in_one_shape():
    with pytest.raises(ValueError, match=r"layer 1 adds up \(3, 2, 2\) and \(2, 4, 4\): a Residual's paths end in one"):
        outputs((Relu(), Residual((Conv(3, 3),))), (2, 4, 4))


def test_resnet18_has_as_many_parameters_as_gluons():
    made = FullySharded(resnet18(8), example(resnet18(8), (1, 28, 28), 1)[0], (1, 28, 28), devices(2))
    assert len(made.units) == 11
    net = networks.resnet18(8)
    net.initialize()
    net(np.ones((1, 1, 28, 28)))
    assert sum(made.sizes) == sum(p.data().size for p in net.collect_params().values() if p.grad_req != "null")


def test_what_cannot_be_is_refused():
    net, shape, params, X, y, _ = serial("lenet")
    for given_, sentence in (
        (dict(stage=4), "there are the stages 0 .* to 3, not 4"),
        (dict(optimizer="adamm"), "no optimiser is called 'adamm' here; did you mean 'adam'"),
    ):
        with pytest.raises(ValueError, match=sentence):
            FullySharded(net, params, shape, devices(2), **given_)
    with pytest.raises(ValueError, match="which groups can't add up: use another split"):
        Combined(net, params, shape, devices(4), FullySharded)
    with pytest.raises(ValueError, match="has no parameters to cut"):
        FullySharded((Relu(),), [[]], (3,), devices(2))
    with pytest.raises(ValueError, match="a batch of 2 has too few samples for 3 devices"):
        FullySharded(net, params, shape, devices(3)).step(X[:2], y[:2])
