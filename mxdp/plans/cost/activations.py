"""What a network holds of each sample while it trains, from the graph of its operators: the arrays that the backward
pass needs, and the gradients of arrays.

::

    x -> convolution -> a -> norm -> b -> relu -> c         kept: x and a (the inputs), c (relu's output); b is freed
                              gradients:  c, over it b, a   at most two at a time: norm needs b's while it makes a's

MXNet plans the backward pass of a hybridized network by itself, so its gradients do not take the place of what is
freed: a step holds all that is kept and, beside it, the most gradients that exist at one time. This leaves out
parameters and their gradients, statistics (a few numbers a channel), the loss, and the operators' temporary space.
"""

from __future__ import annotations

from collections import Counter
from typing import List, NamedTuple, Sequence, Set, Tuple


class Gradient(NamedTuple):
    """What an operator's gradient needs: its ``inputs`` that depend on the data, its ``output``, and ``more`` arrays as
    large as its output (a mask). ``over``: it writes over the gradient that it gets. ``view``: the output is the first
    input's memory. Source: each operator's ``FGradient``, ``FInplaceOption`` and ``FInplaceIdentity`` in MXNet 1.9.1.
    """

    inputs: bool = False
    output: bool = False
    more: int = 0
    over: bool = False
    view: bool = False


class Made(NamedTuple):
    """An array of ``numbers``, made from the arrays at these places before it; the data are made from none."""

    numbers: int
    inputs: Tuple[int, ...] = ()
    gradient: Gradient = Gradient()


def held(arrays: Sequence[Made]) -> int:
    """Numbers that a step holds, the data and the network's outputs (arrays that no operator takes) among them.

    >>> convolution, norm, relu = Gradient(inputs=True), Gradient(inputs=True), Gradient(output=True, over=True)
    >>> held([Made(10), Made(40, (0,), convolution), Made(40, (1,), norm), Made(40, (2,), relu)])
    170
    """
    return kept(arrays) + most_gradients(arrays)


def kept(arrays: Sequence[Made]) -> int:
    """Numbers that stay from the forward to the backward pass, and the network's outputs."""
    memory: List[int] = []
    needed: Set[int] = set()
    more = 0
    for place, (numbers, inputs, gradient) in enumerate(arrays):
        memory.append(memory[inputs[0]] if gradient.view else place)
        if gradient.inputs:
            needed.update(memory[source] for source in inputs)
        if gradient.output:
            needed.add(memory[place])
        more += gradient.more * numbers
    needed.update(memory[place] for place in _outputs(arrays))
    return more + sum(arrays[place].numbers for place in needed)


def most_gradients(arrays: Sequence[Made]) -> int:
    """The most numbers that gradients of arrays have at one time, from the last array to the first. The gradients that
    an array gets from several others wait for one another, and are then one."""
    waiting = Counter(_outputs(arrays))
    now = most = sum(arrays[place].numbers for place in waiting)
    for place in range(len(arrays) - 1, -1, -1):
        numbers, inputs, gradient = arrays[place]
        if not inputs or not waiting[place]:
            continue
        now -= (waiting[place] - 1) * numbers
        targets = [source for source in inputs if arrays[source].inputs]
        made = sum(arrays[source].numbers for source in targets)
        over = numbers if gradient.over and targets else 0
        most = max(most, now + made - over)
        now += made - numbers
        waiting.update(targets)
    return most


def _outputs(arrays: Sequence[Made]) -> Set[int]:
    return set(range(len(arrays))) - {source for made in arrays for source in made.inputs}
