"""What a pipeline sends, keeps and refuses. (That it equals the serial run is tested with all strategies.)"""

from __future__ import annotations

import pytest
from nets import NETS, SAMPLES, pipe, prepared, serial
from nets import devices as cpus
from serial import run, wrong

from mxdp.parallel.pipeline import Pipeline
from mxdp.parallel.stage_times import measure_stages


@pytest.mark.parametrize(("name", "numbers"), [("lenet", 2 * 20 * 13 * 13 + 1), ("stack", 2 * 8 * 8 * 9 + 1)])
def test_bytes_moved_are_activations_their_gradients_and_losses(name, numbers):
    for micro_batches in (1, 3):
        assert pipe(name, 2, micro_batches).bytes_moved(SAMPLES) == SAMPLES * numbers * 4
        assert pipe(name, 1, micro_batches).bytes_moved(SAMPLES) == 0


def test_places_for_other_lengths_are_let_go():
    """As after the last batch of an epoch; the next epoch's gradients are right all the same."""
    *_, X, y, expected = serial("lenet", micro_batches=2)
    strategy = pipe("lenet", 3, 2)
    for samples in (7, 5, 2):
        losses = strategy.step(X[:samples], y[:samples])
        lengths = {stop - start for start, stop in strategy.pieces(samples)}
        assert [set(stage._buffers) for stage in strategy.stages[1:]] == [lengths] * 2
        assert losses.shape == (samples,)
    assert wrong(run(strategy, X, y), expected) == []


def test_by_itself_it_finds_cuts_that_work():
    net, shape, params, X, y, expected = serial("stack", micro_batches=2)
    strategy = Pipeline(net, params, shape, cpus(3), 2)
    assert len(strategy.cuts) == 2
    assert wrong(run(strategy, X, y), expected) == []


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
