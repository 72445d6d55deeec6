"""Networks as readers write them: recorded with the bits of ``train_batch``, or refused in one sentence."""

import operator
import re
import threading
from contextlib import nullcontext
from functools import partial

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import IN, OUT, all_bits, batch, bits, cpus, mlp, parameters, replicas_on

from mxdp.backend import autograd, gluon, mx, np, npx
from mxdp.scratch import cross_entropy, get_params, ring_allreduce, train_batch
from mxdp.training import train, train_steps
from mxdp.training.graph import BoundNet
from mxdp.training.record import name_of
from mxdp.training.step import TrainStep


def chosen(X, params):
    h = mx.npx.leaky_relu(X.reshape(-1, IN) @ params[0] + params[1], act_type="leaky")
    h = (h - h.mean(axis=1, keepdims=True)) / h.std(axis=1, keepdims=True)
    return np.where(h > 0, h, np.zeros_like(h)) @ params[2][:, :OUT] + params[3]


def shared(X, params):
    """In operators that MXNet would fuse on ``cpu(0)``."""
    h = npx.activation(npx.fully_connected(X, params[0], no_bias=True, num_hidden=IN), act_type="relu")
    return h @ params[1]


def pooled(X, params):
    with autograd.record():  # nothing new in a step
        h = npx.pooling(X[:, None], kernel=(2, 2), pool_type="max").reshape(-1, 6)
    return npx.layer_norm(h, params[0][:6, 0], params[0][6:, 0])[:, :OUT] + params[3]


def one_score(X, params):
    return (X.astype("float32") @ params[0] + params[1])[:, 0]


WORK = {
    "helper functions": (mlp, cross_entropy),
    "statistics, masks, slices": (chosen, cross_entropy),
    "pooling and layer_norm": (pooled, cross_entropy),
    "gluon's loss": (mlp, gluon.loss.SoftmaxCrossEntropyLoss()),
    "numbers": (one_score, gluon.loss.L2Loss()),
}


@settings(max_examples=15)
@given(
    name=st.sampled_from(sorted(WORK)), n=st.integers(1, 4), lengths=st.lists(st.integers(1, 9), min_size=2, max_size=4)
)
def test_a_network_of_ones_own_has_the_bits_of_train_batch(name, n, lengths):
    """Also for samples of any shape, and labels that are no classes."""
    net, loss = WORK[name]
    some = cpus(n)
    fast, slow = replicas_on(some), replicas_on(some)
    # More than two devices have one order of addition only if each parameter has a ring of its own.
    own = lambda: [ring_allreduce([param.grad for param in same]) for same in zip(*fast)]  # noqa: E731
    step = TrainStep(fast, some, 0.3, own if n > 2 else None, net=net, loss=loss)
    for seed, samples in enumerate(lengths):
        X, y = batch(samples, seed, (IN,) if net is one_score else (3, 4))
        if net is one_score:
            X, y = (9 * X).astype("uint8"), (y / 7).astype("float32")
        last = train_steps([(X, y)], step)
        assert bits(last) == bits(train_batch(X, y, slow, some, 0.3, net=net, loss=loss))
        assert all_bits(fast) == all_bits(slow)
    assert bits(fast[0])[0] != bits(parameters())[0]


@settings(max_examples=12)
@given(st.data())
def test_a_bound_net_gives_the_scores_of_any_arrays_as_they_are_now(data):
    """Also one array under several names, and arrays that were changed, or given in other places, since. Scores and
    arguments may be changed afterwards."""
    device = cpus(2)[data.draw(st.integers(0, 1))]
    arrays = [np.array(x, ctx=device) for x in onp.random.RandomState(0).normal(size=(3, IN, IN)).astype("float32")]
    bound = BoundNet(shared)
    kept = []
    for _ in range(data.draw(st.integers(2, 6))):
        X, *params = [arrays[data.draw(st.integers(0, 2))] for _ in range(3)]
        scores = bound(X, params)
        expected = shared(X, params).asnumpy()
        kept.append((scores, expected))
        changed = data.draw(st.integers(0, 2))
        arrays[changed] *= 0.5
        if data.draw(st.booleans()):
            arrays[changed] = arrays[changed].copy()
            scores += 1
            kept[-1] = scores, expected + 1
        for array, values in kept:
            assert array.asnumpy().tobytes() == values.tobytes()


