"""Data-parallel training from scratch: read it from top to bottom, or ``python -m mxdp.scratch``.

Every device holds a *replica*: a copy of all parameters. One step on two devices::

                     cpu(0)                        cpu(1)
    split_batch      shard 0 of the batch          shard 1 of the batch
    backward         gradient g0                   gradient g1
    all-reduce       g0 + g1        <--------->    g0 + g1
    sgd              the same change               the same change

Replicas that are equal before a step are equal after it. MXNet queues work and returns at once, so
devices work side by side. A function waits for them only where its docstring says so.
Source: d2l.ai, "Training on Multiple GPUs".
"""

from __future__ import annotations

import sys
import time
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import numpy as onp

from mxdp import backend, datasets
from mxdp.backend import Batch, Device, Devices, NDArray, Shares, autograd, np, npx
from mxdp.datasets import Dataset, Split, load
from mxdp.errors import SentenceParser, as_command
from mxdp.plans.partition import cuts

Arrays = List[NDArray]
Params = Sequence[NDArray]
Replicas = Sequence[Params]
Function = Callable[..., Any]
SHAPES = ((20, 1, 3, 3), (20,), (50, 20, 5, 5), (50,), (128, 800), (128,), (10, 128), (10,))


def init_lenet(seed: int = 0, scale: float = 0.01) -> Arrays:
    """Float32 arrays on ``cpu(0)``: weights from N(0, ``scale``), biases zero, by ``seed``."""
    rng = onp.random.RandomState(seed)
    params = []
    for shape in SHAPES:
        values = rng.normal(scale=scale, size=shape) if len(shape) > 1 else onp.zeros(shape)
        params.append(np.array(values, dtype="float32"))
    return params


def lenet(X: NDArray, params: Params) -> NDArray:
    """Scores (n, 10) of pictures (n, 1, 28, 28): LeNet (LeCun et al., Proc. IEEE 86, 1998)."""
    if tuple(param.shape for param in params) != SHAPES:
        raise ValueError("params lack lenet's shapes: get_params(init_lenet(), device) makes them")
    if X.dtype != params[0].dtype:
        raise ValueError(f"X is {onp.dtype(X.dtype)}, which lenet can't take: X.astype('float32')")
    if X.shape[1:] != (1, 28, 28):
        raise ValueError(f"X has the shape {X.shape}, but lenet takes pictures (n, 1, 28, 28)")
    W1, b1, W2, b2, W3, b3, W4, b4 = params
    h = npx.convolution(X, W1, b1, kernel=(3, 3), num_filter=20)
    h = npx.activation(h, act_type="relu")
    h = npx.pooling(h, pool_type="avg", kernel=(2, 2), stride=(2, 2))  # (n, 20, 13, 13)
    h = npx.convolution(h, W2, b2, kernel=(5, 5), num_filter=50)
    h = npx.activation(h, act_type="relu")
    h = npx.pooling(h, pool_type="avg", kernel=(2, 2), stride=(2, 2))  # (n, 50, 4, 4)
    h = npx.activation(npx.fully_connected(h, W3, b3, num_hidden=128), act_type="relu")
    return npx.fully_connected(h, W4, b4, num_hidden=10)


def cross_entropy(y_hat: NDArray, y: NDArray) -> NDArray:
    """The loss of each sample (n,), from scores (n, classes) and labels (n,)."""
    return -npx.pick(npx.log_softmax(y_hat), y)


def sgd(params: Params, lr: float, batch_size: int) -> None:
    """``param -= lr / batch_size * param.grad``, in place: a gradient is the whole batch's sum."""
    datasets.finite("batch_size", batch_size, above=0)
    for param in params:
        param -= lr / batch_size * param.grad
        param._fresh_grad = False  # it is used: no later sum counts it again


def get_params(params: Params, device: Device) -> Arrays:
    """A replica: copies of ``params`` on ``device``, each with a gradient, which starts at zero."""
    backend.check_device_list([device])
    backend.check_params(params)
    replica = [param.copyto(device) for param in params]
    for param in replica:
        param.attach_grad()
    return replica


def in_sync(device_params: Replicas) -> bool:
    """Whether all replicas are equal, bit for bit. Waits. Leave out running means, which differ."""
    npx.waitall()  # MXNet fails if we read an array that an operator is still using
    replicas = []
    for params in device_params:
        replicas.append([(x.shape, x.dtype, x.asnumpy().tobytes()) for x in params])
    return all(replica == replicas[0] for replica in replicas)


