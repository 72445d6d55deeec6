"""Gives MXNet's engine operator calls and Python functions, through MXNet's C interface.

A prepared call is an operator call whose arguments are converted to C once, for any number of calls on the same arrays.
It takes 4 to 8 microseconds: one call of ``MXImperativeInvokeEx`` (see ``c_api.h``). By MXNet's own functions it takes
11 to 16, mostly to convert the arguments; for a small network this is what an all-reduce costs.

A job is a Python function that the engine calls when its arrays are ready, on its threads for urgent work, outside the
devices' queues. A completion event is a job that tells when an array was written. ``wait_to_read`` can't tell that, nor
wait for an earlier step alone: it is itself a job in the queue of ``cpu(0)``, and returns after all work that was
queued there before (source: ``ThreadedEngine::WaitForVar``).
"""

from __future__ import annotations

import atexit
import ctypes
import os
import subprocess
import sys
import threading
import time
import warnings
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as onp
import wrapt

from mxdp.backend import NDArray, address_of, mx, npx
from mxdp.compat import attribute_text
from mxdp.errors import BackendError
from mxdp.process import MxdpWarning
from mxdp.sections import JOB

Call = Callable[[], None]


def prepare(operator: str, inputs: Sequence[NDArray], *outs: NDArray, **attributes: Any) -> Call:
    """A function without arguments that does ``outs = operator(inputs, attributes)`` each time it is called.
    ``operator`` is its name in MXNet's registry, such as ``_copyto``. A call pushes the work and doesn't wait. The
    function keeps the arrays alive, and works in both of MXNet's array semantics. Raises a ValueError if MXNet has no
    such operator; a call raises ``MXNetError`` where the operator itself would."""
    library = mx.base._LIB
    handle = ctypes.c_void_p()
    if library.NNGetOpHandle(operator.encode(), ctypes.byref(handle)):
        raise ValueError(f"MXNet has no operator {operator!r}")
    outputs = _handles(outs)
    storage_types = ctypes.POINTER(ctypes.c_int)()
    arguments = (
        handle,
        ctypes.c_int(len(inputs)),
        _handles(inputs),
        ctypes.byref(ctypes.c_int(len(outs))),
        ctypes.byref(ctypes.cast(outputs, ctypes.POINTER(ctypes.c_void_p))),
        ctypes.c_int(len(attributes)),
        _strings(list(attributes)),
        _strings(list(attributes.values())),
        ctypes.byref(storage_types),
    )
    invoke = library.MXImperativeInvokeEx
    check = mx.base.check_call
    keep = (tuple(inputs), outs, outputs)

    def call(keep: Any = keep) -> None:
        status = invoke(*arguments)
        if status:
            check(status)

    return call


def prepare_sum(parts: Sequence[NDArray], out: NDArray) -> Call:
    """A prepared call for ``out`` = the sum of two or more ``parts``. ``out`` may be the first of them.

    For two, ``elemwise_add`` would be oneDNN's. Such a call takes the next of MXNet's 128 pieces of temporary memory,
    and makes it as large as the largest use that its thread has seen: the first 60 steps of a training then take up to
    1.5 times as long, and 100 to 200 MB stay. (``add_n`` does so too, and reads each part only once.)
    """
    if len(parts) == 2:
        return prepare("broadcast_add", parts, out)
    return prepare("add_n", parts, out, num_args=len(parts))


def plain_layout(data: Sequence[NDArray]) -> List[Call]:
    """Calls that store ``data`` in MXNet's default layout, in place. An array that has this layout stays untouched.

    On CPU devices oneDNN keeps some arrays in a layout of its own: a convolution's output, or its weights after an
    inference pass. MXNet fails on a view of such an array, and a job that takes its address waits for itself.
    ``Reshape`` in place restores the layout without waiting, up to four dimensions; an array of more is waited for.
    """
    calls: List[Call] = []
    for x in data:
        if x.ndim < 2 or not x.size or onp.dtype(x.dtype) != onp.float32:
            continue
        if not x.ctx.device_type.startswith("cpu"):
            continue
        if x.ndim <= 4:
            calls.append(prepare("Reshape", [x], x, shape=x.shape))
        else:
            calls.append(partial(_default_layout_now, x))
    return calls


def wait_for_use(x: NDArray) -> None:
    """Wait until all work that was pushed and reads or writes ``x`` has ended. (``wait_to_read`` waits for writes.)"""
    mx.base.check_call(mx.base._LIB.MXNDArrayWaitToWrite(x.handle))


def _default_layout_now(x: NDArray) -> None:
    x.wait_to_read()
    address_of(x)


def _handles(arrays: Sequence[NDArray]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*[array.handle for array in arrays])


def _strings(values: Sequence[Any]) -> Any:
    return (ctypes.c_char_p * len(values))(*[attribute_text(value).encode() for value in values])


