"""The loop that the book's chapter ends with, in the book's own library: a yardstick.

Everything is as in the chapter, good or bad: ``d2l``'s data loader, ``npx.relu``, ``np.dot``, gluon's
``split_and_load`` and loss, the naive all-reduce with a fresh copy each time, ``d2l.sgd``, and ``npx.waitall`` after
each step. Only the pictures are loaded by mxdp: the book's loader downloads Fashion-MNIST as gluon's authors
compressed it (other bytes, same pictures), from a host that may be gone.
"""

from __future__ import annotations

from typing import Any, List, Sequence

import numpy as onp

from mxdp.backend import Devices, NDArray, autograd, gluon, np, npx
from mxdp.datasets import Dataset, Split
from mxdp.scratch import Replicas


def data_loader(train: Split, test: Split, batch_size: int) -> Any:
    """The training iterator of ``d2l.load_data_fashion_mnist``, over these pictures."""
    from d2l import mxnet as d2l

    usual, splits = gluon.data.vision.FashionMNIST, {True: train, False: test}

    def loaded(train: bool) -> Any:
        """gluon's data set, as it is after its download."""
        data, split = object.__new__(usual), splits[train]
        data._transform, data._label = None, np.array(split.y, dtype="int32")
        data._data = np.array(onp.rint(split.X * 255).reshape(-1, 28, 28, 1), dtype="uint8")
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
    h = npx.convolution(data=X, weight=params[0], bias=params[1], kernel=(3, 3), num_filter=20)
    h = npx.pooling(data=npx.relu(h), pool_type="avg", kernel=(2, 2), stride=(2, 2))
    h = npx.convolution(data=h, weight=params[2], bias=params[3], kernel=(5, 5), num_filter=50)
    h = npx.pooling(data=npx.relu(h), pool_type="avg", kernel=(2, 2), stride=(2, 2))
    h = h.reshape(h.shape[0], -1)
    h = npx.relu(np.dot(h, params[4]) + params[5])
    return np.dot(h, params[6]) + params[7]


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
        losses = [
            loss(lenet(X_shard, W), y_shard)
            for X_shard, y_shard, W in zip(X_shards, y_shards, device_params)
        ]
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
