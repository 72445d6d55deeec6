"""Every public entry refuses every kind of bad input in one sentence, before it trains, and changes no parameter."""

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
NOT_NUMBERS = ["0.1", None, [0.1], float("nan"), float("inf"), True, 1j]
BAD_WEIGHTS = [1, [1], [1, 0], [1, -1], "ab", *[[1, value] for value in NOT_NUMBERS if value is not True]]
NOT_COUNTS = [0, -1, 1.5, "two", None, True]


def replicas(*devices):
    return [mxdp.get_params(mxdp.init_lenet(0, 0.1), device) for device in devices or DEVICES]


def with_label(value, dtype="int32", at=3):
    y = Y.astype(dtype)
    y[at] = value
    return y


def bad_replicas(*faults):
    """Of each kind one; what else there is, ``test_backend.py`` draws."""
    first, second = replicas()
    kinds = {
        "shared": [first, [*second[:5], first[5], *second[6:]]],
        "no list": [first, None],
        "on others": replicas(mx.cpu(0), mx.cpu(2)),
        "no gradient": [first, [*second[:5], second[5].copy(), *second[6:]]],
        "too few": [params[:-1] for params in replicas()],
        "empty": [[], []],
    }
    return [kinds[fault] for fault in faults or kinds]


BAD_DEVICES = [DEVICES[0], [], [mx.cpu(0)] * 2, "cpu", ["cpu(0)", "cpu(1)"], None]
BAD_X = [list(X), None, X[:, 0], onp.zeros((8, 3, 28, 28), "float32"), X.astype("float64"), X[:7]]
BAD_X += [mx.nd.zeros((8, 1, 28, 28)), onp.array(3.0, "float32")]
BAD_Y = [Y.tolist(), None, onp.eye(10, dtype="float32")[Y], onp.array(["shirt"] * 8), Y[:7], Y[:, None], onp.int32(3)]
BAD_Y += [with_label(10, at=-1), with_label(-1), with_label(1.5, "float32"), with_label(float("nan"), "float32")]


def step(X=X, y=Y, params=None, devices=DEVICES, lr=0.1, **more):
    mxdp.train_batch(X, y, params or replicas(), devices, lr, **more)


def bound_step(X=X, y=Y, params=None, devices=DEVICES, lr=0.1, **more):
    TrainStep(params or replicas(), devices, lr, **more)(X, y)


def second_step(X=X, y=Y):
    """After a batch of the same shape that is right."""
    train = TrainStep(replicas(), DEVICES, 0.1)
    train(onp.zeros_like(DATA.train.X[:8]), Y)
    train(X, y)


def sync(params=None, **more):
    GradientSync(replicas() if params is None else params, **more)


def train(num_devices=2, batch_size=8, lr=0.1, num_epochs=1, **more):
    mxdp.train(num_devices, batch_size, lr, num_epochs, **{"kind": "cpu", "data": DATA, **more})


def linear(X, params):
    return X.reshape(len(X), -1) @ params[0]


LINEAR = [np.zeros((784, 10))]
UNLIKE = [params[::step] for params, step in zip(replicas(), (1, -1))]
"""Replicas with the same parameters in other orders."""
TIED = [mxdp.get_params(LINEAR, device) * 2 for device in DEVICES]
EMPTY = Split(X[:0], Y[:0])
EMPTY = [Dataset("empty", *splits, DATA.classes, "") for splits in ((DATA.train, EMPTY), (EMPTY, DATA.test))]


def predicting(X, params):
    with autograd.predict_mode():
        return np.dot(X.reshape(len(X), -1), params[0].reshape(-1, 10))


BAD_NETS = [predicting, "lenet", None, lambda X, params: 3.0, lambda X, params: np.ones((len(X), 10))]
BAD_LOSSES = ["cross_entropy", None, lambda y_hat, y: y_hat.mean(), lambda y_hat, y: y_hat, lambda y_hat, y: None]
BAD_GRAPHS = [lambda y_hat, y: 0 * y, lambda y_hat, y: -np.log(npx.softmax(y_hat)[range(len(y_hat)), y])]
"""Losses that only :func:`mxdp.train_batch` takes."""
BAD_PARTS = [(slice(None), slice(9)), (slice(None), 0), slice(1)]
"""Of scores."""
BAD_PARAMS = [[], [*mxdp.init_lenet()[:-1], 3.0], np.zeros((784, 10)), "random", [np.zeros((784, 10), dtype="float64")]]
BAD_PARAMS += [[mx.nd.zeros((784, 10))], {"weight": np.zeros((784, 10))}, LINEAR * 2]


def scratch_train(num_devices=2, batch_size=8, lr=0.1, num_epochs=1, data=DATA, **more):
    scratch.train(num_devices, batch_size, lr, num_epochs, data, **more)


