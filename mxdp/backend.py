"""The only ``import mxnet`` of the project, MXNet's devices, and the upload of an array to one of them.

``mx``, ``np``, ``npx``, ``autograd`` and ``gluon`` are MXNet's modules. The first use of one prepares the process
(:mod:`mxdp.process`), loads CUDA's libraries where ``mxnet-cu112`` is installed (:mod:`mxdp.cuda`), imports MXNet and
turns its NumPy semantics on (:func:`use_numpy`). If that fails it raises :class:`~mxdp.errors.BackendError`: one
sentence, with the cure.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import os
import sys
from contextlib import suppress
from functools import wraps
from types import ModuleType
from typing import Any, List, Optional, Sequence, Tuple, Union
from weakref import WeakSet

from mxdp import cuda, process
from mxdp.errors import BackendError, refuse_step

try:
    import numpy as onp
    import numpy.typing as npt
    import wrapt
except ModuleNotFoundError as error:  # what installs MXNet may bring it
    raise BackendError(
        process.install_problem() or f"MXNet needs what can't be imported ({error}): install it."
    ) from error


class _Module(ModuleType):
    """A module of MXNet's, imported when one of its names is first used; it then holds all of them."""

    def __getattr__(self, name: str) -> Any:
        if "mxnet" not in sys.modules:
            _import_mxnet()
        module = importlib.import_module(self.__name__)
        self.__dict__.update(vars(module))
        return getattr(module, name)


def _import_mxnet() -> None:
    """Prepare the process and import MXNet. Raises a BackendError, with the cure, if that fails."""
    process.warn(process.prepare_process().warnings)
    backends = process.installed_backends()
    problem = process.install_problem(backends)
    if problem:
        raise BackendError(problem)
    for_cuda = any("-cu" in name for name in backends)
    missing = cuda.preload() if for_cuda else []
    try:
        importlib.import_module("mxnet")
    except OSError as error:
        if for_cuda and not cuda.driver_installed():
            raise BackendError(cuda.NO_DRIVER) from error
        raise BackendError(missing[0] if missing else cuda.import_problem(error)) from error
    except ImportError as error:
        raise BackendError(f"MXNet can't be imported ({error}): install it again.") from error


def _set_up(mxnet: Any) -> None:
    mxnet.npx.set_np()
    mxnet.autograd.backward = _of_losses(mxnet.autograd.backward)
    # Else each Symbol.bind writes a line to stderr.
    os.environ.setdefault("MXNET_SUBGRAPH_VERBOSE", "0")


def _of_losses(backward: Any) -> Any:
    """MXNet's ``autograd.backward``, which fails on an empty list. A rank without a sample has no losses."""

    @wraps(backward)
    def of_losses(heads: Any, *args: Any, **options: Any) -> None:
        if not (isinstance(heads, (list, tuple)) and len(heads) == 0):
            backward(heads, *args, **options)

    return of_losses


wrapt.register_post_import_hook(_set_up, "mxnet")  # now, if it has been
mx: Any = _Module("mxnet")
np: Any = _Module("mxnet.numpy")
npx: Any = _Module("mxnet.numpy_extension")
autograd: Any = _Module("mxnet.autograd")
gluon: Any = _Module("mxnet.gluon")
NDArray = Any  # an array of np
Device = Any  # mx.Context
HostArray = npt.NDArray[Any]
Batch = Union[HostArray, NDArray]
Devices = Sequence[Device]
Shares = Optional[Sequence[float]]
ADDING: WeakSet[Any] = WeakSet()
"""Sums for which ``no_sync`` has added up gradients."""

DTYPES = ("float16", "float32", "float64", "uint8", "int8", "int32", "int64", "bool")
"""The dtypes of MXNet's arrays."""
_TYPES = {onp.dtype(name).type for name in DTYPES}


def num_gpus() -> int:
    """How many GPUs MXNet sees, usable or not; 0 if MXNet can't count them."""
    return _count_gpus()[0]


def usable_gpus() -> List[Device]:
    """The GPUs that this MXNet has code for, in MXNet's order. If there are any, this starts CUDA: do not fork then."""
    seen = num_gpus()
    if seen == 0:
        return []
    return [mx.gpu(gpu.index) for gpu in cuda.query_driver().gpus[:seen] if gpu.usable]


def use_numpy() -> None:
    """Turn MXNet's NumPy semantics on, in this thread. Each function that promises them calls this: whatever was
    imported or called before it, or another thread, may have left them off."""
    mx.npx.set_np()


