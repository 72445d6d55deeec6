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

Infinity and NaN are always sent, whole, so the sum shows them as a full sum does. Nothing is kept of them.

Sources: Lin et al., "Deep Gradient Compression", ICLR 2018; of error feedback: Seide et al., "1-Bit Stochastic Gradient
Descent", Interspeech 2014; of sums every few steps: Stich, "Local SGD Converges Fast ...", ICLR 2019.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import Callable, List, NamedTuple, Optional, Sequence

import numpy as onp

from mxdp.backend import ADDING, HostArray, NDArray, check_replicas, upload
from mxdp.collectives.fresh import Fresh, Replicas, gradients_of
from mxdp.datasets import finite, positive_int
from mxdp.errors import refuse_step
from mxdp.plans.partition import offsets
from mxdp.processes import World
from mxdp.processes.world import ranks_of


class Form(NamedTuple):
    """``encode(vector)`` gives bytes; ``decode(bytes, size)`` the vector that they say. Both are of float32."""

    encode: Callable[[HostArray], bytes]
    decode: Callable[[bytes, int], HostArray]


def _encode_float16(x: HostArray) -> bytes:
    with onp.errstate(over="ignore"):
        return x.astype("<f2").tobytes()


def _encode_bfloat16(x: HostArray) -> bytes:
    """The upper half of each number's bits, rounded to the nearest, ties to even."""
    bits = x.astype("<f4").view("<u4")
    odd = (bits >> 16) & 1
    rounded = (bits + 0x7FFF + odd) >> 16
    # A NaN would be rounded to another number. The bit that is set makes it a quiet one.
    upper = onp.where(onp.isnan(x), bits >> 16 | 0x40, rounded)
    return bytes(upper.astype("<u2"))


def _decode_bfloat16(data: bytes, size: int) -> HostArray:
    upper = onp.frombuffer(data, "<u2", size).astype("<u4")
    return (upper << 16).view("<f4")


FLOAT32 = Form(
    lambda x: x.astype("<f4").tobytes(),
    lambda data, size: onp.frombuffer(data, "<f4", size).astype("float32"),
)
FLOAT16 = Form(
    _encode_float16, lambda data, size: onp.frombuffer(data, "<f2", size).astype("float32")
)
BFLOAT16 = Form(_encode_bfloat16, _decode_bfloat16)
SHIFTS = onp.array([6, 4, 2, 0], "uint8")
"""A byte holds four codes of two bits. Each is shifted by one of these; the first code is the highest."""


