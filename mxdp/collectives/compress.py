"""Gradients in fewer bytes: forms in which a worker sends its gradients, and the sum of what all have sent.

A form turns a float32 vector into bytes, and bytes into a vector. What a form can't say is lost, unless the worker
keeps it and adds it to its next gradient (error feedback). In the sum of many steps then nothing is lost::

    gradient (+) what was kept  --encode-->  bytes  --to all workers-->  decode, add in float32  -->  gradient
             |                                 |
             +---- minus what they say --------+---->  is kept for the next step

===============  =======================  =========================================================================
form             bytes for n numbers      what is sent
===============  =======================  =========================================================================
``FLOAT32``      4 n                      all of it
``FLOAT16``      2 n                      11 significant bits, from 6e-8 to 65504 (beyond: infinity)
``BFLOAT16``     2 n                      8 significant bits, in float32's range
``two_bits``     n / 4                    plus or minus a threshold, or zero. Source: MXNet, "Gradient Compression"
``largest``      8 for each that is sent  the largest by their absolute values, with their places
===============  =======================  =========================================================================

Sources: Lin et al., "Deep Gradient Compression", ICLR 2018; of error feedback: Seide et al., "1-Bit Stochastic Gradient
Descent", Interspeech 2014; of sums every few steps: Stich, "Local SGD Converges Fast ...", ICLR 2019.
"""

from __future__ import annotations

import math
from typing import Callable, List, NamedTuple, Optional, Sequence

import numpy as onp

from mxdp.backend import HostArray, NDArray, upload
from mxdp.plans.partition import offsets
from mxdp.processes import World
from mxdp.processes.world import ranks_of


class Form(NamedTuple):
    """``encode(vector)`` gives bytes; ``decode(bytes, size)`` the vector that they say. Both are of float32."""

    encode: Callable[[HostArray], bytes]
    decode: Callable[[bytes, int], HostArray]


def _encode_bfloat16(x: HostArray) -> bytes:
    """The upper half of each number's bits, rounded to the nearest, ties to even."""
    bits = x.astype("<f4").view("<u4")
    return bytes(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2"))


FLOAT32 = Form(lambda x: x.astype("<f4").tobytes(), lambda data, size: onp.frombuffer(data, "<f4", size))
FLOAT16 = Form(
    lambda x: x.astype("<f2").tobytes(), lambda data, size: onp.frombuffer(data, "<f2", size).astype("float32")
)
BFLOAT16 = Form(
    _encode_bfloat16, lambda data, size: (onp.frombuffer(data, "<u2", size).astype("<u4") << 16).view("<f4")
)


def two_bits(threshold: float) -> Form:
    """MXNet's form: 11 for ``threshold`` or more, 10 for ``-threshold`` or less, else 00; four numbers in a byte, the
    first in its highest bits."""

    def encode(x: HostArray) -> bytes:
        codes = onp.zeros(-(-x.size // 4) * 4, "uint8")
        codes[: x.size] = 3 * (x >= threshold).view("uint8") + 2 * (x <= -threshold).view("uint8")
        return bytes(codes[0::4] << 6 | codes[1::4] << 4 | codes[2::4] << 2 | codes[3::4])

    def decode(data: bytes, size: int) -> HostArray:
        codes = onp.frombuffer(data, "uint8")[:, None] >> onp.array([6, 4, 2, 0], "uint8") & 3
        return onp.asarray(onp.array([0, 0, -threshold, threshold], "float32")[codes.ravel()[:size]])

    return Form(encode, decode)


def largest(share: float) -> Form:
    """This share of the numbers, at least one, each with its place; of equal ones the first. The others are zero."""

    def encode(x: HostArray) -> bytes:
        count, size = max(1, math.ceil(share * x.size)), onp.abs(x)
        least = onp.partition(size, x.size - count)[x.size - count]
        above = onp.flatnonzero(size > least)
        equal = onp.flatnonzero(size == least)[: count - above.size]
        places = onp.concatenate([above, equal]).astype("<i4")
        return bytes(places) + bytes(x[places].astype("<f4"))

    def decode(data: bytes, size: int) -> HostArray:
        vector = onp.zeros(size, "float32")
        vector[onp.frombuffer(data, "<i4", len(data) // 8)] = onp.frombuffer(data, "<f4", offset=len(data) // 2)
        return vector

    return Form(encode, decode)


class CompressedSync:
    """Sums the gradients of all replicas in place at each call, from what they say in ``form``. All workers, a device
    each, add up the same vectors in the same order, and get the same bits. Waits for the gradients: the host encodes.

    Args:
        device_params: the replicas of this process, as :func:`mxdp.get_params` makes them.
        feedback: keep what the form can't say, and add it to the next gradient.
        every: sum every ``every`` calls. The calls between leave each replica its gradient, times the workers: an
            update divided by the whole batch is then a step on the replica's shard. The sum is of all gradients since
            the last one, and resets the parameters to what they were then: the next update makes them the mean of the
            replicas, which went apart.
        world: the workers are the devices of all its ranks, as many on each.
    """

    def __init__(
        self,
        device_params: Sequence[Sequence[NDArray]],
        form: Form,
        feedback: bool = False,
        every: int = 1,
        world: Optional[World] = None,
    ) -> None:
        self._replicas, self._form, self._feedback, self._every = device_params, form, feedback, every
        self._world, self._calls = ranks_of(world), 0
        self._borders = offsets([param.size for param in device_params[0]])
        self.kept: List[HostArray] = [onp.zeros(self._borders[-1], "float32") for _ in device_params]
        """Of each replica: what was not sent so far, or the sum of what it waits to send."""
        self.sent = 0
        """Bytes that a replica has sent to each other worker."""
        self._start: List[List[NDArray]] = []

    def __call__(self) -> None:
        """Sum, or wait for the next sum."""
        if self._every > 1 and self._calls % self._every == 0:
            self._start = [[param.copy() for param in params] for params in self._replicas]
        self._calls += 1
        vectors = [onp.concatenate([param.grad.asnumpy().ravel() for param in params]) for params in self._replicas]
        whole = [kept + vector for kept, vector in zip(self.kept, vectors)]
        if self._calls % self._every:
            self.kept, workers = whole, len(vectors) * self._world.size
            self._write([vector * workers for vector in vectors])
            return
        said = [self._form.encode(vector) for vector in whole]
        for kept, vector, data in zip(self.kept, whole, said):
            kept[:] = vector - self._form.decode(data, vector.size) if self._feedback else 0
        self.sent += len(said[0])
        heard = [data for rank in self._world.gather(said) for data in rank]
        total = sum((self._form.decode(data, whole[0].size) for data in heard), onp.zeros_like(whole[0]))
        for params, start in zip(self._replicas, self._start):
            for param, value in zip(params, start):
                param[()] = value
        self._write([total] * len(vectors))

    def _write(self, vectors: Sequence[HostArray]) -> None:
        for params, vector in zip(self._replicas, vectors):
            for param, start, stop in zip(params, self._borders, self._borders[1:]):
                param.grad[()] = upload(vector[start:stop].reshape(param.shape), param.ctx)
