"""Networks split in several ways, and what ``strategies`` and ``layerwise`` make of their numbers."""

from __future__ import annotations

from random import Random

import numpy as onp
import pytest

from mxdp.backend import devices
from mxdp.errors import UsageError
from mxdp.experiments.harness import claims
from mxdp.experiments.harness.experiment import find
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.harness.settings import resolve
from mxdp.experiments.measure.child import one_round
from mxdp.experiments.measure.oracle import count
from mxdp.experiments.other_splits.split import ONE_DEVICE, wide_numbers
from mxdp.experiments.other_splits.strategies import LENET_NUMBERS
from mxdp.experiments.other_splits.work import split as work
from mxdp.experiments.other_splits.work.split import Speeds, SplitNet, network, predict_step, scaled, set_up_steps
from mxdp.experiments.other_splits.work.strategies import ODD, oracle
from mxdp.layers import param_shapes
from mxdp.parallel import traffic
from mxdp.parallel.layer_costs import LayerCost
from mxdp.parallel.layerwise import Layerwise
from mxdp.plans.cost.link import Link

WAYS = [("serial", {}), ("data", {}), ("layerwise", {}), ("tile", {"grid": (2, 1)}), ("pipeline", {"cuts": (3,)})]


def split(name, options, net="lenet", n=2):
    return SplitNet(name, *network(net, 12), devices(n, "cpu"), 0, options)


@pytest.mark.parametrize(("name", "options"), WAYS)
def test_a_strategy_is_held_against_the_serial_run_number_by_number(name, options):
    checked, wrong = count(split(name, options).compare(5))
    parameters = sum(traffic.elements(shape) for own in param_shapes(*network("lenet")) for shape in own)
    assert (checked, wrong) == (5 * 10 + 5 + 2 * parameters, 0)


def test_a_wrong_one_is_caught(monkeypatch):
    monkeypatch.setattr(Layerwise, "_allreduce", lambda self, arrays, direction: None)
    checked, wrong = count(split("layerwise", {}).compare(5))
    assert 0 < wrong <= checked


def test_an_unfinished_net_of_pictures_is_right_too():
    assert count(split("tile", {"grid": (1, 2)}, "pictures").compare(3))[1] == 0


def test_a_step_is_counted_as_predicted():
    for name, options in WAYS[1:4]:
        metrics = one_round(set_up_steps(split(name, options), 6, steps=1)).last
        assert metrics["bytes_counted"] == metrics["bytes_moved"] > 0
        assert metrics["peak_bytes"] == max(metrics["peak_bytes_by_device"]) > 0
        assert 0.5 < metrics["predicted_peak_bytes"] / metrics["peak_bytes"] < 2


def test_steps_take_time_and_carry_more():
    done = one_round(set_up_steps(split("data", {}), 4, steps=1, more=7))
    assert done.seconds > 0
    assert done.last["more"] == 7


def test_the_sums_of_layerwise_partitioning_are_counted():
    counts = [one_round(set_up_steps(split(name, {}), 4, steps=1)).last for name in ("layerwise", "data")]
    assert (counts[0]["allreduces_forward"], counts[0]["allreduces_backward"]) == (2, 1)
    assert "allreduces_forward" not in counts[1]


# The prediction: ten layers of LeNet's that take 1 s forward and 2 s backward each, 0.5 s for the update.

LAYERS = [LayerCost(1.0, 2.0)] * 9
FAST, SLOW = (Speeds(LAYERS, 0.5, Link(0.0, beta)) for beta in (0.0, 1e-6))


@pytest.mark.parametrize(
    ("name", "options", "cores", "seconds"),
    [
        ("serial", {}, 2, 27.5),
        ("data", {}, 2, 27 / 2 + 0.5),
        ("data", {}, 1, 27 + 1.0),
        ("layerwise", {}, 2, 21 / 2 + 6 + 0.25),  # relu and pooling behind the convolutions are done by both
        # Of 26, 26, 13, 9, 9 and 4 rows the larger parts; the dense layers and their relu by the first device.
        ("tile", {"grid": (2, 1)}, 2, 3 * (1 / 2 + 1 / 2 + 7 / 13 + 5 / 9 + 5 / 9 + 1 / 2) + 9 + 0.5),
        ("pipeline", {"cuts": (3,), "micro_batches": 1}, 2, 27 + 0.5 * 0.9983),
    ],
)
def test_work_is_divided_as_the_strategy_does(name, options, cores, seconds):
    own = split(name, options)
    assert predict_step(own, own.make(), 6, FAST, cores) == pytest.approx(seconds, rel=1e-3)


