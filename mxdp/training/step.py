"""One step of training with few Python calls: a network as one recorded graph, an update by prepared calls.

Pushed operator by operator, a LeNet step is 28 operator calls a device, and backward. Python runs beside the devices,
but on as many cores as there are devices each wake-up of Python takes a core from one of them, and the others wait for
it at the next all-reduce. Recorded and bound to its arrays once (:mod:`mxdp.training.graph`), the network is one call
forward and one backward; the update of all small parameters is a third, and of each large one another. The numbers
equal :func:`mxdp.train_batch`'s, bit for bit.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence

from mxdp.backend import (
    Batch,
    Device,
    NDArray,
    Shares,
    autograd,
    backward,
    check_arrays,
    check_functions,
    check_replicas,
    npx,
)
from mxdp.collectives import GradientSync
from mxdp.datasets import check_labels, positive_int
from mxdp.engine import CompletionEvent
from mxdp.plans.partition import cuts, offsets
from mxdp.scratch import Function, Params, cross_entropy, lenet, sgd, split_batch
from mxdp.training.graph import KEPT, BoundGraph
from mxdp.training.update import Update

RUN_AHEAD = 2
"""Steps that Python may be ahead of the devices. The devices then seldom wait for Python, and memory is bounded. Python
waits for completion events: ``wait_to_read`` queues behind all work on ``cpu(0)``, later steps' too."""


class TrainStep:
    """``step(X, y)`` trains the replicas on one batch, and returns the losses of each shard's samples, in arrays that
    the next step may overwrite. It doesn't wait for them, but for those of the step ``run_ahead`` steps before: Python
    is never further ahead of a device.

    Args:
        device_params, devices: a replica for each device. Their gradients stay in the arrays that they have now, and
            each step overwrites them.
        sync: sums the gradients of all replicas in place, by default a :class:`mxdp.GradientSync`.
        net, loss: any functions for which ``loss(net(X, params), y)`` is the loss of each sample, (n,). They are called
            for each new shape of ``X`` and ``y`` alone (:func:`mxdp.training.graph.record`). Parameters that they
            don't use there have gradients of zero. Of the shapes, the last ``KEPT`` stay recorded.
        weights: of the devices, as :func:`mxdp.split_and_load` takes them. (In a batch of fewer samples than devices
            each sample has a device.)
        momentum: 0, or of SGD with momentum, at least 0 and less than 1 (:class:`mxdp.training.update.Update`).
        run_ahead: ``math.inf``: there is no bound, and each batch has memory of its own until the devices have read it.
    """

    def __init__(
        self,
        device_params: Sequence[Params],
        devices: Sequence[Device],
        lr: float,
        sync: Optional[Callable[[], Any]] = None,
        net: Function = lenet,
        loss: Function = cross_entropy,
        run_ahead: float = RUN_AHEAD,
        weights: Shares = None,
        momentum: float = 0.0,
    ) -> None:
        check_replicas(device_params, devices)
        check_functions(net=net, loss=loss)
        cuts(len(devices), len(devices), weights)  # raises
        self._replicas, self._devices = device_params, devices
        self._sync = sync or GradientSync(device_params)
        self.update = Update(device_params, lr, self._sync, momentum)
        self._gradients = [[param.grad for param in params] for params in device_params]
        self._net, self._loss, self._run_ahead, self._weights = net, loss, run_ahead, weights
        self._bound: Dict[Any, List[BoundGraph]] = {}
        self._largest: Sequence[Optional[BoundGraph]] = [None] * len(devices)
        self._room = -1
        self._pending: Deque[CompletionEvent] = deque()
        self._least = len(devices)
        self._noted = True
        """Has each step that was begun an event? Not after Ctrl-C in a step."""

    def __call__(self, X: Batch, y: Batch, samples: Optional[int] = None) -> List[NDArray]:
        """``samples``: of the whole batch, if ``X`` is this process's part of it.

        Raises:
            TypeError, ValueError: as :func:`mxdp.train_batch`, or ``net`` or ``loss`` can't be recorded.
            RuntimeError: inside ``no_sync``.
        """
        if not self._noted:
            npx.waitall()
        check_arrays(X=X, y=y)
        self._wait()  # for what Ctrl-C in the last call's wait left: its batch may not be copied yet
        self._noted = False
        length = len(X)
        samples = positive_int("samples", samples or length)
        if length < self._least or getattr(self._sync, "adds", False):
            functions = self._sync, samples, self._net, self._loss, self.update
            losses = plain_step(X, y, self._replicas, self._devices, 0.0, *functions)
        else:
            losses = self._step(X, y, samples)
        self._pending.append(CompletionEvent(losses))
        self._noted = True
        self._wait()
        return losses

    @property
    def ahead(self) -> int:
        """Steps that are pushed and not done."""
        while self._pending and self._pending[0].at is not None:
            self._pending.popleft()
        return len(self._pending)

    def _wait(self) -> None:
        pending, most = self._pending, self._run_ahead
        if most == math.inf:
            most = self.ahead
        while len(pending) > most:
            pending[0].wait()
            pending.popleft()

    def _step(self, X: Batch, y: Batch, samples: int) -> List[NDArray]:
        key = X.shape, y.shape, X.dtype, y.dtype
        graphs = self._bound.pop(key, None) or self._bind(X, y)
        self._bound[key] = graphs  # as the last
        if self._loss is cross_entropy:
            check_labels(y, graphs[0].classes)
        borders = offsets([graph.samples for graph in graphs])
        losses = [graph.forward(X[a:b], y[a:b]) for graph, a, b in zip(graphs, borders, borders[1:])]
        for graph in graphs:
            graph.backward()
        self._sync()
        self.update(samples)
        return losses

    def _bind(self, X: Batch, y: Batch) -> List[BoundGraph]:
        """The graphs for batches like these, in the memory of those for the largest. For larger ones the others go,
        whose memory these don't fit into."""
        if self._loss is cross_entropy:
            check_labels(y, classes=None)
        X_shards, y_shards = split_batch(X, y, self._devices, self._weights)
        if X.size > self._room:
            self._room, self._largest = X.size, [None] * len(self._devices)
            self._bound.clear()
        graphs = [
            BoundGraph(self._net, self._loss, *own, self._run_ahead)
            for own in zip(X_shards, y_shards, self._replicas, self._gradients, self._largest)
        ]
        self._largest = self._largest if self._bound else graphs
        if len(self._bound) >= KEPT:
            del self._bound[next(iter(self._bound))]
        return graphs


