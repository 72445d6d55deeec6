"""Pipelines equal the serial run of the same micro-batches, and broken variants are found."""

from __future__ import annotations

import numpy as onp
import pytest
from nets import CUTS, DTYPES, NETS, SAMPLES, pipe, prepared, serial
from nets import devices as cpus
from serial import assert_equal, example, run, serial_run, wrong

from mxdp.layers import Conv, Dense, Relu
from mxdp.parallel.pipeline import Pipeline
from mxdp.parallel.stage import Stage
from mxdp.parallel.stage_times import measure_stages
from mxdp.parallel.traffic import nbytes
from mxdp.plans.pipeline import PIPELINES


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("schedule", sorted(PIPELINES))
@pytest.mark.parametrize("micro_batches", [1, 2, 3, 4])
@pytest.mark.parametrize("devices", [1, 2, 3, 4])
@pytest.mark.parametrize("name", CUTS)
def test_equals_the_serial_run(name, devices, micro_batches, schedule, dtype):
    _, X, y = prepared(name, dtype)
    strategy = pipe(name, devices, micro_batches, schedule, dtype)
    assert_equal(run(strategy, X, y), serial(name, dtype, micro_batches=micro_batches)[-1])


@pytest.mark.parametrize("cuts", [(1,), (2,), (1, 2)])
def test_a_first_stage_without_parameters_has_nothing_to_learn(cuts):
    net, shape = (Relu(), Relu(), Conv(3, kernel=2), Relu(), Dense(10)), (2, 5, 4)
    params, X, y = example(net, shape, SAMPLES)
    strategy = Pipeline(net, params, shape, cpus(len(cuts) + 1), 2, cuts=cuts)
    assert_equal(run(strategy, X, y), serial_run(net, params, X, y, micro_batches=2))


# What would be wrong is found.


def nothing(strategy):
    pass


def overwriting(strategy):
    """Each micro-batch's gradient takes the place of those before, instead of being added."""
    for stage in strategy.stages:
        stage._addends, stage._add = stage._sums, []


def leaving_one_out(strategy):
    stage, calls = strategy.stages[1], []
    first, *others = stage._add
    stage._add = [lambda: calls.append(1) or (len(calls) > 1 and first()), *others]


def dividing_by_micro_batches(strategy):
    step = strategy.step

    def divided(X, y):
        losses = step(X, y)
        for stage in strategy.stages:
            for param in stage.flat:
                param.grad[:] = param.grad / strategy.plan.micro_batches
        return losses

    strategy.step = divided


def forgetting_an_update(strategy):
    strategy.stages[1].flat = []


def taking_anothers_activations(strategy):
    """Stage 1 goes forward with the activations of the micro-batch before."""
    stage, seen = strategy.stages[1], []
    forward = stage.forward

    def late(number, x, target, y=None):
        seen.append(x.copy())
        return forward(number, seen[-2] if len(seen) % 3 == 2 else x, target, y)

    stage.forward = late


def taking_anothers_gradients(strategy):
    """Stage 0 goes back with the activations of one micro-batch and the gradients of another."""
    stage = strategy.stages[0]
    backward = stage.backward

    def swapped(number, head, target):
        return backward({0: 1, 1: 0}.get(number, number), head, target)

    stage.backward = swapped


BROKEN = {
    nothing: "",
    overwriting: "gradients 0.0",
    leaving_one_out: "gradients 3.0",
    dividing_by_micro_batches: "gradients 8.1",
    forgetting_an_update: "params 8.0",
    taking_anothers_activations: "losses",
    taking_anothers_gradients: "gradients 0.0",
}


@pytest.mark.parametrize("breaks", BROKEN, ids=lambda breaks: breaks.__name__)
def test_broken_variants_are_caught(breaks):
    # Six samples in three: micro-batches of one size, so that only the numbers are wrong.
    *_, X, y, expected = serial("lenet", samples=6, micro_batches=3)
    strategy = pipe("lenet", 2, 3)
    breaks(strategy)
    assert (BROKEN[breaks] in wrong(run(strategy, X, y), expected)) is (breaks is not nothing)


