"""One stage of a pipeline: neighbouring layers on one device, whose tasks run in the order in which they are pushed.

MXNet by itself would not keep this order. It runs operators in the order in which they become ready, and it queues a
copy between CPU devices with the source's other work. On the first stage all forward passes are ready at once. MXNet
would run all of them before the first copy, or alternate between them operator by operator, and the second stage would
wait for the last micro-batch. So a stage's tasks are chained by a *token*, an array of one number on its device::

    forward of 0     [ read token | convolution | relu ... ] -> output 0        one bulk: MXNet runs it as a whole
    message          copy output 0 to the next device                           ready when output 0 is: queued first
    pass the token   token = number of elements of output 0                     ready then too: queued behind the copy
    forward of 1     [ read token | ...                                         waits for the token, so for the copy

Nothing in Python waits. This file adds up the micro-batches' gradients: with MXNet's ``grad_req="add"`` convolutions
and dense layers would ask for temporary space in backward passes, of which MXNet keeps many copies.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import Dict, Iterator, NamedTuple, Optional, Sequence

from mxdp.backend import Device, NDArray, autograd, mx, np
from mxdp.engine import prepare, prepare_sum
from mxdp.layers import Net, apply
from mxdp.parallel.traffic import NetParams
from mxdp.plans.pipeline import BACKWARD, Task
from mxdp.scratch import Arrays, cross_entropy, get_params

BULK = 1 << 12
"""More operators than a stage has. MXNet reserves 30 bytes for each in every bulk."""


class Kept(NamedTuple):
    """A micro-batch's input and output (or loss)."""

    x: NDArray
    out: NDArray


class Stage:
    """``layers`` on ``device``, with a copy of ``params``; ``tasks`` are its own tasks in the schedule. After a step,
    ``param.grad`` is the sum over all micro-batches."""

    def __init__(
        self,
        layers: Net,
        params: NetParams,
        device: Device,
        first: bool,
        tasks: Sequence[Task],
    ) -> None:
        self.layers = layers
        self.device = device
        self.first = first
        back = [task.micro_batch for task in tasks if task.kind == BACKWARD]
        self._opening = back[0]
        self.params = [get_params(layer, device) for layer in params]
        self.flat = [param for layer in self.params for param in layer]
        # The first backward pass writes the sums. The others write the addends, which are then added.
        self._addends: Arrays = []
        if len(back) > 1:
            self._addends = [
                np.empty(param.shape, dtype=param.dtype, ctx=device) for param in self.flat
            ]
        self.sum_in_gradients()
        self.kept: Dict[int, Kept] = {}
        self._buffers: Dict[int, NDArray] = {}
        self._token = np.zeros(1, dtype="int64", ctx=device)
        read = np.zeros(1, dtype="int64", ctx=device)
        self._take_token = prepare("_copy", [self._token], read)

    @property
    def learns(self) -> bool:
        """Whether a parameter, or the input from the stage before, has a gradient here."""
        return not self.first or bool(self.flat)

    def sum_in_gradients(self) -> None:
        """Sum in the arrays that are the parameters' gradients now, between two steps."""
        self._sums = [param.grad for param in self.flat]
        self._add = [prepare_sum(pair, pair[0]) for pair in zip(self._sums, self._addends)]

    def begin(self, lengths: Sequence[int]) -> None:
        """Begin a step whose micro-batches have these ``lengths``. Buffers for other lengths are freed."""
        self.kept.clear()
        self._buffers = {
            length: buffer for length, buffer in self._buffers.items() if length in lengths
        }

    def forward(
        self,
        number: int,
        x: NDArray,
        target: Device,
        y: Optional[NDArray] = None,
    ) -> NDArray:
        """Push the forward pass of micro-batch ``number``. Returns its output (on the last stage, with labels ``y``,
        the losses), copied to ``target``."""
        if not self.first:
            autograd.mark_variables([x], [self._buffer(x)])
        # A recording writes its gradients where they are marked at the time of the recording.
        written = self._sums if number == self._opening else self._addends
        autograd.mark_variables(self.flat, written)
        outs: Arrays = []
        with _one_bulk():
            self._take_token()
            with autograd.record():
                self._run(x, outs)
                if y is not None:
                    outs.append(cross_entropy(outs[-1], y))
        self.kept[number] = Kept(x, outs[-1])
        return self._send(outs[-1], target)

    def infer(self, x: NDArray, target: Device) -> NDArray:
        """Push a forward pass that keeps nothing; returns its output, copied to ``target``."""
        outs: Arrays = []
        with _one_bulk():
            self._take_token()
            self._run(x, outs)
        return self._send(outs[-1], target)

    def backward(
        self,
        number: int,
        head: Optional[NDArray],
        target: Optional[Device],
    ) -> Optional[NDArray]:
        """Push the backward pass of micro-batch ``number``, from the gradient ``head`` of its output (None: the loss).
        Returns the gradient of its input, copied to ``target``; None on the first stage."""
        x, out = self.kept.pop(number)
        if not self.learns:
            return None
        with _one_bulk():
            self._take_token()
            out.backward(head)
            if number != self._opening:
                for add in self._add:
                    add()
        autograd.mark_variables(self.flat, self._sums)
        if target is None:
            self._pass_token(self._sums[0])
            return None
        return self._send(x.grad, target)

    def _buffer(self, x: NDArray) -> NDArray:
        """The buffer for the gradient of ``x``: one for all micro-batches of that length, since the token follows the
        message that sends its content. A new ``np.empty`` would take its memory now, long before the task runs."""
        length = len(x)
        if length not in self._buffers:
            self._buffers[length] = np.empty(x.shape, dtype=x.dtype, ctx=self.device)
        return self._buffers[length]

    def _run(self, x: NDArray, outs: Arrays) -> None:
        """All layers. ``outs`` keeps their outputs until the bulk ends: freeing an array would end the bulk early."""
        for layer, params in zip(self.layers, self.params):
            x = apply(layer, x, params)
            outs.append(x)

    def _send(self, x: NDArray, target: Device) -> NDArray:
        sent = x.detach().copyto(target)
        self._pass_token(x)
        return sent

    def _pass_token(self, x: NDArray) -> None:
        mx.nd.size_array(x.as_nd_ndarray(), out=self._token.as_nd_ndarray())


@contextmanager
def _one_bulk() -> Iterator[None]:
    """All operators inside become one bulk. Freeing an array would end it early, so Python's collector has to wait."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        with mx.engine.bulk(BULK):
            yield
    finally:
        if enabled:
            gc.enable()
