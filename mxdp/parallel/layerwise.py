"""Layerwise partitioning: each device has a part of every layer, and computes on all samples.

Layers with weights go in pairs, the first cut by columns (outputs) and the second by rows (inputs), with one all-reduce
for each pair and direction (:mod:`mxdp.plans.layers.column_row` draws it). The layers between two exchanges are a
segment. Autograd begins anew behind each exchange, and the backward pass takes the segments in reverse order::

    forward     segment 0 | sum | segment 1 | sum | segment 2, loss
    backward    segment 0 | . . | segment 1 | sum | segment 2            behind a sum each device has the whole gradient
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence

from mxdp.backend import Batch, Devices, NDArray, autograd, check_arrays, np
from mxdp.collectives import allreduce
from mxdp.layers import Conv, Dense, LayerParams, Net, Shape, apply
from mxdp.parallel import traffic
from mxdp.parallel.footprint import Footprint
from mxdp.parallel.strategy import Strategy
from mxdp.parallel.traffic import BACKWARD, FORWARD, NetParams, copy_to, flat, like, to_host
from mxdp.plans.layers.column_row import (
    ALL_GATHER,
    ALL_REDUCE,
    COLUMNS,
    ROWS,
    WHOLE,
    Segment,
    cut_layers,
    segments,
)
from mxdp.plans.partition import Bounds, bounds, offsets
from mxdp.scratch import Arrays, cross_entropy, get_params, in_sync


class Passed(NamedTuple):
    """A segment in a step, with its inputs and outputs on each device. Autograd has recorded all between them."""

    segment: Segment
    inputs: Arrays
    outputs: Arrays


def _first(segment: Segment) -> int:
    """The segment's first layer, or -1 for the last shape if it has none."""
    return segment.layers[0] if segment.layers else -1


