"""The pictures that a question trains on."""

from __future__ import annotations

from functools import lru_cache
from typing import Optional

from mxdp.datasets import Dataset, load
from mxdp.experiments.lab import Settings


def pictures(s: Settings) -> Dataset:
    """The data set of these settings, with at most ``test`` samples to test with if they say so: one copy for all cases
    of a process."""
    return _pictures(s.data, s.data_dir, s.seed, s.get("test"))


@lru_cache(maxsize=1)
def _pictures(name: str, folder: Optional[str], seed: int, test: Optional[int]) -> Dataset:
    data = load(name, folder, seed=seed)
    return data.take(len(data.train), test)