# What is sent, and where things lie.


@pytest.mark.parametrize(("name", "numbers"), [("lenet", 2 * 20 * 13 * 13 + 1), ("stack", 2 * 8 * 8 * 9 + 1)])
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_bytes_moved_are_what_is_sent(name, numbers, micro_batches, monkeypatch):
    _, X, y = prepared(name)
    sent, send = [], Stage._send

    def counting(self, x, target):
        sent.append(nbytes(x))
        assert self.device != target
        return send(self, x, target)

    monkeypatch.setattr(Stage, "_send", counting)
    strategy = pipe(name, 2, micro_batches)
    strategy.step(X, y)
    assert sum(sent) == strategy.bytes_moved(SAMPLES) == SAMPLES * numbers * 4
    assert pipe(name, 1, micro_batches).bytes_moved(SAMPLES) == 0


def test_places_for_other_lengths_are_let_go():
    """As after the last batch of an epoch; the next epoch's gradients are right all the same."""
    net, params, X, y = NETS["lenet"][0], *prepared("lenet")
    strategy = pipe("lenet", 3, 2)
    for samples in (7, 5, 2, 7):
        losses = strategy.step(X[:samples], y[:samples])
        lengths = {stop - start for start, stop in strategy.pieces(samples)}
        assert [set(stage._buffers) for stage in strategy.stages[1:]] == [lengths] * 2
        assert losses.shape == (samples,)
    expected = serial_run(net, params, X, y, micro_batches=2, steps=1).gradients
    for layer, right in zip(strategy.gradients(), expected):
        for a, b in zip(layer, right):
            onp.testing.assert_allclose(a.asnumpy(), b, rtol=0, atol=2e-5 * abs(b).max())


def test_stages_are_measured_alone_and_the_next_step_is_right():
    _, X, y = prepared("lenet")
    strategy = pipe("lenet", 3, 2)
    times = measure_stages(strategy, X, y)
    assert len(times.forward) == len(times.backward) == 3
    assert min(*times.forward, *times.backward, times.push) > 0
    assert_equal(run(strategy, X, y), serial("lenet", micro_batches=2)[-1])


# Where to cut, and what can't be.


def test_by_itself_it_finds_cuts_that_work():
    net, shape = NETS["stack"]
    params, X, y = prepared("stack")
    strategy = Pipeline(net, params, shape, cpus(3), 2)
    assert len(strategy.cuts) == 2
    assert_equal(run(strategy, X, y), serial("stack", micro_batches=2)[-1])


def test_micro_batches_need_a_sample_each():
    _, X, y = prepared("lenet")
    strategy = pipe("lenet", 2, 8)
    for call in (lambda: strategy.step(X, y), lambda: strategy.scores(X), lambda: measure_stages(strategy, X, y)):
        with pytest.raises(ValueError, match="can't cut a batch of 7 into 8 micro-batches: each needs at least one"):
            call()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (dict(devices=cpus(10)), "9 layers can't be cut into 10 stages: use at most 9 devices"),
        (dict(schedule="gpip"), "no schedule is called 'gpip'; did you mean 'gpipe'"),
        (dict(micro_batches=0), "not 2 stages and 0 micro-batches"),
        (dict(cuts=()), "2 devices need 1 cuts, not \\(\\)"),
        (dict(cuts=(9,)), "rising layer numbers from 1 to 8"),
    ],
)
def test_what_cannot_be_is_one_sentence(arguments, problem):
    net, shape = NETS["lenet"]
    with pytest.raises(ValueError, match=problem):
        Pipeline(**{**dict(net=net, params=prepared("lenet")[0], input_shape=shape, devices=cpus(2)), **arguments})