def test_a_step_calls_the_network_for_new_shapes_alone():
    (device, another), calls = cpus(2), []
    (params, others) = replicas_on([device, another])

    def counted(X, params):
        calls.append((len(X), autograd.is_training()))
        return mlp(X, params)

    net, step = BoundNet(counted), TrainStep([params], [device], 0.1, net=counted)
    for number, samples in enumerate((9, 9, 6, 9, 3, 9, 7, 8, 6, 9, 5, 9, 6, 3, 10, 9)):  # four are kept
        step(*batch(samples, number))
        net(np.array(batch(samples)[0]), params)
    both = [(samples, training) for samples in (9, 6, 3, 7, 8, 6, 5, 3, 10) for training in (True, False)]
    assert calls == [*both, (9, True)]  # the step forgets smaller ones, for a larger one has other memory
    calls.clear()
    for samples in (1, 2, 4, 5) * 2:  # each device has its own four
        for replica in (params, others):
            net(np.array(batch(samples)[0], ctx=replica[0].ctx), replica)
    assert [samples for samples, _ in calls] == [1, 1, 2, 2, 4, 4, 5, 5]


def test_samples_of_another_dtype_are_not_cast():
    params, net = [np.array([2.0])], BoundNet(lambda X, params: X * params[0])
    for dtype in ("float32", "float64", "float32"):
        assert net(np.ones((3, 1), dtype=dtype), params).dtype == dtype


def test_dropout_leaves_out_others_in_each_step():
    params = get_params([np.ones(1)], cpus(1)[0])
    net = lambda X, params: npx.dropout(X * params[0], p=0.5)  # noqa: E731
    step = TrainStep([params], cpus(1), 0.0, net=net, loss=lambda y_hat, y: y_hat[:, 0])
    masks = [tuple(step(onp.ones((50, 1), "float32"), onp.zeros(50))[0].asnumpy().tolist()) for _ in range(3)]
    assert len(set(masks)) == 3


MEAN = np.ones((IN,))
MODE = r"changes autograd's mode \(by pause, predict_mode"


def doubled_in_silence(h):
    """Autograd would say nothing: the graph would lack it."""
    with autograd.pause(train_mode=True):
        h *= 2
    return h


def flat(X):
    return X.reshape(len(X), -1)


REFUSED = {
    "if": (lambda X, params: mlp(X, params) if X.sum() > 0 else X, "reads numbers of an array"),
    "asnumpy": (lambda X, params: mlp(X, params) + X.asnumpy().mean(), "reads numbers of an array"),
    "a global array": (lambda X, params: mlp(flat(X) - MEAN, params), "none of its arguments"),
    "np.random": (lambda X, params: mlp(X * (np.random.uniform(size=X.shape) > 0.5), params), "none of its arguments"),
    "detached": (lambda X, params: mlp(X, params) + mlp(X, params).detach(), "none of its arguments"),
    "nothing": (lambda X, params: np.ones((len(X), OUT)), "none of its arguments"),
    "batch_norm of new arrays": (
        lambda X, params: npx.batch_norm(mlp(X, params), *params[3:] * 2, np.zeros(OUT), np.ones_like(params[3])),
        "uses batch_norm, whose running means would differ by device",
    ),
    "pause, though an array is written in place": (lambda X, params: doubled_in_silence(mlp(X, params)), MODE),
    "+=": (lambda X, params: operator.iadd(mlp(X, params), 1), r"writes into an array in place \(by \+="),
    "a mask as an index": (lambda X, params: mlp(X, params) * flat(X)[flat(X) > 0].sum(), "shape depends on numbers"),
}


SCOPES = {
    "": nullcontext,
    "record": autograd.record,
    "record, predicting": partial(autograd.record, train_mode=False),
    "pause": autograd.pause,
    "pause, training": partial(autograd.pause, train_mode=True),
    "train_mode": autograd.train_mode,
    "predict_mode": autograd.predict_mode,
}
ALWAYS = 0.9999999
"""A dropout after which nothing is left: it is as if it had no chance in it."""


def set_for_a_while(set_mode, mode, h):
    before = set_mode(mode)
    h = np.tanh(h) + npx.dropout(h, p=ALWAYS)
    set_mode(before)
    return h


def swallowed(h):
    try:
        with autograd.predict_mode():
            return h + npx.dropout(h, p=ALWAYS)
    except ValueError:
        return h


