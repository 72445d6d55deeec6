"""What the questions in PyTorch have in common. Pure Python."""

from __future__ import annotations

from typing import Any, Dict

from mxdp.errors import plural
from mxdp.experiments.harness.rows import Row

RUN = "Not run on two GPUs by its authors yet."
"""To be taken away when somebody has."""
_SLIDES = dict(kind="auto", seed=0, products=50, size=4000)
PRESETS: Dict[str, Dict[str, Any]] = {
    "quick": dict(_SLIDES, timeout=300.0),
    "full": dict(_SLIDES, timeout=3600.0),
}
LITTLE = dict(kind="cpu", size=32, products=2)


def where(row: Row) -> str:
    """Where it was measured, in words."""
    if row.devices[0] == "cpu":
        return "the CPU"
    model = f" ({row.case['processor']})" if "processor" in row.case else ""
    return f"{plural(len(set(row.devices)), 'GPU')}{model}"