class Layerwise(Strategy):
    """Each layer over all devices: a :class:`~mxdp.parallel.strategy.Strategy`. Its all-reduces are by ``algorithm``.
    The devices have disjoint weights and biases; the first device adds the bias of a layer cut by rows. Tied are only
    the parameters of batch normalisations behind a pair, whose gradients all devices compute alike. Raises a ValueError
    also for fewer outputs than devices in a layer that is cut by columns."""

    algorithm = "auto"

    def __init__(
        self,
        net: Net,
        params: NetParams,
        input_shape: Shape,
        devices: Devices,
    ) -> None:
        super().__init__(net, params, input_shape, devices)
        self._refuse_residual("by its channels")
        self.cuts = cut_layers([isinstance(layer, (Conv, Dense)) for layer in net])
        self.spans = self._find_spans()
        self.segments = segments(self.cuts, self._back)
        self._params: List[NetParams] = []
        for rank, device in enumerate(devices):
            parts = [self._part(number, layer, rank) for number, layer in enumerate(params)]
            self._params.append([get_params(part, device) for part in parts])
        self.held = [flat(layers) for layers in self._params]
        self._no_bias: Dict[int, Arrays] = {}
        for number, layer in enumerate(params):
            if self.cuts[number] == ROWS:
                bias = layer[1]
                self._no_bias[number] = [
                    np.zeros(bias.shape, dtype=bias.dtype, ctx=device) for device in devices
                ]

    def step(self, X: Batch, y: Batch) -> NDArray:
        """Forward and backward. Each device gets the gradients of its own parameters."""
        traffic.check_label_count(X, y)
        self.traffic.clear()
        labels = [copy_to(y, device) for device in self.devices]
        trail = self._forward(X, labels)
        self._backward(trail)
        return trail[-1].outputs[0]

    def scores(self, X: Batch) -> NDArray:
        """Forward pass. At its end all devices have the scores."""
        check_arrays(X=X)
        self.traffic.clear()
        return self._forward(X)[-1].outputs[0]

    def params(self) -> NetParams:
        """The devices' parts joined, on ``cpu(0)``. Waits."""
        return self._whole([to_host(layers) for layers in self._params])

    def gradients(self) -> NetParams:
        """The gradients' parts joined, on ``cpu(0)``. Waits."""
        parts = []
        for layers in self._params:
            parts.append(to_host(like(layers, [param.grad for param in flat(layers)])))
        return self._whole(parts)

    def in_step(self) -> bool:
        """Whether batch normalisations behind a pair are equal on all devices, bit for bit. Waits."""
        whole = [number for number, cut in enumerate(self.cuts) if cut == WHOLE]
        tied = []
        for layers in self._params:
            tied.append(flat([layers[number] for number in whole]))
        return in_sync(tied)

    @property
    def allreduces(self) -> Dict[str, int]:
        """How many all-reduces the last step (or the last :meth:`Layerwise.scores`) has done, by direction."""
        return {way: self.traffic.messages[ALL_REDUCE, way] for way in (FORWARD, BACKWARD)}

    def allreduce_bytes(self, count: int) -> int:
        """Bytes that one all-reduce of ``count`` numbers moves."""
        return traffic.allreduce_bytes(self.algorithm, self.devices, count, self.itemsize)

    def bytes_moved(self, batch_size: int) -> int:
        """The bytes of all-reduces, and of the all-gather at the end."""
        sizes = traffic.sizes(self.shapes, batch_size)
        total = 0
        for segment in self.segments:
            if segment.split:
                made = sizes[segment.layers[-1] + 1]
                if segment.then == ALL_REDUCE:
                    total += self.allreduce_bytes(made)
                else:
                    total += (len(self.devices) - 1) * made * self.itemsize
                if segment.back:
                    total += self.allreduce_bytes(sizes[segment.layers[0]])
        return total

    def lasting_bytes(self, batch_size: int) -> List[int]:
        """Parameters, gradients, and the zeros that stand for another device's bias."""
        zeros = sum(self.shapes[number + 1][0] for number in self._no_bias)
        return [2 * nbytes + zeros * self.itemsize for nbytes in self.param_bytes()]

    def footprints(self, batch_size: int) -> Iterator[Footprint]:
        """Inputs of a segment, their gradients and the outputs are kept to the end of the step. At both ends of a
        segment the array is reshaped: MXNet copies it, but not its gradient."""
        sizes = traffic.sizes(self.shapes, batch_size)
        for rank in range(len(self.devices)):
            footprint = Footprint(sizes[0])
            for segment in self.segments:
                made = sizes[_first(segment)]
                footprint.keep(made if segment.back else 0)
                footprint.replace(made, back=False)
                for number in segment.layers:
                    made = sizes[number + 1]
                    if segment.split and self.cuts[number] != ROWS:
                        start, stop = self.spans[number][rank]
                        made = made * (stop - start) // self.shapes[number + 1][0]
                    footprint.add(self.net[number], made)
                if segment is not self.segments[-1]:
                    footprint.replace(made, back=False)
                footprint.keep()
                footprint.cut()
                if segment.then == ALL_GATHER:
                    footprint.replace(sizes[segment.layers[-1] + 1], back=False)
            yield footprint

    def _forward(self, X: Batch, labels: Sequence[NDArray] = ()) -> List[Passed]:
        """Pass all segments. With ``labels`` autograd records, and the last outputs are losses, else scores."""
        xs = [copy_to(X, device) for device in self.devices]
        trail = []
        for segment in self.segments:
            if labels and segment.back:
                for x in xs:
                    x.attach_grad()
            with autograd.record() if labels else nullcontext():
                outputs = [self._pass(segment, rank, x) for rank, x in enumerate(xs)]
                if labels and segment is self.segments[-1]:
                    outputs = [cross_entropy(*pair) for pair in zip(outputs, labels)]
            trail.append(Passed(segment, xs, outputs))
            xs = self._exchange(segment, [output.detach() for output in outputs])
        return trail

    def _pass(self, segment: Segment, rank: int, x: NDArray) -> NDArray:
        """Pass a segment on one device. Inputs and outputs have the shape (samples, numbers), since oneDNN stores
        images in blocks of channels, which an all-reduce can't take."""
        x = x.reshape(len(x), *self.shapes[_first(segment)])
        for number in segment.layers:
            params = self._params[rank][number]
            if self.cuts[number] == ROWS and rank:
                params = [*params, self._no_bias[number][rank]]
            x = apply(self.net[number], x, params)
        return x if segment is self.segments[-1] else x.reshape(len(x), -1)

    def _exchange(self, segment: Segment, outputs: Arrays) -> Arrays:
        """The next segment's inputs. An all-reduce overwrites the outputs: no layer with weights needs its output."""
        if segment.then == ALL_GATHER:
            send = self.traffic.send
            arrived = []
            for device in self.devices:
                arrived.append([send(x, device, ALL_GATHER, back=False) for x in outputs])
            return [traffic.joined(parts, axis=1) for parts in arrived]
        if segment.then == ALL_REDUCE:
            self._allreduce(outputs, FORWARD)
        return outputs

    def _backward(self, trail: Sequence[Passed]) -> None:
        """The segments in reverse order, each from the gradients of its outputs to those of its inputs."""
        gradients: Optional[Arrays] = None
        for segment, inputs, outs in reversed(trail):
            if gradients is not None and segment.then == ALL_GATHER:
                ends = offsets([out.shape[1] for out in outs])
                gradients = [
                    whole[:, start:stop] for whole, start, stop in zip(gradients, ends, ends[1:])
                ]
            autograd.backward(outs, gradients)
            if not segment.back:
                return
            gradients = [x.grad for x in inputs]
            if segment.split:
                self._allreduce(gradients, BACKWARD)

    def _allreduce(self, arrays: Arrays, direction: str) -> None:
        if len(arrays) > 1:
            allreduce(arrays, self.algorithm)
            self.traffic.note(ALL_REDUCE, direction, self.allreduce_bytes(arrays[0].size))

    def _find_spans(self) -> List[List[Bounds]]:
        """For each layer, the channels that each device makes (or takes in, where the layer is cut by rows)."""
        n = len(self.devices)
        spans = []
        for number, cut in enumerate(self.cuts):
            channels = self.shapes[number + 1][0]
            if cut == COLUMNS:
                if channels < n:
                    what = f"layer {number}, {self.net[number]}, has {channels} outputs for {n} devices"
                    raise ValueError(f"{what}: each needs at least one; use fewer devices")
                spans.append(bounds(channels, n))
            elif cut == WHOLE:
                spans.append([(0, channels)] * n)
            else:  # as the layer before makes them
                spans.append(spans[-1])
        return spans

    def _part(self, number: int, params: LayerParams, rank: int) -> LayerParams:
        start, stop = self.spans[number][rank]
        if self.cuts[number] != ROWS:
            return [param[start:stop] for param in params]
        weight, bias = params
        # A dense layer has a column for each pixel of a channel.
        pixels = weight.shape[1] // self.shapes[number][0]
        columns = weight[:, start * pixels : stop * pixels]
        return [columns] if rank else [columns, bias]

    def _whole(self, parts: Sequence[NetParams]) -> NetParams:
        """``parts[device][layer]`` joined over the devices."""
        result = []
        for cut, *layer in zip(self.cuts, *parts):
            if cut == ROWS:
                weights = [part[0] for part in layer]
                bias = layer[0][1]
                result.append([traffic.joined(weights, axis=1), bias])
            elif cut == WHOLE:
                result.append(layer[0])
            else:
                result.append([traffic.joined(same, axis=0) for same in zip(*layer)])
        return result
