"""Networks as readers write them: recorded with the bits of ``train_batch``, or refused in one sentence."""

from __future__ import annotations

import threading

import numpy as onp
import pytest

from mxdp.backend import autograd, devices, gluon, mx, np, npx
from mxdp.scratch import cross_entropy, get_params, train_batch
from mxdp.training import BoundNet, TrainStep, train, train_steps

IN, HIDDEN, OUT = 12, 7, 4
FACTOR = 0.7


def batch(samples, seed=0, shape=(3, 4)):
    random = onp.random.RandomState(seed)
    return random.normal(size=(samples, *shape)).astype("float32"), random.randint(0, OUT, samples).astype("int32")


def parameters(seed=0):
    random = onp.random.RandomState(seed)
    return [np.array(random.normal(size=s), dtype="float32") for s in [(IN, HIDDEN), (HIDDEN,), (HIDDEN, OUT), (OUT,)]]


def bits(arrays):
    return [array.asnumpy().tobytes() for array in arrays]


def dense(X, W, b):
    return np.dot(X, W) + b


def relu(h):
    return np.maximum(h, 0)


def mlp(X, params):
    W1, b1, W2, b2 = params
    return dense(relu(dense(X.reshape(len(X), -1), W1, b1)), W2, b2)


def with_module(X, params):
    h = mx.np.dot(X.reshape((X.shape[0], IN)), params[0]) * FACTOR
    return mx.np.tanh(h + params[1]) @ params[2]  # without the last one


def chosen(X, params):
    h = mx.npx.leaky_relu(X.reshape(-1, IN) @ params[0] + params[1], act_type="leaky")
    h = (h - h.mean(axis=1, keepdims=True)) / h.std(axis=1, keepdims=True)
    return np.where(h > 0, h, np.zeros_like(h)) @ params[2][:, :OUT] + params[3]


def pooled(X, params):
    h = npx.pooling(X[:, None], kernel=(2, 2), pool_type="max").reshape(-1, 6)
    return npx.layer_norm(h, params[0][:6, 0], params[0][6:, 0])[:, :OUT] + params[3]


WORK = {
    "helper functions": (mlp, cross_entropy),
    "mx.np, a global number, an unused parameter": (with_module, cross_entropy),
    "statistics, masks, slices": (chosen, cross_entropy),
    "pooling and layer_norm": (pooled, cross_entropy),
    "gluon's loss": (mlp, gluon.loss.SoftmaxCrossEntropyLoss()),
}


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("name", WORK)
def test_a_network_of_ones_own_has_the_bits_of_train_batch(name, n):
    net, loss = WORK[name]
    some, batches = devices(n, "cpu"), [batch(samples, seed) for seed, samples in enumerate((9, 9, 4, 1, 9, 2))]
    fast, slow = ([get_params(parameters(), device) for device in some] for _ in range(2))
    bound = BoundNet(net)
    for pair in batches:
        last = train_steps([pair], TrainStep(fast, some, 0.3, net=net, loss=loss))
        losses = train_batch(*pair, slow, some, 0.3, net=net, loss=loss)
        assert bits(last) == bits(losses)
        assert [bits(params) for params in fast] == [bits(params) for params in slow]
        X = np.array(pair[0])
        assert bits([bound(X, fast[0])]) == bits([net(X, slow[0])]), "with the parameters as they are now"
    assert bits(fast[0])[0] != bits(parameters())[0]


@pytest.mark.parametrize("dtype", ["uint8", "float64"])
def test_samples_of_any_shape_and_labels_that_are_no_classes(dtype):
    def net(X, params):
        return (X.astype("float32") @ params[0] + params[1])[:, 0]

    (device,), random = devices(1, "cpu"), onp.random.RandomState(0)
    fast, slow = (get_params(parameters()[:2], device) for _ in range(2))
    step = TrainStep([fast], [device], 0.1, net=net, loss=gluon.loss.L2Loss())
    for samples in (6, 3, 6):
        X, y = random.randint(0, 9, size=(samples, IN)).astype(dtype), random.normal(size=samples).astype("float32")
        step(X, y)
        train_batch(X, y, [slow], [device], 0.1, net=net, loss=gluon.loss.L2Loss())
    assert bits(fast) == bits(slow)


def test_a_step_calls_the_network_for_new_shapes_alone():
    (device,), calls = devices(1, "cpu"), []

    def counted(X, params):
        calls.append((len(X), autograd.is_training()))
        return mlp(X, params)

    params, net = get_params(parameters(), device), BoundNet(counted)
    other = get_params(params, device)
    step = TrainStep([params], [device], 0.1, net=counted)
    for number, samples in enumerate((9, 9, 6, 9, 3, 9, 7, 8, 9, 5, 9, 6, 3, 10, 9)):  # at most four are kept
        step(*batch(samples, number))
        train_batch(*batch(samples, number), [other], [device], 0.1, net=mlp)
        X = np.array(batch(samples)[0])
        assert bits([net(X, params)]) == bits([mlp(X, params)])
    assert bits(params) == bits(other)
    both = [(samples, training) for samples in (9, 6, 3, 7, 8, 5, 6, 3, 10) for training in (True, False)]
    assert calls == [*both, (9, True)]  # the step forgets smaller ones, for a larger one has other memory


