"""What the questions in PyTorch have in common. Pure Python."""

from __future__ import annotations

from typing import Mapping

NEEDS: Mapping[str, str] = {"torch": '`pip install "mxdp[torch]"`'}
RUN = "Not run on a GPU by its authors yet."
"""To be replaced by the GPUs' names when somebody has."""
