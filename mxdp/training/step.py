"""One step of training with few Python calls: a network as one recorded graph, an update by prepared calls.

Pushed operator by operator, a LeNet step is 28 operator calls a device, and backward. On as many cores as devices each
wake-up of Python takes a core from a device, and the others wait for it at the next all-reduce. Recorded and bound to
its arrays once (:mod:`mxdp.training.graph`), the network is one call forward and one backward; the update of all small
parameters is a third, and of each large one another. The numbers equal :func:`mxdp.train_batch`'s, bit for bit.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import zip_longest
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Union

import numpy as onp

from mxdp.backend import (
    Batch,
    Device,
    NDArray,
    Shares,
    autograd,
    check_arrays,
    check_functions,
    check_replicas,
    npx,
)
from mxdp.collectives import GradientSync
from mxdp.collectives.fresh import Held
from mxdp.collectives.sync import OwnSync, Sync
from mxdp.datasets import check_labels, positive_int
from mxdp.engine import CompletionEvent
from mxdp.errors import refuse_step
from mxdp.plans.partition import cuts, offsets
from mxdp.scratch import Function, Params, cross_entropy, lenet, split_batch
from mxdp.training.graph import KEPT, BoundGraph
from mxdp.training.update import Update

RUN_AHEAD = 2
"""How many steps Python may queue before it waits for the devices. They then seldom wait for Python, and memory is
bounded. Python waits for completion events: ``wait_to_read`` queues behind all work on ``cpu(0)``, later steps' too."""

USER = "TrainStep can't train"
"""How messages begin."""


def _check_run_ahead(run_ahead: float) -> None:
    whole = isinstance(run_ahead, (int, onp.integer)) and not isinstance(run_ahead, bool)
    endless = isinstance(run_ahead, float) and run_ahead == math.inf
    if not endless and not (whole and run_ahead >= 0):
        raise ValueError(
            f"run_ahead is a whole number of steps, at least 0, or math.inf, not {run_ahead!r}"
        )


def _as_sync(sync: Any, device_params: Sequence[Params]) -> Sync:
    """A Sync as it is; any other function sums the gradients where they lie."""
    if not hasattr(sync, "requests"):
        check_functions(sync=sync)
        return OwnSync(device_params, sync, USER)
    given: Sync = sync
    if not given.fresh.held.is_in(device_params):
        raise ValueError(
            "sync sums the gradients of other arrays than device_params: make it of the same replicas"
        )
    return given


