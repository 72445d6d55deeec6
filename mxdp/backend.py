"""The only ``import mxnet`` of the project, the devices it offers, and what brings an array to one of them.

Importing this file prepares the process (:mod:`mxdp.process`), loads CUDA's libraries where ``mxnet-cu112`` is
installed (:mod:`mxdp.cuda`), imports MXNet and turns its NumPy semantics on. Where that can't work it raises
:class:`~mxdp.errors.BackendError`: one sentence, with the cure.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, List, Optional, Tuple, Union

from mxdp import cuda, process
from mxdp.errors import BackendError


def _import_mxnet() -> Any:
    """Prepare, and import MXNet.

    Raises:
        BackendError: MXNet is not installed, twice installed or can't be loaded.
    """
    process.warn(process.prepare().warnings)
    problem = process.install_problem()
    if problem:
        raise BackendError(problem)
    for_cuda = any("-cu" in name for name in process.installed_backends())
    missing = cuda.preload() if for_cuda else []
    try:
        import mxnet
    except OSError as error:
        if for_cuda and not cuda.driver_installed():
            raise BackendError(cuda.NO_DRIVER) from error
        raise BackendError(missing[0] if missing else cuda.import_problem(error)) from error
    except ImportError as error:
        raise BackendError(f"MXNet can't be imported ({error}): install it again.") from error
    return mxnet


mx: Any = _import_mxnet()
np: Any = mx.np
npx: Any = mx.npx
autograd: Any = mx.autograd
gluon: Any = mx.gluon
npx.set_np()

# Behind MXNet, whose absence is said in a sentence: a Python without it may lack NumPy too.
import numpy as onp  # noqa: E402
import numpy.typing as npt  # noqa: E402

if TYPE_CHECKING:
    NDArray = Any
    Device = Any
else:
    NDArray = np.ndarray
    Device = mx.Context
HostArray = npt.NDArray[Any]
Batch = Union[HostArray, NDArray]


def num_gpus() -> int:
    """How many GPUs MXNet sees, usable or not; 0 where its own count fails."""
    return _count_gpus()[0]


def usable_gpus() -> List[Device]:
    """The GPUs that this MXNet holds code for, in MXNet's order. Where it sees any, CUDA starts: then do not fork."""
    seen = num_gpus()
    if seen == 0:
        return []
    return [mx.gpu(gpu.index) for gpu in cuda.query_driver().gpus[:seen] if gpu.usable]


def devices(n: int, kind: str = "auto") -> List[Device]:
    """``n`` distinct devices of one kind.

    ``"auto"``: GPUs where at least ``n`` are usable, else CPU contexts; ``"cpu"``; ``"gpu"``. CPU contexts cost
    nothing, so there may be more of them than processors; they then share the processors.

    Raises:
        ValueError: ``n`` is not a whole number of at least 1, or ``kind`` is unknown.
        BackendError: ``"gpu"``, and fewer than ``n`` are usable; the message says how many there are, and why.

    Warns:
        MxdpWarning: two or more CPU devices, and a setting with which they wait for each other or hang; once a process.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"devices(n) takes a whole number of at least 1, not {n!r}")
    if kind not in ("auto", "cpu", "gpu"):
        raise ValueError(f"kind is 'auto', 'cpu' or 'gpu', not {kind!r}")
    if kind != "cpu":
        gpus = usable_gpus()
        if len(gpus) >= n:
            return gpus[:n]
        if kind == "gpu":
            raise BackendError(_shortage(n, len(gpus)))
    if n >= 2:
        # A setting that is missing here came too late, and the import of mxdp has said so.
        process.warn(process.concurrency_warnings({**process.SETTINGS, **os.environ}))
    return [mx.cpu(index) for index in range(n)]


def upload(host: HostArray, device: Device) -> NDArray:
    """A copy of a NumPy array, in whatever layout and byte order, on ``device``. Doesn't wait.

    ``host`` may be written to as soon as this returns.

    ``np.array(host, ctx=device)`` gives the same, but queues an empty job on ``cpu(0)`` and waits for it: for as long
    as what runs there takes, whichever device is meant (MXNet's ``NDArray::WaitToWrite``). Here the bytes go into a new
    array, on which nothing can be pending. A GPU's copy then starts from that array, in the background (not run on a
    GPU).
    """
    host = onp.asarray(host, dtype=host.dtype.newbyteorder("="), order="C")
    on_cpu = device.device_type == "cpu"
    array = np.empty(host.shape, dtype=host.dtype, ctx=device if on_cpu else mx.cpu())
    if host.size:
        pointer = ctypes.c_void_p()
        mx.base.check_call(mx.base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer)))
        ctypes.memmove(pointer, host.ctypes.data, host.nbytes)
    return array if on_cpu else array.copyto(device)


def _count_gpus() -> Tuple[int, Optional[str]]:
    """MXNet's count of GPUs, and what it said if the count failed."""
    try:
        return int(mx.context.num_gpus()), None
    except mx.MXNetError as error:
        return 0, str(error).strip().splitlines()[-1]


def _shortage(n: int, usable: int) -> str:
    """Why there are not ``n`` usable GPUs, in one sentence."""
    driver = cuda.query_driver()
    there = len(driver.gpus)
    asked = f"{n} GPU{'s were' if n > 1 else ' was'} asked for, this machine has {there} and MXNet can use {usable}"
    if not mx.runtime.Features().is_enabled("CUDA"):
        cure = 'install `"mxdp[cu112]"`, or ' if there else ""
        return f"{asked}: this is MXNet's CPU build; {cure}use kind='cpu'."
    seen, failure = _count_gpus()
    if driver.problem:
        reason = driver.problem
    elif seen < there:
        reason = (
            f"MXNet itself counts {seen} ({failure or 'CUDA does not start'}): see `nvidia-smi`, or use kind='cpu'."
        )
    else:
        unusable = [text for text in map(cuda.gpu_problem, driver.gpus) if text]
        reason = unusable[0] if unusable else "ask for fewer, or use kind='cpu'."
    return f"{asked}: {reason}"
