"""Makes ``import faulty`` work in these tests, as ``MXDP_EXPERIMENTS=faulty`` does in the processes that they start."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
