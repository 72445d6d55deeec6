"""mxdp as a plug-in of MXNet: a program gets mxdp's stores by name, and keeps its own array semantics.

``import mxdp``, before or after MXNet, enters a store for each all-reduce into MXNet's registry, such as ``mxdpring``
for ``ring``. ``mx.kv.create("mxdpring")`` and ``gluon.Trainer(..., kvstore="mxdpring")`` find it there.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import partial
from typing import Any, Callable, Iterator

MPI_STORE = "mxdpmpi"
"""The name of the store that sums by ``auto`` over the devices, and then over all ranks of :func:`mxdp.world`."""


def store_name(algorithm: str) -> str:
    """The name of the store that sums by this all-reduce: ``mxdpring`` for ``ring``."""
    return f"mxdp{algorithm}"


def register_stores(by_name: Callable[[str], Any]) -> None:
    """Enter the stores into MXNet's registry, now or when MXNet is imported; ``by_name(name)`` makes one on request."""
    import wrapt  # not above: whatever mxdp needs may be missing until `import mxdp` has looked

    wrapt.register_post_import_hook(partial(_fill, by_name), "mxnet")


@contextmanager
def semantics_kept() -> Iterator[None]:
    """Keep the array semantics of a program that has imported MXNet, whatever is imported inside: :mod:`mxdp.backend`
    turns NumPy semantics on, and networks of classic arrays would break when a store is asked for."""
    mxnet: Any = sys.modules.get("mxnet")
    if mxnet is None:
        yield
        return
    shape = mxnet.util.is_np_shape()
    array = mxnet.util.is_np_array()
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
    names = [store_name(algorithm) for algorithm in sorted([*ALGORITHMS, AUTO])]
    for name in [*names, MPI_STORE]:
        if name not in base.kv_registry:  # mxdp may be imported anew, by importlib.reload
            base.register(entry(name))