def split_and_load(x: Batch, devices: Devices, weights: Shares = None) -> Arrays:
    """Cut ``x`` (n, ...) into a shard for each device, at most n, and copy it there. The first get
    the extra samples; with ``weights``, such as the devices' speeds, sizes follow the weights."""
    backend.use_numpy()  # for the network that takes the shards
    backend.check_arrays(x=x)
    devices = backend.check_device_list(devices)[: len(x)] if len(x) else []  # a rank may have none
    borders = cuts(len(x), len(devices) or 1, weights if len(x) > len(devices) else None)
    if isinstance(x, onp.ndarray):
        return [backend.upload(*pair) for pair in zip(onp.array_split(x, borders), devices)]
    return [shard.copyto(device) for shard, device in zip(np.array_split(x, borders), devices)]


def split_batch(X: Batch, y: Batch, devices: Devices, weights: Shares = None) -> Tuple[Arrays, ...]:
    """Split samples and labels alike: ``(X_shards, y_shards)``."""
    backend.check_arrays(X=X, y=y)
    if len(X) != len(y):
        raise ValueError(f"X has {len(X)} samples and y has {len(y)} labels: pass one for each")
    return split_and_load(X, devices, weights), split_and_load(y, devices, weights)


def naive_allreduce(data: Sequence[NDArray]) -> None:
    """The book's: device 0 adds up all arrays, in place, and sends the sum back to every device.

    >>> data = [np.ones(2, ctx=cpu) * (i + 1) for i, cpu in enumerate(backend.devices(2, "cpu"))]
    >>> print(*data)
    [1. 1.] [2. 2.]
    >>> naive_allreduce(data)
    >>> print(*data)
    [3. 3.] [3. 3.]
    """
    total, *others = data
    for x in others:
        total += x.copyto(total.ctx)
    for x in others:
        total.copyto(x)


def ring_allreduce(data: Sequence[NDArray]) -> None:
    """The same sums, in place, with no device in the middle: each sends to its right neighbour.

    Three devices with the chunks a, b, c of their arrays. Capitals are complete sums::

                  device 0        device 1        device 2
        start     a0  b0  c0      a1  b1  c1      a2  b2  c2
        reduce-scatter: the right neighbour adds what arrives
        step 0    a0  b02 c0      a1  b1  c01     a12 b2  c2          0 -c-> 1   1 -a-> 2   2 -b-> 0
        step 1    A   b02 c0      a1  B   c01     a12 b2  C           0 -b-> 1   1 -c-> 2   2 -a-> 0
        all-gather: the right neighbour overwrites with what arrives
        step 0    A   b02 C       A   B   c01     a12 B   C           0 -a-> 1   1 -b-> 2   2 -c-> 0
        step 1    A   B   C       A   B   C       A   B   C           0 -c-> 1   1 -a-> 2   2 -b-> 0

    A device sends 2 (n - 1) / n of its array (Patarasuk and Yuan, JPDC 69, 2009). Chunks are
    copies, since MXNet's ``array_split`` makes new arrays. So the last two lines copy sums back.
    """
    n = len(data)
    chunks = [np.array_split(x.reshape(-1), n) for x in data]  # chunks[device][number]
    for step in range(n - 1):
        for device in range(n):
            right = (device + 1) % n
            number = (device - 1 - step) % n
            chunks[right][number] += chunks[device][number].copyto(data[right].ctx)
    for step in range(n - 1):
        for device in range(n):
            right = (device + 1) % n
            number = (device - step) % n
            chunks[device][number].copyto(chunks[right][number])
    for x, parts in zip(data, chunks):
        np.concatenate(parts).reshape(x.shape).copyto(x)


def train_batch(
    X: Batch,
    y: Batch,
    device_params: Replicas,
    devices: Devices,
    lr: float,
    allreduce: Function = ring_allreduce,
    net: Function = lenet,
    loss: Function = cross_entropy,
) -> Arrays:
    """One step on samples ``X`` (n, ...) and labels ``y`` (n,). Returns the losses of each shard.

    ``allreduce`` sums, in place, one parameter's gradients on all devices. ``net(X, params)`` gives
    scores; ``loss(scores, y)`` gives a loss for each sample, (n,), else a ValueError is raised."""
    backend.check_batch(X, y)
    backend.check_replicas(device_params, devices)
    datasets.finite("lr", lr)
    backend.check_functions(allreduce=allreduce, net=net, loss=loss)
    X_shards, y_shards = split_batch(X, y, devices)
    with autograd.record():
        scores = [net(X, W) for X, W in zip(X_shards, device_params)]
        if loss is cross_entropy:
            datasets.check_labels(y, classes=scores[0].shape[-1])
        losses = [loss(*pair) for pair in zip(scores, y_shards)]
    backend.backward(losses, device_params, y_shards)  # zero where net doesn't use a parameter
    if len(devices) > 1:
        for same_param in zip(*device_params):
            allreduce([param.grad for param in same_param])
    for params in device_params:
        sgd(params, lr, len(X))
    return losses


