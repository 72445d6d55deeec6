"""Layerwise partitioning: a part of every layer on each device, all samples on all of them.

Layers with weights go in pairs, of which the first is cut by columns (outputs) and the second by rows (inputs), so that
the devices meet once a pair and direction: :mod:`mxdp.plans.layers.column_row` draws it. Here each device passes a
segment while autograd records; between two segments, where the devices meet, autograd begins anew, and what is summed
is summed by :func:`mxdp.collectives.allreduce`. Backward goes through the segments in reverse order::

    forward     segment 0 | sum | segment 1 | sum | segment 2, loss
    backward    segment 0 | . . | segment 1 | sum | segment 2            behind a sum the gradient is whole everywhere
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence

from mxdp.backend import Batch, Device, NDArray, autograd, np
from mxdp.collectives import allreduce
from mxdp.layers import Conv, Dense, LayerParams, Net, Shape, apply, outputs
from mxdp.parallel import traffic
from mxdp.parallel.footprint import Footprint
from mxdp.plans.layers.column_row import COLUMNS, GLUE, ROWS, SUM, WHOLE, Segment, cut_layers, segments
from mxdp.plans.partition import Bounds, bounds, offsets
from mxdp.scratch import cross_entropy, get_params, in_sync, sgd

ALGORITHM = "auto"


@dataclass(frozen=True)
class Passed:
    """A segment in a step, with its inputs and outputs on each device: autograd knows what lies between them."""

    segment: Segment
    inputs: List[NDArray]
    outputs: List[NDArray]


class Layerwise:
    """Each layer over all devices. Fulfils :class:`mxdp.parallel.strategy.Strategy`.

    Weights are disjoint, and so are the biases: that of a layer cut by rows is added once, on the first device. Tied
    are only the parameters of batch normalisations behind a pair; all devices come to their gradients by themselves.

    Args:
        net, params: the network and its parameters, which are copied.
        input_shape: of one sample.
        devices: one or more.

    Raises:
        ValueError: no devices, or one twice; a net that doesn't fit ``input_shape``; a layer that is to be cut by
            columns and has fewer outputs than there are devices.
    """

    def __init__(self, net: Net, params: Sequence[LayerParams], input_shape: Shape, devices: Sequence[Device]) -> None:
        traffic.check_devices(devices)
        self.net, self.devices, self.traffic = list(net), list(devices), traffic.Traffic()
        self._shapes = [tuple(input_shape), *outputs(net, input_shape)]
        self.cuts = cut_layers([isinstance(layer, (Conv, Dense)) for layer in net])
        self._spans = self._find_spans()
        self._segments = segments(self.cuts, traffic.has_gradient(net))
        self._params = [
            [get_params(self._part(number, layer, rank), device) for number, layer in enumerate(params)]
            for rank, device in enumerate(devices)
        ]
        self._no_bias = {
            number: [np.zeros(layer[1].shape, dtype=layer[1].dtype, ctx=device) for device in devices]
            for number, layer in enumerate(params)
            if self.cuts[number] == ROWS
        }

    @property
    def allreduces(self) -> Dict[str, int]:
        """All-reduces that the last step (or the last :meth:`scores`) has done, by direction."""
        return {way: self.traffic.messages[SUM, way] for way in (traffic.FORWARD, traffic.BACKWARD)}

    def step(self, X: Batch, y: Batch) -> NDArray:
        """Forward and backward; each device ends with the gradients of its own parameters.

        Raises:
            ValueError: ``X`` and ``y`` differ in length.
        """
        if len(X) != len(y):
            raise ValueError(f"X has {len(X)} samples and y has {len(y)} labels: they must be as many")
        self.traffic.clear()
        labels = [traffic.load(y, device) for device in self.devices]
        trail = self._forward(X, labels)
        self._backward(trail)
        return trail[-1].outputs[0]

    def update(self, lr: float, batch_size: int) -> None:
        """Each device steps its own parameters."""
        for own in self._params:
            sgd(traffic.flat(own), lr, batch_size)

    def scores(self, X: Batch) -> NDArray:
        """Forward pass. All devices have the scores at its end."""
        self.traffic.clear()
        return self._forward(X)[-1].outputs[0]

    def params(self) -> List[LayerParams]:
        """The parts glued together, on ``cpu(0)``. Waits."""
        return self._whole([traffic.to_host(own) for own in self._params])

    def gradients(self) -> List[LayerParams]:
        """Likewise. Waits."""
        return self._whole([traffic.to_host([[p.grad for p in layer] for layer in own]) for own in self._params])

    def in_step(self) -> bool:
        """Are the parameters of batch normalisations behind a pair the same bits everywhere? Waits."""
        whole = [number for number, cut in enumerate(self.cuts) if cut == WHOLE]
        return in_sync([traffic.flat([own[number] for number in whole]) for own in self._params])

    def bytes_moved(self, batch_size: int) -> int:
        """The all-reduces, and what is glued at the end."""
        total, itemsize = 0, self._itemsize()
        for segment in self._segments:
            if not segment.split:
                continue
            before, behind = (
                batch_size * traffic.elements(self._shapes[number])
                for number in (segment.layers[0], segment.layers[-1] + 1)
            )
            if segment.back:
                total += self._sum_bytes(before, itemsize)
            if segment.meet == GLUE:
                total += (len(self.devices) - 1) * behind * itemsize
            else:
                total += self._sum_bytes(behind, itemsize)
        return total

    def param_bytes(self) -> List[int]:
        """Each device's own part."""
        return [sum(map(traffic.nbytes, traffic.flat(own))) for own in self._params]

    def lasting_bytes(self, batch_size: int) -> List[int]:
        """Parameters and gradients, and zeros in place of other devices' biases."""
        zeros = sum(traffic.nbytes(biases[0]) for biases in self._no_bias.values())
        return [2 * each + zeros for each in self.param_bytes()]

    def peak_bytes(self, batch_size: int) -> List[int]:
        """Predicted (:mod:`mxdp.parallel.footprint`). What an all-reduce needs while it runs is left out."""
        peaks = []
        for rank in range(len(self.devices)):
            footprint = Footprint(batch_size * traffic.elements(self._shapes[0]))
            for segment in self._segments:
                self._add(footprint, segment, rank, batch_size)
            peaks.append(footprint.peak() * self._itemsize())
        return peaks

    def _add(self, footprint: Footprint, segment: Segment, rank: int, samples: int) -> None:
        """A segment's inputs, with their gradients, and its outputs stay to the end (:class:`Passed`); at both ends an
        array takes another shape, for which MXNet copies it (its gradient it does not)."""
        sizes = [samples * traffic.elements(shape) for shape in self._shapes]
        made = sizes[segment.layers[0] if segment.layers else -1]
        footprint.keep(made * segment.back)
        footprint.replace(made, back=False)
        for number in segment.layers:
            made = sizes[number + 1]
            if segment.split and self.cuts[number] != ROWS:
                start, stop = self._spans[number][rank]
                made = made * (stop - start) // self._shapes[number + 1][0]
            footprint.add(self.net[number], made)
        if segment is not self._segments[-1]:
            footprint.replace(made, back=False)
        footprint.keep()
        footprint.cut()
        if segment.meet == GLUE:
            footprint.replace(sizes[segment.layers[-1] + 1], back=False)

    def _forward(self, X: Batch, labels: Sequence[NDArray] = ()) -> List[Passed]:
        """Through all segments. With ``labels`` autograd records, a segment at a time, and the last outputs are losses;
        without, they are scores."""
        xs, trail = [traffic.load(X, device) for device in self.devices], []
        for segment in self._segments:
            if labels and segment.back:
                for x in xs:
                    x.attach_grad()
            with autograd.record() if labels else nullcontext():
                outputs = [self._pass(segment, rank, x) for rank, x in enumerate(xs)]
                if labels and segment is self._segments[-1]:
                    outputs = [cross_entropy(*pair) for pair in zip(outputs, labels)]
            trail.append(Passed(segment, xs, outputs))
            xs = self._meet(segment, [output.detach() for output in outputs])
        return trail

    def _pass(self, segment: Segment, rank: int, x: NDArray) -> NDArray:
        """One device's way through a segment. What devices exchange is (samples, numbers): only then does it lie in
        memory as an all-reduce needs it, and not in blocks of channels, as oneDNN likes images."""
        x = x.reshape(len(x), *self._shapes[segment.layers[0] if segment.layers else -1])
        for number in segment.layers:
            own = self._params[rank][number]
            if self.cuts[number] == ROWS and rank:
                own = [*own, self._no_bias[number][rank]]
            x = apply(self.net[number], x, own)
        return x if segment is self._segments[-1] else x.reshape(len(x), -1)

    def _meet(self, segment: Segment, outputs: List[NDArray]) -> List[NDArray]:
        """What the next segment is given. A sum is written over its parts: no layer with weights needs its output."""
        if segment.meet == GLUE:
            spread = [[self.traffic.send(x, device, GLUE, back=False) for x in outputs] for device in self.devices]
            return [glue(parts, axis=1) for parts in spread]
        if segment.meet == SUM:
            self._allreduce(outputs, traffic.FORWARD)
        return outputs

    def _backward(self, trail: Sequence[Passed]) -> None:
        """The segments in reverse, each from the gradients of its outputs to those of its inputs."""
        gradients: Optional[List[NDArray]] = None
        for passed in reversed(trail):
            if gradients is not None and passed.segment.meet == GLUE:
                ends = offsets([output.shape[1] for output in passed.outputs])
                gradients = [each[:, start:stop] for each, start, stop in zip(gradients, ends, ends[1:])]
            autograd.backward(passed.outputs, gradients)
            if not passed.segment.back:
                return
            gradients = [x.grad for x in passed.inputs]
            if passed.segment.split:
                self._allreduce(gradients, traffic.BACKWARD)

    def _allreduce(self, arrays: Sequence[NDArray], direction: str) -> None:
        if len(arrays) > 1:
            allreduce(arrays, ALGORITHM)
            self.traffic.note(SUM, direction, self._sum_bytes(arrays[0].size, traffic.itemsize(arrays[0])))

    def _sum_bytes(self, count: int, itemsize: int) -> int:
        return traffic.allreduce_bytes(ALGORITHM, self.devices, count, itemsize)

    def _itemsize(self) -> int:
        return traffic.itemsize(traffic.flat(self._params[0])[0])

    def _find_spans(self) -> List[List[Bounds]]:
        """For each layer the channels that each device makes (or, by rows, that it takes in).

        Raises:
            ValueError: there are fewer channels than devices.
        """
        spans: List[List[Bounds]] = []
        for number, (cut, layer, shape) in enumerate(zip(self.cuts, self.net, self._shapes[1:])):
            if cut == COLUMNS:
                if shape[0] < len(self.devices):
                    raise ValueError(
                        f"layer {number}, {layer}, has {shape[0]} outputs for {len(self.devices)} devices: each needs "
                        "at least one; use fewer devices"
                    )
                spans.append(bounds(shape[0], len(self.devices)))
            else:
                spans.append([(0, shape[0])] * len(self.devices) if cut == WHOLE else spans[-1])
        return spans

    def _part(self, number: int, params: LayerParams, rank: int) -> LayerParams:
        """A device's part of one layer's parameters."""
        start, stop = self._spans[number][rank]
        if self.cuts[number] != ROWS:
            return [param[start:stop] for param in params]
        weight, bias = params
        each = weight.shape[1] // self._shapes[number][0]  # a dense layer has a column for each place of a channel
        return [weight[:, start * each : stop * each], bias][: 1 if rank else 2]

    def _whole(self, parts: Sequence[Sequence[LayerParams]]) -> List[LayerParams]:
        """``parts[device][layer]`` glued together."""
        result: List[LayerParams] = []
        for cut, *layer in zip(self.cuts, *parts):
            if cut == ROWS:
                result.append([glue([part[0] for part in layer], axis=1), layer[0][1]])
            elif cut == WHOLE:
                result.append(layer[0])
            else:
                result.append([glue(same, axis=0) for same in zip(*layer)])
        return result


def glue(parts: Sequence[NDArray], axis: int) -> NDArray:
    """The devices' parts side by side, in the order of the devices."""
    return np.concatenate(parts, axis=axis) if len(parts) > 1 else parts[0]