own = partial(train, net=linear, params=LINEAR, checkpoint="kept")
NO_DATA = [(1, 2), (X, Y), X, DATA.train, None, "digit", *EMPTY]
STEPS = (step, bound_step)
CALLS = [
    *[(one_step, "X", BAD_X) for one_step in (*STEPS, second_step)],
    *[(one_step, "y", BAD_Y) for one_step in (*STEPS, second_step)],
    *[(one_step, "params", bad_replicas()) for one_step in STEPS],
    *[(one_step, "loss", BAD_LOSSES) for one_step in STEPS],
    *[(one_step, "devices", BAD_DEVICES) for one_step in STEPS],
    *[(one_step, "lr", NOT_NUMBERS) for one_step in STEPS],
    *[(partial(one_step, net=linear), "params", [TIED]) for one_step in STEPS],
    (lambda n: step(X[:n], Y[:n]), "n", [0]),
    (step, "net", ["lenet", None]),
    (step, "allreduce", ["ring", None]),
    (lambda samples: TrainStep(replicas(), DEVICES, 0.1)(X, Y, samples), "samples", [-1, 1.5, "8"]),
    (sync, "params", [*bad_replicas("shared", "no list", "empty"), UNLIKE, [], TIED]),
    (sync, "world", ["2", 2]),
    (sync, "bucket_mb", ["25", None, 0, float("nan"), True]),
    (sync, "algorithm", ["rign", 3]),
    (bound_step, "net", BAD_NETS),
    (bound_step, "loss", BAD_GRAPHS),
    (bound_step, "sync", ["ring", 2, GradientSync(replicas()), GradientSync([params[::-1] for params in replicas()])]),
    (bound_step, "run_ahead", [-1, 0.5, float("nan"), -math.inf, "2", None, True, [2]]),
    *[(one, name, NOT_COUNTS) for one in (train, scratch_train) for name in ("num_devices", "batch_size")],
    *[(one, "num_epochs", NOT_COUNTS) for one in (train, scratch_train)],
    *[(one, "data", [(X, Y), DATA.train, None, "digit", *EMPTY]) for one in (train, scratch_train)],
    *[(one, "draw", ["curves"]) for one in (train, scratch_train)],
    (partial(train, lr=0.1), "batch_size", [1]),
    (train, "lr", [*NOT_NUMBERS, 0, -0.1]),
    (train, "kind", ["cuda", None]),
    (train, "seed", ["a", -1, 1.5, None]),
    (train, "algorithm", ["rign", 3]),
    (train, "report", [None, "loud"]),
    (train, "world", [mxdp.world, 2]),
    (train, "net", [*BAD_NETS, lambda X, params: linear(X, params)]),
    (train, "loss", BAD_LOSSES),
    (train, "params", BAD_PARAMS),
    (own, "net", [*BAD_NETS, *[lambda X, params, part=part: linear(X, params)[part] for part in BAD_PARTS]]),
    (own, "params", [None, *BAD_PARAMS]),
    (train, "checkpoint", [3, True]),
    (train, "momentum", [1.0, -0.1, "much"]),
    (train, "shard_optimizer", [True]),
    (partial(train, momentum=0.5, shard_optimizer=True), "algorithm", ["ring"]),
    (train, "checkpoint_every", [0, 1.5, "two", None, float("nan"), float("inf")]),
    (scratch_train, "lr", NOT_NUMBERS),
    (scratch_train, "allreduce", ["ring", None]),
    (lambda data: mxdp.evaluate(data, replicas()), "data", [DATA, (X, Y), None, "digits", EMPTY[1].train]),
    (lambda params: mxdp.evaluate(DATA.test, params), "params", bad_replicas("shared", "no list", "too few")),
    (lambda size: mxdp.evaluate(DATA.test, replicas(), size), "size", NOT_COUNTS),
    (lambda x: mxdp.split_and_load(x, DEVICES), "x", [X.tolist(), None, onp.float32(3), mx.nd.ones(4)]),
    (lambda x: mxdp.split_and_load(x, DEVICES), "x", [X.astype(kind) for kind in ("uint16", "complex64", "U3", "u4")]),
    (lambda weights: mxdp.split_and_load(X, DEVICES, weights), "weights", BAD_WEIGHTS),
    (lambda size: mxdp.sgd(replicas()[0], 0.1, size), "size", [0, -1, None, "2", float("nan")]),
    (lambda params: mxdp.get_params(params, DEVICES[0]), "params", [[X, X], None, "params", LINEAR * 2]),
    (lambda devices: mxdp.split_and_load(X, devices), "devices", BAD_DEVICES),
    (lambda y: mxdp.split_batch(X, y, DEVICES), "y", [Y.tolist(), None, Y[:7], onp.array(3)]),
    (lambda device: mxdp.get_params(mxdp.init_lenet(), device), "device", ["cpu(0)", None, 0, DEVICES]),
    (lambda y: Split(X, y), "y", [with_label(-1), Y.tolist()]),
    (lambda X: Split(X, Y), "X", [onp.full_like(X, float("nan")), onp.full_like(X, float("inf")), X.tolist()]),
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
