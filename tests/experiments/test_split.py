"""Networks split one way or two: what is compared, counted, predicted and told."""

import numpy as onp
import pytest
from littles import little

from mxdp.backend import devices, mx, np
from mxdp.experiments.lab.module import Question, Skipped
from mxdp.experiments.oracle import count
from mxdp.experiments.other_splits import combined, fully_sharded, pipeline, strategies, tiles
from mxdp.experiments.other_splits import split as module
from mxdp.experiments.other_splits.nets import net_and_shape, numbers_of
from mxdp.experiments.other_splits.split import COMBINED, SplitNet, memory
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


def test_the_first_process_alone_looks_at_memory():
    s = settings(pipeline, batch_size=16)
    case = next(iter(pipeline.cases(s)))
    for case.number in (0, 1):
        _, numbers = pipeline.set_up(case, s).round()
        assert len({"peak_bytes", "predicted_peak_bytes"} & set(numbers)) == 2 * (case.number == 0)


def test_memory_is_that_of_the_fullest_device_with_what_stays():
    options = {"micro_batches": 4, "schedule": "1f1b", "cuts": (4,)}
    net = SplitNet("pipeline", *net_and_shape("stages"), devices(2, "cpu"), 0, options)
    made, (X, y) = net.make(), net.batch(16)
    made.step(X, y)
    assert memory(net.devices, [8, 7], lambda: None) == 8
    assert memory(net.devices, [0, 10**9], lambda: made.step(X, y)) > 10**9
    assert memory(net.devices, [0, 8], lambda: made.step(X, y)) > 8 + 4 * 20 * 24 * 24 * 4


def test_memory_is_not_counted_where_mxnet_would_abort():
    many = SplitNet("pipeline", *net_and_shape("stages"), [mx.cpu(0), mx.cpu(1000)], 0, {"cuts": (4,)})
    assert memory(many.devices, [0, 0], lambda: None) is None


@pytest.mark.parametrize("grid", [(2, 2), (2, 1), (1, 3)])
def test_errors_are_at_the_seams_alone(grid):
    error, inside = tiles.seams(devices(grid[0] * grid[1], "cpu"), grid, halo=False, seed=0)
    assert error.max() > error[inside].max() == 0
    _, height, width = tiles.SHAPE
    # All but two rows or columns on each side of a seam are inside.
    assert inside.sum() == (height - 4 * (grid[0] - 1)) * (width - 4 * (grid[1] - 1))
    # Right up to there it is wrong.
    assert {int(y) for y in onp.flatnonzero(error[:, 0])} == set(onp.flatnonzero(~inside[:, 0]))


def test_a_row_has_its_errors(monkeypatch):
    s = little(Question(tiles), devices=[2], kind="cpu")
    (case,) = (case for case in tiles.cases(s) if not case.halo)
    error, inside = onp.array([[4.0, 1.0], [2.0, 3.0]]), onp.array([[False, True], [True, False]])
    monkeypatch.setattr(tiles, "seams", lambda *more: (error, inside))
    _, without = tiles.set_up(case, s).round()
    assert (without["worst_error"], without["worst_error_inside"]) == (4.0, 2.0)