def plain_step(
    X: Batch,
    y: Batch,
    device_params: Sequence[Params],
    devices: Sequence[Device],
    lr: float,
    sync: Callable[[], Any],
    samples: Optional[int] = None,
    net: Function = lenet,
    loss: Function = cross_entropy,
    update: Optional[Callable[[int], Any]] = None,
) -> List[NDArray]:
    """:func:`mxdp.train_batch` for one rank of several, with ``sync`` in place of an all-reduce for each parameter.

    What a :class:`TrainStep` is compared with, and what it does with fewer samples than devices, even none, and after
    micro-batches in ``no_sync``. ``X`` may be a part of a batch of ``samples``. Doesn't wait. ``update``: an
    :class:`Update`, in place of :func:`mxdp.scratch.sgd` with ``lr``.
    """
    check_arrays(X=X, y=y)
    X_shards, y_shards = split_batch(X, y, devices[: len(X)] or devices) if len(X) or not samples else ([], [])
    with autograd.record():
        scores = [net(X, params) for X, params in zip(X_shards, device_params)]
        if scores and loss is cross_entropy:
            check_labels(y, classes=scores[0].shape[-1])
        losses = [loss(*pair) for pair in zip(scores, y_shards)]
    backward(losses, device_params)
    sync()
    if update:
        update(samples or len(X))
    for params in device_params if not update else ():
        sgd(params, lr, samples or len(X))
    return losses
