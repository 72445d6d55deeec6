"""ZeRO's stages: equal to the serial run, and to one another bit for bit; nothing that was freed is used."""

from __future__ import annotations

import numpy as onp
import pytest
from apart import results
from nets import devices, serial
from serial import assert_equal, example, run, serial_run, wrong

from mxdp.backend import np, npx
from mxdp.experiments import networks
from mxdp.experiments.memory_use import peak_bytes
from mxdp.layers import BatchNorm, Conv, Dense, Net, Pool, Relu, Residual, outputs, resnet18
from mxdp.parallel.combined import Combined
from mxdp.parallel.data import Data
from mxdp.parallel.fully_sharded import FullySharded
from mxdp.parallel.layerwise import Layerwise
from mxdp.parallel.tile import Tile
from mxdp.plans.layers import fully_sharded as plans

STAGES = (0, 1, 2, 3)
DOWN = Residual((Conv(6, 3, 2, 1), BatchNorm(), Relu(), Conv(6, 3, padding=1), BatchNorm()), (Conv(6, 1, 2),))
RESIDUAL: Net = (Conv(4, 3), BatchNorm(), Relu(), DOWN, Residual((Conv(6, 3, padding=1), BatchNorm())), Dense(10))
OPTIMIZERS = [("sgd", {}), ("sgd", {"momentum": 0.9}), ("adam", {})]


def bits(result):
    arrays = [
        result.scores,
        result.losses,
        *(x for kind in (result.gradients, result.params) for its in kind for x in its),
    ]
    return [x.tobytes() for x in arrays]


def poisoned(made):
    """The strategy, which fills with NaN whatever a task frees."""
    for unit in made.units:
        if made.plan.stage == 3:
            unit.calls[plans.FREE] = [lambda unit=unit: [x.__setitem__(slice(None), onp.nan) for x in unit.vectors]]
        if made.plan.stage > 1:
            fill = [lambda: [room.__setitem__(slice(None), onp.nan) for room in made._gradient_room]]
            unit.calls[plans.REDUCE_SCATTER] = [*unit.calls[plans.REDUCE_SCATTER], *fill]
    return made


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["lenet", "stack"])
def test_each_stage_equals_the_serial_run_and_uses_nothing_that_it_freed(name, n, stage):
    net, shape, params, X, y, expected = serial(name)
    made = poisoned(FullySharded(net, params, shape, devices(n), stage=stage))
    assert_equal(run(made, X, y), expected)
    assert made.in_step()
    assert made.traffic.total() == made.bytes_moved(len(X))


@pytest.mark.parametrize(("optimizer", "options"), OPTIMIZERS)
@pytest.mark.parametrize("n", [2, 3])
def test_all_stages_give_the_same_bits(n, optimizer, options):
    net, shape, params, X, y, _ = serial("stack", "float64")
    made = [FullySharded(net, params, shape, devices(n), stage, optimizer, **options) for stage in STAGES]
    plain, *others = (bits(run(strategy, X, y)) for strategy in made)
    assert others == [plain] * 3


def test_large_layers_that_are_summed_in_place_give_the_same_bits():
    net, shape = (Dense(1024), Relu(), Dense(700), Relu(), Dense(10)), (784,)
    params, X, y = example(net, shape, 5)
    plain, *others = (bits(run(FullySharded(net, params, shape, devices(2), stage, "adam"), X, y)) for stage in STAGES)
    assert others == [plain] * 3


def test_on_two_devices_the_gradients_have_the_bits_of_plain_data_parallelism():
    net, shape, params, X, y, _ = serial("stack")
    made = Data(net, params, shape, devices(2)), FullySharded(net, params, shape, devices(2))
    assert bits(run(made[0], X, y, steps=1))[:-12] == bits(run(made[1], X, y, steps=1))[:-12]


def test_a_residual_layer_in_all_that_can_take_it():
    shape = (2, 12, 10)
    params, X, y = example(RESIDUAL, shape, 5)
    expected = serial_run(RESIDUAL, params, X, y)
    for strategy in (Data, FullySharded):
        made = strategy(RESIDUAL, params, shape, devices(3))
        assert_equal(run(made, X, y), expected)
        assert made.traffic.total() == made.bytes_moved(len(X))
    for strategy, cut in ((Tile, "into tiles"), (Layerwise, "by its channels")):
        with pytest.raises(ValueError, match=f"layer 3 is a Residual, which can't be cut {cut}"):
            strategy(RESIDUAL, params, shape, devices(2))


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


def test_layers_smaller_than_the_devices_leave_some_without_a_shard():
    net, shape = (Dense(1), Dense(2)), (1,)
    params, X, y = example(net, shape, 4)
    for stage in STAGES:
        made = poisoned(FullySharded(net, params, shape, devices(4), stage, "sgd", momentum=0.0))
        assert_equal(run(made, X, y % 2), serial_run(net, params, X, y % 2))


