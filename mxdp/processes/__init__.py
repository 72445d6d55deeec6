"""Several processes that train one network: ranks, arrays summed between them by MPI, and checkpoints."""

from mxdp.processes.checkpoint import CheckpointFolder
from mxdp.processes.order import agree_names, agree_values
from mxdp.processes.place import Ranks
from mxdp.processes.world import ALONE, World, world

__all__ = ["ALONE", "CheckpointFolder", "Ranks", "World", "agree_names", "agree_values", "world"]