@pytest.mark.parametrize(("name", "options"), WAYS)
def test_what_is_moved_takes_its_time_on_the_link(name, options):
    own = split(name, options)
    made = own.make()
    slower = predict_step(own, made, 6, SLOW, 2) - predict_step(own, made, 6, FAST, 2)
    assert slower == pytest.approx(made.bytes_moved(6) * 1e-6 / 2)


def test_uneven_shards_take_as_long_as_the_largest():
    own = split("data", {}, n=4)
    assert predict_step(own, own.make(), 6, FAST, 4) == pytest.approx(27 * 2 / 6 + 0.5)


def test_the_speeds_are_measured_once_a_round_for_all_cases(monkeypatch):
    asked = []
    right = work.measure_layers
    monkeypatch.setattr(work, "measure_layers", lambda *args: asked.append(args[3]) or right(*args))
    work._measure_work.cache_clear()
    ready = [set_up_steps(split(name, {}), 6, steps=1) for name in ("serial", "data")]
    first, second = ([one_round(each).metrics["predicted_seconds"] for each in ready] for _ in range(2))
    assert asked == devices(1, "cpu") * 2
    assert first[1] != second[1]
    assert min(first + second) > 0


# What the catalog says without MXNet


def test_the_numbers_of_the_cost_model_are_those_of_the_networks():
    params, sums = LENET_NUMBERS
    assert params == sum(traffic.elements(shape) for own in param_shapes(*network("lenet")) for shape in own)
    assert split("layerwise", {}).make().bytes_moved(7) == 2 * 4 * 7 * sums
    params, sums = wide_numbers(12)
    assert params == sum(traffic.elements(shape) for own in param_shapes(*network("wide", 12)) for shape in own)
    assert split("layerwise", {}, "wide").make().bytes_moved(7) == 2 * 4 * 7 * sums


def rows(times):
    return [
        Row(
            label=f"{net}, {strategy}",
            case={
                "net": net,
                "strategy": strategy,
                "batch": 8,
                "devices": ["a"] if strategy == "serial" else ["a", "b"],
            },
            samples=[seconds] * 24,
            metrics={"peak_bytes": 1e6 * seconds, "bytes_moved": 0},
            rounds={"predicted_seconds": [predicted] * 24},
        )
        for net, strategy, seconds, predicted in times
    ]


def held(name, given, settings):
    experiment = find(name)
    experiment.finish(given, [], settings)
    return {each: claims.judged(each, claim, given)["holds"] for each, claim in experiment.claims.items()}


def test_the_choice_is_compared_with_every_other_way_and_never_with_itself():
    times = [("lenet", "serial", 1.05, 1), ("lenet", "data", 1.0, 2), ("lenet", "tile", 2, 3), ("wide", "serial", 1, 1)]
    given = rows([*times, ("wide", "data", 2, 2)])
    assert held("strategies", given, {"devices": [2]}) == {"expected_of_fastest": True}
    judged = [row.rounds["expected_of_fastest"][0] for row in given if "expected_of_fastest" in row.rounds]
    assert judged == [1.05, 0.525, 0.5]


def test_a_choice_that_is_truly_slower_is_seldom_said_to_hold():
    """Another way is 1.2 times as fast, with noise of 30 % in each process."""
    random, holds = Random(0), []
    for _ in range(200):
        given = rows([("lenet", "serial", 1.2, 1), ("lenet", "data", 1, 2), ("lenet", "tile", 1, 3)])
        for row in given:
            row.samples = [seconds * max(0.1, random.gauss(1, 0.3)) for seconds in row.samples[:12]]
            row.rounds["predicted_seconds"] = row.rounds["predicted_seconds"][:12]
        holds.append(held("strategies", given, {"devices": [2]})["expected_of_fastest"])
    assert holds.count(True) <= 10