def test_samples_of_another_dtype_are_not_cast():
    params, net = [np.array([2.0])], BoundNet(lambda X, params: X * params[0])
    for dtype in ("float32", "float64", "float32"):
        assert net(np.ones((3, 1), dtype=dtype), params).dtype == dtype


def test_dropout_is_for_training_alone():
    def net(X, params):
        return npx.dropout(X.reshape(len(X), -1) * params[0][0, 0], p=0.5)

    (device,) = devices(1, "cpu")
    params, X = get_params(parameters(), device), np.array(batch(50)[0])
    step = TrainStep([params], [device], 0.0, net=net, loss=lambda y_hat, y: (y_hat == 0).sum(axis=1) + 0 * y_hat[:, 0])
    dropped = [float(step(*batch(50))[0].sum()) for _ in range(3)]
    assert 200 < min(dropped) < max(dropped) < 400, "of 600, others in each step"
    assert not (BoundNet(net)(X, params) == 0).any()


MEAN = np.ones((IN,))


def flat(X):
    return X.reshape(len(X), -1)


REFUSED = {
    "if": (lambda X, params: mlp(X, params) if X.sum() > 0 else X, "reads numbers of an array"),
    "asnumpy": (lambda X, params: mlp(X, params) + X.asnumpy().mean(), "reads numbers of an array"),
    "NumPy": (lambda X, params: mlp(X, params) + onp.asarray(X).mean(), "reads numbers of an array"),
    "a global array": (lambda X, params: mlp(flat(X) - MEAN, params), "none of its arguments"),
    "np.random": (lambda X, params: mlp(X * (np.random.uniform(size=X.shape) > 0.5), params), "none of its arguments"),
    "detached": (lambda X, params: mlp(X, params) + mlp(X, params).detach(), "none of its arguments"),
    "nothing": (lambda X, params: np.ones((len(X), OUT)), "none of its arguments"),
    "no array": (lambda X, params: [mlp(X, params)], "must return one array of MXNet's np, .* not a list"),
    "batch_norm of new arrays": (
        lambda X, params: npx.batch_norm(mlp(X, params), *params[3:] * 2, np.zeros(OUT), np.ones_like(params[3])),
        "uses batch_norm, whose running means would differ by device",
    ),
    "a mask as an index": (lambda X, params: mlp(X, params) * flat(X)[flat(X) > 0].sum(), "shape depends on numbers"),
}


def test_a_network_of_gluons_is_sent_to_the_trainer():
    with pytest.raises(TypeError, match=r"train it by mxdp\.Trainer"):
        train(1, 8, 0.1, data="digits", net=gluon.nn.Dense(10))


@pytest.mark.parametrize("name", REFUSED)
def test_a_network_that_cannot_be_recorded_is_refused_before_it_trains(name):
    net, message = REFUSED[name]
    some = devices(2, "cpu")
    replicas = [get_params(parameters(), device) for device in some]
    for use in (
        lambda: TrainStep(replicas, some, 0.1, net=net)(*batch(6)),
        lambda: BoundNet(net)(np.array(batch(6)[0]), replicas[0]),
    ):
        with pytest.raises((TypeError, ValueError), match=message) as caught:
            use()
        assert "\n" not in str(caught.value)
        assert 60 < len(str(caught.value)) < 250
        assert str(caught.value).startswith("<lambda>")
    for params in replicas:
        assert bits(params) == bits(parameters())
    assert np.ones(2).asnumpy().tolist() == [1, 1], "numbers can be read again"


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda y_hat, y: cross_entropy(y_hat, y).mean(), r"must return the loss of each sample, .* \(3,\), not \(\)"),
        (lambda y_hat, y: y_hat, r"not \(3, 4\): leave its mean or sum out"),
        (lambda y_hat, y: -np.log(npx.softmax(y_hat)[range(len(y_hat)), y]), "none of its arguments"),
        (lambda y_hat, y: 0 * y, "uses none of its params"),
    ],
)
def test_a_loss_must_give_each_samples(loss, message):
    some = devices(2, "cpu")
    step = TrainStep([get_params(parameters(), device) for device in some], some, 0.1, net=mlp, loss=loss)
    with pytest.raises(ValueError, match=message):
        step(*batch(6))


def test_an_error_of_the_networks_own_stays():
    with pytest.raises(ZeroDivisionError):
        BoundNet(lambda X, params: 1 / 0)(np.array(batch(6)[0]), parameters())


def test_other_threads_may_read_numbers_while_a_network_is_recorded():
    numbers = []

    def net(X, params):
        reader = threading.Thread(target=lambda: numbers.append(np.ones(2).asnumpy().tolist()))
        reader.start()
        reader.join()
        return mlp(X, params)

    (device,) = devices(1, "cpu")
    TrainStep([get_params(parameters(), device)], [device], 0.1, net=net)(*batch(6))
    assert numbers == [[1, 1]]
