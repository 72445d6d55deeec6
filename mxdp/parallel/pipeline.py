"""Network partitioning: each device has some of the layers, and micro-batches go through all of them in turn.

::

    cpu(0)   conv relu pool                F0 F1 F2 F3             B3 B2 B1 B0
                   | activations ^ gradients
    cpu(1)   dense relu dense loss            F0 F1 F2 F3 B3 B2 B1 B0

The schedule is data (:mod:`mxdp.plans.pipeline`); :class:`Pipeline` pushes its tasks, and MXNet's engine lets those
that don't need each other run at the same time. With one micro-batch this is plain model parallelism: one device works
and the others wait.

Parameters lie on one device each, so nothing has to be summed between devices; what is sent are the activations at the
cuts, and their gradients.
"""

from __future__ import annotations

import math
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from mxdp.backend import Batch, Device, NDArray, np
from mxdp.layers import LayerParams, Net, Shape, outputs
from mxdp.parallel.activations import lasting_numbers, step_numbers
from mxdp.parallel.layer_costs import find_cuts
from mxdp.parallel.stage import Stage
from mxdp.parallel.traffic import check_devices, elements, itemsize, load, nbytes, to_host
from mxdp.plans.partition import Bounds, bounds, pieces
from mxdp.plans.pipeline import FORWARD, inference, order, pipeline
from mxdp.scratch import sgd