def two_bits(threshold: float) -> Form:
    """MXNet's form: 11 for ``threshold`` or more, 10 for ``-threshold`` or less, else 00; four numbers in a byte, the
    first in its highest bits. MXNet has no 01: here it says infinity or NaN, whose float32 follows all codes.

    Raises a ValueError unless ``threshold`` is finite and above 0."""
    finite("threshold", threshold, above=0)

    def encode(x: HostArray) -> bytes:
        odd = ~onp.isfinite(x)
        above = (x >= threshold).view("uint8")
        below = (x <= -threshold).view("uint8")
        codes = onp.zeros((-(-x.size // 4), 4), "uint8")
        filled = codes.reshape(-1)[: x.size]
        filled[:] = 3 * above + 2 * below
        filled[odd] = 1
        first, second, third, fourth = (codes << SHIFTS).T
        packed = first | second | third | fourth
        return bytes(packed) + bytes(x[odd].astype("<f4"))

    def decode(data: bytes, size: int) -> HostArray:
        packed = onp.frombuffer(data, "uint8", -(-size // 4))
        codes = (packed[:, None] >> SHIFTS & 3).ravel()[:size]
        vector: HostArray = onp.array([0, 0, -threshold, threshold], "float32")[codes]
        odd = codes == 1
        vector[odd] = onp.frombuffer(data, "<f4", onp.count_nonzero(odd), offset=packed.size)
        return vector

    return Form(encode, decode)


def largest(share: float) -> Form:
    """This share of the numbers, at least one, each with its place; of equal ones the first. The others are zero. All
    infinities and NaN are sent, even if these are more.

    Raises a ValueError unless ``share`` is above 0 and at most 1."""
    finite("share", share, above=0)
    if share > 1:
        raise ValueError(f"share is above 0 and at most 1, not {share}")

    def encode(x: HostArray) -> bytes:
        size = onp.where(onp.isnan(x), onp.inf, onp.abs(x))
        infinite = int(onp.count_nonzero(size == onp.inf))
        count = min(x.size, max(1, math.ceil(share * x.size), infinite))
        least = onp.partition(size, x.size - count)[x.size - count] if count else 0.0
        above = onp.flatnonzero(size > least)
        equal = onp.flatnonzero(size == least)[: count - above.size]
        places = onp.concatenate([above, equal]).astype("<i4")
        return bytes(places) + bytes(x[places].astype("<f4"))

    def decode(data: bytes, size: int) -> HostArray:
        count = len(data) // 8
        vector = onp.zeros(size, "float32")
        places = onp.frombuffer(data, "<i4", count)
        vector[places] = onp.frombuffer(data, "<f4", count, offset=4 * count)
        return vector

    return Form(encode, decode)


class CompressedSync:
    """Sums the gradients of all replicas in place at each call, from what they say in ``form``. All workers, a device
    each, add up the same vectors in the same order, and get the same bits. A gradient that no backward pass has written
    since the last sum counts as zero, as in :class:`mxdp.GradientSync`. Waits for the gradients: the host encodes.

    Args:
        device_params: the replicas of this process, as :func:`mxdp.get_params` makes them, of float32.
        feedback: keep what the form can't say, and add it to the next gradient.
        every: sum every ``every`` calls. The calls between leave each replica its gradient, times the workers: an
            update divided by the whole batch is then a step on the replica's shard. The sum is of all gradients since
            the last one, and resets the parameters to what they were then: the next update makes them the mean of the
            replicas, which went apart.
        world: the workers are the devices of all its ranks, as many on each.

    Raises:
        ValueError, TypeError: no replicas, or some that differ, lack a gradient or are not of float32; another
            argument of another kind, or an ``every`` below 1.
        MxdpError: on every rank, if the ranks have other parameters or arguments.
    """

    def __init__(
        self,
        device_params: Replicas,
        form: Form,
        feedback: bool = False,
        every: int = 1,
        world: Optional[World] = None,
    ) -> None:
        check_replicas(device_params, check_replicas(device_params))
        for param in device_params[0]:
            if onp.dtype(param.dtype) != onp.float32:
                raise ValueError(
                    f"CompressedSync sums gradients of float32, not of {onp.dtype(param.dtype)}"
                )
        if not isinstance(form, Form):
            raise TypeError(
                f"form must be one of mxdp.collectives.compress, such as two_bits(0.5), not {form!r:.60}"
            )
        if not isinstance(feedback, bool):
            raise TypeError(f"feedback is True or False, not {feedback!r}")
        self._replicas = device_params
        self._form = form
        self._feedback = feedback
        self._every = positive_int("every", every)
        self._world = ranks_of(world)
        self._calls = 0
        self._borders = offsets([param.size for param in device_params[0]])
        self._numbers = range(len(device_params[0]))
        self._fresh = Fresh(device_params, gradients_of(device_params), "CompressedSync can't sum")
        shapes = [param.shape for param in device_params[0]]
        self._world.agree(
            {
                "devices": len(device_params),
                "parameters": shapes,
                "feedback": feedback,
                "every": self._every,
            }
        )
        self.kept: List[HostArray] = [
            onp.zeros(self._borders[-1], "float32") for _ in device_params
        ]
        """For each replica, what was not sent so far, or the sum of what it waits to send."""
        self.sent = 0
        """Bytes that a replica has sent to each other worker."""
        self._start: List[List[NDArray]] = []

    def __call__(self) -> None:
        """Sum, or wait for the next sum. Raises a RuntimeError if the replicas hold other arrays, or other gradients,
        than when it was made, or if ``no_sync`` of another sum has added up gradients of theirs."""
        refuse_step(False, any(sync.adds_up(self._replicas[0]) for sync in ADDING))
        self._fresh.zero_stale(self._numbers)
        self._fresh.use()
        if self._every > 1 and self._calls % self._every == 0:
            self._start = []
            for params in self._replicas:
                self._start.append([param.copy() for param in params])
        self._calls += 1
        vectors = []
        for params in self._replicas:
            gradients = [param.grad.asnumpy().ravel() for param in params]
            vectors.append(onp.concatenate(gradients))
        with onp.errstate(invalid="ignore"):  # infinity less infinity
            self._sum(vectors)

    def _sum(self, vectors: Sequence[HostArray]) -> None:
        whole = [kept + vector for kept, vector in zip(self.kept, vectors)]
        if self._calls % self._every:
            self.kept = whole
            workers = len(vectors) * self._world.size
            self._write([vector * workers for vector in vectors])
            return
        said = [self._form.encode(vector) for vector in whole]
        for kept, vector, data in zip(self.kept, whole, said):
            kept[:] = 0
            if self._feedback:
                heard = self._form.decode(data, vector.size)
                onp.subtract(vector, heard, out=kept, where=onp.isfinite(heard))
        self.sent += len(said[0])
        total = onp.zeros_like(whole[0])
        for data in chain(*self._world.gather(said)):
            total += self._form.decode(data, total.size)
        for params, start in zip(self._replicas, self._start):
            for param, value in zip(params, start):
                param[()] = value
        self._write([total] * len(vectors))

    def _write(self, vectors: Sequence[HostArray]) -> None:
        for params, vector in zip(self._replicas, vectors):
            for param, start, stop in zip(params, self._borders, self._borders[1:]):
                values = vector[start:stop].reshape(param.shape)
                param.grad[()] = upload(values, param.ctx)
