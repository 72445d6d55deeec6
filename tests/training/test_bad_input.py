"""Every public entry refuses every kind of bad input in one sentence, before it trains, and changes no parameter."""

from __future__ import annotations

import math
from dataclasses import fields
from functools import partial
from pathlib import Path

import numpy as onp
import pytest

import mxdp
from mxdp import scratch
from mxdp.backend import autograd, mx, np, npx
from mxdp.collectives import GradientSync
from mxdp.datasets import Dataset, Split
from mxdp.errors import MxdpError
from mxdp.training import TrainStep
from mxdp.training.record import name_of
from mxdp.training.setup import Arguments

OURS = Path(mxdp.__file__).parent
DEVICES = [mx.cpu(0), mx.cpu(1)]
DATA = mxdp.load("synthetic").take(20, 10)
X, Y = DATA.train.X[:8], DATA.train.y[:8]
NOT_NUMBERS = ["0.1", None, [0.1], float("nan"), float("inf"), onp.array([0.1]), True, 1j]
BAD_WEIGHTS = [1, [1], [1, 2, 3], [1, 0], [1, -1], "ab", *[[1, value] for value in NOT_NUMBERS if value is not True]]
NOT_COUNTS = [0, -1, 1.5, "two", None, True]


def replicas(*devices):
    return [mxdp.get_params(mxdp.init_lenet(0, 0.1), device) for device in devices or DEVICES]


def with_label(value, dtype="int32", at=3):
    y = Y.astype(dtype)
    y[at] = value
    return y


def other_shapes():
    """Replicas of a net with other shapes, of too few arrays, and of none."""
    good = replicas()
    wide = [np.zeros((30, 1, 3, 3), ctx=device) for device in DEVICES]
    return [[[w, *params[1:]] for w, params in zip(wide, good)], [params[:-1] for params in good], [[], []]]


def without_gradients():
    """All of them, and one of them."""
    none = [[param.copyto(device) for param in mxdp.init_lenet()] for device in DEVICES]
    first, second = replicas()
    return [none, [first, [*second[:5], none[1][5], *second[6:]]]]


def shared():
    one = replicas(mx.cpu(0))[0]
    first, second = replicas()
    return [
        [one, one],
        [one, [param[:] for param in one]],
        [first, [*second[:5], first[5], *second[6:]]],
        [second, first],
        replicas(mx.cpu(0), mx.cpu(2)),
        first,
        [first],
        [first, second, first],
        [first, None],
        [first, [param.asnumpy() for param in second]],
    ]


BAD_DEVICES = [DEVICES[0], [], [mx.cpu(0)] * 2, [mx.cpu(1), mx.cpu(0), mx.cpu(1)], "cpu", ["cpu(0)", "cpu(1)"], None, 2]
BAD_X = [
    X.tolist(),
    list(X),
    None,
    X[:, 0],
    onp.zeros((8, 1, 32, 32), "float32"),
    onp.zeros((8, 3, 28, 28), "float32"),
    onp.zeros((8, 28, 28, 1), "float32"),
    np.zeros((8, 784)),
    X.astype("float64"),
    (255 * X).astype("uint8"),
    X[:7],
    mx.nd.zeros((8, 1, 28, 28)),
    onp.float32(3),
    onp.array(3.0, "float32"),
]
BAD_Y = [
    Y.tolist(),
    None,
    onp.eye(10, dtype="float32")[Y],
    np.array(onp.eye(10, dtype="float32")[Y]),
    onp.array(["shirt"] * 8),
    Y[:7],
    Y[:, None],
    Y + 1 + (9 - Y.max()),
    with_label(10),
    with_label(-1),
    with_label(10, at=-1),
    with_label(1.5, "float32"),
    with_label(float("nan"), "float32"),
    onp.int32(3),
]


# Pictures of any size and classes of any number are a split's; LeNet takes fewer.
def _a_splits(x):
    return isinstance(x, onp.ndarray) and x.shape[:1] == (8,) and x.dtype in ("float32", "int32")


PICTURES_OF_A_SPLIT = [x for x in BAD_X if not (_a_splits(x) and x.ndim == 4)]
PICTURES_OF_A_SPLIT += [onp.zeros((8, 1, 0, 28), "float32"), onp.zeros((16, 1, 28, 28), "float32")[::2]]
LABELS_OF_A_SPLIT = [y for y in BAD_Y if isinstance(y, onp.ndarray) and y.dtype == "int32"]
LABELS_OF_A_SPLIT = [y for y in LABELS_OF_A_SPLIT if not (_a_splits(y) and y.ndim == 1 and y.min() >= 0)]


def step(X=X, y=Y, params=None, devices=DEVICES, lr=0.1, **more):
    mxdp.train_batch(X, y, params or replicas(), devices, lr, **more)


def bound_step(X=X, y=Y, params=None, devices=DEVICES, lr=0.1, **more):
    TrainStep(params or replicas(), devices, lr, **more)(X, y)


