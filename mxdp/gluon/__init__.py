"""mxdp for gluon's networks: a store for ``gluon.Trainer``, a ``Trainer`` with buckets, and checkpoints.

All take classic arrays and NumPy arrays. The import does not change whether NumPy semantics are on.
"""

from mxdp.plugin import semantics_kept

with semantics_kept():
    from mxdp.gluon.checkpoint import Checkpoint
    from mxdp.gluon.store import Store
    from mxdp.gluon.trainer import Trainer

__all__ = ["Checkpoint", "Store", "Trainer"]
