"""A training that the processes of a case continue, one after the other: each has times of its own, and together they
train as many epochs as there are rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Sequence

import numpy as onp

from mxdp.backend import NDArray, np
from mxdp.experiments.lab import Case


class ContinuedTraining:
    """``params``: where the process before has left them, otherwise those given. ``rounds``: how many it has had.

    Without a folder (a test's case) nothing is left.
    """

    def __init__(self, case: Case, params: Sequence[NDArray]) -> None:
        self._path = Path(case.folder, f"{case.process}.npz") if case.folder else None
        self.rounds, self.params = 0, list(params)
        if self._path and self._path.exists():
            with onp.load(self._path) as found:
                self.rounds = int(found["rounds"])
                self.params = [np.array(found[f"arr_{number}"]) for number in range(len(self.params))]

    def keep(self, replica: Sequence[Any]) -> None:
        """After a round: leave these parameters for the next process. Waits."""
        self.rounds += 1
        if self._path:
            onp.savez(self._path, *[param.asnumpy() for param in replica], rounds=self.rounds)
