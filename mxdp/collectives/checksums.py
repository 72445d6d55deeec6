"""Checksums of parameters, by which ranks notice that they have other values."""

from __future__ import annotations

from typing import Dict, List, Sequence

import numpy as onp

from mxdp.backend import NDArray, mx
from mxdp.collectives.program import as_vector
from mxdp.engine import Call, prepare


class Checksums:
    """The sum of squares of each of these ``params``, which lie on one device.

    ``arrays``: the sums, in float32, on the host, in the order of ``numbers``, those of the params.
    """

    def __init__(self, params: Sequence[NDArray]) -> None:
        self.numbers: List[int] = []
        self.arrays: List[NDArray] = []
        self._calls: List[Call] = []
        of_dtype: Dict[str, List[int]] = {}
        for number, param in enumerate(params):
            if param.size:
                of_dtype.setdefault(str(onp.dtype(param.dtype)), []).append(number)
        for numbers in of_dtype.values():
            members = [_dimensioned(params[number]) for number in numbers]
            sums = mx.nd.empty((len(numbers),), ctx=members[0].ctx)
            host = mx.nd.empty((len(numbers),), ctx=mx.cpu())
            self._calls.append(prepare("multi_sum_sq", members, sums, num_arrays=len(members)))
            self._calls.append(prepare("_copyto", [sums], host))
            self.numbers.extend(numbers)
            self.arrays.append(host)

    def push(self) -> None:
        """Compute the sums; doesn't wait."""
        for call in self._calls:
            call()

    def differing(self, ranks: Sequence[bytes]) -> List[int]:
        """The numbers of the params whose sums are not the same on all ``ranks``, of each of which these are the bytes
        of the ``arrays``."""
        sums = onp.array([onp.frombuffer(of_rank, "uint32") for of_rank in ranks])
        unlike = (sums != sums[0]).any(axis=0)
        return [number for number, differs in zip(self.numbers, unlike) if differs]


def _dimensioned(param: NDArray) -> NDArray:
    """The array; in place of a single number a view of it, since ``multi_sum_sq`` takes no array without dimensions."""
    return param if param.ndim else as_vector(param)
