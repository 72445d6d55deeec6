"""Pushes one product again and again, and several independent products."""

from __future__ import annotations

from typing import Any, Iterator, Tuple

from mxdp.backend import devices
from mxdp.experiments.automatic_parallelism.work.products import Products, compared, factors, whole_factors
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.clock import mean_seconds

RECORDED = 256
"""The products of this side are recorded, or of the nearest side that is measured."""


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """Three groups of products, one after the other into the same arrays, as in a round."""
    (device,) = devices(1, settings["kind"])
    lefts, w = whole_factors(settings["products"], device, settings["seed"])
    products = Products(lefts, w, chain=False)
    for _ in range(3):
        products.push()
    return compared([[y] for y in products.results], lefts, w, chain=False)


def set_up(case: Case, settings: Settings) -> Work:
    """A round times one product and then all of them. Its arrays are freed at its end."""
    (device,), count, side = devices(1, settings["kind"]), settings["products"], case.settings["side"]

    def products(count: int) -> Products:
        x, w = factors(side, side, device, settings["seed"])
        return Products([x] * count, w, chain=False)

    def one_round() -> Round:
        one, together = (mean_seconds(products(each).push, settings["round_seconds"]).done for each in (1, count))
        return Round(together, {"one_seconds": one, "over_k_times_one": together / (count * one)})

    recorded = side == min(settings["sides"], key=lambda each: abs(each - RECORDED))
    return Work([device], one_round, (lambda: products(count).push) if recorded else None)