BROKEN = {
    "not gathered before the backward pass": lambda tasks: [t for n, t in enumerate(tasks) if t.kind != "G" or n < 12],
    "not gathered at all": lambda tasks: [task for task in tasks if task.kind != plans.GATHER],
    "not summed": lambda tasks: [task for task in tasks if task.kind != plans.REDUCE_SCATTER],
    "summed too late": lambda tasks: [t for t in tasks if t.kind != "R"] + [t for t in tasks if t.kind == "R"],
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_task_left_out_or_late_is_caught(fault):
    net, shape, params, X, y, expected = serial("lenet")
    made = FullySharded(net, params, shape, devices(2))
    made.plan = plans.ShardedPlan("", 3, 2, 4, tuple(BROKEN[fault](made.plan.step)), made.plan.update)
    assert any(name.startswith("gradients") for name in wrong(run(made, X, y), expected))


@pytest.mark.parametrize("stage", [1, 2])
def test_parameters_that_are_not_gathered_after_the_update_are_caught(stage):
    net, shape, params, X, y, expected = serial("lenet")
    made = FullySharded(net, params, shape, devices(2), stage)
    for unit in made.units:
        unit.calls[plans.GATHER] = []
    assert wrong(run(made, X, y), expected)
    assert not made.in_step()


@pytest.mark.parametrize("stage", STAGES)
def test_what_moves_is_two_or_three_times_the_parameters(stage):
    net, shape, params, X, y, _ = serial("lenet")
    made = FullySharded(net, params, shape, devices(4), stage)
    made.step(X, y)
    made.update(0.1, len(X))
    messages = made.traffic.nbytes
    numbers = sum(param.size for layer in params for param in layer)
    gathers = {0: 0, 1: 1, 2: 1, 3: 2}[stage]
    assert messages["parameters", "forward"] + messages["parameters", "backward"] == 4 * 3 * gathers * numbers
    assert messages["gradients", "backward"] == 4 * 3 * numbers * (2 if stage == 0 else 1)
    assert made.bytes_moved(7) == 4 * (3 * (3 if stage == 3 else 2) * numbers + 5)


MEASURED = {
    "mlp": ((Dense(256), Relu(), Dense(256), Relu(), Dense(256), Relu(), Dense(10)), (300,), 0.02),
    "residual": ((*resnet18(8)[:5], Pool(14, kind="avg"), Dense(10)), (1, 28, 28), 0.2),
}
"""Networks whose memory is that of the parameters, and that of the activations; and how well it is predicted."""


def lasting_and_peak(name, stage):
    """Bytes of the second device: measured when the strategy is made, and in two steps from there on; predicted for
    what lasts, and for the activations."""
    net, shape, _ = MEASURED[name]
    params, X, y = example(net, shape, 4)
    made = []

    def make():
        made[:] = [FullySharded(net, params, shape, devices(2), stage, "adam")]
        npx.waitall()

    def train():
        make()
        for _ in range(2):
            made[0].step(X, y)
            made[0].update(0.1, len(X))

    lasting = peak_bytes(make, devices(2))[1]
    made.clear()
    whole = peak_bytes(train, devices(2))[1]
    return lasting, whole, made[0].lasting_bytes(4)[1], made[0].peak_bytes(4)[1]


@pytest.fixture(scope="module")
def measured():
    cases = [(name, stage) for name in MEASURED for stage in STAGES]
    return results("test_fully_sharded", "lasting_and_peak", cases)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", MEASURED)
def test_it_takes_as_much_memory_as_predicted(name, stage, measured):
    """MXNet counts the temporary space of all CPU devices as the first one's, so the second is looked at."""
    lasting, whole, predicted, activations = measured[name, stage]
    assert lasting == predicted
    assert whole == pytest.approx(predicted + activations, rel=MEASURED[name][2])


def test_what_cannot_be_is_refused():
    net, shape, params, X, y, _ = serial("lenet")
    for given, sentence in (
        (dict(stage=4), "there are the stages 0 .* to 3, not 4"),
        (dict(optimizer="adamm"), "no optimiser is called 'adamm' here; did you mean 'adam'"),
    ):
        with pytest.raises(ValueError, match=sentence):
            FullySharded(net, params, shape, devices(2), **given)
    with pytest.raises(ValueError, match="which groups can't add up: use another split"):
        Combined(net, params, shape, devices(4), FullySharded)
    with pytest.raises(ValueError, match="has no parameters to cut"):
        FullySharded((Relu(),), [[]], (3,), devices(2))
    with pytest.raises(ValueError, match="a batch of 2 has too few samples for 3 devices"):
        FullySharded(net, params, shape, devices(3)).step(X[:2], y[:2])
