"""Data-parallel training from scratch: to be read from top to bottom, or run by ``python -m mxdp.scratch``.

Every device holds a *replica*: a copy of all parameters. One step on two devices::

                     cpu(0)                        cpu(1)
    split_batch      shard 0 of the batch          shard 1 of the batch
    backward         gradient g0                   gradient g1
    all-reduce       g0 + g1        <--------->    g0 + g1
    sgd              the same change               the same change

Replicas that are equal before a step are equal after it. MXNet queues work and returns at once, so that devices work
side by side: a function waits only where its docstring says so. Source: d2l.ai, "Training on Multiple GPUs".
"""

from __future__ import annotations

import argparse
import reprlib
import sys
import time
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import numpy as onp

from mxdp.backend import Batch, Device, NDArray, autograd, check_arrays, check_devices, check_replicas, np, npx, upload
from mxdp.backend import devices as find_devices
from mxdp.datasets import CLASSES, Dataset, Split, check_labels, finite, load, minibatches, positive_int, sequential
from mxdp.errors import MxdpError

Function = Callable[..., Any]
Params = Sequence[NDArray]
SHAPES = ((20, 1, 3, 3), (20,), (50, 20, 5, 5), (50,), (128, 800), (128,), (10, 128), (10,))  # weight, bias, weight ...


def init_lenet(seed: int = 0, scale: float = 0.01) -> List[NDArray]:
    """Float32 arrays on ``cpu(0)``: weights from N(0, ``scale``), biases zero; the same for the same seed."""
    rng = onp.random.RandomState(seed)
    return [np.array(rng.normal(scale=scale, size=s) if len(s) > 1 else onp.zeros(s), dtype="float32") for s in SHAPES]


def lenet(X: NDArray, params: Params) -> NDArray:
    """Scores (n, 10) of pictures ``X`` (n, 1, 28, 28): LeNet (LeCun et al., Proc. IEEE 86, 1998) as in the book."""
    W1, b1, W2, b2, W3, b3, W4, b4 = params
    h = npx.activation(npx.convolution(X, W1, b1, kernel=(3, 3), num_filter=20), act_type="relu")  # (n, 20, 26, 26)
    h = npx.pooling(h, pool_type="avg", kernel=(2, 2), stride=(2, 2))  # (n, 20, 13, 13)
    h = npx.activation(npx.convolution(h, W2, b2, kernel=(5, 5), num_filter=50), act_type="relu")  # (n, 50, 9, 9)
    h = npx.pooling(h, pool_type="avg", kernel=(2, 2), stride=(2, 2))  # (n, 50, 4, 4)
    h = npx.activation(npx.fully_connected(h, W3, b3, num_hidden=128), act_type="relu")
    return npx.fully_connected(h, W4, b4, num_hidden=10)


def cross_entropy(y_hat: NDArray, y: NDArray) -> NDArray:
    """The loss of each sample (n,), from scores (n, classes) and labels (n,). ``backward`` sums over the samples."""
    return -npx.pick(npx.log_softmax(y_hat), y)


def sgd(params: Params, lr: float, batch_size: int) -> None:
    """``param -= lr / batch_size * param.grad``, in place: the gradient is the sum over the whole batch."""
    for param in params:
        param -= lr / batch_size * param.grad


def get_params(params: Params, device: Device) -> List[NDArray]:
    """A replica: ``params`` copied to ``device``, each copy with a gradient (``attach_grad``), which starts at zero."""
    check_devices([device])
    replica = [param.copyto(device) for param in params]
    for param in replica:
        param.attach_grad()
    return replica


def in_sync(device_params: Sequence[Params]) -> bool:
    """Are all replicas equal bit for bit? Waits. Leave out running means and variances: they belong to one device."""
    return len({tuple((x.shape, x.dtype, x.asnumpy().tobytes()) for x in params) for params in device_params}) <= 1


def check_batch(X: Batch, y: Batch, device_params: Sequence[Params], net: Function, loss: Function) -> None:
    """Raise where :func:`lenet` or :func:`cross_entropy` would fail, or take a label for another. Doesn't wait."""
    check_arrays(X=X, y=y)
    if net is lenet:
        for number, params in enumerate(device_params):
            if tuple(param.shape for param in params) != SHAPES:
                raise ValueError(f"replica {number} is none of lenet's: get_params(init_lenet(), device) makes one")
        if X.dtype != device_params[0][0].dtype:
            raise ValueError(f"X is {onp.dtype(X.dtype)}, which lenet can't take: convert it, by X.astype('float32')")
        if X.shape[1:] != (1, 28, 28):
            raise ValueError(f"X has the shape {X.shape}, but lenet takes pictures of shape (n, 1, 28, 28)")
    if loss is cross_entropy:
        check_labels(y, CLASSES if net is lenet else None)


