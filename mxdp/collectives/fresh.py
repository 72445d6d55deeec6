"""Which gradients are fresh: written by a backward pass, and not used by a sum or an update since.

MXNet keeps a mark for each parameter. Backward sets it; whatever uses the gradient clears it::

    backward          device 0: fresh           device 1, which had no sample: the last step's sum, not fresh
    sum               g0                   +    0, since it isn't fresh
    sum, or sgd       not fresh                 not fresh

Without the mark, device 1 would add the last step's sum of all devices once more.
"""

from __future__ import annotations

import ctypes
from typing import Any, Collection, Dict, Iterator, List, Mapping, NamedTuple, Sequence

from mxdp.backend import NDArray, address_of, mx
from mxdp.engine import Call, prepare

Replicas = Sequence[Sequence[NDArray]]


class GradientPlace(NamedTuple):
    """Where a parameter's gradient lies, and a call that sets it to zero."""

    param: NDArray
    number: int
    address: Any
    zero: Call


class Held:
    """The arrays that these lists of replicas hold."""

    def __init__(self, device_params: Replicas) -> None:
        self._device_params = device_params
        self._arrays = _arrays(device_params)  # kept, so that no other arrays get their ids
        self._ids = list(map(id, self._arrays))

    def check(self, user: str) -> None:
        """Raise a RuntimeError if the lists hold other arrays by now. ``user``: who needs them to stay, and for what,
        in the message."""
        if not self.is_in(self._device_params):
            raise RuntimeError(
                f"{user}: the replicas hold other arrays than when it was made: write into the arrays "
                "(param[()] = value), or make a new one"
            )

    def is_in(self, device_params: Replicas) -> bool:
        """Whether these replicas hold the same arrays, in the same order."""
        return list(map(id, _arrays(device_params))) == self._ids


class Fresh:
    """The marks of these replicas' parameters, and where the gradients lie.

    Args:
        gradients: for each replica, its gradients by parameter number.
        user: who needs them, and for what, in messages.
    """

    def __init__(
        self, device_params: Replicas, gradients: Sequence[Mapping[int, NDArray]], user: str
    ) -> None:
        self.held = Held(device_params)
        self._user = user
        self._places: List[GradientPlace] = []
        self.by_hand = True
        """Whether backward has never written one of them."""
        for params, of_replica in zip(device_params, gradients):
            for number, param in enumerate(params):
                if param.size:
                    gradient = of_replica[number]
                    zero = prepare("zeros_like", [gradient], gradient)
                    self._places.append(GradientPlace(param, number, address_of(gradient), zero))

    def forget(self) -> None:
        """Note that no gradient is fresh, as before a backward pass that overwrites them. None is written by hand."""
        self.by_hand = False
        for place in self._places:
            mx.base._LIB.MXNDArraySetGradState(place.param.handle, 0)

    def zero_stale(self, numbers: Collection[int]) -> None:
        """Set the gradients of the parameters with these ``numbers`` to zero, where they are not fresh, unless they are
        written by hand. Doesn't wait."""
        stale = self.stale()
        if self.by_hand:
            return
        for place in stale:
            if place.number in numbers:
                place.zero()

    def stale(self) -> List[GradientPlace]:
        """Those that are not fresh. Where others are, notes that backward writes them."""
        mark = ctypes.c_int()
        at_mark = ctypes.byref(mark)
        get = mx.base._LIB.MXNDArrayGetGradState
        stale = []
        for place in self._places:
            get(place.param.handle, at_mark)
            if not mark.value:
                stale.append(place)
        if len(stale) < len(self._places):
            self.by_hand = False
        return stale

    def use(self) -> None:
        """Note that all gradients are used. Raises a RuntimeError if the replicas hold other arrays by now, or backward
        writes a gradient elsewhere."""
        self.held.check(self._user)
        for param in self.moved():
            raise RuntimeError(
                f"{self._user}: the gradient of a parameter of shape {param.shape} on {param.ctx} was replaced (by "
                "attach_grad, or by another GradientSync on the same replicas): make a new one, and use only that"
            )
        note = mx.base._LIB.MXNDArraySetGradState
        for place in self._places:
            note(place.param.handle, 0)

    def moved(self) -> Iterator[NDArray]:
        """The parameters whose gradients backward writes elsewhere by now."""
        # MXNet's C interface takes 2 us. ``param.grad`` takes twice as long, since each access makes an object.
        library = mx.base._LIB
        get = library.MXNDArrayGetGrad
        read = library.MXNDArrayGetData
        free = library.MXNDArrayFree
        grad = ctypes.c_void_p()
        place = ctypes.c_void_p()
        at_grad = ctypes.byref(grad)
        at_place = ctypes.byref(place)
        for param, _, address, _ in self._places:
            failed = get(param.handle, at_grad) or not grad or read(grad, at_place) or free(grad)
            if failed or place.value != address:
                yield param


def gradients_of(device_params: Replicas) -> List[Dict[int, NDArray]]:
    """For each replica, its gradients where they are now, by parameter number. Waits until they are written: the zeros
    of ``attach_grad`` have no memory before, and would get some twice, if it was asked for at the same time."""
    gradients = []
    for params in device_params:
        of_replica = {number: param.grad for number, param in enumerate(params)}
        for gradient in of_replica.values():
            gradient.wait_to_read()
        gradients.append(of_replica)
    return gradients


def _arrays(device_params: Replicas) -> List[NDArray]:
    return [param for params in device_params for param in params]
