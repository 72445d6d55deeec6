"""When was it done? A stamp is a note that MXNet's engine leaves behind its arrays, off the devices' queues.

``wait_to_read`` is itself a job in the queue of ``cpu(0)`` (source: ``ThreadedEngine::WaitForVar``), so it returns when
all that was queued there before has run: it can't wait for a step before the last, nor tell when an array was written.
A stamp runs on the engine's threads for urgent work. A gate is the reverse: nobody gets past it until it is opened.

Loads MXNet: import it inside ``oracle`` and ``run``.
"""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any, Optional, Sequence

from mxdp.backend import NDArray, mx
from mxdp.errors import BackendError
from mxdp.tracing.events import JOB

URGENT = 3
"""``FnProperty::kCPUPrioritized`` of MXNet's ``engine.h``."""
LIMIT_SECONDS = 300.0


class _Context(ctypes.Structure):
    """MXNet's ``Context``; CPU 0 by default."""

    _fields_ = [("kind", ctypes.c_int), ("number", ctypes.c_int32)]


class _Job:
    """A function of Python's that the engine calls when its turn has come."""

    NAME = JOB.encode()
    """For MXNet's profiler, which keeps the pointer."""

    def __init__(self) -> None:
        self._over = threading.Event()

    def _push(self, read: Sequence[NDArray], written: Sequence[NDArray]) -> None:
        read_handles, written_handles = (
            (ctypes.c_void_p * len(arrays))(*[array.handle for array in arrays]) for arrays in (read, written)
        )
        cpu, urgent = _Context(1, 0), ctypes.c_int(URGENT)
        # The engine holds us until it has dropped the job: a stamp may be pushed and forgotten.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        mx.base.check_call(
            mx.base._LIB.MXEnginePushSyncND(
                _CALLED, ctypes.c_void_p(id(self)), _DROPPED, ctypes.byref(cpu), read_handles, len(read),
                written_handles, len(written), ctypes.byref(urgent), 0, self.NAME,
            )
        )  # fmt: skip

    def _call(self) -> None:
        raise NotImplementedError

    def _drop(self) -> None:
        """The job is gone; without a call before, if an operator that writes one of its arrays has failed."""


class CompletionEvent(_Job):
    """Pushed behind whatever writes ``arrays``; doesn't wait. Costs Python some tens of microseconds."""

    def __init__(self, arrays: Sequence[NDArray]) -> None:
        super().__init__()
        self.at: Optional[float] = None
        """``time.perf_counter`` when the last array was written."""
        self._push(arrays, ())

    def wait(self, limit: float = LIMIT_SECONDS) -> float:
        """Wait for the arrays, and for nothing else; the time at which the last was written.

        Raises:
            BackendError: they were never written, since what writes them failed; or not within ``limit`` seconds.
        """
        if not self._over.wait(limit):
            raise BackendError(f"an array was not written within {limit:g} s; stopped waiting for it")
        if self.at is None:
            raise BackendError("an array was not written: what should have written it failed (npx.waitall says how)")
        return self.at

    def _call(self) -> None:
        self.at = time.perf_counter()
        self._over.set()

    def _drop(self) -> None:
        self._over.set()


class Gate(_Job):
    """Whatever uses ``array`` after this waits until the gate is opened, or ``limit`` seconds have gone by."""

    def __init__(self, array: NDArray, limit: float = LIMIT_SECONDS) -> None:
        super().__init__()
        self._limit = limit
        self._push((), (array,))

    def open(self) -> None:
        """Let them pass."""
        self._over.set()

    def _call(self) -> None:
        self._over.wait(self._limit)


def _called(_: Any, address: int) -> None:
    ctypes.cast(address, ctypes.py_object).value._call()


def _dropped(address: int) -> None:
    ctypes.cast(address, ctypes.py_object).value._drop()
    ctypes.pythonapi.Py_DecRef(ctypes.cast(address, ctypes.py_object))


_CALLED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(_called)
_DROPPED = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_dropped)
