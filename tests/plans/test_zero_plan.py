"""The plan of ZeRO's stages: its drawing, what a device holds, and what it sends. What training holds of a sample,
against a tape of blocks."""

import re
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.plans.cost.activations import Gradient, Made, kept, most_gradients
from mxdp.plans.cost.training_memory import BYTES, STAGES, STATE, held, held_by_layers
from mxdp.plans.layers import fully_sharded as plans
from mxdp.plans.layers.fully_sharded import fully_sharded, holds, moved, peak
from mxdp.plans.show.text import lives


def test_the_drawing_is_the_plan():
    drawn = [line.strip() for line in re.findall(r"^    layer \d .*$", plans.__doc__, re.MULTILINE)]
    assert "\n".join(drawn) == lives(fully_sharded(3, 2), 80)[0]


@given(layers=st.integers(1, 6), stage=st.integers(0, 3))
def test_each_layer_lives_in_order_and_only_one_is_whole_at_a_time(layers, stage):
    plan = fully_sharded(layers, 2, stage)
    life = {0: "FBSU", 1: "FBRUG", 2: "FBRUG", 3: "GFxGBRxU"}[stage]
    for layer in range(layers):
        assert "".join(task.kind for task in plan.tasks if task.layer == layer) == life
    passes = [str(task) for task in plan.step if task.kind in "FB"]
    assert passes == [f"F{layer}" for layer in range(layers)] + [f"B{layer}" for layer in reversed(range(layers))]
    assert {task.kind for task in plan.update} <= {"U", "G"}
    moments = holds(plan)
    for task, each in zip(plan.tasks, moments):
        assert task.kind not in "FB" or each[task.layer].parameters
        assert task.kind != "R" or each[task.layer].gradients
        assert task.kind != "B" or each[task.layer].activations
    assert moments[0] == moments[-1]


@pytest.mark.parametrize(
    ("arguments", "words"), [((0, 2), "not 0 layers"), ((2, 0), "0 devices"), ((2, 2, 4), "not 4")]
)
def test_what_cannot_be_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        fully_sharded(*arguments)


@given(
    sizes=st.lists(st.integers(0, 10**6), min_size=1, max_size=8).filter(any),
    devices=st.integers(1, 70),
    stage=st.sampled_from(STAGES),
    optimizer=st.sampled_from(list(STATE)),
    dtype=st.sampled_from(list(BYTES)),
)
def test_of_layers_a_device_holds_the_peak_of_the_plan_and_the_state_is_cut(sizes, devices, stage, optimizer, dtype):
    width = BYTES[dtype]
    state = held(1, 1, 0, optimizer, dtype)["state"] / width  # in numbers as wide as a parameter
    plan = fully_sharded(len(sizes), devices, stage)
    held_first = sum(held_by_layers(sizes, devices, stage, optimizer, dtype).values())
    assert held_first == width * peak(plan, sizes, state) >= width * peak(plan, sizes, state, devices - 1)
    states = [peak(plan, sizes, 1, device) - peak(plan, sizes, 0, device) for device in range(devices)]
    assert sum(states) == sum(sizes) * (1 if stage else devices)
    assert moved(plan, sizes) == (3 if stage == 3 else 2) * (devices - 1) * sum(sizes)


def test_bytes_a_parameter():
    """Of Adam, the doctest has them."""
    kinds = [("sgd", "float32"), ("momentum", "float32"), ("sgd", "mixed"), ("momentum", "mixed")]
    assert [sum(held(1, 1, 0, *kind).values()) for kind in kinds] == [8, 12, 8, 12]


@st.composite
def graphs(draw):
    """Data, and up to ten operators of which each takes one to three of the arrays before it."""
    arrays = [Made(draw(st.integers(1, 9)))]
    for place in range(draw(st.integers(1, 10))):
        inputs = tuple(draw(st.lists(st.integers(0, place), min_size=1, max_size=3)))
        needs, output, over, view = (draw(st.booleans()) for _ in range(4))
        alike = over or view
        numbers = arrays[inputs[0]].numbers if alike else draw(st.integers(1, 9))
        if over:  # it writes over a gradient of its inputs' size
            inputs = tuple(source for source in inputs if arrays[source].numbers == numbers)
        arrays.append(Made(numbers, inputs, Gradient(needs, output, draw(st.integers(0, 1)), over, view)))
    return arrays


def outputs(arrays):
    return set(range(len(arrays))) - {source for made in arrays for source in made.inputs}


def after_forward(arrays):
    """The numbers of all different blocks on the tape of the backward pass, and of the outputs."""
    values, tape = [], []
    for place, (numbers, inputs, gradient) in enumerate(arrays):
        values.append(values[inputs[0]] if gradient.view else (place, numbers))
        tape += [values[source] for source in inputs if gradient.inputs]
        tape += [values[place]] * gradient.output
        tape += [(place, number, numbers) for number in range(gradient.more)]
    return sum(block[-1] for block in {*tape, *(values[place] for place in outputs(arrays))})


def in_backward(arrays):
    """The most numbers of gradients: of each array a list, which is summed into its first when its turn comes."""
    pending = defaultdict(list)
    for place in outputs(arrays):
        pending[place] = [arrays[place].numbers]
    most = sum(map(sum, pending.values()))
    for place in reversed(range(1, len(arrays))):
        numbers, inputs, gradient = arrays[place]
        if pending.pop(place, []):
            targets = [source for source in inputs if source]
            for source in targets:
                pending[source].append(arrays[source].numbers)
            mine = 0 if gradient.over and targets else numbers
            most = max(most, mine + sum(map(sum, pending.values())))
    return most


@settings(max_examples=80)
@given(graphs())
def test_it_is_what_a_tape_keeps_and_the_most_gradients_at_a_time(arrays):
    assert kept(arrays) == after_forward(arrays)
    assert most_gradients(arrays) == in_backward(arrays)
