"""The front door. Its loops are what every other all-reduce must equal."""

import math
import re
import runpy
import sys
from inspect import signature
from pathlib import Path
from types import SimpleNamespace

import numpy as onp
import pytest
from gate import SlowReader
from hypothesis import given, settings
from hypothesis import strategies as st

import mxdp
from mxdp import scratch
from mxdp.backend import autograd, mx, np, upload
from mxdp.datasets import Split, load
from mxdp.engine import CompletionEvent
from mxdp.scratch import cross_entropy, evaluate, get_params, in_sync, init_lenet, naive_allreduce, ring_allreduce

DTYPES = ["float16", "float32", "float64", "int32", "int64", "uint8"]


def cpus(n):
    return [mx.cpu(i) for i in range(n)]


@settings(max_examples=60)
@given(
    weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=6),
    samples=st.integers(1, 50),
    from_host=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    weighted=st.booleans(),
)
def test_shards_put_together_are_the_batch_and_in_proportion_to_weights(weights, samples, from_host, dtype, weighted):
    """They are copies. Fewer samples than devices: one each."""
    n = len(weights)
    batch = onp.arange(samples * 3).reshape(-1, 3).astype(dtype)
    given_ = batch.copy() if from_host else np.array(batch, dtype=dtype)
    shards = scratch.split_and_load(given_, cpus(n), weights if weighted else None)
    given_[:] = 7
    assert {str(onp.dtype(shard.dtype)) for shard in shards} == {dtype}
    assert [shard.ctx for shard in shards] == cpus(min(n, samples))
    onp.testing.assert_array_equal(onp.concatenate([shard.asnumpy() for shard in shards]), batch)
    lengths = [len(shard) for shard in shards]
    assert min(lengths) >= 1
    shares = [samples * weight / sum(weights) for weight in weights]
    if not weighted:
        assert lengths == sorted(lengths, reverse=True)
        assert lengths[0] - lengths[-1] <= 1
    elif min(shares) >= 1:
        assert max(abs(length - share) for length, share in zip(lengths, shares)) <= 1 + 1e-9


@settings(max_examples=60)
@given(
    st.sampled_from([*DTYPES, ">f4", "<f4", ">i8", ">f2"]),
    st.lists(st.integers(0, 4), max_size=4),
    st.sampled_from([1, 2, -1, -3]),
)
def test_upload_copies_any_array(dtype, shape, stride):
    """Also of another byte order, and a view with strides."""
    host = onp.arange(onp.prod(shape)).reshape(shape).astype(dtype)
    host = host[..., ::stride] if shape else host
    expected = host.copy()
    array = upload(host, mx.cpu(1))
    host[...] = 0
    assert (array.ctx, array.shape, onp.dtype(array.dtype).name) == (mx.cpu(1), host.shape, host.dtype.name)
    onp.testing.assert_array_equal(array.asnumpy(), expected)


def test_uploads_do_not_wait_for_a_busy_device():
    """A queue of 60 products; a mark behind the 30th tells whether an upload has waited for them."""
    x = np.ones((700, 700))
    products = [np.dot(x, x) for _ in range(60)]
    half_way = CompletionEvent([products[30]])
    arrays = [upload(onp.ones(3, "float32"), device) for device in cpus(2)]
    assert half_way.at is None
    assert all((array.asnumpy() == 1).all() for array in arrays)
    assert half_way.wait() > 0


