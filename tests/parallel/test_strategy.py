"""What holds for all strategies."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
from nets import devices, serial
from serial import TOLERANCE, assert_equal, run

import mxdp
from mxdp import parallel
from mxdp.backend import np
from mxdp.layers import LENET
from mxdp.parallel import data, layerwise, stage, tile
from mxdp.parallel import strategy as common
from mxdp.parallel.data import Data
from mxdp.parallel.layerwise import Layerwise
from mxdp.parallel.pipeline import Pipeline
from mxdp.parallel.strategy import Strategy
from mxdp.parallel.tile import Tile

STRATEGIES = [Data, Layerwise, Pipeline, Tile]
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda each: each.__name__.lower())


@each_strategy
def test_has_the_common_form(strategy):
    for name, method in vars(Strategy).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            assert list(inspect.signature(getattr(strategy, name)).parameters) == list(
                inspect.signature(method).parameters
            )


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("name", ["lenet", "stack"])
@each_strategy
def test_made_with_nothing_but_the_common_arguments_it_equals_the_serial_run(strategy, name, n):
    """With options of their own, on 1 to 4 devices, in float32 and float64: in each strategy's own test."""
    net, shape, params, X, y, expected = serial(name, "float32")
    assert_equal(run(strategy(net, params, shape, devices(n)), X, y), expected)


@each_strategy
def test_the_arrays_that_a_layer_takes_lie_on_one_device(strategy, monkeypatch):
    """CPU devices read one another's memory, so that nothing else would show a missing copy."""
    places = []

    def noting(function):
        def call(*arguments):
            arrays = [x for each in arguments for x in (each if isinstance(each, list) else [each])]
            places.append({x.ctx for x in arrays if isinstance(x, np.ndarray)})
            return function(*arguments)

        return call

    for module in (common, data, layerwise, stage, tile):
        for name in {"apply", "normalise", "cross_entropy"} & set(vars(module)):
            monkeypatch.setattr(module, name, noting(getattr(module, name)))
    net, shape, params, X, y, _ = serial("stack", "float32")
    split = strategy(net, params, shape, devices(3), **({"cuts": (2, 6)} if strategy is Pipeline else {}))
    split.step(X, y)
    split.scores(X)
    assert {len(each) for each in places} == {1}
    assert len(set.union(*places)) == 3


def test_data_is_what_train_batch_does():
    net, shape, params, X, y, _ = serial("lenet", "float32")
    assert net is LENET
    strategy = Data(net, params, shape, devices(2))
    device_params = [mxdp.get_params([param for layer in params for param in layer], each) for each in devices(2)]
    for _ in range(3):
        strategy.step(X, y)
        strategy.update(0.1, len(X))
        mxdp.train_batch(np.array(X), np.array(y), device_params, devices(2), lr=0.1)
    ours = [param.asnumpy() for layer in strategy.params() for param in layer]
    for a, b in zip(ours, device_params[0]):
        assert abs(a - b.asnumpy()).max() <= TOLERANCE["float32"] * abs(a).max()


SOURCES = {each.stem: each for each in Path(parallel.__file__).parent.glob("*.py")}
SIBLINGS = {"data", "layerwise", "pipeline", "tile"}


def used(module, seen=()):
    """Modules of ``mxdp.parallel`` that this one imports, directly or through others."""
    tree = ast.parse(SOURCES[module].read_text(encoding="utf-8"))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    names = {node.module.split(".")[-1] for node in nodes if node.module.startswith("mxdp.parallel.")}
    names |= {alias.name for node in nodes if node.module == "mxdp.parallel" for alias in node.names}
    found = set(seen) | names
    for name in names - set(seen):
        found |= used(name, found)
    return found


@pytest.mark.parametrize("module", sorted(SIBLINGS))
def test_siblings_do_not_import_each_other(module):
    assert used(module) & (SIBLINGS - {module}) == set()


def test_a_sibling_would_be_found():
    assert "pipeline" in used("stage_times")
    assert {"traffic", "strategy", "footprint"} <= used("pipeline")
