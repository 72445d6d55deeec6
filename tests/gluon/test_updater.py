"""One updater for all devices: what it prepares, and what it refuses. (Its bits: ``test_any_gluon_training.py``.)"""

from __future__ import annotations

from functools import partial

import pytest
from small_training import assert_equal, backward, by_devices, parameters, weights

from mxdp.backend import mx
from mxdp.engine import prepare
from mxdp.gluon import Trainer
from mxdp.gluon.updater import ELEMENTWISE, Updater, check_shardable
from mxdp.training import update


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_sgd_prepares_its_calls_anew_where_a_number_is_another_one(momentum, monkeypatch):
    """And so it has MXNet's bits, with small parameters together and large ones alone."""
    made = []
    monkeypatch.setattr(update, "prepare", lambda name, *a, **more: (made.append(name), prepare(name, *a, **more))[1])
    ours, theirs = [parameters(2, [(130, 130), (5,)]) for _ in range(2)]
    trainers = []
    for params, make in ((ours, Trainer), (theirs, by_devices)):
        params[1].lr_mult, params[1].wd_mult = 2.0, 0.5
        trainers.append(make(params, "sgd", {"learning_rate": 0.5, "momentum": momentum, "clip_gradient": 2.0}))
    for change in ({}, {}, {"momentum": momentum / 2}, {"clip_gradient": 1.0}, {"wd": 0.5}, {}):
        before = len(made)
        for trainer in trainers:
            vars(trainer.optimizer).update(change)
            backward(trainer._params)
            trainer.step(4)
        assert_equal(weights(ours), weights(theirs))
        name = f"sgd_{'mom_' * (momentum > 0)}update"
        # Alone it rounds otherwise with a decay.
        large = f"multi_{name}" if trainer.optimizer.wd and not momentum else name
        assert made[before:] == [large, f"multi_{name}"] * (before == 0 or any(change.values()))
    if not momentum:
        trainers[0].optimizer.momentum = 0.5
        backward(ours)
        with pytest.raises(ValueError, match="had none before: make a new trainer"):
            trainers[0].step(4)


class ByNorm(mx.optimizer.SGD):
    """A subclass of one that can be cut, which needs whole parameters."""


def of_part(make, part):
    """The first four elements of a weight, of which a part is updated."""
    its = Updater(make())
    weight = mx.nd.array([1.0, 2.0, -3.0, 0.5, 90.0, -70.0])[part]
    row = [0, weight, mx.nd.array([0.5, -1.0, 3.0, 0.25, -80.0, 60.0])[part], its.made_for(0, weight)]
    several = its.optimizer.aggregate_num > 0
    its.optimizer.update_multi_precision(*[[item] if several else item for item in row])
    return weight[:4].asnumpy().tolist()


def test_an_optimiser_is_cut_if_it_has_a_state_and_updates_each_element_by_itself():
    for name in ELEMENTWISE:
        make = partial(getattr(mx.optimizer, name), **({"momentum": 0.5} if name in ("SGD", "NAG", "Signum") else {}))
        assert of_part(make, slice(None)) == of_part(make, slice(4)), name
        check_shardable(make(), object())
    others = [getattr(mx.optimizer, name)() for name in ("Nadam", "LARS", "LAMB", "LBSGD")]
    for whole in (ByNorm(momentum=0.5), *others):
        with pytest.raises(ValueError, match=f"{type(whole).__name__} may need them whole"):
            check_shardable(whole, object())
