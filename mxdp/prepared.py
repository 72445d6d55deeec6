"""Prepared calls: operator calls whose arguments are converted once, for any number of calls.

The cost of an all-reduce of a small network is Python's. Through MXNet's own functions a call takes 11 to 16
microseconds, mostly to convert the arguments to C. Where the arrays are the same each time, one conversion is enough. A
prepared call takes 4 to 8 microseconds: one call of MXNet's C interface (``MXImperativeInvokeEx`` in its ``c_api.h``).
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Sequence

from mxdp.backend import NDArray, mx

Call = Callable[[], None]

ALL = 1 << 12
"""For ``mx.engine.bulk``: more operators than a stage of a pipeline has, so that all of them become one bulk. MXNet
reserves 30 bytes for each in every bulk."""


def prepare(operator: str, inputs: Sequence[NDArray], out: NDArray, **attributes: Any) -> Call:
    """A function without arguments that does ``out = operator(inputs, attributes)`` each time it is called.

    A call pushes the work and doesn't wait. The function keeps the arrays alive, and always uses these arrays, even if
    their names are bound to others later. It works in both of MXNet's array semantics.

    Args:
        operator: its name in MXNet's registry, such as ``_copyto`` or ``elemwise_add``.

    Raises:
        ValueError: MXNet has no such operator. A call raises ``MXNetError`` where the operator itself would.
    """
    library = mx.base._LIB
    handle = ctypes.c_void_p()
    if library.NNGetOpHandle(operator.encode(), ctypes.byref(handle)):
        raise ValueError(f"MXNet has no operator {operator!r}")
    outputs = (ctypes.c_void_p * 1)(out.handle)
    storage_types = ctypes.POINTER(ctypes.c_int)()
    arguments = (
        handle,
        ctypes.c_int(len(inputs)),
        (ctypes.c_void_p * len(inputs))(*[array.handle for array in inputs]),
        ctypes.byref(ctypes.c_int(1)),
        ctypes.byref(ctypes.cast(outputs, ctypes.POINTER(ctypes.c_void_p))),
        ctypes.c_int(len(attributes)),
        _strings(list(attributes)),
        _strings(list(attributes.values())),
        ctypes.byref(storage_types),
    )
    invoke, check = library.MXImperativeInvokeEx, mx.base.check_call
    keep = (tuple(inputs), out, outputs)

    def call(keep: Any = keep) -> None:
        status = invoke(*arguments)
        if status:
            check(status)

    return call


def prepare_sum(parts: Sequence[NDArray], out: NDArray) -> Call:
    """A prepared call for ``out`` = the sum of two or more ``parts``. ``out`` may be the first of them."""
    if len(parts) == 2:
        return prepare("elemwise_add", parts, out)
    return prepare("add_n", parts, out, num_args=len(parts))


def _strings(values: Sequence[Any]) -> Any:
    return (ctypes.c_char_p * len(values))(*[str(value).encode() for value in values])
