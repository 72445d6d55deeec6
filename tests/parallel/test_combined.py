"""Two splits at once: what is moved and kept. (That it equals the serial run is tested with all strategies.)"""

from __future__ import annotations

import re

import pytest
from nets import devices, serial

from mxdp.parallel.combined import Combined
from mxdp.parallel.data import Data
from mxdp.parallel.layerwise import Layerwise
from mxdp.parallel.pipeline import Pipeline

SPLITS = [(Layerwise, {}), (Pipeline, {"micro_batches": 2, "cuts": (3,)})]
each_split = pytest.mark.parametrize(("split", "options"), SPLITS, ids=("layerwise", "pipeline"))


def lenet(split, options, n=4, **more):
    net, shape, params, X, y, expected = serial("lenet")
    return Combined(net, params, shape, devices(n), split, **options, **more), X, y, expected


def test_pipelines_are_cut_where_the_first_is():
    strategy, *_ = lenet(Pipeline, {"micro_batches": 2, "batch_size": 4})
    assert len({group.cuts for group in strategy.groups}) == 1


def test_stages_that_sum_where_the_gradients_were_are_found(monkeypatch):
    monkeypatch.setattr(Pipeline, "gradients_moved", lambda self: None)
    strategy, X, y, _ = lenet(*SPLITS[1])
    with pytest.raises(RuntimeError, match="was replaced"):
        strategy.step(X, y)


@each_split
def test_memory_is_that_of_the_groups(split, options):
    strategy, *_ = lenet(split, options)
    net, shape, params, *_ = serial("lenet")
    alone = split(net, params, shape, devices(2), **options)
    assert strategy.param_bytes() == 2 * alone.param_bytes()
    assert strategy.lasting_bytes(31) == alone.lasting_bytes(16) + alone.lasting_bytes(15)
    assert strategy.peak_bytes(31) == alone.peak_bytes(16) + alone.peak_bytes(15)


@pytest.mark.parametrize("groups", [0, 3, 2.0, "2"])
def test_devices_that_cannot_be_divided_are_refused(groups):
    net, shape, params, *_ = serial("lenet")
    text = f"4 devices can't be divided into {groups} groups of equal size: use a number of groups that divides 4"
    with pytest.raises(ValueError, match=re.escape(text)):
        Combined(net, params, shape, devices(4), Layerwise, groups=groups)


@pytest.mark.parametrize(
    ("split", "samples", "text"),
    [
        (SPLITS[0], 1, "a batch of 1 is too small for 2 groups: use at least 2 samples, or fewer groups"),
        (SPLITS[1], 3, "a batch of 3 is too small for 2 groups with 2 micro-batches each: use at least 4 samples"),
        ((Data, {}), 3, "a batch of 3 is too small for 2 groups with 2 devices each: use at least 4 samples"),
    ],
)
def test_a_batch_that_is_too_small_is_refused_before_anything_is_trained(split, samples, text):
    strategy, X, y, _ = lenet(*split)
    strategy.groups[0].step = None  # would raise a TypeError
    for work in (lambda: strategy.step(X[:samples], y[:samples]), lambda: strategy.scores(X[:samples])):
        with pytest.raises(ValueError, match=re.escape(text)):
            work()