URGENT = 3
"""``FnProperty::kCPUPrioritized`` of MXNet's ``engine.h``."""
SLICE_SECONDS = 1.0
"""How often a wait looks whether its job was dropped."""

_jobs: Dict[int, EngineJob] = {}
"""The jobs that the engine has yet to drop, by address. It drops a job some time after it has called it."""
_pushing = threading.RLock()
"""Held while a job is pushed, and through a fork."""


class _Context(ctypes.Structure):
    """MXNet's ``Context``; CPU 0 by default."""

    _fields_ = [("kind", ctypes.c_int), ("number", ctypes.c_int32)]


class EngineJob:
    """A Python function that the engine calls when its arrays are ready. It must not push jobs itself."""

    NAME = JOB.encode()
    """The name in MXNet's profiler, which keeps this pointer."""

    def _push(self, read: Sequence[NDArray], written: Sequence[NDArray]) -> None:
        address = id(self)
        arguments = (
            _CALLED,
            ctypes.c_void_p(address),
            _DROPPED,
            ctypes.byref(_Context(1, 0)),
            _handles(read),
            len(read),
            _handles(written),
            len(written),
            ctypes.byref(ctypes.c_int(URGENT)),
            0,
            self.NAME,
        )
        with _pushing:
            _jobs[address] = self
            mx.base.check_call(mx.base._LIB.MXEnginePushSyncND(*arguments))

    def _call(self) -> None:
        raise NotImplementedError


class CompletionEvent(EngineJob):
    """Happens when ``arrays`` are written. Making one doesn't wait; it costs Python some tens of microseconds."""

    def __init__(self, arrays: Sequence[NDArray]) -> None:
        self._over = threading.Event()
        self.at: Optional[float] = None
        """``time.perf_counter()`` when the last array was written; None before."""
        self._push(arrays, ())

    def wait(self) -> float:
        """Wait for the arrays alone, without limit, as MXNet does (a rank may be stopped). Returns the time at which
        the last was written. Raises a BackendError, within a second, if an operator that writes them failed."""
        while not self._over.wait(SLICE_SECONDS) and id(self) in _jobs:
            pass
        if self.at is None:
            raise BackendError(
                "an array was not written: its operator failed (npx.waitall raises the error)"
            )
        return self.at

    def _call(self) -> None:
        self.at = time.perf_counter()
        self._over.set()


def _called(_: Any, address: int) -> None:
    ctypes.cast(address, ctypes.py_object).value._call()


_CALLED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(_called)
# No Python code: in it, another thread could take over and fork, or end Python, after the job has left `_jobs`.
_DROPPED = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_jobs.pop)


def _finish() -> None:
    """Wait for all work, and until no thread of the engine needs Python any more. An operator's error is raised."""
    try:
        npx.waitall()
    finally:
        # Normally once. Ctrl-C may have come between the note of a job and its push: then not for ever.
        for _ in range(1000):
            if not _jobs:
                break
            time.sleep(0.001)


def _before_python_ends() -> None:
    """A job that the engine calls or drops while Python ends would abort the process. (MPI, too, ends after this.)"""
    _pushing.acquire()  # for good: a daemon thread may still train
    with suppress(Exception):  # of an operator, which nobody waits for any more
        _finish()


def _before_fork() -> None:
    """Wait for all jobs: a job needs Python's lock, which ``os.fork`` holds while MXNet joins the engine's threads. A
    failed operator becomes a warning, where MXNet would end the process. Still no thread may call an operator in a
    fork: MXNet loses it, or waits for ever."""
    if isinstance(threading.current_thread(), threading._DummyThread):
        return  # perhaps a job, which can't wait for itself: MXNet doesn't stop the engine here
    _pushing.acquire()
    try:
        _finish()
    except Exception as error:
        reason = str(error).strip().splitlines()[-1]
        text = f"before this fork an operator failed ({reason}): what it writes is wrong"
        warnings.warn(text, MxdpWarning, 2)


def _after_fork() -> None:
    with suppress(RuntimeError):  # after a fork in a job
        _pushing.release()


def _register(_: Any) -> None:
    atexit.register(_before_python_ends)
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )


# After MXNet's own hooks, so these run before them.
wrapt.register_post_import_hook(_register, "mxnet")

if sys.platform != "linux" or sys.version_info < (3, 10):
    # There, subprocess and multiprocessing's "spawn" fork, not vfork, and without these hooks.
    import _posixsubprocess

    _plain_fork_exec = _posixsubprocess.fork_exec

    def _fork_exec(*arguments: Any) -> Any:
        _before_fork()
        try:
            return _plain_fork_exec(*arguments)
        finally:
            _after_fork()

    _posixsubprocess.fork_exec = _fork_exec
    if hasattr(subprocess, "_fork_exec"):  # its own name for it, since Python 3.11
        subprocess._fork_exec = _fork_exec
