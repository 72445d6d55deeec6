"""Operations, parameters and arrays of a network that MXNet exported as a symbol (``net.export``), without MXNet.

What an operator's gradient needs is said by its ``FGradient`` in MXNet 1.9.1. Two are unlike others: the sum of NumPy
arrays (``_npi_add``) keeps both of its inputs, and a maximum pooling keeps the places of the maxima.
"""

from __future__ import annotations

import ast
import math
from contextlib import suppress
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from mxdp.errors import UsageError
from mxdp.experiments.predict.checked import MOST_WHOLE
from mxdp.plans.cost.activations import Gradient, Made, held
from mxdp.plans.cost.layer_lists import by_operations
from mxdp.plans.cost.step import TimedLayer

Shape = Tuple[int, ...]
"""The sides of one sample's array."""
Attributes = Mapping[str, Any]
UNREADABLE = (KeyError, TypeError, ValueError, IndexError, AttributeError)
"""The exceptions that reading raises if the file is not a symbol."""


class Node(NamedTuple):
    """An array that is given (``operator`` is ``null``), or an operator. ``inputs``: numbers of the nodes it takes."""

    operator: str
    name: str
    inputs: List[int]
    attributes: Attributes


class Counted(NamedTuple):
    """What one operator makes and costs. ``shape``: of the output. ``each``: operations for each number of the output.
    ``gradient``: what the gradient needs. ``weight``: the shape of the weights, if any. ``more``: the number of other
    parameters, such as biases."""

    shape: Shape
    each: float
    gradient: Gradient
    weight: Shape = ()
    more: int = 0

    @property
    def parameters(self) -> int:
        """How many parameters are trained."""
        return self.more + (math.prod(self.weight) if self.weight else 0)


class Operator(NamedTuple):
    """An operator. ``inputs``: which arrays it takes, without parameters. Array 0 is the data; array n is the output of
    the n-th operator."""

    name: str
    inputs: Tuple[int, ...]
    counted: Counted


Count = Callable[[Attributes, Sequence[Shape]], Counted]
NOTHING = Gradient(over=True)
INPUTS = Gradient(inputs=True)
OUTPUT = Gradient(output=True, over=True)
BOTH = Gradient(inputs=True, output=True, over=True)
MASK = Gradient(more=1, over=True)
VIEW = Gradient(view=True, over=True)
"""What a gradient needs beside the output's gradient: nothing, the operator's inputs, its output, both, or a mask. The
output of a VIEW is its input's memory."""


def _convolution(attributes: Attributes, shapes: Sequence[Shape]) -> Counted:
    channels, *sides = shapes[0]
    filters = _whole(attributes.get("num_filter"), "num_filter")
    groups = _whole(attributes.get("num_group", 1), "num_group")
    if channels % groups or filters % groups:
        raise ValueError(
            f"its {groups} groups do not divide {channels} channels and {filters} filters"
        )
    window = _each(attributes, "kernel", len(sides))
    weight = filters, channels // groups, *window
    shape = filters, *_windows(sides, attributes, window)
    bias = 0 if _flag(attributes, "no_bias", False) else filters
    return Counted(shape, 2 * math.prod(weight[1:]), INPUTS, weight, bias)


def _pooling(attributes: Attributes, shapes: Sequence[Shape]) -> Counted:
    channels, *sides = shapes[0]
    # A maximum pooling keeps the places of the maxima.
    places = 1 if attributes.get("pool_type", "max") == "max" else 0
    gradient = Gradient(inputs=True, output=True, more=places)
    if _flag(attributes, "global_pool", False):
        return Counted((channels, *[1] * len(sides)), math.prod(sides), gradient)
    window = _each(attributes, "kernel", len(sides))
    return Counted((channels, *_windows(sides, attributes, window)), math.prod(window), gradient)


