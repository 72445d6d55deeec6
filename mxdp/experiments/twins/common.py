"""What the questions in PyTorch have in common. Pure Python."""

from __future__ import annotations

from typing import Any, Dict

from mxdp.errors import plural
from mxdp.experiments.lab import Row, ranks

NEEDS = ranks.NEEDS[ranks.DDP]
RUN = "Not run on two GPUs by its authors yet."
"""To be taken away when somebody has."""
_SLIDES = dict(products=50, size=4000)
PRESETS: Dict[str, Dict[str, Any]] = {"quick": dict(_SLIDES, timeout=300.0), "full": dict(_SLIDES, timeout=3600.0)}
LITTLE = dict(kind="cpu", size=32, products=2)


def tell_where(row: Row) -> str:
    """Where it was measured, in words."""
    if row.device_names[0] == "cpu":
        return "the CPU"
    model = f" ({row.processor})" if row.get("processor") else ""
    return f"{plural(len(set(row.device_names)), 'GPU')}{model}"