def devices(n: int, kind: str = "auto") -> List[Device]:
    """``n`` different devices of a ``kind``: ``"cpu"``, ``"gpu"``, or ``"auto"`` (GPUs if ``n`` are usable, else CPUs).

    There may be more CPU devices than processors, which they share. Turns MXNet's NumPy semantics on. Raises a
    ValueError if ``n`` is no whole number of at least 1, or ``kind`` is another. Raises a BackendError, which says why,
    if ``kind`` is ``"gpu"`` and fewer than ``n`` are usable. Warns once a process of a setting that makes CPU devices
    wait for each other, or hang (MxdpWarning).
    """
    found = find_devices(n, kind)
    use_numpy()
    return found


def find_devices(n: int, kind: str) -> List[Device]:
    """As :func:`devices`, for classic programs, too: the array semantics stay as they are."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"devices(n) takes a whole number of at least 1, not {n!r}")
    if kind not in ("auto", "cpu", "gpu"):
        raise ValueError(f"kind is 'auto', 'cpu' or 'gpu', not {kind!r}")
    if kind != "cpu":
        gpus = usable_gpus()
        if len(gpus) >= n:
            return gpus[:n]
        if kind == "gpu":
            with_cuda = mx.runtime.Features().is_enabled("CUDA")
            raise BackendError(cuda.shortage(n, len(gpus), with_cuda, *_count_gpus()))
    if n >= 2:
        # SETTINGS fill in what the environment lacks: the import of mxdp has warned of that already.
        settings = {**process.SETTINGS, **os.environ}
        # The caller's line is shown: that of `devices`, or of `World.devices`.
        process.warn(process.concurrency_warnings(settings), stacklevel=3)
    return [mx.cpu(index) for index in range(n)]


def check_device_list(devices: Any, samples: float = math.inf) -> List[Device]:
    """The devices. Raises a TypeError if it is no list of devices, a ValueError if not 1 to ``samples`` different ones.
    ``samples``: of a batch of which each device needs a part."""
    listed = isinstance(devices, (list, tuple))
    if not listed or not all(isinstance(device, mx.Context) for device in devices):
        raise TypeError(
            f"devices must be a list of devices, such as mxdp.devices(2), not {devices!r}"
        )
    if not devices or len(set(devices)) < len(devices):
        named = ", ".join(map(str, devices)) or "none"
        raise ValueError(
            f"devices must be different ones, at least one, not {named}: mxdp.devices(2) gives two"
        )
    if samples < len(devices):
        raise ValueError(
            f"a batch of {samples} has too few samples for {len(devices)} devices, each of which needs one: use fewer "
            "devices, or a larger batch"
        )
    return list(devices)


def check_replicas(device_params: Any, devices: Any = ...) -> List[Device]:
    """Raise unless replica i lies on ``devices[i]``, all devices differ, and all replicas have equal shapes and dtypes.
    With ``devices``, which are about to train, every parameter must have a gradient and be given once. Returns the
    replicas' devices. Doesn't wait. Raises a TypeError for what is no list of arrays or devices, else a ValueError."""
    train = devices is not ...
    for number, params in enumerate(device_params):
        check_params(params, f"replica {number}", tied=not train, least=1)
    if not train:
        devices = [params[0].ctx for params in device_params]
    check_device_list(devices)
    if len(device_params) != len(devices):
        raise ValueError(
            f"{len(device_params)} replicas for {len(devices)} devices: there must be one for each"
        )
    first = [(param.shape, param.dtype) for param in device_params[0]]
    for number, (params, device) in enumerate(zip(device_params, devices)):
        places = [param.ctx for param in params]
        if places != [device] * len(places):
            named = ", ".join(sorted(set(map(str, places))))
            raise ValueError(
                f"replica {number} lies on {named}, not on {device}: get_params(params, {device}) copies it"
            )
        if [(param.shape, param.dtype) for param in params] != first:
            raise ValueError(
                f"replica {number} has other shapes or dtypes than replica 0: make all by get_params, from one list"
            )
        if train and not all(map(_has_gradient, params)):
            raise ValueError(
                f"replica {number} lacks a gradient: get_params(params, device) gives each parameter one"
            )
    return list(devices)


def check_params(params: Any, what: str = "params", tied: bool = False, least: int = 0) -> None:
    """Raise a TypeError, which calls it ``what``, unless ``params`` is a list of at least ``least`` arrays of MXNet's
    ``np``; unless ``tied``, a ValueError if it holds an array twice, since two updates would apply its one gradient."""
    known = isinstance(params, (list, tuple)) and all(isinstance(x, np.ndarray) for x in params)
    if not known or len(params) < least:
        raise TypeError(
            f"{what} must be a list of arrays of MXNet's np, as init_lenet() and get_params(params, device) make it"
        )
    if not tied and len(set(map(id, params))) < len(params):
        raise ValueError(
            f"{what} holds one array as two parameters, which would have one gradient: give it once, and let net use "
            "it twice"
        )


def _has_gradient(param: NDArray) -> bool:
    # ``param.grad`` would make an array object, and take several times as long.
    grad = ctypes.c_void_p()
    failed = mx.base._LIB.MXNDArrayGetGrad(param.handle, ctypes.byref(grad))
    return bool(not failed and grad and not mx.base._LIB.MXNDArrayFree(grad))


def check_losses(losses: Sequence[NDArray], shards: Sequence[NDArray], name: str = "loss") -> None:
    """Raise a ValueError, which calls the loss function ``name``, unless it has given each shard's samples a loss."""
    for loss, shard in zip(losses, shards):
        shape = getattr(loss, "shape", type(loss).__name__)
        if shape != (len(shard),):
            raise ValueError(
                f"{name} must return the loss of each sample, here of shape ({len(shard)},), not {shape}: leave its "
                "mean or sum out, since the step divides by the batch"
            )


