"""mxdp as a plug-in of MXNet: a program gets mxdp's stores by name, and keeps its own array semantics.

``mx.kv.create("mxdpring")`` and ``gluon.Trainer(..., kvstore="mxdpring")`` look into MXNet's registry of stores.
``import mxdp`` enters a name there for each all-reduce, ``mxdp`` followed by the name of the all-reduce. MXNet may be
imported before or after mxdp.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import partial
from typing import Any, Callable, Iterator

MPI_STORE = "mxdpmpi"
"""The name of the store that sums by ``auto`` over the devices, and then over all ranks of :func:`mxdp.world`."""


def store_name(algorithm: str) -> str:
    """The name in MXNet's registry of the store that sums by this all-reduce.

    >>> store_name("ring")
    'mxdpring'
    """
    return f"mxdp{algorithm}"


def register_stores(by_name: Callable[[str], Any]) -> None:
    """Enter the names into MXNet's registry: now if MXNet has been imported, else as soon as it is.

    ``by_name(name)`` makes a store. MXNet calls it when a program asks for one.
    """
    import wrapt  # not above: whatever mxdp needs may be missing until `import mxdp` has looked

    wrapt.register_post_import_hook(partial(_fill, by_name), "mxnet")


@contextmanager
def semantics_kept() -> Iterator[None]:
    """Keep MXNet's array semantics, whatever is imported inside.

    :mod:`mxdp.backend` turns NumPy semantics on: all of mxdp needs them, except what serves gluon. In a program that
    has imported MXNet and works with classic arrays, the use of a store's name would then break the networks. Where
    MXNet has not been imported yet, nothing is kept: NumPy semantics are on after the import.
    """
    mxnet: Any = sys.modules.get("mxnet")
    if mxnet is None:
        yield
        return
    shape, array = mxnet.util.is_np_shape(), mxnet.util.is_np_array()
    try:
        yield
    finally:
        mxnet.util.set_np(shape=shape, array=array)


def _fill(by_name: Callable[[str], Any], mxnet: Any) -> None:
    # Imported here to keep `import mxdp` fast.
    from mxdp.plans.collective.algorithms import ALGORITHMS, AUTO

    def entry(name: str) -> type:
        """MXNet takes only classes and calls them; this one makes a store of another class."""
        return type(name, (), {"__new__": lambda cls: by_name(name), "__module__": __name__})

    base = mxnet.kv.KVStoreBase
    for name in [*map(store_name, sorted([*ALGORITHMS, AUTO])), MPI_STORE]:
        if name not in base.kv_registry:  # mxdp may be imported anew, by importlib.reload
            base.register(entry(name))
