"""What a device must hold in training: shares that add up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxdp.plans.cost.training_memory import BYTES, STAGES, STATE, held, held_by_layers
from mxdp.plans.layers.fully_sharded import fully_sharded, peak

MODELS = dict(
    parameters=st.integers(1, 10**12),
    devices=st.integers(1, 4096),
    optimizer=st.sampled_from(list(STATE)),
    dtype=st.sampled_from(list(BYTES)),
)


@given(**MODELS)
def test_each_stage_cuts_one_thing_more_and_the_last_all_of_it(parameters, devices, optimizer, dtype):
    copies, *stages = (list(held(parameters, devices, stage, optimizer, dtype).values()) for stage in STAGES)
    for stage, shards in enumerate(stages, 1):
        for at, (whole, part) in enumerate(zip(copies, shards)):
            assert part == pytest.approx(whole / devices if at >= 3 - stage else whole)
    assert devices * sum(stages[-1]) == pytest.approx(sum(copies))


@given(
    sizes=st.lists(st.integers(0, 10**6), min_size=1, max_size=8).filter(any),
    devices=st.integers(1, 70),
    stage=st.sampled_from(STAGES),
    optimizer=st.sampled_from(list(STATE)),
    dtype=st.sampled_from(list(BYTES)),
)
def test_of_layers_a_device_holds_the_peak_of_the_plan(sizes, devices, stage, optimizer, dtype):
    width = BYTES[dtype]
    state = held(1, 1, 0, optimizer, dtype)["state"] / width  # in numbers as wide as a parameter
    plan = fully_sharded(len(sizes), devices, stage)
    first, last = (width * peak(plan, sizes, state, device) for device in (0, devices - 1))
    assert sum(held_by_layers(sizes, devices, stage, optimizer, dtype).values()) == first >= last


def test_bytes_a_parameter():
    """Of Adam, the doctest has them."""
    kinds = [("sgd", "float32"), ("momentum", "float32"), ("sgd", "mixed"), ("momentum", "mixed")]
    assert [sum(held(1, 1, 0, *kind).values()) for kind in kinds] == [8, 12, 8, 12]
