"""Layers cut over devices, in pairs: how each layer is cut, and where the devices exchange data.

Layers with weights form pairs. The first of a pair is cut by columns, that is by its outputs: each device computes some
of the channels. The layers between the two work on each channel alone. The second is cut by rows, that is by the same
channels, its inputs::

                 whole           own columns            own rows             whole
    device 0     x  ---->  W1[:h]   relu   ----->  W2[:, :h]  partial  \\  y = sum of the partial ones
    device 1     x  ---->  W1[h:]   relu   ----->  W2[:, h:]  partial  /  y = sum of the partial ones
                 ^                                                     ^
                 backward: one all-reduce of x's gradient              forward: one all-reduce

Each pair needs one all-reduce forward and one backward; the first pair needs only the forward one, since pictures need
no gradient. (If every layer were cut by its outputs, each would need an all-gather: about as many bytes, twice as
often.) Dense layers and convolutions are cut alike, and a pair may have one of each. Relu, pooling and batch
normalisation inside a pair work on each device's own channels; after a pair every device computes all channels. A last
layer without a partner is cut by columns, and an all-gather brings its outputs to every device.

Source: Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism", 2019,
section 3; its f is our backward all-reduce and its g the forward one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Sequence, Tuple

WHOLE = "whole"
COLUMNS = "columns"
ROWS = "rows"
OWN = "own"
ALL_REDUCE = "all-reduce"
ALL_GATHER = "all-gather"


def cut_layers(weights: Sequence[bool]) -> List[str]:
    """The cut of each layer: by ``columns``, by ``rows``, to the device's ``own`` channels, or not (``whole``).
    ``weights``: True for each layer with weights (convolution, dense). One without works on each channel alone.

    >>> cut_layers([True, False, True, False, True])
    ['columns', 'own', 'rows', 'whole', 'columns']
    """
    cuts = []
    split = False
    for weighted in weights:
        if weighted:
            cuts.append(ROWS if split else COLUMNS)
            split = not split
        else:
            cuts.append(OWN if split else WHOLE)
    return cuts


@dataclass(frozen=True)
class Segment:
    """Neighbouring layers that each device computes without the others. ``then``: what their outputs need: an
    ``all-reduce`` (after a pair), an ``all-gather`` (after a layer without a partner), or nothing (``""``), if each
    device has the whole. ``back``: its inputs have a gradient."""

    layers: Tuple[int, ...]
    then: str
    back: bool

    @property
    def split(self) -> bool:
        """Each device has only a part of the layers, so the gradients of its inputs are partial sums."""
        return bool(self.then)

    def __str__(self) -> str:
        back = ", then back" if self.back else ""
        return f"layers {list(self.layers)}, then {self.then or 'nothing'}{back}"


def segments(cuts: Sequence[str], back: Sequence[bool]) -> List[Segment]:
    """The layers in segments. The last segment, which may be empty, computes the loss. ``back``: True for each layer,
    and for the loss, whose input has a gradient.

    >>> for segment in segments(["columns", "own", "rows", "whole", "columns"], [False] + 5 * [True]):
    ...     print(segment)
    layers [0, 1, 2], then all-reduce
    layers [3], then nothing, then back
    layers [4], then all-gather, then back
    layers [], then nothing, then back
    """
    groups: List[List[int]] = []
    for number, cut in enumerate(cuts):
        if not number or cut == COLUMNS or (cut == WHOLE and cuts[number - 1] != WHOLE):
            groups.append([])
        groups[-1].append(number)
    if not cuts or cuts[-1] != WHOLE:
        groups.append([])
    made = []
    for group in groups:
        first = group[0] if group else len(cuts)
        then = ""
        if group and cuts[first] == COLUMNS:
            then = ALL_REDUCE if cuts[group[-1]] == ROWS else ALL_GATHER
        made.append(Segment(tuple(group), then, back[first]))
    return made