def numpy_lenet(X, params):
    """The network in float64, from its definition."""
    W1, b1, W2, b2, W3, b3, W4, b4 = (p.astype("float64") for p in params)

    def layer(X, W, b):
        """A convolution, ReLU and means of 2 x 2."""
        windows = onp.lib.stride_tricks.sliding_window_view(X, W.shape[2:], axis=(2, 3))
        h = onp.maximum(onp.einsum("nchwij,ocij->nohw", windows, W) + b[:, None, None], 0)
        n, c, rows, columns = h.shape
        h = h[:, :, : rows // 2 * 2, : columns // 2 * 2]
        return h.reshape(n, c, rows // 2, 2, columns // 2, 2).mean((3, 5))

    h = layer(layer(X, W1, b1), W2, b2).reshape(len(X), -1)
    return onp.maximum(h @ W3.T + b3, 0) @ W4.T + b4


@given(st.integers(0, 2**32 - 1), st.sampled_from([None, 0.3, 1e-4]))
@settings(max_examples=5)
def test_initial_parameters_are_numpys_normal_numbers_and_biases_are_zero(seed, scale):
    """MXNet's generator is left alone."""
    mx.random.seed(5)
    expected = np.random.uniform(size=3).asnumpy()
    mx.random.seed(5)
    params = init_lenet(seed) if scale is None else init_lenet(seed, scale)
    onp.testing.assert_array_equal(np.random.uniform(size=3).asnumpy(), expected)
    sizes = [(20, 1, 3, 3), (50, 20, 5, 5), (128, 800), (10, 128)]
    drawn = onp.random.RandomState(seed).normal(size=sum(map(math.prod, sizes)))
    start = 0
    for shape, weight, bias in zip(sizes, params[::2], params[1::2]):
        stop = start + math.prod(shape)
        values = ((0.01 if scale is None else scale) * drawn[start:stop]).astype("float32")
        onp.testing.assert_array_equal(weight.asnumpy(), values.reshape(shape))
        onp.testing.assert_array_equal(bias.asnumpy(), onp.zeros(shape[0], "float32"))
        assert {str(onp.dtype(param.dtype)) for param in (weight, bias)} == {"float32"}
        start = stop


def test_scores_and_losses_are_numpys():
    pictures, labels = onp.random.RandomState(1).uniform(size=(2, 1, 28, 28)), onp.array([9, 3])
    params = init_lenet(4, scale=0.2)
    for bias in params[1::2]:
        bias[:] = onp.random.RandomState(2).normal(size=bias.shape)
    for param in params:
        param.attach_grad()
    with autograd.record():
        scores = scratch.lenet(np.array(pictures, dtype="float32"), params)
        loss = cross_entropy(scores, np.array(labels, dtype="int32"))
    loss.backward()
    assert all(param.grad.asnumpy().any() for param in params)
    host = [p.asnumpy().astype("float64") for p in params]
    expected = numpy_lenet(pictures, host)
    onp.testing.assert_allclose(scores.asnumpy(), expected, rtol=1e-4, atol=1e-4)
    losses = onp.log(onp.exp(expected).sum(axis=1)) - expected[onp.arange(2), labels]
    onp.testing.assert_allclose(loss.asnumpy(), losses, rtol=1e-4)


def test_large_scores_do_not_overflow():
    right, wrong = cross_entropy(np.array([[1e4, 0.0]] * 2), np.array([0, 1], dtype="int32")).asnumpy()
    assert right == pytest.approx(0.0, abs=5e-6)  # what oneDNN's exponential and logarithm leave of float32
    assert wrong == pytest.approx(1e4)


@pytest.mark.parametrize("device", [mx.cpu(0), mx.cpu(1)])
def test_copies_have_their_own_memory_and_device_and_gradients_of_zero(device):
    params = [np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([5.0])]
    replica = get_params(params, device)
    params[0][:] = 0
    assert [p.ctx for p in replica] == [p.grad.ctx for p in replica] == [device] * 2
    assert not any(p.grad.asnumpy().any() for p in replica)
    assert replica[0].asnumpy().tolist() == [[1, 2], [3, 4]]


def test_in_sync_waits_for_work_that_only_reads():
    """An inference pass that is still running may change the layout of its weights while they are read."""
    weights = np.ones((4,))
    reader = SlowReader(weights, np.zeros((1,)))
    assert in_sync([[weights]])
    assert reader.ended


def test_in_sync_compares_bits_shapes_counts_and_dtypes():
    first, bit = [np.zeros(2)], np.array([0, 1e-45], dtype="float32")
    for other in ([bit], [-first[0]], [np.zeros((1, 2))], [*first, np.zeros(1)], [np.zeros(2, dtype="int32")]):
        assert not in_sync([first, [np.zeros(2)], other])
    assert in_sync([[np.full(2, float("nan"))] for _ in range(3)])


def linear(X, params):
    return np.dot(X.reshape(len(X), -1), params[0]) + params[1]


def numpys_step(X, y, params, lr):
    """The losses, and SGD by the gradient of the softmax, in float64."""
    W, b = params
    flat = X.reshape(len(X), -1)
    scores = flat @ W + b
    chances = onp.exp(scores) / onp.exp(scores).sum(axis=1, keepdims=True)
    losses = -onp.log(chances[onp.arange(len(y)), y])
    chances[onp.arange(len(y)), y] -= 1
    W -= lr / len(X) * flat.T @ chances
    b -= lr / len(X) * chances.sum(axis=0)
    return losses


@settings(max_examples=20)
@given(
    st.integers(1, 4),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.sampled_from([naive_allreduce, ring_allreduce]),
)
def test_steps_and_their_accuracy_are_numpys(n, lengths, allreduce):
    random = onp.random.RandomState(0)
    expected = [random.normal(size=(6, 3)), random.normal(size=3)]
    devices = [mx.cpu(device) for device in range(n)]
    replicas = [get_params([np.array(x, dtype="float64") for x in expected], device) for device in devices]
    for samples in lengths:
        X, y = random.normal(size=(samples, 2, 3)), random.randint(0, 3, samples).astype("int32")
        losses = scratch.train_batch(X, y, replicas, devices, 0.5, allreduce, linear)
        onp.testing.assert_allclose(onp.concatenate([x.asnumpy() for x in losses]), numpys_step(X, y, expected, 0.5))
    assert in_sync(replicas)
    assert not any(param._fresh_grad for params in replicas for param in params), "each is used"
    for param, values in zip(replicas[0], expected):
        onp.testing.assert_allclose(param.asnumpy(), values, rtol=1e-9, atol=1e-12)
    data = Split(random.normal(size=(11, 1, 2, 3)).astype("float32"), random.randint(0, 3, 11).astype("int32"))
    right = (data.X.reshape(11, -1) @ expected[0] + expected[1]).argmax(axis=1) == data.y
    as_float32 = [get_params([np.array(x, dtype="float32") for x in expected], device) for device in devices]
    for size in (1, 4, 500):
        assert evaluate(data, as_float32, size, linear) == right.mean()


@settings(max_examples=40)
@given(
    st.sampled_from([naive_allreduce, ring_allreduce]),
    st.integers(1, 7),
    st.lists(st.integers(1, 5), max_size=4).map(tuple),
    st.sampled_from(["float32", "float64", "int32"]),
)
def test_each_array_becomes_the_sum_in_place(loop, devices, shape, dtype):
    """In the order of the planned ring, too, which rounds as the loop does."""
    host = [onp.arange(onp.prod(shape)).reshape(shape) * (rank + 1) % 101 / 7 for rank in range(devices)]
    host = [x.astype(dtype) for x in host]
    data, planned = [[np.array(x, dtype=dtype, ctx=mx.cpu(rank)) for rank, x in enumerate(host)] for _ in range(2)]
    names = list(data)
    sent, copyto = [], np.ndarray.copyto
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(np.ndarray, "copyto", lambda x, other: (sent.append(x.size), copyto(x, other))[1])
        assert loop(data) is None
    # To the others and from them; the ring's chunks are then copied back into the arrays.
    assert sum(sent) == (2 * (devices - 1) + devices * (loop is ring_allreduce)) * data[0].size
    assert all(x is name for x, name in zip(data, names))
    mxdp.allreduce(planned, "ring")
    for x, other in zip(data, planned):
        onp.testing.assert_allclose(x.asnumpy(), sum(host), rtol=1e-6)
        assert x.asnumpy().tobytes() == data[0].asnumpy().tobytes()
        if shape and (loop is ring_allreduce or devices <= 2):
            assert x.asnumpy().tobytes() == other.asnumpy().tobytes()


def test_training_ends_with_the_books_line_and_draws(monkeypatch, capsys):
    drawn, accuracies = [], iter([0.25, 0.5])
    data = load("synthetic").take(100, 100)
    monkeypatch.setattr(scratch, "evaluate", lambda split, replicas: (split is data.test) * next(accuracies))

    def draw(label, accuracies):
        drawn.append((label, [*accuracies]))
        accuracies.clear()  # the list is the drawing's

    assert mxdp.in_sync(scratch.train(2, 50, 0.2, 2, data, draw=draw))
    *epochs, last = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in epochs] == ["epoch 1", "epoch 2"], "a line each, into a file"
    assert drawn == [("2 x cpu", [0.25]), ("2 x cpu", [0.25, 0.5])]
    assert last.startswith("test acc: 0.50, ")
    assert last.endswith(" sec/epoch on [cpu(0), cpu(1)]; replicas in sync")
    accuracies = iter([0.25])
    scratch.train(2, 50, 0.2, 1, data, allreduce=lambda data: None)
    assert capsys.readouterr().out.endswith("; replicas OUT OF SYNC\n")


def test_epochs_are_timed_between_fences_and_have_orders_of_their_own(monkeypatch, capsys):
    """Epochs of 1 and of 4 seconds, two steps each."""
    log, times = [], iter([10.0, 11.0, 20.0, 24.0])
    monkeypatch.setattr(scratch.npx, "waitall", lambda: log.append("fence"))
    monkeypatch.setattr(scratch, "time", SimpleNamespace(perf_counter=lambda: (log.append("clock"), next(times))[1]))
    monkeypatch.setattr(scratch, "train_batch", lambda X, *more: log.append(X.tobytes()))
    scratch.train(1, 4, 0.2, 2, load("synthetic").take(8, 1))
    steps = [entry for entry in log if isinstance(entry, bytes)]
    assert len(set(steps)) == 4
    assert [entry if isinstance(entry, str) else "step" for entry in log] == [
        *["fence", "clock", "step", "fence", "step", "fence", "clock"] * 2, "fence"  # in_sync's own
    ]  # fmt: skip
    assert ", 2.5 sec/epoch on " in capsys.readouterr().out


@pytest.mark.parametrize(("samples", "epochs"), [(60000, 3), (1437, 13), (5000, 4)])
def test_the_command_trains_on_each_number_of_devices_with_20000_samples_or_three_epochs(samples, epochs, monkeypatch):
    asked, data = [], SimpleNamespace(train=range(samples))
    monkeypatch.setattr(scratch, "load", lambda name: data)
    monkeypatch.setattr(scratch, "train", lambda n, **more: asked.append((n, more)))
    assert scratch.main(["--devices", "1, 3"]) == scratch.main(["--devices", "2", "--epochs", "7"]) == 0
    options = dict(batch_size=128, lr=0.25, data=data, scale=0.1)
    assert asked == [(n, dict(options, num_epochs=count)) for n, count in ((1, epochs), (3, epochs), (2, 7))]


def test_defaults_are_the_books():
    defaults = {
        init_lenet: (0, 0.01),
        evaluate: (500, scratch.lenet),
        scratch.train_batch: (ring_allreduce, scratch.lenet, cross_entropy),
        scratch.train: (10, "auto", ring_allreduce, None, 0.01),
    }
    for function, values in defaults.items():
        given_ = [each.default for each in signature(function).parameters.values()]
        assert given_[-len(values) :] == list(values)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--data", "digit", "no data set is called 'digit'"),
        ("--devices", "0", "--devices takes numbers of devices, such as 1,2, not '0'"),
        ("--devices", "two", "'two'"),
        ("--epochs", "0", "num_epochs must be a positive int, not 0"),
    ],
)
def test_a_bad_command_is_told_in_a_sentence(option, value, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["scratch", "--data", "digits", option, value])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(scratch.__file__, run_name="__main__")
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_it_can_be_read_in_one_sitting():
    source = Path(scratch.__file__).read_text(encoding="utf-8")
    lines = source.splitlines()
    assert len(lines) <= 280
    assert max(map(len, lines)) <= 100
    modules = set(re.findall(r"^from (mxdp\S*)", source, re.M))
    assert modules == {"mxdp", "mxdp.backend", "mxdp.datasets", "mxdp.errors", "mxdp.plans.partition"}
    (after,) = re.findall(r"Read next: (\S+?),", source)
    assert Path(scratch.__file__).parents[1].joinpath(after).exists()
