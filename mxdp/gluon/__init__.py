"""mxdp's all-reduces for gluon's networks: a store for ``gluon.Trainer``, and a ``Trainer`` with buckets.

Both take classic arrays and NumPy arrays. The import does not change whether NumPy semantics are on.
"""

from mxdp.plugin import semantics_kept

with semantics_kept():
    from mxdp.gluon.store import Store
    from mxdp.gluon.trainer import Trainer

__all__ = ["Store", "Trainer"]
