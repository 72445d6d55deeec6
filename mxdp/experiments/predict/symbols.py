"""Operations, parameters and outputs of a network that MXNet exported as a symbol (``net.export``), without MXNet."""

from __future__ import annotations

import ast
import math
from contextlib import suppress
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from mxdp.errors import UsageError
from mxdp.plans.cost.networks import by_operations
from mxdp.plans.cost.step import TimedLayer

Shape = Tuple[int, ...]
"""Of one sample."""
Attributes = Mapping[str, Any]
Counted = Tuple[Shape, float, int]
"""The shape of an output, operations for each of its numbers, and parameters."""


def _convolution(attributes: Attributes, shapes: Sequence[Shape]) -> Counted:
    (channels, *sides), filters = shapes[0], attributes["num_filter"]
    inputs = channels // attributes.get("num_group", 1) * math.prod(attributes["kernel"])
    bias = not attributes.get("no_bias", False)
    return (filters, *_windows(sides, attributes)), 2 * inputs, (inputs + bias) * filters


def _pooling(attributes: Attributes, shapes: Sequence[Shape]) -> Counted:
    channels, *sides = shapes[0]
    attributes = {"kernel": sides} if attributes.get("global_pool", False) else attributes
    return (channels, *_windows(sides, attributes)), math.prod(attributes["kernel"]), 0


def _windows(sides: Sequence[int], attributes: Attributes) -> Shape:
    """The sides of an output that has a number for each window."""
    window, up = attributes["kernel"], attributes.get("pooling_convention") == "full"
    strides, pads = (attributes.get(name) or (usual,) * len(sides) for name, usual in (("stride", 1), ("pad", 0)))
    if len(window) != len(sides):
        raise ValueError(f"its window has {len(window)} sides, and its input {len(sides)}")
    axes = zip(sides, window, strides, pads)
    return tuple((side + 2 * pad - size + up * (step - 1)) // step + 1 for side, size, step, pad in axes)


def _dense(attributes: Attributes, shapes: Sequence[Shape]) -> Counted:
    flat = attributes.get("flatten", True)
    before, inputs = ((), math.prod(shapes[0])) if flat else (shapes[0][:-1], shapes[0][-1])
    units, bias = attributes["num_hidden"], not attributes.get("no_bias", False)
    return (*before, units), 2 * inputs, (inputs + bias) * units


def _normalisation(attributes: Attributes, shapes: Sequence[Shape]) -> Counted:
    """Two sums, and four operations for each number. A fixed scale is no parameter."""
    return shapes[0], 6, shapes[0][0] * (1 if attributes.get("fix_gamma", True) else 2)


COUNTS: Sequence[Tuple[Callable[[Attributes, Sequence[Shape]], Counted], str]] = (
    (_convolution, "Convolution _npx_convolution"),
    (_pooling, "Pooling _npx_pooling"),
    (_dense, "FullyConnected _npx_fully_connected"),
    (_normalisation, "BatchNorm _npx_batch_norm"),
    (lambda _, shapes: ((math.prod(shapes[0]),), 0, 0), "Flatten _npx_batch_flatten"),
    (lambda _, shapes: ((sum(shape[0] for shape in shapes), *shapes[0][1:]), 1, 0), "Concat _npi_concatenate"),
    (
        lambda _, shapes: (max(shapes, key=math.prod), 1, 0),
        "Activation _npx_activation LeakyReLU _npx_leaky_relu _npx_relu relu Dropout _npx_dropout elemwise_add "
        "_npi_add broadcast_add _Plus _copy _npi_copy softmax _npx_softmax log_softmax _npx_log_softmax SoftmaxOutput",
    ),
)
OPERATORS = {name: count for count, names in COUNTS for name in names.split()}
"""What each known operator does, by MXNet's name."""


def layers_of_symbol(symbol: Any, file: str, shape: Shape = (1, 28, 28)) -> List[TimedLayer]:
    """The network's layers in their order: each operator with parameters, with what follows it up to the next one.

    ``shape``: of the data of one sample. Raises a UsageError if it is no symbol, an operator's cost is unknown, or
    there is no parameter.
    """
    try:
        nodes = [
            (node["op"], node["name"], [entry[0] for entry in node["inputs"]], _values(node.get("attrs") or {}))
            for node in symbol["nodes"]
        ]
        weights = {place for _, _, inputs, _ in nodes for place in inputs[1:]}
    except (KeyError, TypeError, IndexError, AttributeError):
        raise UsageError(f"{file} is not a symbol that MXNet exported: it has no list of nodes") from None
    shapes: Dict[int, Shape] = {}
    layers: List[TimedLayer] = []
    for number, (operator, name, inputs, attributes) in enumerate(nodes):
        if operator == "null":
            if number not in weights:
                shapes[number] = shape
            continue
        if operator not in OPERATORS:
            raise UsageError(
                f"{file}: nobody has said what the operator {operator!r} costs; give the network as a list of layers "
                "with their operations instead, a TOML file"
            )
        try:
            known = [shapes[place] for place in inputs if place in shapes]
            shapes[number], each, parameters = OPERATORS[operator](attributes, known)
            outputs = math.prod(shapes[number])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise UsageError(f"{file}: {operator} {name!r} can't be read: {error}") from None
        operations = float(each * outputs)
        if layers and not parameters:
            last = layers.pop()
            name, operations, parameters = last.name, last.forward + operations, last.parameters
        layers.append(by_operations(name, operations, parameters, outputs))
    if not any(layer.parameters for layer in layers):
        raise UsageError(f"{file} has no parameters: there is nothing to train, and nothing to sum")
    return layers


def _values(texts: Mapping[str, str]) -> Attributes:
    """What these texts are as Python's literals; others stay texts."""
    values: Dict[str, Any] = dict(texts)
    for key, text in texts.items():
        with suppress(ValueError, SyntaxError):
            values[key] = ast.literal_eval(text)
    return values