def _windows(sides: Sequence[int], attributes: Attributes, window: Shape) -> Shape:
    """The sides of an output that has a number for each window."""
    if str(attributes.get("layout")).endswith("C"):
        raise ValueError(
            f"its layout is {attributes['layout']}, and known is that with channels first"
        )
    rounds_up = attributes.get("pooling_convention") == "full"
    strides = _each(attributes, "stride", len(sides), 1)
    pads = _each(attributes, "pad", len(sides), 0, least=0)
    dilations = _each(attributes, "dilate", len(sides), 1)
    found = []
    for side, size, stride, pad, dilation in zip(sides, window, strides, pads, dilations):
        # How far the window can move.
        room = side + 2 * pad - dilation * (size - 1) - 1
        if room < 0:
            raise ValueError(
                f"its window {window} is larger than its input {tuple(sides)}: give a larger --input"
            )
        if rounds_up:
            room += stride - 1
        found.append(room // stride + 1)
    return tuple(found)


def _dense(attributes: Attributes, shapes: Sequence[Shape]) -> Counted:
    *before, inputs = shapes[0]
    if _flag(attributes, "flatten", True):
        before = []
        inputs = math.prod(shapes[0])
    units = _whole(attributes.get("num_hidden"), "num_hidden")
    bias = 0 if _flag(attributes, "no_bias", False) else units
    return Counted((*before, units), 2 * inputs, INPUTS, (units, inputs), bias)


def _normalisation(attributes: Attributes, shapes: Sequence[Shape]) -> Counted:
    """Six operations for each number: two for sums, four to normalise. A fixed scale is no parameter."""
    channels = shapes[0][_axis(attributes, "axis", shapes[0])]
    scales = 0 if _flag(attributes, "fix_gamma", True) else channels
    return Counted(shapes[0], 6, INPUTS, more=channels + scales)


def _activation(attributes: Attributes, shapes: Sequence[Shape]) -> Counted:
    """The gradient of relu needs the output only. Those of other activations need inputs and output."""
    return Counted(shapes[0], 1, OUTPUT if attributes.get("act_type") == "relu" else BOTH)


def _alike(gradient: Gradient, each: float = 1) -> Count:
    """An operator whose output is as large as its largest input."""
    return lambda attributes, shapes: Counted(max(shapes, key=math.prod), each, gradient)


def _joined(gradient: Gradient, name: str) -> Count:
    def count(attributes: Attributes, shapes: Sequence[Shape]) -> Counted:
        sides = list(shapes[0])
        axis = _axis(attributes, name, shapes[0])
        sides[axis] = sum(shape[axis] for shape in shapes)
        return Counted(tuple(sides), 1, gradient)

    return count


def _flat(attributes: Attributes, shapes: Sequence[Shape]) -> Counted:
    return Counted((math.prod(shapes[0]),), 0, VIEW)


WITH_PARAMETERS: Sequence[Tuple[Count, str]] = (
    (_convolution, "Convolution _npx_convolution"),
    (_dense, "FullyConnected _npx_fully_connected"),
    (_normalisation, "BatchNorm _npx_batch_norm"),
    (_alike(BOTH), "LeakyReLU _npx_leaky_relu"),
    (_alike(OUTPUT), "SoftmaxOutput"),
)
"""Operators that also take arrays not made from the data: parameters, or a label."""
OTHERS: Sequence[Tuple[Count, str]] = (
    (_pooling, "Pooling _npx_pooling"),
    (_activation, "Activation _npx_activation"),
    (_flat, "Flatten _npx_batch_flatten"),
    (_joined(INPUTS, "dim"), "Concat"),
    (_joined(NOTHING, "axis"), "_npi_concatenate"),
    (_alike(OUTPUT), "_npx_relu relu softmax _npx_softmax log_softmax _npx_log_softmax"),
    (_alike(MASK), "Dropout _npx_dropout"),
    (_alike(NOTHING), "elemwise_add broadcast_add _Plus"),
    (_alike(INPUTS._replace(over=True)), "_npi_add"),
    (_alike(VIEW), "_copy _npi_copy"),
)
OPERATORS = {name: count for count, names in (*WITH_PARAMETERS, *OTHERS) for name in names.split()}
"""For each known operator, by MXNet's name, the function that counts it."""
ALL_MADE = {name for _, names in OTHERS for name in names.split()}
"""The operators whose inputs must all be made from the data."""


def layers_of_symbol(symbol: Any, file: str, shape: Shape = (1, 28, 28)) -> List[TimedLayer]:
    """The network's layers in their order. A layer is an operator with parameters and all operators up to the next one
    with parameters. Operators before the first parameters make one layer.

    ``shape``: of the data of one sample. Raises a UsageError if ``symbol`` is no symbol, an operator's cost is unknown,
    an array would have no numbers, or there is no parameter.
    """
    layers: List[TimedLayer] = []
    for name, _, counted in operators(symbol, file, shape):
        outputs = math.prod(counted.shape)
        parameters = counted.parameters
        operations = float(counted.each * outputs)
        if layers and not parameters:
            last = layers.pop()
            name = last.name
            parameters = last.parameters
            operations += last.forward
        layers.append(by_operations(name, operations, parameters, outputs))
    if not any(layer.parameters for layer in layers):
        raise UsageError(f"{file} has no parameters: there is nothing to train, and nothing to sum")
    return layers


def activations_of_symbol(symbol: Any, file: str, shape: Shape) -> int:
    """How many numbers training holds for each sample (:mod:`mxdp.plans.cost.activations`). Raises as ``operators``."""
    arrays = [Made(math.prod(shape))]
    for _, inputs, counted in operators(symbol, file, shape):
        arrays.append(Made(math.prod(counted.shape), inputs, counted.gradient))
    return held(arrays)


def operators(symbol: Any, file: str, shape: Shape) -> List[Operator]:
    """All operators of a symbol, in their order. Raises a UsageError if ``symbol`` is no symbol, it has no input or
    several, or an operator is unknown or can't be read."""
    nodes = _nodes(symbol, file)
    # A parameter or a label is never the first input of an operator.
    beside = {source for node in nodes for source in node.inputs[1:]}
    given = {source for source, node in enumerate(nodes) if node.operator == "null"}
    data = sorted(given - beside)
    if len(data) != 1:
        names = ", ".join(nodes[source].name for source in data) or "none"
        raise UsageError(f"{file} has {len(data)} inputs ({names}); known are networks of one")
    # For each node that makes an array from the data: the array's shape, and its number (see Operator).
    shapes = {data[0]: shape}
    arrays = {data[0]: 0}
    found: List[Operator] = []
    for node_number, (operator, name, inputs, attributes) in enumerate(nodes):
        if operator == "null":
            continue
        if operator not in OPERATORS:
            raise UsageError(
                f"{file}: nobody has said what the operator {operator!r} costs; give the network as a list of layers "
                "with their operations instead, a TOML file"
            )
        try:
            made = [source for source in inputs if source in shapes]
            if not made or (operator in ALL_MADE and made != inputs):
                raise ValueError("one of its inputs is not made from the data")
            counted = OPERATORS[operator](attributes, [shapes[source] for source in made])
            if counted.weight:
                _check_declared([nodes[source] for source in inputs[1:]], counted.weight)
        except UNREADABLE as error:
            raise UsageError(f"{file}: {operator} {name!r} can't be read: {error}") from None
        found.append(Operator(name, tuple(arrays[source] for source in made), counted))
        shapes[node_number] = counted.shape
        arrays[node_number] = len(found)
    return found


def _nodes(symbol: Any, file: str) -> List[Node]:
    nodes = []
    try:
        for node in symbol["nodes"]:
            inputs = [int(entry[0]) for entry in node["inputs"]]
            attributes = _values(node.get("attrs") or {})
            nodes.append(Node(str(node["op"]), str(node["name"]), inputs, attributes))
    except UNREADABLE:
        raise UsageError(
            f"{file} is not a symbol that MXNet exported: it has no list of nodes"
        ) from None
    return nodes


def _check_declared(parameters: Sequence[Node], weight: Shape) -> None:
    """Raise a ValueError if the first parameter declares another shape. A declared side of -1 or 0 is unknown."""
    if not parameters:
        raise ValueError("it has no weights")
    declared = parameters[0].attributes.get("__shape__", weight)
    alike = len(declared) == len(weight)
    if not alike or any(said > 0 and said != size for said, size in zip(declared, weight)):
        raise ValueError(
            f"{parameters[0].name} has the shape {declared}, and a sample of --input needs {weight}"
        )


def _whole(value: Any, name: str, least: int = 1) -> int:
    """``value``, if it is a whole number from ``least`` to MOST_WHOLE. Raises a ValueError otherwise."""
    if type(value) is not int or not least <= value <= MOST_WHOLE:
        raise ValueError(
            f"its {name} is a whole number from {least} to {MOST_WHOLE:,}, not {value!r}"
        )
    return value


def _each(
    attributes: Attributes, name: str, count: int, usual: Optional[int] = None, least: int = 1
) -> Shape:
    """A whole number for each of ``count`` sides. Without ``usual`` they must be given."""
    values = attributes.get(name) or (usual,) * count
    if len(values) != count:
        raise ValueError(
            f"its {name.replace('kernel', 'window')} has {len(values)} sides, and its input {count}"
        )
    return tuple(_whole(value, name, least) for value in values)


def _flag(attributes: Attributes, name: str, usual: bool) -> bool:
    value = attributes.get(name, usual)
    if value not in (True, False):
        raise ValueError(f"its {name} is True or False, not {value!r}")
    return bool(value)


def _axis(attributes: Attributes, name: str, shape: Shape) -> int:
    """The index in ``shape`` of the side that the attribute names. MXNet's axis 0 is the samples, which ``shape`` does
    not have, so its axis 1 is index 0. A negative axis counts from the end."""
    axis = attributes.get(name, 1)
    if type(axis) is not int or axis == 0 or not -len(shape) <= axis <= len(shape):
        raise ValueError(
            f"its {name} is from 1 to {len(shape)}, or counted from the end, not {axis!r}"
        )
    return axis - 1 if axis > 0 else axis


def _values(texts: Mapping[str, str]) -> Attributes:
    """The attributes' values: a text that is a Python literal becomes its value, and any other stays a text."""
    values: Dict[str, Any] = dict(texts)
    for key, text in texts.items():
        with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            values[key] = ast.literal_eval(text)
    return values