def second_step(X=X, y=Y):
    """After a batch of the same shape that is right."""
    train = TrainStep(replicas(), DEVICES, 0.1)
    train(onp.zeros_like(DATA.train.X[:8]), Y)
    train(X, y)


def linear_step(step=step, y=Y, params=None):
    step(y=y, params=params or [mxdp.get_params(LINEAR, device) for device in DEVICES], net=tied)


def tied(X, params):
    return sum(X.reshape(len(X), -1) @ weight for weight in params)


def sync(params=None, **more):
    GradientSync(replicas() if params is None else params, **more)


def train(num_devices=2, batch_size=8, lr=0.1, num_epochs=1, **more):
    mxdp.train(num_devices, batch_size, lr, num_epochs, **{"kind": "cpu", "data": DATA, **more})


def linear(X, params):
    return X.reshape(len(X), -1) @ params[0]


LINEAR = [np.zeros((784, 10))]
UNLIKE = [params[::step] for params, step in zip(replicas(), (1, -1))]
"""Replicas with the same parameters in other orders."""
TIED = [LINEAR * 2, [mxdp.get_params(LINEAR, device) * 2 for device in DEVICES]]
EMPTY = Split(X[:0], Y[:0])
EMPTY = [Dataset("empty", *splits, DATA.classes, "") for splits in ((DATA.train, EMPTY), (EMPTY, DATA.test))]


def predicting(X, params):
    with autograd.predict_mode():
        return np.dot(X.reshape(len(X), -1), params[0].reshape(-1, 10))


BAD_NETS = [
    predicting,
    "lenet",
    3,
    None,
    lambda X, params: 3.0,
    lambda X, params: X.asnumpy(),
    lambda X, params: np.ones((len(X), 10)),
]
BAD_LOSSES = ["cross_entropy", None, lambda y_hat, y: y_hat.mean(), lambda y_hat, y: y_hat, lambda y_hat, y: None]
BAD_PARTS = [(slice(None), slice(9)), (slice(None), 0), slice(1)]
"""Of scores."""
BAD_PARAMS = [
    [],
    [*mxdp.init_lenet()[:-1], 3.0],
    np.zeros((784, 10)),
    "random",
    [param.asnumpy() for param in mxdp.init_lenet()],
    [np.zeros((784, 10), dtype="float64")],
    [mx.nd.zeros((784, 10))],
    {"weight": np.zeros((784, 10))},
    TIED[0],
]


def scratch_train(num_devices=2, batch_size=8, lr=0.1, num_epochs=1, data=DATA, **more):
    scratch.train(num_devices, batch_size, lr, num_epochs, data, **more)


