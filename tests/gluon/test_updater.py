"""One updater for all devices: what it prepares, and what it refuses. (Its bits: ``test_any_gluon_training.py``.)"""

from __future__ import annotations

from functools import partial

import pytest
from small_training import backward, parameters

from mxdp.backend import mx
from mxdp.engine import prepare
from mxdp.gluon import Trainer
from mxdp.gluon.updater import ELEMENTWISE, Updater, check_shardable
from mxdp.training import update


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_sgd_prepares_its_calls_anew_where_a_number_is_another_one(momentum, monkeypatch):
    made = []

    def noted(name, *arrays, **options):
        made.append((name, options))
        return prepare(name, *arrays, **options)

    monkeypatch.setattr(update, "prepare", noted)
    params = parameters(2, [(130, 130), (5,)])
    params[1].lr_mult, params[1].wd_mult = 2.0, 0.5
    trainer = Trainer(params, "sgd", {"learning_rate": 0.5, "momentum": momentum, "clip_gradient": 2.0})
    for change in ({}, {}, {"momentum": momentum / 2}, {"clip_gradient": 1.0}, {"wd": 0.5}, {}):
        vars(trainer.optimizer).update(change)
        before = len(made)
        backward(params)
        trainer.step(4)
        anew = before == 0 or any(change.values())
        assert len(made) == before + 2 * anew
        for (name, options), rate in zip(made[before:], (1, 2)):  # it rounds otherwise alone with a decay
            several = rate == 2 or (trainer.optimizer.wd > 0 and not momentum)
            assert name == f"{'multi_' * several}sgd_{'mom_' * (momentum > 0)}update"
            rates = options["lrs" if several else "lr"], options["wds" if several else "wd"]
            expected = 0.5 * rate, trainer.optimizer.wd / rate
            assert rates == (tuple((number,) for number in expected) if several else expected)
            assert (options["rescale_grad"], options["clip_gradient"]) == (0.25, trainer.optimizer.clip_gradient)
            assert options.get("momentum", 0.0) == trainer.optimizer.momentum
    if not momentum:
        trainer.optimizer.momentum = 0.5
        backward(params)
        with pytest.raises(ValueError, match="had none before: make a new trainer"):
            trainer.step(4)


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
    for name in ("Nadam", "LARS", "LAMB", "LBSGD", *ELEMENTWISE):
        options = {"momentum": 0.5} if name in ("SGD", "NAG", "Signum") else {}
        make = partial(getattr(mx.optimizer, name), **options)
        if name in ELEMENTWISE:
            assert of_part(make, slice(None)) == of_part(make, slice(4)), name
            check_shardable(make(), object())
            continue
        with pytest.raises(ValueError, match=f"{name} may need them whole"):
            check_shardable(make(), object())
    with pytest.raises(ValueError, match="ByNorm may need them whole"):
        check_shardable(ByNorm(momentum=0.5), object())
