"""Several processes that train one network: ranks, and arrays summed between them by MPI."""

from mxdp.processes.world import World, world

__all__ = ["World", "world"]
