"""Where PyTorch computes: GPUs, or two streams of one GPU. Imports PyTorch; questions import it in their functions."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Callable, List, NamedTuple, Sequence

import torch

from mxdp.experiments.lab import Settings, Skipped


class Place(NamedTuple):
    """A device, and what makes its work go there (a stream)."""

    device: torch.device
    stream: Any

    def here(self) -> AbstractContextManager[Any]:
        """Inside this context, work goes to this place."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)


def places(s: Settings) -> List[Place]:
    """Two of them.

    Raises:
        Skipped: there is no GPU, and ``kind`` is not ``cpu``.
    """
    if s.kind == "cpu":
        return [Place(torch.device("cpu"), None)] * 2
    if not torch.cuda.is_available():
        raise Skipped("PyTorch finds no GPU (torch.cuda.is_available() is False); --kind cpu runs it without one")
    if torch.cuda.device_count() == 1:
        gpu = torch.device("cuda", 0)
        return [Place(gpu, torch.cuda.Stream(gpu)) for _ in range(2)]
    gpus = [torch.device("cuda", number) for number in range(2)]
    return [Place(gpu, torch.cuda.default_stream(gpu)) for gpu in gpus]


def processor(place: Place) -> str:
    """The model of the GPU."""
    return "the CPU" if place.stream is None else torch.cuda.get_device_name(place.device)


def wait() -> None:
    """For everything on all GPUs."""
    for number in range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0):
        torch.cuda.synchronize(number)


def seconds(push: Callable[[], Any]) -> float:
    """The time of ``push`` and of all that it has pushed, between two waits."""
    wait()
    started = time.perf_counter()
    push()
    wait()
    return time.perf_counter() - started


def factors(size: int, place: Place, seed: int) -> List[torch.Tensor]:
    """Two square matrices of -1, 0 and 1, whose product is exact in float32, and one for the product."""
    random = torch.Generator().manual_seed(seed)
    drawn = [torch.randint(-1, 2, (size, size), generator=random).float().to(place.device) for _ in range(2)]
    wait()
    return [*drawn, torch.empty_like(drawn[0])]


def push(place: Place, x: torch.Tensor, w: torch.Tensor, results: Sequence[torch.Tensor]) -> None:
    """Push the product of the two once for each of ``results``, into it. Doesn't wait."""
    with place.here():
        for result in results:
            torch.mm(x, w, out=result)