imported_before = mx.autograd.is_recording
STATEMENTS = {
    "tanh": np.tanh,
    "dropout": lambda h: h + npx.dropout(h, p=ALWAYS),
    "dropout, always": lambda h: h + npx.dropout(h, p=ALWAYS, mode="always"),
    "is_training": lambda h: h * (0.5 if autograd.is_training() else 0.75),
    "is_recording": lambda h: h * (0.5 if imported_before() else 0.75),
    "a refusal that is caught": swallowed,
}
for set_mode in (autograd.set_training, autograd.set_recording):
    for mode in (True, False):
        STATEMENTS[f"{set_mode.__name__}({mode})"] = partial(set_for_a_while, set_mode, mode)


def equal_or_refused(fast, slow):
    expected = slow()
    try:
        result = fast()
    except ValueError as error:
        return bool(re.search(f"{MODE}|none of its arguments", str(error)))
    return bits(result) == bits(expected)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from([*SCOPES]), st.sampled_from([*STATEMENTS])), min_size=1, max_size=4))
def test_a_network_in_any_mode_of_autograds_is_what_it_is_without_a_graph_or_refused(plan):
    def net(X, params):
        h = np.dot(flat(X), params[0])
        for scope, statement in plan:
            with SCOPES[scope]():
                h = STATEMENTS[statement](h)
        return np.dot(h, params[2])

    some, (X, y) = cpus(1), batch(5)
    fast, slow = replicas_on(some), replicas_on(some)
    step, bound, x = TrainStep(fast, some, 0.1, net=net), BoundNet(net), np.array(X)
    assert equal_or_refused(
        lambda: [*step(X, y), *fast[0]], lambda: [*train_batch(X, y, slow, some, 0.1, net=net), *slow[0]]
    )
    for mode in (autograd.train_mode, autograd.predict_mode, autograd.train_mode):
        with mode():
            assert equal_or_refused(lambda: [bound(x, slow[0])], lambda: [net(x, slow[0])])
    assert not autograd.is_recording()
    assert not autograd.is_training()


def test_a_bound_net_has_no_way_back():
    (device,) = cpus(1)
    (params,) = replicas_on([device])
    for use in (train_batch, lambda *given, net: TrainStep(*given[2:], net=net)(*given[:2])):
        with pytest.raises(ValueError, match=r"BoundNet has no backward pass, .* use mlp itself"):
            use(*batch(6), [params], [device], 0.1, net=BoundNet(mlp))


def test_a_network_of_gluons_is_sent_to_the_trainer():
    with pytest.raises(TypeError, match=r"train it by mxdp\.Trainer"):
        train(1, 8, 0.1, data="digits", net=gluon.nn.Dense(10))


@pytest.mark.parametrize("name", REFUSED)
def test_a_network_that_cannot_be_recorded_is_refused_before_it_trains(name):
    net, message = REFUSED[name]
    some = cpus(2)
    replicas = replicas_on(some)
    for use in (
        lambda: TrainStep(replicas, some, 0.1, net=net)(*batch(6)),
        lambda: BoundNet(net)(np.array(batch(6)[0]), replicas[0]),
    ):
        with pytest.raises((TypeError, ValueError), match=message) as caught:
            use()
        assert "\n" not in str(caught.value)
        assert 60 < len(str(caught.value)) < 250
        assert str(caught.value).startswith(name_of(net))
        assert not autograd.is_recording()
    for params in replicas:
        assert bits(params) == bits(parameters())
    assert np.ones(2).asnumpy().tolist() == [1, 1], "numbers can be read again"


def test_an_error_of_the_networks_own_stays():
    with pytest.raises(ZeroDivisionError):
        BoundNet(lambda X, params: 1 / 0)(np.array(batch(6)[0]), parameters())


def test_other_threads_may_read_numbers_and_set_modes_while_a_network_is_recorded():
    numbers = []

    def read():
        with autograd.train_mode():
            numbers.append([*np.ones(2).asnumpy().tolist(), autograd.is_training(), autograd.is_recording()])

    def net(X, params):
        reader = threading.Thread(target=read)
        reader.start()
        reader.join()
        return mlp(X, params)

    TrainStep(replicas_on(cpus(1)), cpus(1), 0.1, net=net)(*batch(6))
    assert numbers == [[1, 1, True, False]]