def split_and_load(x: Batch, devices: Sequence[Device]) -> List[NDArray]:
    """Cut ``x`` (n, ...) into a shard for each device and copy it there. Lengths differ by one, longer shards first."""
    check_arrays(x=x)
    check_devices(devices)
    samples = len(x) if x.ndim else 0
    if samples < len(devices):
        raise ValueError(f"can't split a batch of {samples} over {len(devices)} devices: use fewer, devices[: len(X)]")
    if isinstance(x, onp.ndarray):
        return [upload(shard, device) for shard, device in zip(onp.array_split(x, len(devices)), devices)]
    return [shard.copyto(device) for shard, device in zip(np.array_split(x, len(devices)), devices)]


def split_batch(X: Batch, y: Batch, devices: Sequence[Device]) -> Tuple[List[NDArray], List[NDArray]]:
    """Split samples and labels alike: ``(X_shards, y_shards)``."""
    check_arrays(X=X, y=y)
    if X.shape[:1] != y.shape[:1]:
        samples, labels = (len(x) if x.ndim else 0 for x in (X, y))
        raise ValueError(f"X has {samples} samples and y has {labels} labels: pass one label for each sample")
    return split_and_load(X, devices), split_and_load(y, devices)


def naive_allreduce(data: Sequence[NDArray]) -> None:
    """The book's: device 0 adds up all arrays, in place, and sends the sum back to every device. All have one shape."""
    total, *others = data
    for x in others:
        total += x.copyto(total.ctx)
    for x in others:
        total.copyto(x)


def ring_allreduce(data: Sequence[NDArray]) -> None:
    """The same sums, in place, with no device in the middle: each sends to its right neighbour only, a chunk a step.

    Three devices with the chunks a, b, c of their arrays. Capitals are complete sums::

                  device 0        device 1        device 2
        start     a0  b0  c0      a1  b1  c1      a2  b2  c2
        reduce-scatter: the right neighbour adds what arrives
        step 0    a0  b02 c0      a1  b1  c01     a12 b2  c2          0 -c-> 1   1 -a-> 2   2 -b-> 0
        step 1    A   b02 c0      a1  B   c01     a12 b2  C           0 -b-> 1   1 -c-> 2   2 -a-> 0
        all-gather: the right neighbour overwrites with what arrives
        step 0    A   b02 C       A   B   c01     a12 B   C           0 -a-> 1   1 -b-> 2   2 -c-> 0
        step 1    A   B   C       A   B   C       A   B   C           0 -c-> 1   1 -a-> 2   2 -b-> 0

    A device sends 2 (n - 1) / n of its array (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009).
    """
    n = len(data)
    chunks = [np.array_split(x.reshape(-1), n) for x in data]  # chunks[device][number]
    for step in range(n - 1):
        for device in range(n):
            right, number = (device + 1) % n, (device - 1 - step) % n
            chunks[right][number] += chunks[device][number].copyto(data[right].ctx)
    for step in range(n - 1):
        for device in range(n):
            right, number = (device + 1) % n, (device - step) % n
            chunks[device][number].copyto(chunks[right][number])
    for x, parts in zip(data, chunks):
        np.concatenate(parts).reshape(x.shape).copyto(x)


def train_batch(
    X: Batch,
    y: Batch,
    device_params: Sequence[Params],
    devices: Sequence[Device],
    lr: float,
    allreduce: Function = ring_allreduce,
    sync: Optional[Function] = None,
    net: Function = lenet,
    loss: Function = cross_entropy,
    samples: Optional[int] = None,
) -> List[NDArray]:
    """One step on a batch, samples ``X`` (n, ...) and labels ``y`` (n,). Returns the losses of each shard's samples.

    ``allreduce`` sums, in place, a list of one parameter's gradients on all devices; ``sync`` instead sums all of them
    at once (:class:`mxdp.GradientSync`). The sum is divided once, by the whole batch (``samples``, if ``X`` is a part).
    """
    check_replicas(device_params, devices)
    check_batch(X, y, device_params, net, loss)
    finite("lr", lr)
    if any(params[0].grad is None for params in device_params):
        raise ValueError("a replica has no gradients: get_params(params, device) makes one that has")
    if not callable(sync or allreduce):
        raise TypeError(f"allreduce must be a function, such as ring_allreduce, not {sync or allreduce!r}")
    X_shards, y_shards = split_batch(X, y, devices[: len(X)] or devices) if len(X) or not samples else ([], [])
    with autograd.record():
        losses = [loss(net(X, params), y) for X, y, params in zip(X_shards, y_shards, device_params)]
        idle = [np.zeros_like(param) for params in device_params[len(losses) :] for param in params]
    autograd.backward([*losses, *idle])  # On a device without a sample, every gradient becomes zero.
    if sync:
        sync()
    elif len(devices) > 1:
        for same_param in zip(*device_params):
            allreduce([param.grad for param in same_param])
    for params in device_params:
        sgd(params, lr, samples or len(X))
    return losses


