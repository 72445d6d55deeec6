"""Fully sharded data parallelism (ZeRO's stages): each device owns a k-th of every layer, and borrows the rest.

Each device computes on a shard of the batch with all layers, but owns only a shard of each layer's parameters,
gradients and optimiser's state. The life of a layer with the parameters a b in stage 3, on two devices::

                     device 0                            device 1
    between steps    a .     state of a                  . b     state of b
    gather           a b                                 a b                       for the forward pass
    forward          a b     activations of shard 0      a b     activations of shard 1
    free             a .                                 . b
                     the layers behind go forward, and back again
    gather           a b                                 a b                       for the backward pass
    backward         a b     gradients a0 b0             a b     gradients a1 b1
    reduce-scatter   a b     A .                         a b     . B               A = a0 + a1, B = b0 + b1
    free             a .     A .                         . b     . B
    step             a'.     by A and the state of a     . b'    by B and the state of b

Stage 2 keeps the parameters whole, and gathers them once, after the step. Stage 1 keeps the gradients whole, too. Stage
0 is plain data parallelism. A stage's plan is a list of tasks (:mod:`mxdp.plans.layers.fully_sharded`).

All gathered layers use one room by turns: the next layer overwrites it, so nothing needs to be freed. Autograd keeps a
layer's arrays, not their values, which are gathered again before its backward pass. Devices wait for each gather.

Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as onp

from mxdp.backend import Batch, Device, HostArray, NDArray, autograd, check_device_list, mx, upload
from mxdp.collectives.program import Program, chunk_views
from mxdp.engine import Call, prepare
from mxdp.errors import did_you_mean
from mxdp.layers import LayerParams, Net, Shape
from mxdp.parallel import traffic
from mxdp.parallel.footprint import Footprint
from mxdp.parallel.strategy import Strategy
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.collective.schedule import Schedule
from mxdp.plans.layers import fully_sharded as plans
from mxdp.plans.partition import Bounds, bounds, offsets, pieces
from mxdp.scratch import cross_entropy, in_sync, split_and_load, split_batch

OPTIMIZERS = {"sgd": 0, "adam": plans.ADAM}
"""MXNet's optimisers that update each number by itself, and its numbers of state, but for a momentum."""
SENDS = {
    plans.GATHER: ("parameters", 1),
    plans.REDUCE_SCATTER: ("gradients", 1),
    plans.ALL_REDUCE: ("gradients", 2),
}
"""What a task sends, and how often each number travels to each other device."""


@dataclass
class Unit:
    """A layer of the plan: one with parameters and those without that follow it, ``start`` to ``stop`` in the net.

    ``vectors``: for each device all parameters side by side, in stage 3 in a room that all units use by turns;
    ``params``: views of them, by device and layer. ``shards``, ``sums``: each device's part of the parameters, and of
    the summed gradients. ``calls``: what a task does, by its kind, but for the passes.
    """

    start: int
    stop: int
    params: List[List[LayerParams]]
    vectors: List[NDArray]
    shards: List[NDArray]
    sums: List[NDArray]
    calls: Dict[str, List[Call]]


