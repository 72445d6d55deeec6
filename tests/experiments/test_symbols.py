"""Networks that MXNet exported: what ``predict`` reads in them, against MXNet's own shapes."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.errors import UsageError
from mxdp.experiments.predict.symbols import activations_of_symbol, layers_of_symbol, operators
from mxdp.plans.cost.layer_lists import NETWORKS

FEW = st.sampled_from([1, 2, 3, 4, 6])


class Graph:
    """A symbol's nodes, as MXNet writes them."""

    def __init__(self):
        self.nodes = [dict(op="null", name="data", inputs=[])]

    def add(self, op, inputs, *parameters, **attributes):
        """An operator on these nodes, and on new parameters of these names; its place."""
        number = len(self.nodes)
        for parameter in parameters:
            self.nodes.append(dict(op="null", name=f"{op}{number}_{parameter}", inputs=[]))
        taken = [*inputs, *range(number, len(self.nodes))]
        texts = {key: str(value) for key, value in attributes.items()}
        self.nodes.append(dict(op=op, name=f"{op}{number}", attrs=texts, inputs=[[place, 0, 0] for place in taken]))
        return len(self.nodes) - 1

    def read(self):
        return json.loads(self.text())

    def text(self):
        null = [place for place, node in enumerate(self.nodes) if node["op"] == "null"]
        version = dict(mxnet_version=["int", 10901])
        return json.dumps(dict(nodes=self.nodes, arg_nodes=null, heads=[[len(self.nodes) - 1, 0, 0]], attrs=version))


AXIS = st.sampled_from([1, 2, 3, -1, -2, -3])


def chained(draw, graph, x):
    """One or two more operators on ``x``."""
    kind = draw(st.sampled_from(["conv", "conv", "conv", "pool", "norm", "relu", "tanh", "drop", "add", "join"]))
    kernel = draw(FEW), draw(FEW)
    window = dict(kernel=kernel, stride=(draw(st.integers(1, 3)), draw(st.integers(1, 3))))
    window["pad"] = tuple(draw(st.integers(0, min(2, side - 1))) for side in kernel)
    if kind == "conv":
        bias = draw(st.booleans())
        window.update(dilate=(draw(st.integers(1, 2)), 1), num_group=draw(st.sampled_from([1, 1, 2, 3])))
        names = ["weight", "bias"] if bias else ["weight"]
        return graph.add("Convolution", [x], *names, num_filter=draw(FEW), no_bias=not bias, **window)
    if kind == "pool":
        window.update(pool_type=draw(st.sampled_from(["max", "avg", "sum"])))
        return graph.add("Pooling", [x], pooling_convention=draw(st.sampled_from(["valid", "full"])), **window)
    if kind == "norm":
        names = "gamma", "beta", "moving_mean", "moving_var"
        axis = draw(AXIS)
        return graph.add("BatchNorm", [x], *names, axis=axis, fix_gamma=draw(st.booleans()))
    if kind in ("relu", "tanh"):
        return graph.add("Activation", [x], act_type=kind)
    if kind == "drop":
        return graph.add("Dropout", [x])
    other = graph.add("Activation", [x], act_type="relu")
    if kind == "add":
        return graph.add(draw(st.sampled_from(["elemwise_add", "_npi_add"])), [x, other])
    return graph.add("Concat", [x, other], dim=draw(AXIS), num_args=2)


@st.composite
def graphs(draw):
    """A network, and the shape of a sample."""
    shape = draw(st.sampled_from([1, 2, 6])), draw(st.integers(1, 16)), draw(st.integers(1, 16))
    graph, x = Graph(), 0
    for _ in range(draw(st.integers(1, 5))):
        x = chained(draw, graph, x)
    if draw(st.booleans()):
        x = graph.add("Pooling", [x], global_pool=True, pool_type="avg", kernel=(1, 1))
    graph.add("FullyConnected", [x], "weight", "bias", num_hidden=draw(FEW))
    return graph, shape


@settings(max_examples=100)
@given(graphs())
def test_shapes_and_parameters_are_mxnets_and_what_mxnet_refuses_is_refused(case):
    from mxdp.backend import mx

    graph, shape = case
    text, symbol = graph.read(), mx.sym.load_json(graph.text())
    try:
        of_arguments, of_outputs, _ = symbol.infer_shape(data=(1, *shape))
    except mx.base.MXNetError:
        with pytest.raises(UsageError, match="can't be read"):
            layers_of_symbol(text, "net", shape)
        return
    mine = layers_of_symbol(text, "net", shape)
    sizes = dict(zip(symbol.list_arguments(), map(math.prod, of_arguments)))
    fixed = [node["name"] for node in graph.nodes if node.get("attrs", {}).get("fix_gamma") == "True"]
    untrained = {"data", *(f"{name}_gamma" for name in fixed)}
    assert sum(layer.parameters for layer in mine) == sum(sizes[name] for name in set(sizes) - untrained)
    assert operators(text, "net", shape)[-1].counted.shape == tuple(of_outputs[0][1:])
    for pool in ("sum", "avg"):  # neither keeps the places of maxima
        same = json.loads(graph.text().replace('"sum"', f'"{pool}"'))
        assert activations_of_symbol(same, "net", shape) == activations_of_symbol(text, "net", shape) > 0