class Pipeline:
    """A :class:`~mxdp.parallel.strategy.Strategy`: stage s, some neighbouring layers, on ``devices[s]``.

    A batch is cut into ``micro_batches`` of nearly equal size (the longer ones first); ``schedule`` is ``"gpipe"`` or
    ``"1f1b"``. Gradients are summed over all micro-batches, so a step is the serial run's, with one exception: **batch
    normalisation takes the statistics of each micro-batch**, as GPipe's. The serial run to compare with then is that of
    the same micro-batches, one after the other, gradients summed; with one micro-batch it is the plain one.

    Args:
        cuts: the numbers of the layers with which stages 1, 2 ... begin. None: cut so that the slowest stage is as fast
            as can be. Then layers are measured here, with batches of ``batch_size``, which waits (see
            :func:`mxdp.parallel.layer_costs.find_cuts`).
        limit: if so, the bytes that a stage may take, :meth:`lasting_bytes` and :meth:`peak_bytes` together.

    Raises:
        ValueError: more devices than layers or one twice, an unknown schedule, cuts that are none, or none within the
            limit.
    """

    def __init__(
        self,
        net: Net,
        params: Sequence[LayerParams],
        input_shape: Shape,
        devices: Sequence[Device],
        micro_batches: int = 1,
        schedule: str = "gpipe",
        cuts: Optional[Sequence[int]] = None,
        batch_size: int = 64,
        limit: float = math.inf,
    ) -> None:
        check_devices(devices)
        if len(devices) > len(net):
            raise ValueError(
                f"{len(net)} layers can't be cut into {len(devices)} stages: use at most {len(net)} devices"
            )
        self.devices, self.plan = list(devices), pipeline(schedule, len(devices), micro_batches)
        if cuts is None:
            cuts = find_cuts(net, params, input_shape, self.devices[0], self.plan, batch_size, limit)
        elif len(cuts) != len(devices) - 1:
            raise ValueError(f"{len(devices)} devices need {len(devices) - 1} cuts, not {tuple(cuts)}")
        self.cuts = tuple(cuts)
        self.stages = [
            Stage(net[start:stop], params[start:stop], device, start == 0, own)
            for (start, stop), device, own in zip(pieces(len(net), self.cuts), self.devices, self.plan.tasks)
        ]
        self._itemsize = itemsize(next(param for own in params for param in own))
        self._shapes = [tuple(input_shape), *outputs(net, input_shape)]

    def step(self, X: Batch, y: Batch) -> NDArray:
        """See :class:`~mxdp.parallel.strategy.Strategy`. Doesn't wait.

        Raises:
            ValueError: fewer samples than micro-batches, or not a label for each sample.
        """
        if X.shape[:1] != y.shape[:1]:
            raise ValueError(f"X has {X.shape[0]} samples and y has {y.shape[0]} labels: they must be as many")
        X_parts, y_parts = self._split(X, self.devices[0]), self._split(y, self.devices[-1])
        for stage in self.stages:
            stage.begin([len(part) for part in X_parts])
        activations: Dict[Tuple[int, int], NDArray] = {(0, number): part for number, part in enumerate(X_parts)}
        heads: Dict[Tuple[int, int], Optional[NDArray]] = {}
        last = len(self.stages) - 1
        losses: List[NDArray] = []
        for place, task in order(self.plan):
            number, stage = task.micro_batch, self.stages[place]
            if task.kind == FORWARD:
                x = activations.pop((place, number))
                if place < last:
                    activations[place + 1, number] = stage.forward(number, x, self.devices[place + 1])
                else:
                    losses.append(stage.forward(number, x, self.devices[0], y_parts[number]))
            else:
                head = heads.pop((place, number), None)
                heads[place - 1, number] = stage.backward(number, head, self.devices[place - 1] if place else None)
        return _joined(losses)

    def update(self, lr: float, batch_size: int) -> None:
        """See :class:`~mxdp.parallel.strategy.Strategy`. Doesn't wait."""
        for stage in self.stages:
            sgd(stage.flat, lr, batch_size)

    def scores(self, X: Batch) -> NDArray:
        """See :class:`~mxdp.parallel.strategy.Strategy`; micro-batch by micro-batch, as :meth:`step`. Doesn't wait.

        Raises:
            ValueError: fewer samples than micro-batches.
        """
        last = len(self.stages) - 1
        xs = self._split(X, self.devices[0])
        for place, task in order(inference(len(self.stages), len(xs))):
            target = self.devices[place + 1 if place < last else 0]
            xs[task.micro_batch] = self.stages[place].infer(xs[task.micro_batch], target)
        return _joined(xs)

    def params(self) -> List[LayerParams]:
        """See :class:`~mxdp.parallel.strategy.Strategy`. Waits."""
        return to_host([own for stage in self.stages for own in stage.params])

    def gradients(self) -> List[LayerParams]:
        """See :class:`~mxdp.parallel.strategy.Strategy`. Waits."""
        return to_host([[param.grad for param in own] for stage in self.stages for own in stage.params])

    def in_step(self) -> bool:
        """True: no parameter is tied to another."""
        return True

    def bytes_moved(self, batch_size: int) -> int:
        """The activations at each cut and as many gradients; and the losses, to the first device."""
        if len(self.stages) == 1:
            return 0
        numbers = sum(2 * elements(self._shapes[cut]) for cut in self.cuts) + 1
        return batch_size * numbers * self._itemsize

    def scores_bytes(self, samples: int) -> int:
        """What :meth:`scores` sends between devices: the activations at each cut, and the scores to the first."""
        if len(self.stages) == 1:
            return 0
        return samples * sum(elements(self._shapes[place]) for place in (*self.cuts, -1)) * self._itemsize

    def param_bytes(self) -> List[int]:
        """See :class:`~mxdp.parallel.strategy.Strategy`."""
        return [sum(map(nbytes, stage.flat)) for stage in self.stages]

    def lasting_bytes(self, batch_size: int) -> List[int]:
        """What stays on each device between steps: parameters, gradients, and places for those of one micro-batch."""
        return self._predicted(lasting_numbers, batch_size)

    def peak_bytes(self, batch_size: int) -> List[int]:
        """Predicted (:mod:`mxdp.parallel.activations`)."""
        return self._predicted(step_numbers, batch_size)

    def _predicted(self, numbers: Callable[..., int], batch_size: int) -> List[int]:
        places = enumerate(zip(self.stages, (0, *self.cuts)))
        return [
            self._itemsize * numbers(stage.layers, self._shapes[start], self.plan, place, batch_size)
            for place, (stage, start) in places
        ]

    def _split(self, x: Batch, device: Device) -> List[NDArray]:
        return [load(x[start:stop], device) for start, stop in self.pieces(len(x))]

    def pieces(self, samples: int) -> List[Bounds]:
        """Where a batch is cut into micro-batches.

        Raises:
            ValueError: fewer samples than micro-batches.
        """
        if samples < self.plan.micro_batches:
            raise ValueError(
                f"can't cut a batch of {samples} into {self.plan.micro_batches} micro-batches: each needs at least one "
                "sample; use a larger batch or fewer micro-batches"
            )
        return bounds(samples, self.plan.micro_batches)


def _joined(parts: Sequence[NDArray]) -> NDArray:
    return np.concatenate(parts) if len(parts) > 1 else parts[0]