def layerwise(*of_data):
    """Rows by batch: 1, 10, 100; layerwise partitioning takes that share of the time of data parallelism."""
    return [
        Row(
            label=f"batch {10**number}, {strategy}",
            case={"strategy": strategy, "split": 2, "batch": 10**number},
            samples=[seconds] * 6,
            rounds={"predicted_seconds": [1.0] * 6},
        )
        for number, each in enumerate(of_data)
        for strategy, seconds in (("data", 2.0), ("layerwise", 2.0 * each))
    ]


@pytest.mark.parametrize(
    ("of_data", "faster", "loses"),
    [
        ((0.5, 0.7, 1.2), True, True),
        ((0.5, 0.7, 0.4), True, False),
        ((1.1, 1.2), False, True),
        ((0.5,), True, None),  # with one batch there is no ground to lose
    ],
)
def test_layerwise_has_to_be_faster_first_and_lose_ground(of_data, faster, loses):
    given = layerwise(*of_data)
    settings = {"devices": [1, 2], "units": 512, "batch_sizes": [10**number for number in range(len(of_data))]}
    assert held("layerwise", given, settings) == {"faster_when_small": faster, "loses_ground": loses}
    said = find("layerwise").answer(given, [], settings)
    assert f"takes {of_data[0]:.2f} ({of_data[0]:.2f} to {of_data[0]:.2f}) times as long with a batch of 1" in said
    assert len(of_data) == 1 or f"and {of_data[-1]:.2f} (" in said
    assert "up to a batch of 902" in find("layerwise").explanation(given, [], settings)
    assert find("layerwise").answer([], [], {**settings, "devices": [1]}) == ONE_DEVICE


def test_above_the_batch_where_both_send_as_much_layerwise_need_not_be_faster():
    settings = {"devices": [2], "units": 512, "batch_sizes": [1000]}
    given = layerwise(1, 1, 1, 1.1)[6:]
    assert held("layerwise", given, settings) == {"faster_when_small": None, "loses_ground": None}


@pytest.mark.parametrize("name", ["strategies", "layerwise", "tiles"])
def test_one_device_alone_can_be_asked_for(name):
    settings = {**find(name).presets["quick"], "devices": [1]}
    assert {case.devices for case in find(name).cases(settings)} == {1}
    assert find(name).predict(settings, 2)


def test_the_tolerance_is_of_the_layers_largest_number():
    weight, bias = onp.array([1.0, -4.0]), onp.array([1e-8])
    assert count(scaled([weight, bias + 1e-6], [weight, bias])) == (3, 0)
    assert count(scaled([weight + 1.2e-4, bias], [weight, bias])) == (3, 2)
    assert count(scaled([weight, bias], [onp.array([1.0, onp.inf]), bias])) == (3, 1)
    assert count(scaled([weight * 7, bias], [weight * onp.inf, bias])) == (3, 2)
    assert count(scaled([weight[:1], bias], [weight, bias])) == (3, 2)


@pytest.mark.parametrize("name", ["strategies", "layerwise"])
def test_every_case_is_compared_with_an_uneven_batch(name):
    experiment = find(name)
    settings = {**experiment.presets["quick"], "kind": "cpu", **experiment.little}
    for case in experiment.cases(settings):
        net = network(case.settings["net"], settings["units"])
        parameters = sum(traffic.elements(shape) for own in param_shapes(*net) for shape in own)
        assert count(oracle(case, settings)) == (ODD * 10 + ODD + 2 * parameters, 0)


@pytest.mark.parametrize(
    ("name", "setting"),
    [("layerwise", "batch_sizes"), ("pipeline", "micro_batches"), ("latency-throughput", "batches")],
)
def test_batches_are_whole(name, setting):
    with pytest.raises(UsageError, match=f"{setting} must be whole numbers"):
        resolve([find(name)], "quick", {setting: [1, 1.5]})
