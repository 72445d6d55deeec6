"""How much memory a step will take on a device, from shapes alone, beside parameters and gradients, which stay there.

Between the forward and the backward pass MXNet keeps of a layer what its backward pass computes with::

    convolution, dense    its input
    relu                  its output
    pooling               its input and output; the largest value's place, too, if that is what is taken
    batch normalisation   its input, and four arrays as large: x - mean (twice), the quotient, and that times the scale

What no backward pass needs is gone as soon as it was used. On the way back MXNet makes one piece of work of up to 15
operators of a device, and all gradients that such a piece makes are there at its end. A copy between devices is no part
of a piece, and a batch normalisation has operators enough for one of its own. So the peak is reached at the end of one
of the pieces::

    kept of all layers up to the next piece | gradients of the layers in this one

Not counted are the operators' temporary spaces, and the zeros with which oneDNN fills up blocks of 8 or 16 channels.
"""

from __future__ import annotations

from mxdp.layers import BatchNorm, Conv, Dense, Layer, Pool, Relu

NORM_KEPT = 4
"""Arrays of the input's size, besides the input, that a batch normalisation keeps."""
NORM_BACK, NORM_BACK_SPLIT = 9, 6
"""Those that its way back makes: on one device; and where the statistics of several are put together, so that copies
cut it into pieces. Measured (:mod:`mxdp.experiments.measure.memory`)."""


class Footprint:
    """Numbers (not bytes) on one device, added up layer by layer.

    Attributes:
        kept: from forward to backward pass.
    """

    def __init__(self, inputs: int) -> None:
        self.kept = self._gone = 0
        self._at_hand = inputs  # what the next layer is given, unless it's among what is kept
        self._gradients = self._normalising = self._peak = 0

    @property
    def passing(self) -> int:
        """Made in the forward pass, or given to it, and needed by no backward pass."""
        return self._gone + self._at_hand

    def keep(self, numbers: int = 0) -> None:
        """``numbers`` more, and what the next layer is given: something holds on to it."""
        self.kept, self._at_hand = self.kept + self._at_hand + numbers, 0

    def replace(self, numbers: int, back: bool = True) -> None:
        """The next layer is given another array, made of the one that it would have been given; ``back``: it has a
        gradient."""
        self._let_go()
        self._at_hand = numbers
        self._gradients += numbers * back

    def add(self, layer: Layer, made: int, split: bool = False) -> None:
        """A layer that makes ``made`` numbers. ``split``: statistics are put together over several devices."""
        if isinstance(layer, BatchNorm):
            self.cut()
        if needs_input(layer):
            self.keep()
        self._let_go()
        self._at_hand = made
        if isinstance(layer, BatchNorm):
            self.kept += NORM_KEPT * made
            self._normalising = (NORM_BACK_SPLIT if split else NORM_BACK) * made
            return
        self._gradients += made
        if isinstance(layer, (Relu, Pool)):
            self.keep()
        if isinstance(layer, Pool) and layer.kind == "max":
            self.keep(made)
            self._gradients += made

    def cut(self) -> None:
        """Here a piece of the way back begins, and another ends."""
        self._peak = max(self._peak, self.kept + max(self._gradients, self._normalising))
        self._gradients = self._normalising = 0

    def peak(self) -> int:
        """The most at a time."""
        self.cut()
        return self._peak

    def _let_go(self) -> None:
        self._gone, self._at_hand = self._gone + self._at_hand, 0


def needs_input(layer: Layer) -> bool:
    """Does its backward pass compute with its input?"""
    return isinstance(layer, (Conv, Dense, Pool, BatchNorm))
