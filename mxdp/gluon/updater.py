"""MXNet's updater, faster for SGD on large arrays on a CPU."""

from __future__ import annotations

from typing import Any, Sequence

import numpy as onp

from mxdp.backend import mx
from mxdp.training.update import updates_alone


class Updater(mx.optimizer.Updater):  # type: ignore[misc]
    """Updates one device as MXNet's does, to the same bits. SGD on a large array gets an operator of its own
    (:func:`mxdp.training.update.updates_alone`); MXNet takes one for many arrays, whatever ``aggregate_num`` says."""

    def __call__(self, index: Sequence[int], grad: Sequence[Any], weight: Sequence[Any]) -> None:
        """Update the parameters with these numbers; doesn't wait."""
        rest = [each for each in zip(index, grad, weight) if not self._alone(*each)]
        if rest:
            super().__call__(*zip(*rest))

    def _alone(self, number: int, gradient: Any, weight: Any) -> bool:
        """Update it, unless MXNet has to: the first time, when it makes the state, and with weight decay but without
        momentum, which ``sgd_update`` rounds otherwise."""
        sgd = self.optimizer
        if not (type(sgd) is mx.optimizer.SGD and self.states_synced.get(number) and updates_alone(weight)):
            return False
        arrays, momentum, wd = [x.as_nd_ndarray() for x in (weight, gradient)], self.states[number], sgd._get_wd(number)
        dense = weight.dtype == onp.float32 and all(x.stype == "default" for x in arrays)
        if not dense or (momentum is None and wd):
            return False
        sgd._set_current_context(weight.ctx.device_id)
        sgd._update_count([number])
        options = dict(lr=sgd._get_lr(number), wd=wd, rescale_grad=sgd.rescale_grad, out=arrays[0])
        if sgd.clip_gradient:
            options["clip_gradient"] = sgd.clip_gradient
        if momentum is None:
            mx.nd.sgd_update(*arrays, **options)
        else:
            mx.nd.sgd_mom_update(*arrays, momentum, momentum=sgd.momentum, **options)
        return True
