"""Several processes that train one network: ranks, arrays summed between them by MPI, and checkpoints."""

from mxdp.processes.checkpoint import CheckpointFolder
from mxdp.processes.order import agree_names, agree_values, calling_trainer
from mxdp.processes.world import World, world

__all__ = ["CheckpointFolder", "World", "agree_names", "agree_values", "calling_trainer", "world"]
