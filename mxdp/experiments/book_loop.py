"""The loop that the book's chapter ends with, in the book's own library: a yardstick.

Everything is as in the chapter, good or bad: ``d2l``'s data loader, ``npx.relu``, ``np.dot``, gluon's
``split_and_load`` and loss, the naive all-reduce with a fresh copy each time, ``d2l.sgd``, and ``npx.waitall`` after
each step. Only the pictures are loaded by mxdp: the book's loader downloads Fashion-MNIST as gluon's authors
compressed it (other bytes, same pictures), from a host that may be gone.
"""

from __future__ import annotations

from functools import partial
from typing import Any, List, Sequence

import numpy as onp

from mxdp.backend import Devices, NDArray, autograd, gluon, np, npx
from mxdp.datasets import Dataset, Split
from mxdp.scratch import Replicas

NEEDS = dict.fromkeys(
    ("d2l", "IPython", "matplotlib_inline", "pandas"),
    "`pip install --no-deps d2l==1.0.3` and `pip install ipython matplotlib-inline pandas`, or `make run`",
)
"""What the book's library needs, and how to install it."""


def data_loader(train: Split, test: Split, batch_size: int) -> Any:
    """The training iterator of ``d2l.load_data_fashion_mnist``, over these pictures."""
    from d2l import mxnet as d2l

    usual = gluon.data.vision.FashionMNIST
    splits = {True: train, False: test}

    def loaded(train: bool) -> Any:
        """gluon's data set, as it is after its download."""
        split = splits[train]
        pixels = onp.rint(split.X * 255).reshape(-1, 28, 28, 1)
        data = object.__new__(usual)
        data._transform = None
        data._label = np.array(split.y, dtype="int32")
        data._data = np.array(pixels, dtype="uint8")
        return data

    gluon.data.vision.FashionMNIST = loaded
    try:
        return d2l.load_data_fashion_mnist(batch_size)[0]
    finally:
        gluon.data.vision.FashionMNIST = usual


def splittable(data: Dataset, devices: int) -> Dataset:
    """The same without the last training samples, fewer than ``devices``: gluon can't split an uneven last batch."""
    return data.take(len(data.train) // devices * devices)


def book_layout(params: Sequence[Any]) -> List[Any]:
    """mxdp's parameters in the book's layout, where dense weights are (inputs, outputs), and the way back."""
    return [param.T.copy() if param.ndim == 2 else param for param in params]


def lenet(X: NDArray, params: Sequence[NDArray]) -> NDArray:
    """The chapter's network, with the chapter's operators."""
    W1, b1, W2, b2, W3, b3, W4, b4 = params
    pooling = partial(npx.pooling, pool_type="avg", kernel=(2, 2), stride=(2, 2))
    h = npx.convolution(data=X, weight=W1, bias=b1, kernel=(3, 3), num_filter=20)
    h = pooling(data=npx.relu(h))
    h = npx.convolution(data=h, weight=W2, bias=b2, kernel=(5, 5), num_filter=50)
    h = pooling(data=npx.relu(h))
    h = h.reshape(h.shape[0], -1)
    h = npx.relu(np.dot(h, W3) + b3)
    return np.dot(h, W4) + b4


def allreduce(data: List[NDArray]) -> None:
    """The chapter's: add all arrays to the first, then copy it to the others."""
    for i in range(1, len(data)):
        data[0][:] += data[i].copyto(data[0].ctx)
    for i in range(1, len(data)):
        data[0].copyto(data[i])


def train_batch(
    X: NDArray, y: NDArray, device_params: Replicas, devices: Devices, lr: float
) -> None:
    """The chapter's step. gluon's ``split_and_load`` refuses an uneven batch."""
    from d2l import mxnet as d2l

    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    X_shards, y_shards = d2l.split_batch(X, y, devices)
    with autograd.record():
        losses = []
        for X_shard, y_shard, params in zip(X_shards, y_shards, device_params):
            losses.append(loss(lenet(X_shard, params), y_shard))
    for shard_losses in losses:
        shard_losses.backward()
    for i in range(len(device_params[0])):
        allreduce([device_params[c][i].grad for c in range(len(devices))])
    for params in device_params:
        d2l.sgd(params, lr, X.shape[0])


def train_epoch(train_iter: Any, device_params: Replicas, devices: Devices, lr: float) -> None:
    """The chapter's epoch: every step ends in ``npx.waitall``."""
    for X, y in train_iter:
        train_batch(X, y, device_params, devices, lr)
        npx.waitall()
