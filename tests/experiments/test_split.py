"""Networks split one way or two: what is compared, counted, predicted and told."""

from __future__ import annotations

import pytest
from littles import little

from mxdp.backend import devices, np
from mxdp.collectives import GradientSync
from mxdp.collectives.program import Program
from mxdp.experiments.lab.module import Question, Skipped
from mxdp.experiments.oracle import count
from mxdp.experiments.other_splits import combined, fully_sharded, strategies
from mxdp.experiments.other_splits import split as module
from mxdp.experiments.other_splits.nets import net_and_shape, numbers_of
from mxdp.experiments.other_splits.split import COMBINED, SplitNet
from mxdp.layers import param_shapes
from mxdp.parallel import traffic
from mxdp.parallel.layer_costs import LayerCost
from mxdp.parallel.layerwise import Layerwise

PIPELINE = {"micro_batches": 1, "cuts": (3,)}


def split(name, options=None, n=2, net="lenet"):
    return SplitNet(name, *net_and_shape(net, 12), devices(n, "cpu"), 0, options or {})


def parameters(net, shape):
    return sum(traffic.elements(each) for layer in param_shapes(net, shape) for each in layer)


def settings(module, **changes):
    return little(Question(module), kind="cpu", **changes)


@pytest.mark.parametrize(
    ("strategy", "n", "whose", "name"),
    [
        ("data", 2, GradientSync, "__call__"),
        ("layerwise", 2, Layerwise, "_allreduce"),
        ("fully-sharded", 2, Program, "__call__"),
        (COMBINED[0], 4, GradientSync, "__call__"),
        (COMBINED[1], 4, GradientSync, "__call__"),
        (COMBINED[1], 4, Layerwise, "_allreduce"),
    ],
)
def test_what_is_not_summed_is_found(strategy, n, whose, name, monkeypatch):
    monkeypatch.setattr(whose, name, lambda self, *more: None)
    checked, wrong = count(split(strategy, n=n).compare(13))
    assert checked / 8 < wrong < checked
    if whose is GradientSync:
        assert wrong < checked - 13 * 11, "scores and losses of the first step are right"


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


@pytest.mark.parametrize(("name", "n"), [("data", 2), ("layerwise", 2), ("tile", 2), (COMBINED[1], 4)])
def test_a_step_is_counted_as_predicted(name, n, monkeypatch):
    monkeypatch.setattr(module, "timed", lambda push: (push(), 6.0)[1])
    seconds, numbers = module.set_up_steps(split(name, n=n), 6, steps=2, more=7).round()
    assert (seconds, numbers["bytes_moved"]) == (3.0, split(name, n=n).make().bytes_moved(6))
    assert 0.5 < numbers["predicted_peak_bytes"] / numbers["peak_bytes"] < 2
    assert numbers["more"] == 7


def test_the_cost_model_counts_what_the_networks_have():
    for net in ("lenet", "wide"):
        params, sums = numbers_of(net, 12)
        assert params == parameters(*net_and_shape(net, 12))
        assert split("layerwise", net=net).make().bytes_moved(7) == 2 * 4 * 7 * sums


# The prediction: nine layers of LeNet's that take 1 s forward and 2 s backward each, 0.5 s for the update.


@pytest.mark.parametrize(
    ("name", "options", "n", "cores", "seconds"),
    [
        ("serial", {}, 1, 2, 27.5),
        ("data", {}, 2, 2, 27 / 2 + 0.5),
        ("data", {}, 2, 1, 27 + 1.0),
        ("data", {}, 4, 4, 27 * 2 / 6 + 0.5),  # six samples in uneven shards
        ("layerwise", {}, 2, 2, 21 / 2 + 6 + 0.25),  # relu and pooling behind the convolutions are done by both
        # Of 26, 26, 13, 9, 9 and 4 rows the larger parts; the dense layers and their relu by the first device.
        ("tile", {"grid": (2, 1)}, 2, 2, 3 * (1 / 2 + 1 / 2 + 7 / 13 + 5 / 9 + 5 / 9 + 1 / 2) + 9 + 0.5),
        ("pipeline", PIPELINE, 2, 2, 27 + 0.5 * 0.9983),
    ],
)
def test_a_prediction_divides_the_work_and_adds_what_is_moved(name, options, n, cores, seconds):
    net = split(name, options, n)
    made, layers = net.make(), [LayerCost(1.0, 2.0)] * 9
    fast, slow = (module.predict_split(net, made, 6, layers, 0.5, beta, cores) for beta in (0.0, 1e-6))
    assert fast == pytest.approx(seconds, rel=1e-3)
    assert slow - fast == pytest.approx(made.bytes_moved(6) * 1e-6 / n)


def test_the_work_is_measured_once_for_all_cases(monkeypatch):
    asked, right = [], module.measure_layers
    monkeypatch.setattr(module, "measure_layers", lambda *args: asked.append(args[3]) or right(*args))
    module.measured_work.cache_clear()
    ready = [module.set_up_steps(split(name, {}, n), 6, steps=1) for name, n in (("serial", 1), ("data", 2))]
    assert all("predicted_seconds" in work.round()[1] for work in ready)
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


@pytest.mark.parametrize(
    ("module", "n", "left_out", "skipped"),
    [
        (fully_sharded, 6, {"resnet"}, {}),
        (strategies, 8, {"tile"}, {("wide", "data"): "too small", ("wide", "pipeline"): "can't be cut into 8 stages"}),
        (combined, 8, {"lenet"}, {("wide", "pipeline"): "can't be cut into 8 stages"}),
    ],
)
def test_an_oracle_fits_any_number_of_devices(module, n, left_out, skipped):
    s, found = settings(module, devices=[n]), {}
    for case in module.cases(s):
        if not left_out & {case.net, case.get("strategy")}:
            try:
                assert count(module.oracle(case, s))[1] == 0
                if module is strategies:
                    module.set_up(case, s)
            except Skipped as why:
                found[case.net, case.strategy] = str(why)
    assert list(found) == list(skipped)
    assert all(why in found[case] for case, why in skipped.items())