def test_the_gradient_of_a_relu_alone_needs_no_input():
    """Held are the data, what comes out of the activation and of the network, and the gradients of these two."""
    held = {}
    for act in ("relu", "sigmoid", "softrelu", "tanh"):
        graph = Graph()
        x = graph.add("Convolution", [0], "weight", kernel=(1, 1), num_filter=4, no_bias=True)
        x = graph.add("Activation", [x], act_type=act)
        graph.add("FullyConnected", [x], "weight", num_hidden=1, no_bias=True)
        held[act] = activations_of_symbol(graph.read(), "net", (1, 3, 3))
    relu = 9 + 36 + 1 + 36 + 1
    assert held == {"relu": relu, **dict.fromkeys(["sigmoid", "softrelu", "tanh"], relu + 36)}


ODD = "0 -1 2.5 (0,0) (-2,3) (2,) (1.5,2) nan x None [] {}".split()  # noqa: SIM905
ODD += ["", "(" * 999, "9" * 5000]


@settings(max_examples=200)
@given(case=graphs(), data=st.data())
def test_whatever_an_attribute_says_is_counted_or_refused(case, data):
    graph, shape = case
    node = data.draw(st.sampled_from([node for node in graph.nodes if node.get("attrs")]))
    name = data.draw(st.sampled_from(list(node["attrs"])))
    node["attrs"][name] = data.draw(st.sampled_from([*ODD, str(10**9), str(10**400), "True"]))
    try:
        layers = layers_of_symbol(graph.read(), "net", shape)
    except UsageError:
        return
    assert all(layer.parameters >= 0 and 0 <= layer.forward < math.inf and layer.outputs >= 1 for layer in layers)
    assert activations_of_symbol(graph.read(), "net", shape) >= 1


def test_a_weight_of_another_shape_is_refused():
    """As if a sample had other channels than the network was made for."""
    graph = Graph()
    graph.add("Convolution", [0], "weight", kernel=(3, 3), num_filter=8, no_bias=True)
    graph.nodes[1]["attrs"] = dict(__shape__="(8, 3, 3, 3)")
    assert layers_of_symbol(graph.read(), "net", (3, 9, 9))[0].parameters == 216
    with pytest.raises(UsageError, match=r"has the shape \(8, 3, 3, 3\), and a sample of --input needs \(8, 1, 3, 3\)"):
        layers_of_symbol(graph.read(), "net", (1, 9, 9))


def networks():
    """gluon's networks by their names in ``predict``, as published, and the shape of a sample."""
    from mxdp.backend import gluon
    from mxdp.experiments.networks import resnet18

    zoo, nn = gluon.model_zoo.vision, gluon.nn
    lenet, pool = nn.HybridSequential(), dict(pool_size=2, strides=2)
    lenet.add(nn.Conv2D(20, 3, activation="relu"), nn.AvgPool2D(**pool))
    lenet.add(nn.Conv2D(50, 5, activation="relu"), nn.AvgPool2D(**pool))
    lenet.add(nn.Dense(128, activation="relu"), nn.Dense(10))
    deep = {"resnet50": zoo.resnet50_v1(), "resnet101": zoo.resnet101_v1()}
    for net in deep.values():
        for stage in list(net.features)[4:8]:  # the stride is the second convolution's, in what is called v1.5
            first, second = stage[0].body[0], stage[0].body[3]
            second._kwargs["stride"], first._kwargs["stride"] = first._kwargs["stride"], (1, 1)
    small, large = (1, 28, 28), (3, 224, 224)
    known = {"lenet": (lenet, small), "resnet18": (resnet18(), small), "vgg16": (zoo.vgg16(), large)}
    return {**known, **{name: (net, large) for name, net in deep.items()}}


def test_the_networks_that_have_a_name_are_what_is_counted_in_their_graphs():
    from mxdp.backend import mx

    for name, (net, shape) in networks().items():
        symbol, known = json.loads(net(mx.sym.var("data").as_np_ndarray()).tojson()), NETWORKS[name]
        assert known.activations == activations_of_symbol(symbol, name, shape)
        layers = layers_of_symbol(symbol, name, shape)
        # A symbol counts activations, normalisations and poolings, too; gluon's deep ResNets have a few biases.
        assert known.parameters == pytest.approx(sum(layer.parameters for layer in layers), rel=1e-3)
        assert 1 <= sum(layer.forward for layer in layers) / sum(layer.forward for layer in known.layers) < 1.02
