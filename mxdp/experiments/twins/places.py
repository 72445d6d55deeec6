"""What the questions in PyTorch share: where they compute, GPUs or two streams of one, and on what. Only what computes
loads PyTorch."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, NamedTuple, Sequence

from mxdp.errors import plural
from mxdp.experiments.lab import Row, Settings, Skipped, ranks

NEEDS = ranks.NEEDS[ranks.DDP]
RUN = "Not run on two GPUs by its authors yet."
"""To be taken away when somebody has."""
_SLIDES = dict(products=50, size=4000)
PRESETS: Dict[str, Dict[str, Any]] = {
    "quick": dict(_SLIDES, timeout=300.0),
    "full": dict(_SLIDES, timeout=3600.0),
}
LITTLE = dict(kind="cpu", size=32, products=2)


class Place(NamedTuple):
    """A device, and the stream in which its work goes; on the CPU None."""

    device: Any
    stream: Any


def two_places(s: Settings) -> List[Place]:
    """Two of them. Raises Skipped if there is no GPU, and ``kind`` is not ``cpu``."""
    import torch

    if s.kind == "cpu":
        return [Place(torch.device("cpu"), None)] * 2
    if not torch.cuda.is_available():
        raise Skipped(
            "PyTorch finds no GPU (torch.cuda.is_available() is False); --kind cpu runs it without one"
        )
    count = torch.cuda.device_count()
    stream = torch.cuda.default_stream if count > 1 else torch.cuda.Stream
    gpus = [torch.device("cuda", number % count) for number in range(2)]
    return [Place(gpu, stream(gpu)) for gpu in gpus]


def processor(place: Place) -> str:
    import torch

    return "the CPU" if place.stream is None else torch.cuda.get_device_name(place.device)


def wait_for_gpus() -> None:
    import torch

    if torch.cuda.is_initialized():
        for number in range(torch.cuda.device_count()):
            torch.cuda.synchronize(number)


def seconds_of(push: Callable[[], Any]) -> float:
    """The time of ``push`` and of all that it has pushed, between two waits."""
    wait_for_gpus()
    started = time.perf_counter()
    push()
    wait_for_gpus()
    return time.perf_counter() - started


def square_factors(size: int, place: Place, seed: int) -> List[Any]:
    """Two square matrices of -1, 0 and 1, whose product is exact in float32, and one for the product."""
    import torch

    random = torch.Generator().manual_seed(seed)
    factors = []
    for _ in range(2):
        numbers = torch.randint(-1, 2, (size, size), generator=random)
        factors.append(numbers.float().to(place.device))
    wait_for_gpus()
    return [*factors, torch.empty_like(factors[0])]


def push(place: Place, x: Any, w: Any, results: Sequence[Any]) -> None:
    """Push the product of the two once for each of ``results``, into it. Doesn't wait."""
    import torch

    with torch.cuda.stream(place.stream):  # does nothing for None
        for result in results:
            torch.mm(x, w, out=result)


def tell_where(row: Row) -> str:
    if row.device_names[0] == "cpu":
        return "the CPU"
    model = f" ({row.processor})" if row.get("processor") else ""
    return f"{plural(len(set(row.device_names)), 'GPU')}{model}"