class TrainStep:
    """``step(X, y)`` trains the replicas on one batch, and returns the losses of each shard's samples, in arrays that
    the next step may overwrite. It doesn't wait for them, but for those of the step ``run_ahead`` steps before.

    Args:
        device_params, devices: a replica for each device. Each step overwrites the gradients, in the arrays that they
            have now, or adds to them after ``no_sync``.
        sync: sums the gradients of all replicas in place, by default a :class:`mxdp.GradientSync`. In a sum of your
            own, too, gradients count as zero that no backward pass has written since the last one; the constructor
            then waits for the gradients.
        net, loss: ``loss(net(X, params), y)`` is the loss of each sample, (n,). They are called once for each of the
            last ``KEPT`` shapes (:func:`mxdp.training.record.record_graph`); parameters that they don't use there have
            gradients of zero.
        weights: of the devices, as :func:`mxdp.split_and_load` takes them; not for fewer samples than devices.
        momentum: of SGD, at least 0 and less than 1 (:class:`mxdp.training.update.Update`).
        run_ahead: a whole number, at least 0. ``math.inf``: there is no bound, and each batch has memory of its own
            until the devices have read it.

    Raises a TypeError or ValueError for an argument of another kind, or a ``sync`` of other replicas.
    """

    def __init__(
        self,
        device_params: Sequence[Params],
        devices: Sequence[Device],
        lr: float,
        sync: Union[Sync, Callable[[], Any], None] = None,
        net: Function = lenet,
        loss: Function = cross_entropy,
        run_ahead: float = RUN_AHEAD,
        weights: Shares = None,
        momentum: float = 0.0,
    ) -> None:
        check_replicas(device_params, devices)
        check_functions(net=net, loss=loss)
        cuts(len(devices), len(devices), weights)  # raises
        _check_run_ahead(run_ahead)
        self._replicas = device_params
        self._held = Held(device_params)
        self._devices = [*devices]  # as they are now: the caller may change the lists
        self._sync = GradientSync(device_params) if sync is None else _as_sync(sync, device_params)
        self.update = Update(self._sync, lr, momentum)
        self._gradients = [[param.grad for param in params] for params in device_params]
        self._net = net
        self._loss = loss
        self._run_ahead = run_ahead
        self._weights = None if weights is None else [*weights]
        self._bound: Dict[Any, List[BoundGraph]] = {}
        self._largest: List[Optional[BoundGraph]] = [None] * len(devices)
        self._room = -1
        self._pending: Deque[CompletionEvent] = deque()
        self._noted = True
        """False after Ctrl-C inside a step: that step has no completion event."""

    def __call__(self, X: Batch, y: Batch, samples: Optional[int] = None) -> List[NDArray]:
        """``samples``: of the whole batch, if ``X`` is this process's part of it, which may be empty. Raises as
        :func:`mxdp.train_batch` and :func:`mxdp.training.record.record_graph`; a RuntimeError inside ``no_sync`` or
        ``autograd.record()``, if the replicas' arrays or their gradients have been replaced, and with a sum of your own
        if ``no_sync`` has added up gradients for another one."""
        refuse_step(autograd.is_recording())
        if not self._noted:
            npx.waitall()
        check_arrays(X=X, y=y)
        self._held.check(USER)
        self._wait()  # for what Ctrl-C in the last call's wait left: its batch may not be copied yet
        self._noted = False
        length = len(X)
        samples = positive_int("samples", samples or length)
        requests = self._sync.requests
        graphs = self._graphs(X, y, requests) if length else []
        borders = offsets([graph.samples for graph in graphs])
        losses = []
        for graph, start, stop in zip(graphs, borders, borders[1:]):
            losses.append(graph.forward(X[start:stop], y[start:stop]))
        self._sync.fresh.forget()  # also what a step has written that was broken off
        for graph in graphs:
            graph.backward()
        self._sync()
        self.update(samples)
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
        pending = self._pending
        most = self.ahead if self._run_ahead == math.inf else self._run_ahead
        while len(pending) > most:
            pending[0].wait()
            pending.popleft()

    def _graphs(self, X: Batch, y: Batch, requests: Sequence[str]) -> List[BoundGraph]:
        """A graph for each device that has samples of a batch like this."""
        key = X.shape, y.shape, X.dtype, y.dtype, tuple(requests)
        graphs = self._bound.pop(key, None) or self._bind(X, y, requests)
        self._bound[key] = graphs  # as the last
        if self._loss is cross_entropy:
            check_labels(y, graphs[0].classes)
        return graphs

    def _bind(self, X: Batch, y: Batch, requests: Sequence[str]) -> List[BoundGraph]:
        """Graphs in the memory of those for the largest batch. For a still larger batch all others are dropped."""
        if self._loss is cross_entropy:
            check_labels(y, classes=None)
        X_shards, y_shards = split_batch(X, y, self._devices, self._weights)
        if X.size > self._room:
            self._room = X.size
            self._largest = [None] * len(self._devices)
            self._bound.clear()
        graphs = []
        for x, labels, params, gradients, largest in zip(
            X_shards, y_shards, self._replicas, self._gradients, self._largest
        ):
            graph = BoundGraph(
                self._net,
                self._loss,
                x,
                labels,
                params,
                gradients,
                requests,
                largest,
                self._run_ahead,
            )
            graphs.append(graph)
        self._largest = [largest or graph for largest, graph in zip_longest(self._largest, graphs)]
        if len(self._bound) >= KEPT:
            del self._bound[next(iter(self._bound))]
        return graphs
