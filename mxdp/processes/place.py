"""A process's place among those that train together: its part of a batch, its devices and its random numbers."""

from __future__ import annotations

from typing import List, Optional

from mxdp.backend import Device, find_devices, mx, usable_gpus
from mxdp.plans.partition import bounds
from mxdp.processes.leaving import launchers_file


class Ranks:
    """``size`` processes, of which this one is ``rank``, from 0. They exchange nothing. ``local_rank``: this process's
    number on its host, which is the ``rank`` where all run on one."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size
        self.local_rank = rank

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.size}>"

    def shard(self, samples: int) -> slice:
        """This rank's part of ``samples`` samples, which may be empty. Lengths differ by one, longer parts first."""
        return slice(*bounds(samples, self.size)[self.rank])

    def devices(self, n: int, kind: str = "auto") -> List[Device]:
        """``n`` devices for this rank, as :func:`mxdp.devices` takes them; the array semantics stay as they are. Each
        rank on a host gets the next ``n`` GPUs, unless it sees its own alone (``CUDA_VISIBLE_DEVICES``). Not run on a
        GPU."""
        devices = find_devices(n, kind)
        if self.size == 1 or devices[0].device_type != "gpu":
            return devices
        first = self.local_rank * n
        gpus = usable_gpus()[first : first + n]
        return gpus if len(gpus) == n else devices

    def seed(self, number: Optional[int] = None) -> None:
        """Seed MXNet's random numbers for this rank, so that no two ranks drop the same units out. On rank 0
        ``seed(0)`` is ``mx.random.seed(0)``. Without a number, as :func:`world` and trainings call it, the seed is what
        MXNet draws next, for which this waits; a single rank stays as it is."""
        if number is None:
            if self.size == 1:
                return
            number = int(mx.nd.random.randint(0, 1 << 20).asscalar())
        # Far apart: MXNet seeds a thousand generators of each device by the numbers that follow.
        mx.random.seed((number + (self.rank << 20)) % (1 << 31))

    def step_done(self) -> None:
        """Count a step, for ``python -m mxdp.launch``, which names the last step of a rank that fails."""
        steps = launchers_file()
        if steps is not None:
            steps[0] += 1
