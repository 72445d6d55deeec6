"""Products, and copies of their results to the host."""

from __future__ import annotations

from typing import Any, Iterator, List, Tuple

import torch

from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.twins.torch_copy_overlap import PINNED, SIDE
from mxdp.experiments.twins.work.places import Place, factors, places, processor, seconds


class ProductsAndCopies:
    """``products`` results of one product each, and where they are copied to."""

    def __init__(self, case: Case, settings: Settings, size: int) -> None:
        device = places(settings)[0].device
        gpu = device.type == "cuda"
        self.place = self._copies = Place(device, torch.cuda.default_stream(device) if gpu else None)
        if gpu and case.settings["stream"] == SIDE:
            self._copies = Place(device, torch.cuda.Stream(device))
        self.x, self.w, y = factors(size, self.place, settings["seed"])
        self._results = [torch.empty_like(y) for _ in range(settings["products"])]
        pinned = gpu and case.settings["memory"] == PINNED
        self.host: List[torch.Tensor] = [torch.empty(size, size, pin_memory=pinned) for _ in self._results]

    def run(self) -> None:
        """Push the products alone."""
        for number in range(len(self._results)):
            self._product(number)

    def copy(self) -> None:
        """Push the copies alone."""
        for number in range(len(self._results)):
            self._copy(number)

    def both(self) -> None:
        """Push each product, and then the copy of its result, which waits for it on the device."""
        for number in range(len(self._results)):
            self._product(number)
            if self._copies.stream is not self.place.stream:
                self._copies.stream.wait_stream(self.place.stream)
            self._copy(number)

    def _product(self, number: int) -> None:
        with self.place.here():
            torch.mm(self.x, self.w, out=self._results[number])

    def _copy(self, number: int) -> None:
        with self._copies.here():
            self.host[number].copy_(self._results[number], non_blocking=True)


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """Every copy."""
    own = ProductsAndCopies(case, settings, min(settings["size"], 500))
    seconds(own.both)
    expected = own.x.cpu().numpy() @ own.w.cpu().numpy()
    for copied in own.host:
        yield copied.numpy(), expected, 0.0


def set_up(case: Case, settings: Settings) -> Work:
    """A round does both, and then each alone."""
    own = ProductsAndCopies(case, settings, settings["size"])

    def one_round() -> Round:
        both = seconds(own.both)
        return Round(both, {"run_ms": seconds(own.run) * 1e3, "copy_ms": seconds(own.copy) * 1e3})

    one_round()
    return Work([own.place.device], one_round, case={"processor": processor(own.place)})
