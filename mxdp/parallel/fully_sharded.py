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
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as onp

from mxdp.backend import Batch, Devices, NDArray, autograd, check_device_list, mx, upload
from mxdp.collectives.program import Program, chunk_views
from mxdp.engine import Call, prepare
from mxdp.errors import did_you_mean
from mxdp.layers import Net, Shape
from mxdp.parallel import traffic
from mxdp.parallel.footprint import Footprint
from mxdp.parallel.strategy import Strategy
from mxdp.parallel.traffic import NetParams, flat, like
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.collective.schedule import Schedule
from mxdp.plans.layers import fully_sharded as plans
from mxdp.plans.partition import Bounds, bounds, offsets, pieces
from mxdp.scratch import Arrays, cross_entropy, in_sync, split_and_load, split_batch

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

    ``vectors`` has for each device all parameters side by side, in stage 3 in a room that all units use by turns.
    ``params`` are views of them, by device and layer. ``shards`` and ``sums`` are each device's part of the parameters,
    and of the summed gradients. ``calls`` says what a task does, by its kind, but for the passes.
    """

    start: int
    stop: int
    params: List[NetParams]
    vectors: Arrays
    shards: Arrays
    sums: Arrays
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
        params: NetParams,
        input_shape: Shape,
        devices: Devices,
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
        self.plan = plans.fully_sharded(len(firsts), len(devices), stage)
        self.least = len(devices)
        self._optimizer = mx.optimizer.create(optimizer, **options)
        self._state = OPTIMIZERS[optimizer] + bool(options.get("momentum"))
        hosts = [[param.asnumpy() for param in layer] for layer in params]
        spans = pieces(len(self.net), firsts[1:])
        layers = [hosts[start:stop] for start, stop in spans]
        self.sizes = [sum(x.size for x in flat(its)) for its in layers]
        dtype = hosts[firsts[0]][0].dtype

        def room() -> Arrays:
            return [mx.nd.zeros((max(self.sizes),), device, dtype) for device in devices]

        self._room = room() if stage == 3 else []
        self._gradient_room = room() if stage > 1 else []
        self.units = [self._make(span, its) for span, its in zip(spans, layers)]
        held = [unit.shards if stage == 3 else unit.vectors for unit in self.units]
        self.held = [list(params) for params in zip(*held)]
        self._begin([], [])

    def step(self, X: Batch, y: Batch) -> NDArray:
        """Forward, backward, and the sums of the gradients, as the plan has them. Shards may be uneven."""
        self.traffic.clear()
        self._begin(*split_batch(X, y, self.devices))
        check_device_list(self.devices, samples=len(X))
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
        self._begin(split_and_load(X, self.devices), [])
        check_device_list(self.devices, samples=len(X))
        end = [task.kind for task in self.plan.step].index(plans.BACKWARD)
        if self.plan.stage == 3:
            end -= 1  # a gather goes before it
        self._execute(self.plan.step[:end])
        return self._gather(self._xs, "scores")

    def params(self) -> NetParams:
        """The devices' shards joined, on ``cpu(0)``. Waits."""
        return self._whole([unit.shards for unit in self.units])

    def gradients(self) -> NetParams:
        """The devices' sums joined, on ``cpu(0)``. Waits."""
        return self._whole([unit.sums for unit in self.units])

    def in_step(self) -> bool:
        """Whether parameters that are whole on all devices are equal, bit for bit. Waits."""
        return self.plan.stage == 3 or in_sync(self.held)

    def bytes_moved(self, batch_size: int) -> int:
        """What the plan moves, in a step and its update; statistics; and the other devices' losses."""
        losses = batch_size - bounds(batch_size, len(self.devices))[0][1]
        numbers = plans.moved(self.plan, self.sizes) + losses
        return self.itemsize * numbers + self.statistics_bytes()

    def lasting_bytes(self, batch_size: int) -> List[int]:
        """Parameters, gradients, the optimiser's state, and the rooms for one layer."""
        ranks = range(len(self.devices))
        return [
            self.itemsize * plans.peak(self.plan, self.sizes, self._state, rank) for rank in ranks
        ]

    def footprints(self, batch_size: int) -> Iterator[Footprint]:
        """Give the footprint of a shard of the batch on each device. The input of each unit, and its gradient, is kept
        to the end."""
        n = len(self.devices)
        for first, last in bounds(batch_size, n):
            sizes = traffic.sizes(self.shapes, last - first)
            footprint = Footprint(sizes[0])
            for unit in self.units:
                footprint.keep(sizes[unit.start] if self._back[unit.start] else 0)
                for number in range(unit.start, unit.stop):
                    footprint.add(self.net[number], sizes[number + 1], split=n > 1)
                footprint.cut()
            yield footprint

    def _begin(self, xs: Arrays, labels: Arrays) -> None:
        """The next tasks pass ``xs``, and train if there are ``labels``."""
        self._xs = xs
        self._labels = labels
        self._losses: Arrays = []
        self._trail: List[Tuple[Arrays, Arrays]] = []
        self._back_from: Optional[Arrays] = None

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
            # To free costs nothing: the next layer overwrites the room.
            for call in unit.calls.get(task.kind, ()):
                call()

    def _forward(self, unit: Unit) -> None:
        """Pass the unit on all devices. With labels autograd records, and the last outputs are losses, else scores."""
        xs = self._xs
        outputs = xs
        if self._labels and self._back[unit.start]:
            for x in xs:
                x.attach_grad()
        # Never an inference pass: it would change the layout of weights, which are views here.
        with autograd.record() if self._labels else autograd.train_mode():
            for number, params in zip(range(unit.start, unit.stop), zip(*unit.params)):
                outputs = self._pass_layer(self.net[number], outputs, params, self._back[number])
            if self._labels and unit is self.units[-1]:
                outputs = [cross_entropy(*pair) for pair in zip(outputs, self._labels)]
                self._losses = outputs
        if self._labels:
            self._trail.append((xs, outputs))
        self._xs = [output.detach() for output in outputs]

    def _backward(self) -> None:
        """Go back through the last unit that is left, from the gradients of its outputs to those of its inputs."""
        xs, outputs = self._trail.pop()
        autograd.backward(outputs, self._back_from)
        self._back_from = [x.grad for x in xs]

    def _make(self, span: Bounds, hosts: Sequence[Arrays]) -> Unit:
        """Lay out the parameters ``hosts[layer]``, and prepare what is called."""
        stage = self.plan.stage
        arrays = flat(hosts)
        shapes = [x.shape for x in arrays]
        whole = onp.concatenate([x.reshape(-1) for x in arrays])
        cuts = bounds(whole.size, len(self.devices))
        if stage == 3:
            vectors = [room[: whole.size] for room in self._room]
            parts = [whole[start:stop] for start, stop in cuts]
            shards = [
                upload(part, device).as_nd_ndarray() for part, device in zip(parts, self.devices)
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
        for vector, gradient in zip(vectors, gradients):
            views = _views(vector, shapes)
            autograd.mark_variables(views, _views(gradient, shapes), "write")
            params.append(like(hosts, views))
        reduce = [self._reduction(gradients)]
        if stage > 1:
            for part, total in zip(_parts(gradients, cuts), sums):
                if total.size:
                    reduce.append(prepare("_copyto", [part], total))
        updated = zip(shards, sums) if stage else zip(vectors, gradients)
        calls = {
            plans.GATHER: _copies(shards, vectors, cuts),
            plans.REDUCE_SCATTER: reduce,
            plans.ALL_REDUCE: reduce + _copies(sums, gradients, cuts),
            plans.UPDATE: self._updates(span[0] * len(self.devices), updated),
        }
        return Unit(*span, params, vectors, shards, sums, calls)

    def _updates(self, number: int, updated: Iterable[Any]) -> List[Call]:
        """The optimiser's step on each weight by its gradient. MXNet keeps their states by ``number`` and on."""
        updates: List[Call] = []
        for place, (weight, gradient) in enumerate(updated, number):
            if weight.size:
                state = self._optimizer.create_state(place, weight)
                updates.append(partial(self._optimizer.update, place, weight, gradient, state))
        return updates

    def _reduction(self, vectors: Arrays) -> Call:
        """The first half of an all-reduce, which leaves each device's part of the sum in its place."""
        memory = all(device.device_type == "cpu" for device in self.devices)
        schedule = plan("shared-memory" if memory else "direct", len(vectors))
        half = Schedule("reduce-scatter", schedule.devices, schedule.chunks, schedule.steps[:1])
        chunks = [chunk_views(half, vector) for vector in vectors]
        return Program(half, chunks, again=True, frugal=True)

    def _whole(self, parts: Sequence[Arrays]) -> NetParams:
        """Arrays on ``cpu(0)`` in the layout of the parameters, from the parts of each unit. Waits."""
        host = onp.concatenate([part.asnumpy() for part in flat(parts)])
        vector = upload(host, mx.cpu(0)).as_nd_ndarray()
        shapes = [x.shape for x in flat(self._layout)]
        return like(self._layout, _views(vector, shapes))


def _views(vector: NDArray, shapes: Sequence[Shape]) -> Arrays:
    """Arrays of these shapes that lie side by side in the vector. (Only the reshape of a classic array is a view.)"""
    ends = offsets([traffic.elements(shape) for shape in shapes])
    parts = [vector[start:stop] for start, stop in zip(ends, ends[1:])]
    return [part.reshape(shape).as_np_ndarray() for part, shape in zip(parts, shapes)]


def _parts(vectors: Arrays, cuts: Sequence[Bounds]) -> Arrays:
    return [vector[start:stop] for vector, (start, stop) in zip(vectors, cuts)]


def _copies(parts: Arrays, vectors: Arrays, cuts: Sequence[Bounds]) -> List[Call]:
    """Copy each device's part into its place in the vectors of all devices. (Onto itself a copy does nothing.)"""
    copies: List[Call] = []
    for part, (start, stop) in zip(parts, cuts):
        if part.size:
            copies += [prepare("_copyto", [part], vector[start:stop]) for vector in vectors]
    return copies
