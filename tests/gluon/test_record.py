"""What ranks compare before they update: two trainers that differ in one thing have other records."""

from __future__ import annotations

from types import SimpleNamespace

from small_training import parameters

from mxdp.backend import mx
from mxdp.gluon.record import of_parameters, of_update, settings, unique_names

SHAPES = [(3, 2), (4,)]


def record(change=lambda params, optimizer: None, kind=mx.optimizer.SGD, **options):
    params = parameters(1, SHAPES)
    schedule = mx.lr_scheduler.FactorScheduler(step=3, base_lr=0.5)
    optimizer = kind(**{"learning_rate": 0.5, "lr_scheduler": schedule, **options})
    optimizer._update_count([0, 1, 1])
    change(params, optimizer)
    return {**of_parameters(params), **of_update(optimizer, params)}


CHANGES = {
    "wd": dict(wd=0.5),
    "momentum": dict(momentum=0.5),
    "clip_gradient": dict(clip_gradient=1.0),
    "another optimiser": dict(kind=mx.optimizer.NAG),
    "no schedule": dict(lr_scheduler=None),
    "another schedule": dict(lr_scheduler=mx.lr_scheduler.FactorScheduler(step=4, base_lr=0.5)),
    "a count": dict(change=lambda params, optimizer: optimizer._update_count([0])),
    "the factor of a rate": dict(change=lambda params, optimizer: setattr(params[1], "lr_mult", 2.0)),
    "the factor of a decay": dict(change=lambda params, optimizer: setattr(params[1], "wd_mult", 2.0)),
    "a dtype": dict(change=lambda params, optimizer: params[0].cast("float64")),
    "a grad_req": dict(change=lambda params, optimizer: setattr(params[0], "grad_req", "add")),
    "the current rate": dict(change=lambda params, optimizer: setattr(optimizer.lr_scheduler, "base_lr", 0.25)),
}


def test_any_change_is_another_record_and_the_batch_size_is_said_apart():
    same = record()
    assert record() == same
    assert record(rescale_grad=0.125) == same
    records = [record(**change) for change in CHANGES.values()]
    for number, (name, other) in enumerate(zip(CHANGES, records)):
        assert other not in [same, *records[:number]], name
    assert same["the parameters' counts of updates"] == [1, 2]
    assert same["p0"] == "float32 (3, 2), grad_req 'write'"
    assert "the parameters' lr_mult" not in same
    assert record(**CHANGES["the factor of a rate"])["the parameters' lr_mult"] == [1.0, 2.0]


def test_settings_are_numbers_and_texts():
    optimizer = mx.optimizer.SGD(learning_rate=0.5, lr_scheduler=mx.lr_scheduler.FactorScheduler(step=3, base_lr=0.5))
    found = settings(optimizer)
    expected = {"optimizer": "SGD", "learning_rate": 0.5, "lr_scheduler": "FactorScheduler", "lr_scheduler.step": 3}
    assert expected.items() <= found.items()
    assert not any(name.startswith("_") for name in found)
    assert {type(value) for value in found.values()} <= {bool, int, float, str}


def test_names_are_without_counts_or_else_numbers():
    """Of several layers the order counts."""
    for given, names in (
        (["dense12_weight", "dense12_bias", "dense9_bias"], ["dense1_weight", "dense1_bias", "dense0_bias"]),
        (["a", "b"], ["a", "b"]),
        (["x", "x"], ["parameter 0", "parameter 1"]),
    ):
        assert unique_names([SimpleNamespace(name=name) for name in given]) == names
