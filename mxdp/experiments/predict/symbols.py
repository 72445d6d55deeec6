"""Operations, parameters and outputs of a network that MXNet exported as a symbol (``net.export``), without MXNet."""

from __future__ import annotations

import ast
import math
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from mxdp.errors import UsageError
from mxdp.plans.cost.networks import by_operations
from mxdp.plans.cost.step import TimedLayer

Shape = Tuple[int, ...]
"""Of one sample."""
Attributes = Mapping[str, Any]
Counted = Tuple[Shape, float, int]
"""The shape of an output, operations, and parameters."""


def _convolution(attributes: Attributes, shapes: Sequence[Shape]) -> Counted:
    (channels, *sides), filters, window = shapes[0], attributes["num_filter"], attributes["kernel"]
    groups, bias = attributes.get("num_group", 1), not attributes.get("no_bias", False)
    after = _sides(sides, window, attributes)
    weights = filters * (channels // groups) * math.prod(window)
    return (filters, *after), 2.0 * weights * math.prod(after), weights + bias * filters


def _sides(sides: Sequence[int], window: Sequence[int], attributes: Attributes, up: bool = False) -> Shape:
    strides, pads = (attributes.get(name) or (usual,) * len(sides) for name, usual in (("stride", 1), ("pad", 0)))
    axes = zip(sides, window, strides, pads)
    return tuple((side + 2 * pad - size + up * (step - 1)) // step + 1 for side, size, step, pad in axes)


def _pooling(attributes: Attributes, shapes: Sequence[Shape]) -> Counted:
    channels, *sides = shapes[0]
    if attributes.get("global_pool", False):
        return (channels, *(1 for _ in sides)), float(math.prod(shapes[0])), 0
    window = attributes["kernel"]
    after = (channels, *_sides(sides, window, attributes, attributes.get("pooling_convention") == "full"))
    return after, float(math.prod(after) * math.prod(window)), 0


def _dense(attributes: Attributes, shapes: Sequence[Shape]) -> Counted:
    flat = attributes.get("flatten", True)
    inputs = math.prod(shapes[0]) if flat else shapes[0][-1]
    before = () if flat else shapes[0][:-1]
    units, bias = attributes["num_hidden"], not attributes.get("no_bias", False)
    return (*before, units), 2.0 * inputs * units * math.prod(before), (inputs + bias) * units


def _normalisation(attributes: Attributes, shapes: Sequence[Shape]) -> Counted:
    """Two sums, and four operations for each number. A fixed scale is no parameter."""
    learned = 1 if attributes.get("fix_gamma", True) else 2
    return shapes[0], 6.0 * math.prod(shapes[0]), learned * shapes[0][0]


def _elementwise(attributes: Attributes, shapes: Sequence[Shape]) -> Counted:
    largest = max(shapes, key=math.prod)
    return largest, float(math.prod(largest)), 0


def _flatten(attributes: Attributes, shapes: Sequence[Shape]) -> Counted:
    return (math.prod(shapes[0]),), 0.0, 0


def _join(attributes: Attributes, shapes: Sequence[Shape]) -> Counted:
    after = (sum(shape[0] for shape in shapes), *shapes[0][1:])
    return after, float(math.prod(after)), 0


OPERATORS: Dict[str, Callable[[Attributes, Sequence[Shape]], Counted]] = {
    name: count
    for count, names in (
        (_convolution, "Convolution _npx_convolution"),
        (_pooling, "Pooling _npx_pooling"),
        (_dense, "FullyConnected _npx_fully_connected"),
        (_normalisation, "BatchNorm _npx_batch_norm"),
        (_flatten, "Flatten _npx_batch_flatten"),
        (_join, "Concat _npi_concatenate"),
        (_elementwise, "Activation _npx_activation LeakyReLU _npx_leaky_relu _npx_relu relu Dropout _npx_dropout"),
        (_elementwise, "elemwise_add broadcast_add _Plus _npi_add _copy _npi_copy"),
        (_elementwise, "softmax _npx_softmax log_softmax _npx_log_softmax SoftmaxOutput"),
    )
    for name in names.split()
}
"""What each known operator does, by MXNet's name."""


def layers_of_symbol(symbol: Any, file: str, shape: Shape = (1, 28, 28)) -> List[TimedLayer]:
    """The network's layers in their order: each operator with parameters, with what follows it up to the next one.

    ``shape``: of the data of one sample. Raises a UsageError if it is no symbol, an operator's cost is unknown, or
    there is no parameter.
    """
    try:
        nodes = symbol["nodes"]
        inputs = [[entry[0] for entry in node["inputs"]] for node in nodes]
        attributes = [{key: _value(text) for key, text in (node.get("attrs") or {}).items()} for node in nodes]
        operators = [(node["op"], node["name"]) for node in nodes]
    except (KeyError, TypeError, IndexError, AttributeError):
        raise UsageError(f"{file} is not a symbol that MXNet exported: it has no list of nodes") from None
    shapes: Dict[int, Shape] = {}
    layers: List[TimedLayer] = []
    for number, (operator, name) in enumerate(operators):
        if operator == "null":
            if not any(number in places[1:] for places in inputs):
                shapes[number] = shape
            continue
        if operator not in OPERATORS:
            raise UsageError(
                f"{file}: nobody has said what the operator {operator!r} costs; give the network as a list of layers "
                "with their operations instead, a TOML file"
            )
        known = [shapes[place] for place in inputs[number] if place in shapes]
        try:
            shapes[number], operations, parameters = OPERATORS[operator](attributes[number], known)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise UsageError(f"{file}: {operator} {name!r} can't be read: {error}") from None
        outputs = math.prod(shapes[number])
        if layers and not parameters:
            last = layers.pop()
            name, operations, parameters = last.name, last.forward + operations, last.parameters
        layers.append(by_operations(name, operations, parameters, outputs))
    if not any(layer.parameters for layer in layers):
        raise UsageError(f"{file} has no parameters: there is nothing to train, and nothing to sum")
    return layers


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