def evaluate(data: Split, device_params: Sequence[Params], batch_size: int = 500, net: Function = lenet) -> float:
    """The share of samples whose label gets the highest score: 0.0 to 1.0, computed on all devices. Waits."""
    if not isinstance(data, Split) or not len(data):
        raise ValueError(f"evaluate needs a Split with samples, such as load('digits').test, not {reprlib.repr(data)}")
    devices, right = check_replicas(device_params), 0
    check_batch(data.X[:1], data.y[:1], device_params, net, cross_entropy)
    for X, y in sequential(data, positive_int("batch_size", batch_size) * len(devices)):
        shards = zip(*split_batch(X, y, devices[: len(X)]), device_params)
        right += sum(n.item() for n in [(net(X, W).argmax(axis=1).astype(y.dtype) == y).sum() for X, y, W in shards])
    return float(right / len(data))


def train(
    num_devices: int,
    batch_size: int,
    lr: float,
    num_epochs: int = 10,
    data: Union[str, Dataset] = "auto",
    allreduce: Function = ring_allreduce,
    draw: Optional[Function] = None,
) -> List[List[NDArray]]:
    """Train LeNet; returns the replicas. Waits after each step, which :func:`mxdp.train`, the fast version, does not.
    After each epoch, ``draw(label, test_accuracies)`` is called: :class:`mxdp.Curves`."""
    positive_int("num_epochs", num_epochs)
    if not callable(draw or print):
        raise TypeError(f"draw must be a function, such as mxdp.Curves(), not {draw!r}")
    devices, dataset = find_devices(num_devices), data if isinstance(data, Dataset) else load(data)
    device_params, seconds, accuracies = [get_params(init_lenet(), device) for device in devices], [], []
    for epoch in range(num_epochs):
        npx.waitall()
        start = time.perf_counter()
        for X, y in minibatches(dataset.train, batch_size, seed=0, epoch=epoch):
            train_batch(X, y, device_params, devices, lr, allreduce)
            npx.waitall()
        seconds.append(time.perf_counter() - start)
        accuracies.append(evaluate(dataset.test, device_params))
        end = "\r" if sys.stdout.isatty() else "\n"
        print(f"epoch {epoch + 1}: {seconds[-1]:.2f} sec, test acc: {accuracies[-1]:.2f}", end=end, flush=True)
        if draw:
            draw(f"{num_devices} x {devices[0].device_type}", accuracies)
    state = "in sync" if in_sync(device_params) else "OUT OF SYNC"
    print(f"test acc: {accuracies[-1]:.2f}, {sum(seconds) / num_epochs:.1f} sec/epoch on {devices}; replicas {state}")
    return device_params


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m mxdp.scratch", description="LeNet on one device, then on two.")
    parser.add_argument("--devices", default="1,2", help="numbers of devices, one training for each (default 1,2)")
    parser.add_argument("--data", default="auto", help="fashion-mnist, digits, synthetic or auto (default)")
    parser.add_argument("--epochs", type=int, help="default: enough to see 60,000 samples, at least 3")
    options = parser.parse_args()
    numbers = [number.strip() for number in options.devices.split(",")]
    if not all(number.isdecimal() and int(number) for number in numbers):
        parser.error(f"--devices takes numbers of devices, such as 1,2, not {options.devices!r}")
    try:
        data = load(options.data)
        epochs = max(3, 60000 // len(data.train)) if options.epochs is None else options.epochs
        for number in numbers:
            train(int(number), batch_size=128, lr=0.25, num_epochs=epochs, data=data)
    except (MxdpError, ValueError) as error:
        parser.error(str(error))
