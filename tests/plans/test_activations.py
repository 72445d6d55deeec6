"""What training holds of a sample, against a tape of blocks that Python itself frees."""

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


class Heap:
    """Counts the numbers of its blocks, until Python frees them."""

    def __init__(self):
        self.now = self.most = 0

    def block(self, numbers):
        heap = self

        class Block:
            def __init__(self):
                heap.now += numbers
                heap.most = max(heap.most, heap.now)

            def __del__(self):
                heap.now -= numbers

        return Block()


def outputs(arrays):
    return set(range(len(arrays))) - {source for made in arrays for source in made.inputs}


def after_forward(arrays):
    heap, values, tape = Heap(), {}, []
    for place, (numbers, inputs, gradient) in enumerate(arrays):
        values[place] = values[inputs[0]] if gradient.view else heap.block(numbers)
        tape.append([values[source] for source in inputs if gradient.inputs])
        tape.append([values[place]] if gradient.output else [])
        tape.append([heap.block(numbers) for _ in range(gradient.more)])
    for place in set(values) - outputs(arrays):
        del values[place]
    return heap.now


def in_backward(arrays):
    heap, pending = Heap(), defaultdict(list)
    for place in outputs(arrays):
        pending[place].append(heap.block(arrays[place].numbers))
    for place in reversed(range(1, len(arrays))):
        _, inputs, gradient = arrays[place]
        mine = pending.pop(place, [])
        del mine[1:]  # they are summed into the first
        targets = [source for source in inputs if source and mine]
        for at, source in enumerate(targets):
            taken = gradient.over and at == 0
            pending[source].append(mine[0] if taken else heap.block(arrays[source].numbers))
    return heap.most


@settings(max_examples=80)
@given(graphs())
def test_it_is_what_a_tape_keeps_and_the_most_gradients_at_a_time(arrays):
    assert kept(arrays) == after_forward(arrays)
    assert most_gradients(arrays) == in_backward(arrays)
    assert held(arrays) == kept(arrays) + most_gradients(arrays)