class FullySharded(Strategy):
    """A shard of each layer on each device: a :class:`~mxdp.parallel.strategy.Strategy`. Making one waits.

    All stages give the same bits, equal to the serial run but for rounding (MXNet's optimisers have float32 rates).

    Args:
        stage: what is cut: 0 nothing, 1 the optimiser's state, 2 the gradients, too, 3 the parameters, too.
        optimizer: ``"sgd"`` or ``"adam"``, with MXNet's ``options``, such as ``momentum=0.9``.

    Raises a ValueError also for a net without parameters, and an unknown stage or optimiser.
    """

    def __init__(
        self,
        net: Net,
        params: Sequence[LayerParams],
        input_shape: Shape,
        devices: Sequence[Device],
        stage: int = 3,
        optimizer: str = "sgd",
        **options: Any,
    ) -> None:
        super().__init__(net, params, input_shape, devices)
        firsts = [number for number, layer in enumerate(params) if layer]
        if not firsts:
            raise ValueError(
                "this net has no parameters to cut: use a net with a convolution or a dense layer"
            )
        if optimizer not in OPTIMIZERS:
            raise ValueError(
                f"no optimiser is called {optimizer!r} here; {did_you_mean(optimizer, OPTIMIZERS)}"
            )
        self.plan, self.least = plans.fully_sharded(len(firsts), len(devices), stage), len(devices)
        self._optimizer = mx.optimizer.create(optimizer, **options)
        self._state = OPTIMIZERS[optimizer] + bool(options.get("momentum"))
        hosts = [[param.asnumpy() for param in layer] for layer in params]
        spans = pieces(len(self.net), firsts[1:])
        self.sizes = [
            sum(x.size for layer in hosts[start:stop] for x in layer) for start, stop in spans
        ]
        dtype = hosts[firsts[0]][0].dtype
        self._room, self._gradient_room = (
            [mx.nd.zeros((max(self.sizes),), device, dtype) for device in devices]
            if stage >= needed
            else []
            for needed in (3, 2)
        )
        self.units = [self._make(span, hosts[slice(*span)]) for span in spans]
        held = [unit.shards if stage == 3 else unit.vectors for unit in self.units]
        self.held = list(map(list, zip(*held)))
        self._xs: List[NDArray] = []
        self._labels: List[NDArray] = []
        self._losses: List[NDArray] = []
        self._trail: List[Tuple[List[NDArray], List[NDArray]]] = []
        self._back_from: Optional[List[NDArray]] = None

    def step(self, X: Batch, y: Batch) -> NDArray:
        """Forward, backward, and the sums of the gradients, as the plan has them. Shards may be uneven."""
        self.traffic.clear()
        self._xs, self._labels = map(list, split_batch(X, y, self.devices))
        check_device_list(self.devices, samples=len(X))
        self._losses, self._trail, self._back_from = [], [], None
        self._execute(self.plan.step)
        return self._gather(self._losses, "losses")

    def update(self, lr: float, batch_size: int) -> None:
        """The optimiser's step on each device's shard (stage 0: on all). Stages 1 and 2 then gather the parameters."""
        self._optimizer.set_learning_rate(lr)
        self._optimizer.rescale_grad = 1 / batch_size
        self._execute(self.plan.update)

    def scores(self, X: Batch) -> NDArray:
        """Forward pass of each shard on its device. The first device gathers the scores."""
        self.traffic.clear()
        self._xs, self._labels, self._losses = list(split_and_load(X, self.devices)), [], []
        check_device_list(self.devices, samples=len(X))
        backward = [task.kind for task in self.plan.step].index(plans.BACKWARD)
        self._execute(
            self.plan.step[: backward - (self.plan.stage == 3)]
        )  # in stage 3 a gather goes before it
        return self._gather(self._xs, "scores")

    def params(self) -> List[LayerParams]:
        """The devices' shards joined, on ``cpu(0)``. Waits."""
        return self._whole([unit.shards for unit in self.units])

    def gradients(self) -> List[LayerParams]:
        """The devices' sums joined, on ``cpu(0)``. Waits."""
        return self._whole([unit.sums for unit in self.units])

    def in_step(self) -> bool:
        """Whether parameters that are whole on all devices are equal, bit for bit. Waits."""
        return self.plan.stage == 3 or in_sync(self.held)

    def bytes_moved(self, batch_size: int) -> int:
        """What the plan moves, in a step and its update; statistics; and the other devices' losses."""
        losses = batch_size - bounds(batch_size, len(self.devices))[0][1]
        return (
            self.itemsize * (plans.moved(self.plan, self.sizes) + losses) + self.statistics_bytes()
        )

    def lasting_bytes(self, batch_size: int) -> List[int]:
        """Parameters, gradients, the optimiser's state, and the rooms for one layer."""
        ranks = range(len(self.devices))
        return [
            self.itemsize * plans.peak(self.plan, self.sizes, self._state, rank) for rank in ranks
        ]

    def footprints(self, batch_size: int) -> Iterator[Footprint]:
        """A shard of the batch on each device. The input of each unit, and its gradient, is kept to the end."""
        n = len(self.devices)
        for first, last in bounds(batch_size, n):
            sizes = [(last - first) * traffic.elements(shape) for shape in self.shapes]
            footprint = Footprint(sizes[0])
            for unit in self.units:
                footprint.keep(sizes[unit.start] * self._back[unit.start])
                for number in range(unit.start, unit.stop):
                    footprint.add(self.net[number], sizes[number + 1], split=n > 1)
                footprint.cut()
            yield footprint

    def _execute(self, tasks: Sequence[plans.LayerTask]) -> None:
        for task in tasks:
            unit = self.units[task.layer]
            if task.kind in SENDS:
                what, times = SENDS[task.kind]
                way = traffic.BACKWARD if self._losses else traffic.FORWARD
                numbers = times * (len(self.devices) - 1) * self.sizes[task.layer]
                self.traffic.note(what, way, numbers * self.itemsize)
            if task.kind == plans.FORWARD:
                self._forward(unit)
            elif task.kind == plans.BACKWARD:
                self._backward()
            for call in unit.calls.get(
                task.kind, ()
            ):  # to free costs nothing: the next layer overwrites the room
                call()

    def _forward(self, unit: Unit) -> None:
        """Pass the unit on all devices. With labels autograd records, and the last outputs are losses, else scores."""
        xs = outputs = self._xs
        if self._labels and self._back[unit.start]:
            for x in xs:
                x.attach_grad()
        # Never an inference pass: it would change the layout of weights, which are views here.
        with autograd.record() if self._labels else autograd.train_mode():
            for number in range(unit.start, unit.stop):
                params = [layers[number - unit.start] for layers in unit.params]
                outputs = self._pass_layer(self.net[number], outputs, params, self._back[number])
            if self._labels and unit is self.units[-1]:
                self._losses = outputs = [
                    cross_entropy(*pair) for pair in zip(outputs, self._labels)
                ]
        if self._labels:
            self._trail.append((xs, outputs))
        self._xs = [output.detach() for output in outputs]

    def _backward(self) -> None:
        """Of the unit whose forward pass was the last that is left: from its outputs' gradients to its inputs'."""
        xs, outputs = self._trail.pop()
        autograd.backward(outputs, self._back_from)
        self._back_from = [x.grad for x in xs]

    def _make(self, span: Bounds, hosts: Sequence[Sequence[HostArray]]) -> Unit:
        """Lay out the parameters ``hosts[layer]``, and prepare what is called."""
        stage, flat = self.plan.stage, [x for layer in hosts for x in layer]
        whole = onp.concatenate([x.reshape(-1) for x in flat])
        cuts = bounds(whole.size, len(self.devices))
        if stage == 3:
            vectors = [room[: whole.size] for room in self._room]
            shards = [
                upload(whole[slice(*cut)], device).as_nd_ndarray()
                for cut, device in zip(cuts, self.devices)
            ]
        else:
            vectors = [upload(whole, device).as_nd_ndarray() for device in self.devices]
            shards = _parts(vectors, cuts)
        if stage > 1:
            gradients = [room[: whole.size] for room in self._gradient_room]
            sums = [mx.nd.zeros(shard.shape, shard.ctx, shard.dtype) for shard in shards]
        else:
            gradients = [mx.nd.zeros(x.shape, x.ctx, x.dtype) for x in vectors]
            sums = _parts(gradients, cuts)
        params = []
        for pair in zip(vectors, gradients):
            views = [_views(vector, [x.shape for x in flat]) for vector in pair]
            autograd.mark_variables(*views, "write")
            params.append(traffic.like(hosts, views[0]))
        reduce: List[Call] = [self._reduction(gradients)]
        if stage > 1:
            reduce += [
                prepare("_copyto", [x], total)
                for x, total in zip(_parts(gradients, cuts), sums)
                if total.size
            ]
        updates: List[Call] = []
        for rank, (weight, gradient) in enumerate(
            zip(shards, sums) if stage else zip(vectors, gradients)
        ):
            if weight.size:
                number = span[0] * len(self.devices) + rank
                state = self._optimizer.create_state(number, weight)
                updates.append(partial(self._optimizer.update, number, weight, gradient, state))
        calls = {
            plans.GATHER: _copies(shards, vectors, cuts),
            plans.REDUCE_SCATTER: reduce,
            plans.ALL_REDUCE: reduce + _copies(sums, gradients, cuts),
            plans.UPDATE: updates,
        }
        return Unit(*span, params, vectors, shards, sums, calls)

    def _reduction(self, vectors: Sequence[NDArray]) -> Call:
        """The first half of an all-reduce, which leaves each device's part of the sum in its place."""
        memory = all(device.device_type == "cpu" for device in self.devices)
        schedule = plan("shared-memory" if memory else "direct", len(vectors))
        half = Schedule("reduce-scatter", schedule.devices, schedule.chunks, schedule.steps[:1])
        return Program(
            half, [chunk_views(half, vector) for vector in vectors], again=True, frugal=True
        )

    def _whole(self, parts: Sequence[Sequence[NDArray]]) -> List[LayerParams]:
        """Arrays on ``cpu(0)`` in the layout of the parameters, from the parts of each unit. Waits."""
        host = onp.concatenate([part.asnumpy() for its in parts for part in its])
        arrays = _views(
            upload(host, mx.cpu(0)).as_nd_ndarray(), [x.shape for x in traffic.flat(self._layout)]
        )
        return traffic.like(self._layout, arrays)


def _views(vector: NDArray, shapes: Sequence[Shape]) -> List[NDArray]:
    """Arrays of these shapes that lie side by side in the vector. (Only the reshape of a classic array is a view.)"""
    ends = offsets([traffic.elements(shape) for shape in shapes])
    parts = [vector[start:stop] for start, stop in zip(ends, ends[1:])]
    return [part.reshape(shape).as_np_ndarray() for part, shape in zip(parts, shapes)]


def _parts(vectors: Sequence[NDArray], cuts: Sequence[Bounds]) -> List[NDArray]:
    return [vector[slice(*cut)] for vector, cut in zip(vectors, cuts)]


def _copies(
    parts: Sequence[NDArray], vectors: Sequence[NDArray], cuts: Sequence[Bounds]
) -> List[Call]:
    """Copy each device's part into its place in the vectors of all devices. (Onto itself a copy does nothing.)"""
    return [
        prepare("_copyto", [part], vector[slice(*cut)])
        for part, cut in zip(parts, cuts)
        for vector in vectors
        if part.size
    ]
