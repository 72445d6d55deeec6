from __future__ import annotations

import pytest
from nets import pipe, prepared, serial
from serial import assert_equal, run

from mxdp.parallel.stage_times import measure_stages


def test_stages_are_measured_alone_and_the_next_step_is_right():
    _, X, y = prepared("lenet")
    strategy = pipe("lenet", 3, 2)
    times = measure_stages(strategy, X, y)
    assert len(times.forward) == len(times.backward) == 3
    assert min(*times.forward, *times.backward, times.push) > 0
    assert_equal(run(strategy, X, y), serial("lenet", micro_batches=2)[-1])


def test_micro_batches_need_a_sample_each():
    with pytest.raises(ValueError, match="can't cut a batch of 7 into 8 micro-batches"):
        measure_stages(pipe("lenet", 2, 8), *prepared("lenet")[1:])
