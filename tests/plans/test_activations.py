"""What training holds of a sample, against a tape of blocks."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.plans.cost.activations import Gradient, Made, held, kept, most_gradients


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
    assert held(arrays) == kept(arrays) + most_gradients(arrays)
