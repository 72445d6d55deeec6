"""mxdp as a guest in a program of MXNet's own: its stores by name, and the program's array semantics left alone.

``mx.kv.create("mxdpring")`` and ``gluon.Trainer(..., kvstore="mxdpring")`` look into MXNet's registry of stores. After
``import mxdp`` there is a name in it for each all-reduce, ``mxdp`` followed by the all-reduce's, whichever of the two
was imported first.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import contextmanager
from typing import Any, Iterator

import wrapt


def store_name(algorithm: str) -> str:
    """By which name MXNet makes the store that sums by this all-reduce.

    >>> store_name("ring")
    'mxdpring'
    """
    return f"mxdp{algorithm}"


def register_stores() -> None:
    """Enter the names into MXNet's registry: now if MXNet has been imported, else as soon as it is."""
    wrapt.register_post_import_hook(_fill, "mxnet")


@contextmanager
def semantics_kept() -> Iterator[None]:
    """Leave MXNet's array semantics as they are, whatever is imported inside.

    :mod:`mxdp.backend` turns NumPy semantics on, as all of mxdp needs it but what serves gluon. A program that has
    imported MXNet and works with classic arrays would find its networks broken by the mere name of a store. Where MXNet
    has not been imported yet nothing is kept: importing mxdp's things then means NumPy semantics, as ever.
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


def _fill(mxnet: Any) -> None:
    # Imported here, so that `import mxdp` stays as quick as it is.
    from mxdp.plans.collective.algorithms import ALGORITHMS, AUTO

    base = mxnet.kv.KVStoreBase
    for algorithm in sorted([*ALGORITHMS, AUTO]):
        if store_name(algorithm) not in base.kv_registry:  # mxdp may be imported anew, by importlib.reload
            base.register(_name_for(algorithm))


def _name_for(algorithm: str) -> type:
    """What stands in the registry, which takes classes only and calls them: it makes a store of another class.

    That class is imported by then, and by its name in a string, since it lies above this floor: it needs all of MXNet.
    """

    def make(cls: type) -> Any:
        return importlib.import_module("mxdp.gluon").Store(algorithm)

    return type(store_name(algorithm), (), {"__new__": make, "__module__": __name__})