def backward(
    losses: Sequence[NDArray], device_params: Sequence[Sequence[NDArray]], shards: Sequence[NDArray]
) -> None:
    """Write, or add, the gradients of the losses' sum. Doesn't wait. Where no loss depends on a parameter its gradient
    becomes zero, as in the serial run: ``autograd.backward`` would leave the last step's, a sum over all devices.
    Raises as :func:`check_losses` and :func:`refuse_step`."""
    check_losses(losses, shards)
    params = [param for params in device_params for param in params]
    refuse_step(autograd.is_recording(), any(sync.adds_up(params) for sync in ADDING))
    for param in params:
        param._fresh_grad = False
    if losses:
        autograd.backward(losses)
    stale = [param for param in params if not param._fresh_grad]
    if stale:
        with autograd.record():
            zeros = [np.zeros_like(param) for param in stale]
        with suppress(mx.MXNetError):  # all are marked "null", so there is nothing to write
            autograd.backward(zeros)


def check_arrays(**arrays: Any) -> None:
    """Raise a TypeError unless each is an array (n, ...) of NumPy or of MXNet's ``np``, of a dtype that MXNet has."""
    for name, array in arrays.items():
        if not isinstance(array, (onp.ndarray, np.ndarray)):
            kind = f"{type(array).__module__}.{type(array).__name__}".replace("builtins.", "")
            raise TypeError(
                f"{name} must be an array of NumPy or of MXNet's np, not a {kind}: numpy.array({name})"
            )
        if array.shape == ():
            raise TypeError(f"{name} must be an array of samples, (n, ...), not a single number")
        if isinstance(array, onp.ndarray) and array.dtype.type not in _TYPES:
            raise TypeError(
                f"{name} is {array.dtype}, which MXNet's arrays can't be: use one of {', '.join(DTYPES)}"
            )


def check_batch(X: Any, y: Any) -> None:
    """Raise as :func:`check_arrays`, or a ValueError if there is no sample."""
    check_arrays(X=X, y=y)
    if not len(X):
        raise ValueError("a batch needs at least one sample, and X has none")


def check_functions(**functions: Any) -> None:
    """Raise a TypeError that names the argument, unless each can be called."""
    for name, function in functions.items():
        if not callable(function):
            raise TypeError(f"{name} must be a function, not {function!r}")


def upload(host: HostArray, device: Device) -> NDArray:
    """A copy on ``device`` of a NumPy array in any layout and byte order. Doesn't wait; ``host`` may change afterwards.

    ``np.array(host, ctx=device)`` would wait for all work on ``cpu(0)``, whatever ``device`` is: it queues an empty job
    there and waits for it (MXNet's ``NDArray::WaitToWrite``). Here the bytes go into a new array, for which no work can
    be pending. For a GPU, a copy of that array then starts in the background (not run on a GPU).
    """
    on_cpu = device.device_type == "cpu"
    dtype = host.dtype.newbyteorder("=")
    array = np.empty(host.shape, dtype, ctx=device if on_cpu else mx.cpu())
    if host.size:
        host_view(array)[...] = host
    return array if on_cpu else array.copyto(device)


def host_view(array: NDArray) -> HostArray:
    """The memory of an array on the CPU that has elements, as a NumPy array. Keep the array, whose memory it is.
    Doesn't wait, as a job must not: the values are final only when the work on the array is finished."""
    dtype = onp.dtype(array.dtype)
    memory = (ctypes.c_char * (array.size * dtype.itemsize)).from_address(address_of(array) or 0)
    return onp.frombuffer(memory, dtype).reshape(array.shape)


def address_of(array: NDArray) -> Optional[int]:
    """The address of the array's memory. The call allocates the memory: use it for written arrays or ``empty`` ones."""
    pointer = ctypes.c_void_p()
    mx.base.check_call(mx.base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer)))
    return pointer.value


def _count_gpus() -> Tuple[int, Optional[str]]:
    """MXNet's count of GPUs, and its message if the count failed."""
    try:
        return int(mx.context.num_gpus()), None
    except mx.MXNetError as error:
        return 0, str(error).strip().splitlines()[-1]
