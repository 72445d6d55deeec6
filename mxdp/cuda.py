"""The needs of ``mxnet-cu112``: CUDA 11's libraries, NVIDIA's driver, and a GPU that it has code for.

pip installs the libraries in the ``nvidia-*-cu11`` packages, where the dynamic loader does not look. So they are loaded
here, before MXNet, whose library then finds them by name. The driver was asked beside an NVIDIA H200, which MXNet can't
use; the rest was checked with the real packages and a stand-in for the driver. Imports no MXNet.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, List, Optional, Sequence, Tuple

LoadLibrary = Callable[..., Any]
"""Loads a shared library by path or name, as :class:`ctypes.CDLL` does; raises OSError if it can't."""

DRIVER = "libcuda.so.1"

# The libraries that MXNet's is linked to, each after its dependencies, and the pip requirements that install them.
# (libcudnn opens its parts itself, from its own folder; CUDA 11's cusolver is linked to cublas, not to cusparse.)
LIBRARIES = {
    "libcudart.so.11.0": "nvidia-cuda-runtime-cu11",
    "libnvToolsExt.so.1": "nvidia-nvtx-cu11",
    "libnvrtc.so.11.2": "nvidia-cuda-nvrtc-cu11",
    "libcublasLt.so.11": "nvidia-cublas-cu11",
    "libcublas.so.11": "nvidia-cublas-cu11",
    "libcufft.so.10": "nvidia-cufft-cu11",
    "libcurand.so.10": "nvidia-curand-cu11",
    "libcusolver.so.11": "nvidia-cusolver-cu11",
    "libcudnn.so.8": "nvidia-cudnn-cu11<9",
    "libnccl.so.2": "nvidia-nccl-cu11",
}

# The CPU build needs these, too, and a small container may lack them. The value is the package in Debian and Ubuntu.
SYSTEM_LIBRARIES = {
    "libgomp.so.1": "libgomp1",
    "libquadmath.so.0": "libquadmath0",
    "libstdc++.so.6": "libstdc++6",
    "libgcc_s.so.1": "libgcc-s1",
    "libz.so.1": "zlib1g",
}
ARM_LIBRARIES = ("libarmpl_lp64_mp.so", "libamath.so", "libastring.so")
"""What MXNet's wheel for aarch64 was linked with, and no distribution has."""

Capability = Tuple[int, int]
# Compute capabilities that the wheel has machine code for. It has no PTX, so nothing can be compiled for others.
COMPILED: Tuple[Capability, ...] = ((5, 0), (6, 0), (7, 0), (8, 0), (8, 6))
# CUDA 11.2 runs on any driver of CUDA 11 (minor version compatibility).
OLDEST_DRIVER = 11000
CAPABILITY_MAJOR = 75  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
CAPABILITY_MINOR = 76
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE

NO_DRIVER = (
    f"NVIDIA's driver is not installed ({DRIVER} is missing), and mxnet-cu112 can't be imported without it: install the"
    " driver, or use the CPU build (BACKEND=cpu with make, or `pip uninstall -y mxnet-cu112` and"
    ' `pip install ".[cpu]"` in the clone of mxdp).'
)
NO_GPU = "NVIDIA's driver sees no GPU: see `nvidia-smi` and CUDA_VISIBLE_DEVICES, or use the CPU devices, kind='cpu'."


@dataclass(frozen=True)
class Gpu:
    """A GPU, by the driver's information."""

    index: int
    name: str
    capability: Tuple[int, int]

    @property
    def usable(self) -> bool:
        """Whether the wheel has code for it. Code for X.Y runs on X.Z with Z >= Y, and on no other X."""
        x, y = self.capability
        return any(x == major and y >= minor for major, minor in COMPILED)


@dataclass(frozen=True)
class Driver:
    """The state of NVIDIA's driver: its problem in one sentence, and its GPUs."""

    problem: Optional[str] = None
    gpus: Tuple[Gpu, ...] = ()


def package_folders() -> List[Path]:
    """The ``nvidia/*/lib`` folders of the installed ``nvidia-*`` packages, sorted by name."""
    spec = find_spec("nvidia")
    places = (spec.submodule_search_locations or []) if spec else []
    return [folder for place in places for folder in sorted(Path(place).glob("*/lib"))]


def preload(
    folders: Optional[Sequence[Path]] = None, loader: LoadLibrary = ctypes.CDLL
) -> List[str]:
    """Load CUDA's libraries into this process, from ``folders`` (by default the pip packages') or else from the system,
    so that MXNet's library finds them. Returns a sentence for each problem. May be called twice."""
    folders = package_folders() if folders is None else folders
    missing: List[str] = []
    broken: List[str] = []
    for name, package in LIBRARIES.items():
        path = next((folder / name for folder in folders if (folder / name).is_file()), None)
        try:
            loader(str(path or name), ctypes.RTLD_GLOBAL)
        except OSError as error:
            if path is None:
                missing.append(name)
            else:
                cure = f'`pip install --force-reinstall "{package}"`'
                broken.append(f"{path} can't be loaded ({error}): {cure}.")
    if missing:
        broken.insert(0, _missing_problem(missing))
    return broken


def driver_installed(loader: LoadLibrary = ctypes.CDLL) -> bool:
    """Whether NVIDIA's driver library is installed. Doesn't start CUDA, so this process may still fork."""
    try:
        loader(DRIVER)
    except OSError:
        return False
    return True


