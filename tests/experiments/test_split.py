"""Networks split one way or two: what is compared, counted, predicted and told."""

from __future__ import annotations

import pytest
from littles import little

from mxdp.backend import devices, np
from mxdp.experiments.lab.module import Question, Skipped
from mxdp.experiments.oracle import count
from mxdp.experiments.other_splits import combined, fully_sharded, strategies
from mxdp.experiments.other_splits import split as module
from mxdp.experiments.other_splits.nets import net_and_shape, numbers_of
from mxdp.experiments.other_splits.split import COMBINED, SplitNet
from mxdp.layers import param_shapes
from mxdp.parallel import traffic
from mxdp.parallel.layer_costs import LayerCost


def split(name, options=None, n=2, net="lenet"):
    return SplitNet(name, *net_and_shape(net, 12), devices(n, "cpu"), 0, options or {})


def settings(module, **changes):
    return little(Question(module), kind="cpu", **changes)


@pytest.mark.parametrize(
    ("strategy", "n"), [("data", 3), ("layerwise", 3), ("tile", 3), ("pipeline", 3), (COMBINED[0], 4), (COMBINED[1], 4)]
)
def test_a_parameter_that_is_wrong_on_any_device_is_found(strategy, n, monkeypatch):
    right, trained = np.ndarray.attach_grad, []
    monkeypatch.setattr(np.ndarray, "attach_grad", lambda self, *more: trained.append(self) or right(self, *more))
    # Measured times could cut a pipeline so that a stage has no parameters.
    options = {"cuts": (3, 6)} if strategy == "pipeline" else None
    for device in devices(n, "cpu"):
        net = split(strategy, options, n)
        made = net.make()
        [array for array in trained if array.ctx == device][-1][:] += 1.0
        object.__setattr__(net, "make", lambda made=made: made)
        assert count(net.compare(13))[1] > 13


def test_the_cost_model_counts_what_the_networks_have():
    for net in ("lenet", "wide"):
        params, sums = numbers_of(net, 12)
        shapes = [shape for layer in param_shapes(*net_and_shape(net, 12)) for shape in layer]
        assert params == sum(map(traffic.elements, shapes))
        assert split("layerwise", net=net).make().bytes_moved(7) == 2 * 4 * 7 * sums


def test_on_fewer_cores_than_devices_all_work_takes_longer():
    """Nine layers of LeNet's take 1 s forward and 2 s backward each, the update 0.5 s."""
    net, layers = split("data"), [LayerCost(1.0, 2.0)] * 9
    seconds = [module.predict_split(net, net.make(), 6, layers, 0.5, 0.0, cores) for cores in (2, 1)]
    assert seconds == [27 / 2 + 0.5, 27 + 1.0]


def test_the_work_is_measured_once_for_all_cases(monkeypatch):
    asked, right = [], module.measure_layers
    monkeypatch.setattr(module, "measure_layers", lambda *args: asked.append(args[3]) or right(*args))
    module.measured_work.cache_clear()
    ready = [module.set_up_steps(split(name, {}, n), 6, steps=1) for name, n in (("serial", 1), ("data", 2))]
    for work in ready:
        _, numbers = work.round()
        assert numbers["predicted_seconds"]
        assert 0.5 < numbers["predicted_peak_bytes"] / numbers["peak_bytes"] < 2
    assert asked == devices(1, "cpu")


def test_memory_is_looked_at_by_the_first_process_alone_and_is_as_predicted():
    s = settings(fully_sharded, units=64)
    case = next(each for each in fully_sharded.cases(s) if (each.net, each.stage) == ("wide", 3))
    _, known = fully_sharded.set_up(case, s).round()
    assert known["peak_bytes"] == pytest.approx(known["predicted_peak_bytes"], rel=0.05)
    assert known["lasting_bytes"] < known["peak_bytes"]
    case.number = 1
    assert "peak_bytes" not in fully_sharded.set_up(case, s).round()[1]


@pytest.mark.parametrize("n", [2, 3, 5])
def test_two_splits_need_groups_of_several_devices(n):
    s = settings(combined, devices=[n])
    assert not {case.strategy for case in combined.cases(s)} & set(COMBINED)
    assert combined.expect(s, 2) == combined.TOO_FEW


def test_an_oracle_fits_eight_devices():
    s, found = settings(strategies, devices=[8]), {}
    for case in strategies.cases(s):
        if case.strategy != "tile":
            try:
                assert count(strategies.oracle(case, s))[1] == 0
                strategies.set_up(case, s)
            except Skipped as why:
                found[case.net, case.strategy] = str(why)
    assert list(found) == [("wide", "data"), ("wide", "pipeline")]
    assert ["too small" in why or "can't be cut into 8 stages" in why for why in found.values()] == [True, True]
