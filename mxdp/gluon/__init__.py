"""The same all-reduce for gluon's own networks: as a store for ``gluon.Trainer``, and as a ``Trainer`` with buckets.

Works with classic arrays as with NumPy's: importing this leaves the program's semantics as they are.
"""

from mxdp.plugin import semantics_kept

with semantics_kept():
    from mxdp.gluon.store import Store
    from mxdp.gluon.trainer import Trainer

__all__ = ["Store", "Trainer"]
