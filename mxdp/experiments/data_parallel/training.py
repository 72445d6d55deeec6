"""What questions that train on pictures have in common."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Optional, Sequence

import numpy as onp

from mxdp.backend import NDArray, np
from mxdp.datasets import Dataset, load
from mxdp.errors import plural
from mxdp.experiments.lab import Case, Settings
from mxdp.plans.cost.link import speedup


def pictures(s: Settings) -> Dataset:
    """The data set of these settings, with at most ``test`` samples to test with if they say so: one copy for all cases
    of a process."""
    return _pictures(s.data, s.data_dir, s.seed, s.get("test"))


@lru_cache(maxsize=1)
def _pictures(name: str, folder: Optional[str], seed: int, test: Optional[int]) -> Dataset:
    data = load(name, folder, seed=seed)
    return data.take(len(data.train), test)


def expect_speedups(s: Settings, cores: int) -> str:
    """The speed-ups over one device if nothing but compute took time, in words."""
    known = [f"{speedup(n, cores):.2f} on {plural(n, 'device')}" for n in s.devices if n > 1]
    return f"{', '.join(known) or '1.00'} ({plural(cores, 'core')})"


class ContinuedTraining:
    """A training that the processes of a case continue, one after the other: together they train as many epochs as
    there are rounds. ``params``: where the process before has left them, otherwise those given. ``rounds``: how many
    came before. Without a folder (a test's case) nothing is left."""

    def __init__(self, case: Case, params: Sequence[NDArray]) -> None:
        self._path = Path(case.folder, f"{case.process}.npz") if case.folder else None
        self.rounds, self.params = 0, list(params)
        if self._path and self._path.exists():
            with onp.load(self._path) as left:
                self.rounds = int(left["rounds"])
                self.params = [np.array(left[f"arr_{number}"]) for number in range(len(self.params))]

    def keep(self, replica: Sequence[Any]) -> None:
        """After a round: leave these parameters for the next process. Waits."""
        self.rounds += 1
        if self._path:
            onp.savez(self._path, *[param.asnumpy() for param in replica], rounds=self.rounds)