def query_driver(loader: LoadLibrary = ctypes.CDLL) -> Driver:
    """Ask NVIDIA's driver for its GPUs, numbered as in MXNet. This starts CUDA: don't fork the process afterwards."""
    try:
        cuda = loader(DRIVER)
    except OSError:
        return Driver(NO_DRIVER)
    version = ctypes.c_int()
    count = ctypes.c_int()
    try:
        _call(cuda, "cuInit", 0)
        _call(cuda, "cuDriverGetVersion", ctypes.byref(version))
        _call(cuda, "cuDeviceGetCount", ctypes.byref(count))
        gpus = tuple(_gpu(cuda, index) for index in range(count.value))
    except _CudaError as error:
        none = error.status == NO_DEVICE
        return Driver(NO_GPU if none else f"NVIDIA's driver fails ({error}): see `nvidia-smi`.")
    if not gpus:
        return Driver(NO_GPU)
    if version.value >= OLDEST_DRIVER:
        return Driver(None, gpus)
    cuda_version = f"{version.value // 1000}.{version.value % 1000 // 10}"
    problem = (
        f"NVIDIA's driver is for CUDA {cuda_version}, and mxnet-cu112 needs one for CUDA 11.0 or later: update the"
        " driver, or use the CPU devices, kind='cpu'."
    )
    return Driver(problem, gpus)


def gpu_problem(gpu: Gpu) -> Optional[str]:
    """One sentence that says why the wheel can't run on this GPU; None if it can."""
    if gpu.usable:
        return None
    held = ", ".join(f"{major}.{minor}" for major, minor in COMPILED)
    other = "an older" if gpu.capability > COMPILED[-1] else "a newer"
    return (
        f"gpu({gpu.index}), {gpu.name}, has compute capability {gpu.capability[0]}.{gpu.capability[1]}, and mxnet-cu112"
        f" holds code for {held} and what follows each in its generation: use the CPU devices, kind='cpu', or {other}"
        " GPU."
    )


def shortage(n: int, usable: int, with_cuda: bool, seen: int, failure: Optional[str]) -> str:
    """Why MXNet can't use ``n`` GPUs, in one sentence with the cure. It can use ``usable`` ones, is built ``with_cuda``
    or not, and counts ``seen`` GPUs; ``failure``: why it can't count them."""
    driver = query_driver()
    there = len(driver.gpus)
    unusable = _unusable(driver)
    if not with_cuda:
        cure = '`pip install ".[cu112]"` in the clone of mxdp, or ' if there else ""
        reason = f"this is MXNet's CPU build; {cure}use kind='cpu'."
    elif driver.problem:
        reason = driver.problem
    elif seen < there:
        cause = failure or "CUDA does not start"
        reason = f"MXNet itself counts {seen} ({cause}): see `nvidia-smi`, or use kind='cpu'."
    elif unusable:
        reason = unusable[0]
    else:
        reason = "ask for fewer, or use kind='cpu'."
    gpus = f"{n} GPUs were" if n > 1 else "1 GPU was"
    return f"{gpus} asked for, this machine has {there} and MXNet can use {usable}: {reason}"


def problems(
    folders: Optional[Sequence[Path]] = None, loader: LoadLibrary = ctypes.CDLL
) -> List[str]:
    """A sentence for each problem that keeps ``mxnet-cu112`` from this machine's GPUs. Loads libraries, starts CUDA."""
    driver = query_driver(loader)
    found = preload(folders, loader)
    if driver.problem:
        found.append(driver.problem)
    return found + _unusable(driver)


def import_problem(error: OSError) -> str:
    """One sentence for the OSError of an ``import mxnet``: which library is missing, and what installs it."""
    match = re.search(r"(lib\S+?\.so[.\d]*): cannot open shared object file", str(error))
    name = match.group(1) if match else ""
    if name == DRIVER:
        return NO_DRIVER
    if name in LIBRARIES:
        return _missing_problem([name])
    if name in SYSTEM_LIBRARIES:
        package = SYSTEM_LIBRARIES[name]
        return f"MXNet needs {name}, which is missing: install it (on Debian and Ubuntu `apt-get install {package}`)."
    if name in ARM_LIBRARIES:
        return f"MXNet's build for aarch64 needs {name} of Arm: in the clone, tools/aarch64.sh gives it another."
    if name:
        return (
            f"MXNet needs {name}, which is missing: install the package of your system that has it."
        )
    return f"MXNet's library can't be loaded ({error}): install MXNet again."


def _unusable(driver: Driver) -> List[str]:
    return [text for text in map(gpu_problem, driver.gpus) if text]


class _CudaError(Exception):
    def __init__(self, function: str, status: int, name: str) -> None:
        super().__init__(f"{function}: {name or 'error'} {status}")
        self.status = status


def _call(cuda: Any, function: str, *arguments: Any) -> None:
    status = getattr(cuda, function)(*arguments)
    if status != 0:
        text = ctypes.c_char_p()
        cuda.cuGetErrorName(status, ctypes.byref(text))
        raise _CudaError(function, status, (text.value or b"").decode())


def _gpu(cuda: Any, index: int) -> Gpu:
    handle = ctypes.c_int()
    major = ctypes.c_int()
    minor = ctypes.c_int()
    name = ctypes.create_string_buffer(256)
    _call(cuda, "cuDeviceGet", ctypes.byref(handle), index)
    _call(cuda, "cuDeviceGetName", name, len(name), handle)
    _call(cuda, "cuDeviceGetAttribute", ctypes.byref(major), CAPABILITY_MAJOR, handle)
    _call(cuda, "cuDeviceGetAttribute", ctypes.byref(minor), CAPABILITY_MINOR, handle)
    return Gpu(index, name.value.decode(errors="replace"), (major.value, minor.value))


def _missing_problem(missing: Sequence[str]) -> str:
    packages = dict.fromkeys(f'"{LIBRARIES[name]}"' for name in missing)  # each once
    be = "is" if len(missing) == 1 else "are"
    how = f"`pip install {' '.join(packages)}`"
    return f"mxnet-cu112 needs {', '.join(missing)}, which {be} missing: {how}."