def evaluate(
    data: Split, device_params: Replicas, batch_size: int = 500, net: Function = lenet
) -> float:  # fmt: skip
    """The share of samples whose label has the highest score, 0.0 to 1.0, by all devices. Waits."""
    if not isinstance(data, Split) or not len(data):
        raise ValueError(f"evaluate takes a Split with samples, not {data!r:.60}")
    devices = backend.check_replicas(device_params)
    right = 0
    size = datasets.positive_int("batch_size", batch_size) * len(devices)
    for X, y in datasets.sequential(data, size):
        shards = zip(*split_batch(X, y, devices), device_params)
        answers = [(net(X, params).argmax(axis=1), y) for X, y, params in shards]
        hits = [(answer.astype(y.dtype) == y).sum() for answer, y in answers]
        right += sum(hit.item() for hit in hits)
    return float(right / len(data))


def train(
    num_devices: int,
    batch_size: int,
    lr: float,
    num_epochs: int = 10,
    data: Union[str, Dataset] = "auto",
    allreduce: Function = ring_allreduce,
    draw: Optional[Function] = None,
    scale: float = 0.01,
) -> List[Arrays]:
    """Train ``init_lenet(0, scale)``; returns its replicas. After each epoch it calls ``draw(label,
    test_accuracies)``, such as :class:`mxdp.Curves`. Waits after each step (``mxdp.train`` not)."""
    backend.check_functions(draw=draw or print)
    devices = backend.devices(num_devices)
    seconds: List[float] = []
    accuracies: List[float] = []
    device_params = [get_params(init_lenet(0, scale), device) for device in devices]
    dataset = datasets.to_train(data)
    for epoch in range(datasets.positive_int("num_epochs", num_epochs)):
        npx.waitall()
        start = time.perf_counter()
        for X, y in datasets.minibatches(dataset.train, batch_size, seed=0, epoch=epoch):
            train_batch(X, y, device_params, devices, lr, allreduce)
            npx.waitall()
        seconds.append(time.perf_counter() - start)
        accuracies.append(evaluate(dataset.test, device_params))
        line = f"epoch {epoch + 1}: {seconds[-1]:.2f} sec, test acc: {accuracies[-1]:.2f}"
        print(line, end="\r" if sys.stdout.isatty() else "\n", flush=True)
        if draw:
            draw(f"{num_devices} x {devices[0].device_type}", [*accuracies])
    state = "in sync" if in_sync(device_params) else "OUT OF SYNC"
    mean = sum(seconds) / num_epochs
    print(f"test acc: {accuracies[-1]:.2f}, {mean:.1f} sec/epoch on {devices}; replicas {state}")
    return device_params


@as_command(usage=ValueError)
def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Train as the options say. The book's scale, 0.01, would leave the first epochs at 0.10."""
    parser = SentenceParser("python -m mxdp.scratch", description="Train LeNet.")
    parser.add_argument("--devices", default="1,2", help="numbers of devices to train on, in turn")
    parser.add_argument("--data", default="auto", help="fashion-mnist, digits, auto or FILE.npz")
    parser.add_argument("--epochs", type=int, help="default: 20,000 samples, at least 3 epochs")
    options = parser.parse_args(arguments)
    counts = options.devices.split(",")
    if not all(n.strip().isdecimal() and int(n) for n in counts):
        parser.error(f"--devices takes numbers of devices, such as 1,2, not {options.devices!r}")
    data = load(options.data)
    epochs = max(3, 20000 // len(data.train)) if options.epochs is None else options.epochs
    for n in counts:
        train(int(n), batch_size=128, lr=0.25, num_epochs=epochs, data=data, scale=0.1)


if __name__ == "__main__":
    sys.exit(main())
# Read next: mxdp/training/step.py, the same step with fewer Python calls; mxdp.train takes it.
