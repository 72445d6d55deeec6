"""Network partitioning: each device has some of the layers, and micro-batches pass through one device after the other::

    cpu(0)   conv relu pool                F0 F1 F2 F3             B3 B2 B1 B0
                   | activations ^ gradients
    cpu(1)   dense relu dense loss            F0 F1 F2 F3 B3 B2 B1 B0

The schedule is data (:mod:`mxdp.plans.pipeline`). :class:`Pipeline` pushes its tasks, and MXNet's engine runs
independent tasks at the same time. With one micro-batch one device works at a time: plain model parallelism. The
devices send the activations at the cuts and their gradients; no parameter is on two devices.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from mxdp.backend import Batch, Device, Devices, NDArray, check_arrays
from mxdp.layers import Net, Shape
from mxdp.parallel import traffic
from mxdp.parallel.footprint import lasting_numbers, step_numbers
from mxdp.parallel.layer_costs import find_cuts
from mxdp.parallel.stage import Stage
from mxdp.parallel.strategy import Strategy
from mxdp.parallel.traffic import NetParams
from mxdp.plans.partition import Bounds, bounds, pieces
from mxdp.plans.pipeline import FORWARD, PipelinePlan, inference, order, pipeline
from mxdp.scratch import Arrays


class Pipeline(Strategy):
    """A :class:`~mxdp.parallel.strategy.Strategy`: stage s, some neighbouring layers, on ``devices[s]``.

    A batch is cut into ``micro_batches`` of nearly equal size, the longer ones first. ``schedule`` is ``"gpipe"`` or
    ``"1f1b"``. Gradients are summed over all micro-batches, so a step equals the serial run's, with one exception:
    **batch normalisation takes the statistics of each micro-batch**, as in GPipe.

    ``cuts``: the numbers of the layers with which stages 1, 2 ... begin. None: those that make the slowest stage
    fastest for batches of ``batch_size``, measured here, which waits (:func:`mxdp.parallel.layer_costs.find_cuts`).
    Raises a ValueError also for more devices than layers, an unknown schedule, and invalid cuts.
    """

    def __init__(
        self,
        net: Net,
        params: NetParams,
        input_shape: Shape,
        devices: Devices,
        micro_batches: int = 1,
        schedule: str = "gpipe",
        cuts: Optional[Sequence[int]] = None,
        batch_size: int = 64,
    ) -> None:
        super().__init__(net, params, input_shape, devices)
        if len(devices) > len(net):
            raise ValueError(
                f"{len(net)} layers can't be cut into {len(devices)} stages: use at most {len(net)} devices"
            )
        self.plan = pipeline(schedule, len(devices), micro_batches)
        if cuts is None:
            cuts = find_cuts(net, params, input_shape, self.devices[0], self.plan, batch_size)
        elif len(cuts) != len(devices) - 1:
            raise ValueError(
                f"{len(devices)} devices need {len(devices) - 1} cuts, not {tuple(cuts)}"
            )
        self.cuts = tuple(cuts)
        self.least = micro_batches
        self.of = "micro-batches"
        placed = zip(pieces(len(net), self.cuts), self.devices, self.plan.tasks)
        self.stages = [
            Stage(net[start:stop], params[start:stop], device, start == 0, tasks)
            for (start, stop), device, tasks in placed
        ]
        self.held = [stage.flat for stage in self.stages]

    def step(self, X: Batch, y: Batch) -> NDArray:
        """Push all tasks in the plan's order: forward and backward passes of all micro-batches."""
        traffic.check_label_count(X, y)
        self.traffic.clear()
        X_parts = self._split(X, self.devices[0])
        y_parts = self._split(y, self.devices[-1])
        for stage in self.stages:
            stage.begin([len(part) for part in X_parts])
        activations = {(0, number): part for number, part in enumerate(X_parts)}
        heads: Dict[Tuple[int, int], NDArray] = {}
        last = len(self.stages) - 1
        losses = []
        for place, task in order(self.plan):
            number = task.micro_batch
            stage = self.stages[place]
            if task.kind == FORWARD:
                x = activations.pop((place, number))
                if place < last:
                    sent = stage.forward(number, x, self.devices[place + 1])
                    activations[place + 1, number] = sent
                else:
                    sent = stage.forward(number, x, self.devices[0], y_parts[number])
                    losses.append(sent)
                self._note(stage, sent, traffic.FORWARD)
            else:
                head = heads.pop((place, number), None)
                before = self.devices[place - 1] if place else None
                back = stage.backward(number, head, before)
                heads[place - 1, number] = back
                self._note(stage, back, traffic.BACKWARD)
        return traffic.joined(losses)

    def scores(self, X: Batch) -> NDArray:
        """Forward pass of the same micro-batches as in :meth:`step`."""
        check_arrays(X=X)
        self.traffic.clear()
        xs = self._split(X, self.devices[0])
        for place, task in order(inference(len(self.stages), len(xs))):
            number = task.micro_batch
            stage = self.stages[place]
            target = self.devices[(place + 1) % len(self.devices)]
            xs[number] = stage.infer(xs[number], target)
            self._note(stage, xs[number], traffic.FORWARD)
        return traffic.joined(xs)

    def gradients_moved(self) -> None:
        """The stages sum where the gradients are now."""
        for stage in self.stages:
            stage.sum_in_gradients()

    def bytes_moved(self, batch_size: int) -> int:
        """The activations at each cut, gradients of the same size, and the losses, to the first device."""
        numbers = sum(2 * traffic.elements(self.shapes[cut]) for cut in self.cuts) + 1
        return batch_size * numbers * self.itemsize if self.cuts else 0

    def lasting_bytes(self, batch_size: int) -> List[int]:
        """See :func:`mxdp.parallel.footprint.lasting_numbers`."""
        return [self.itemsize * lasting_numbers(*stage, batch_size) for stage in self._described()]

    def peak_bytes(self, batch_size: int) -> List[int]:
        """See :func:`mxdp.parallel.footprint.step_numbers`."""
        return [self.itemsize * step_numbers(*stage, batch_size) for stage in self._described()]

    def _described(self) -> Iterator[Tuple[Net, Shape, PipelinePlan, int]]:
        for stage, (start, stop) in enumerate(pieces(len(self.net), self.cuts)):
            yield self.net[start:stop], self.shapes[start], self.plan, stage

    def pieces(self, samples: int) -> List[Bounds]:
        """Where a batch is cut into micro-batches. Raises a ValueError if it has fewer samples."""
        count = self.plan.micro_batches
        if samples < count:
            what = f"can't cut a batch of {samples} into {count} micro-batches: each needs at least one sample"
            raise ValueError(f"{what}; use a larger batch or fewer micro-batches")
        return bounds(samples, count)

    def _note(self, stage: Stage, sent: Optional[NDArray], way: str) -> None:
        if sent is not None and sent.ctx != stage.device:
            self.traffic.note("activations", way, traffic.nbytes(sent))

    def _split(self, x: Batch, device: Device) -> Arrays:
        return [traffic.copy_to(x[start:stop], device) for start, stop in self.pieces(len(x))]