own = partial(train, net=linear, params=LINEAR, checkpoint="kept")
NO_DATA = [(1, 2), (X, Y), X, DATA.train, None, "digit", *EMPTY]
CALLS = [
    (step, "X", BAD_X),
    (step, "y", BAD_Y),
    (lambda n: step(X[:n], Y[:n]), "n", [0]),
    (step, "params", [*shared(), *other_shapes(), *without_gradients()]),
    (step, "net", ["lenet", None]),
    (step, "loss", BAD_LOSSES),
    (step, "devices", BAD_DEVICES),
    (step, "lr", NOT_NUMBERS),
    (step, "allreduce", ["ring", None]),
    (bound_step, "X", BAD_X),
    (bound_step, "y", BAD_Y),
    (bound_step, "params", [*shared(), *other_shapes(), *without_gradients()]),
    (second_step, "X", BAD_X),
    (second_step, "y", BAD_Y),
    *[(partial(linear_step, one_step), "params", TIED[1:]) for one_step in (step, bound_step)],
    *[(partial(linear_step, one_step), "y", [with_label(10), with_label(-1)]) for one_step in (step, bound_step)],
    (lambda samples: TrainStep(replicas(), DEVICES, 0.1)(X, Y, samples), "samples", [-1, 1.5, "8"]),
    (sync, "params", [*shared()[:3], shared()[5], *shared()[7:], UNLIKE, [], [[], []], TIED[1]]),
    (sync, "world", ["2", 2]),
    (sync, "bucket_mb", ["25", None, 0, float("nan"), True]),
    (sync, "algorithm", ["rign", 3]),
    (bound_step, "devices", BAD_DEVICES),
    (bound_step, "lr", NOT_NUMBERS),
    (bound_step, "net", BAD_NETS),
    (bound_step, "loss", BAD_LOSSES),
    (bound_step, "sync", ["ring", 2, GradientSync(replicas()), GradientSync([params[::-1] for params in replicas()])]),
    (bound_step, "run_ahead", [-1, 0.5, float("nan"), -math.inf, "2", None, True, [2]]),
    (train, "num_devices", NOT_COUNTS),
    (train, "batch_size", [*NOT_COUNTS, 1]),
    (train, "num_epochs", NOT_COUNTS),
    (train, "lr", [*NOT_NUMBERS, 0, -0.1]),
    (train, "kind", ["cuda", None]),
    (train, "data", NO_DATA),
    (train, "seed", ["a", -1, 1.5, None]),
    (train, "algorithm", ["rign", 3]),
    (train, "report", [None, "loud"]),
    (train, "draw", ["curves"]),
    (train, "world", [mxdp.world, 2]),
    (train, "net", [*BAD_NETS, lambda X, params: linear(X, params)]),
    (train, "loss", BAD_LOSSES),
    (train, "params", BAD_PARAMS),
    (own, "net", [*BAD_NETS, *[lambda X, params, part=part: linear(X, params)[part] for part in BAD_PARTS]]),
    (own, "loss", BAD_LOSSES),
    (own, "params", [None, *BAD_PARAMS]),
    (train, "checkpoint", [3, True]),
    (train, "momentum", [1.0, -0.1, "much"]),
    (train, "shard_optimizer", [True]),
    (partial(train, momentum=0.5, shard_optimizer=True), "algorithm", ["ring"]),
    (train, "checkpoint_every", [0, -1, 1.5, "two", None, float("nan"), float("inf")]),
    (scratch_train, "num_devices", NOT_COUNTS),
    (scratch_train, "batch_size", NOT_COUNTS),
    (scratch_train, "num_epochs", NOT_COUNTS),
    (scratch_train, "lr", NOT_NUMBERS),
    (scratch_train, "data", NO_DATA),
    (scratch_train, "allreduce", ["ring", None]),
    (scratch_train, "draw", ["curves"]),
    (lambda data: mxdp.evaluate(data, replicas()), "data", [DATA, (X, Y), X, None, "digits", EMPTY[1].train]),
    (lambda params: mxdp.evaluate(DATA.test, params), "params", [*shared()[:2], shared()[5], *other_shapes(), []]),
    (lambda size: mxdp.evaluate(DATA.test, replicas(), size), "size", NOT_COUNTS),
    (lambda x: mxdp.split_and_load(x, DEVICES), "x", [X.tolist(), None, onp.float32(3), mx.nd.ones(4)]),
    (lambda x: mxdp.split_and_load(x, DEVICES), "x", [X.astype(kind) for kind in ("uint16", "complex64", "U3", "u4")]),
    (lambda weights: mxdp.split_and_load(X, DEVICES, weights), "weights", BAD_WEIGHTS),
    (lambda size: mxdp.sgd(replicas()[0], 0.1, size), "size", [0, -1, None, "2", float("nan")]),
    (lambda params: mxdp.get_params(params, DEVICES[0]), "params", [[X, X], X, None, "params", TIED[0]]),
    (lambda devices: mxdp.split_and_load(X, devices), "devices", BAD_DEVICES),
    (lambda y: mxdp.split_batch(X, y, DEVICES), "y", [Y.tolist(), None, Y[:7], onp.array(3)]),
    (lambda devices: mxdp.split_batch(X, Y, devices), "devices", BAD_DEVICES),
    (lambda device: mxdp.get_params(mxdp.init_lenet(), device), "device", ["cpu(0)", None, 0, DEVICES]),
    (lambda y: Split(X, y), "y", [*LABELS_OF_A_SPLIT, Y.tolist()]),
    (lambda X: Split(X, Y), "X", PICTURES_OF_A_SPLIT),
    (lambda X: Split(X, Y), "X", [onp.full_like(X, float("nan")), onp.full_like(X, float("inf"))]),
    (lambda name: mxdp.load(name), "name", [(1, 2), X, DATA, "digit"]),
]  # fmt: skip


def test_each_argument_of_train_is_given_something_wrong():
    assert {argument for call, argument, _ in CALLS if call is train} == {each.name for each in fields(Arguments)}


@pytest.mark.parametrize(
    ("call", "argument", "values"), CALLS, ids=[f"{name_of(call)} {name}" for call, name, _ in CALLS]
)
def test_bad_input_is_refused_in_a_sentence(call, argument, values, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value in values:
        given = value if isinstance(value, list) else []
        replicas = [
            params for params in given if isinstance(params, list) and params and isinstance(params[0], np.ndarray)
        ]
        before = [param.asnumpy().tobytes() for params in replicas for param in params]
        with pytest.raises((ValueError, TypeError, MxdpError)) as caught:
            call(**{argument: value})
        message = str(caught.value)
        assert 15 < len(message) < 250
        assert "\n" not in message
        assert not any(word in message for word in ("Traceback", "src/", "operand", "object"))
        assert OURS in Path(caught.traceback[-1].path).parents, f"raised by a library: {message}"
        assert [param.asnumpy().tobytes() for params in replicas for param in params] == before
    assert "epoch 1" not in capfd.readouterr().out, "refused after training"
    assert list(tmp_path.iterdir()) == []
    npx.waitall()  # raises what a refused call has left in the engine
