"""The predicted memory of a pipeline's stages, compared with MXNet's own counters."""

from __future__ import annotations

import statistics

import pytest
from apart import results
from nets import CUTS, NETS, SAMPLES, devices, pipe, prepared
from serial import example

from mxdp.experiments.memory_use import peak_bytes
from mxdp.parallel.pipeline import Pipeline


def measured_and_predicted(name, micro_batches, schedule, samples=32):
    """How long a gradient waits for a stage that is slower depends on the moment: so the median of three steps."""
    net, shape = NETS[name]
    params, X, y = example(net, shape, samples)
    strategy = Pipeline(net, params, shape, devices(2), micro_batches, schedule, CUTS[name][1])
    strategy.step(X, y)
    steps = [peak_bytes(lambda: strategy.step(X, y), strategy.devices) for _ in range(3)]
    return list(map(statistics.median, zip(*steps))), strategy.peak_bytes(samples)


PEAKS = [
    *(("lenet", *case) for case in ((1, "gpipe"), (2, "1f1b"), (8, "1f1b"), (8, "gpipe"))),
    *(("stack", *case) for case in ((2, "gpipe"), (8, "1f1b"))),
]


@pytest.fixture(scope="module")
def peaks():
    """(measured, predicted) of each of ``PEAKS``, LeNet first: STACK's operators use oneDNN's temporary space."""
    return results("test_footprint_stages", "measured_and_predicted", PEAKS)


@pytest.mark.parametrize("case", PEAKS, ids=str)
def test_peak_memory_is_predicted(case, peaks):
    measured, predicted = peaks[case]
    known = slice(0 if case[0] == "lenet" else 1, 2)
    fullest = predicted[known].index(max(predicted[known]))
    for device, (bytes_, expected) in enumerate(zip(measured[known], predicted[known])):
        # Where most is kept, a gradient that waits adds little.
        assert bytes_ == pytest.approx(expected, rel=0.1 if device == fullest else 0.3)


@pytest.mark.parametrize(("micro_batches", "places"), [(1, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("name", CUTS)
def test_what_stays_is_what_the_stages_hold(name, micro_batches, places):
    strategy = pipe(name, 3, micro_batches)
    _, X, y = prepared(name)
    strategy.step(X, y)
    held = [[*stage.flat, *stage._sums, *stage._addends, *stage._buffers.values()] for stage in strategy.stages]
    assert [sum(4 * array.size for array in arrays) for arrays in held] == strategy.lasting_bytes(SAMPLES)
    assert [len(arrays) for arrays in held] == [
        (2 + places) * len(stage.flat) + (0 if stage.first else len({0, SAMPLES % micro_batches}))
        for stage in strategy.stages
    ]
