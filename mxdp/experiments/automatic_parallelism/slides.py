"""The products of the book's slides, and in words what stands for them on this machine. Pure Python."""

from __future__ import annotations

from typing import Any, Mapping

from mxdp.experiments.harness.experiment import Settings

PRODUCTS, SIDE = 50, 4000


def size_in_words(products: int, side: int, case: Mapping[str, Any], settings: Settings) -> str:
    """The number and the size of the products, beside those of the slides.

    ``settings``: without a ``size``, the side was scaled to ``run_seconds`` by the ``rate`` in the row's ``case``.

    >>> size_in_words(50, 720, {"rate": 3.8e10}, {"size": None, "run_seconds": 0.5})
    '50 products of 720 x 720 (the slides: 50 of 4000 x 4000), scaled to about 0.5 s by the measured rate of 76 Gflop/s'
    """
    said = f"{products} products of {side} x {side} (the slides: {PRODUCTS} of {SIDE} x {SIDE})"
    if settings["size"]:
        return said
    flops = 2 * case["rate"]
    return f"{said}, scaled to about {settings['run_seconds']:g} s by the measured rate of {flops / 1e9:.0f} Gflop/s"
