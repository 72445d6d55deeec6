"""Prepares this process for MXNet, before MXNet is imported. Only then do two CPU contexts work as two devices.

MXNet reads its environment variables once, when its library is loaded, and glibc's allocator is best tuned before the
first worker thread starts. Nothing here imports MXNet, so a command that does not compute stays fast. The user's own
settings are kept. ``MXDP_PREPARE=0`` switches all of this off, for comparisons with unchanged MXNet.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
import warnings
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Any, Dict, Iterable, List, Mapping, MutableMapping, Optional, Set, Tuple

from mxdp import processor

SETTINGS: Mapping[str, str] = {
    # All cpu(i) use these copies of the operators' temporary space one after the other: an operator waits for the
    # previous user of its copy. With MXNet's 4 copies, a second device waits for the first (source: src/resource.cc).
    # There should be more copies than one device's operators take before the next device gets one: 21 for ResNet-18.
    # More copies cost memory, because each keeps the largest size it ever had: with ResNet-18 about 12 MB.
    "MXNET_CPU_TEMP_COPY": "128",
    # One thread per device. With two, two devices that run a large np.dot at the same time hang forever in OpenBLAS.
    "OMP_NUM_THREADS": "1",
    # One worker per device: its operators run one after the other. This is MXNet's default, set to appear in records.
    "MXNET_CPU_WORKER_NTHREADS": "1",
    # Where MXNet's OpenBLAS does not know the processor, a large np.dot takes less than half of the time with this.
    **processor.kernels(),
}

MARK = "MXDP_PREPARED"
"""The variable with the names that :func:`prepare_process` set, by which a child process knows them from the user's."""

_WITHOUT = {
    "MXNET_CPU_TEMP_COPY": "CPU devices wait for each other",
    "OMP_NUM_THREADS": "two CPU devices that run a large np.dot may hang for ever",
    "OPENBLAS_CORETYPE": "a large np.dot may take more than twice as long",
}

# With fewer copies, the 50 products that the book's section queues on one device share copies with the next device's.
SMALL_TEMP_COPY = 100
MXNET_TEMP_COPY = 4

# For each option of mallopt(3): its number, the values to try, the user's variable, glibc's tunable.
#   MMAP_THRESHOLD, TRIM_THRESHOLD  The process keeps large blocks and does not return them to the system at each free.
#     glibc before 2.35 accepts at most 32 MiB, half of a heap. A refused value would leave 128 KiB, and fixed.
#   ARENA_MAX  Worker threads share the main heap. Their own heaps have 64 MB and shrink at each free. A LeNet step
#     (batch 256, one device) took 3,400 to 10,000 page faults and 84 to 98 ms; with one arena none, and 79 ms.
MALLOPT: Mapping[str, Tuple[int, Tuple[int, ...], str, str]] = {
    "M_MMAP_THRESHOLD": (
        -3,
        (1 << 30, 1 << 25),
        "MALLOC_MMAP_THRESHOLD_",
        "glibc.malloc.mmap_threshold",
    ),
    "M_TRIM_THRESHOLD": (-1, (2**31 - 1,), "MALLOC_TRIM_THRESHOLD_", "glibc.malloc.trim_threshold"),
    "M_ARENA_MAX": (-8, (1,), "MALLOC_ARENA_MAX", "glibc.malloc.arena_max"),
}

_M_TOP_PAD = -2
_MADV_HUGEPAGE = 14
_HUGE = 2 << 20

_IN_FORCE = re.compile(
    r"(MXNET|OMP|GOMP|OPENBLAS|KMP|MALLOC|MXDP)_|(GLIBC_TUNABLES|CUDA_VISIBLE_DEVICES)$"
)


class MxdpWarning(UserWarning):
    """A setting that is known to make devices wait for each other, or to hang."""


_issued: Set[str] = set()


@dataclass(frozen=True)
class Prepared:
    """What :func:`prepare_process` did: the variables that it ``set``, here or in a parent process; those ``kept``, the
    user's own; ``warnings``, for ``import mxdp``; ``malloc``, as :func:`tune_malloc` returns it."""

    set: Dict[str, str]
    kept: Dict[str, str]
    warnings: List[str]
    malloc: Dict[str, bool]


def prepare_process(
    environ: MutableMapping[str, str] = os.environ,
    modules: Mapping[str, Any] = sys.modules,
    libc: Any = None,
) -> Prepared:
    """Set in ``environ``, in place, what MXNet needs and the user has not set, and tune this process's allocator.

    May be called again. An empty variable counts as not set, as for MXNet. If ``modules`` has MXNet already, it is too
    late for variables: none is set, and a warning says what to do. With ``MXDP_PREPARE=0`` in ``environ`` nothing is
    done: a child with this variable and the environment of :func:`unprepared` runs unchanged MXNet.
    """
    if environ.get("MXDP_PREPARE") == "0":
        return Prepared({}, {}, [], {})
    missing = [name for name in SETTINGS if not environ.get(name)]
    late = "mxnet" in modules and bool(missing)
    if missing and not late:
        ours = _ours(environ) + missing
        environ.update({name: SETTINGS[name] for name in missing})
        environ[MARK] = ",".join(ours)
    done = {name: environ[name] for name in _ours(environ)}
    watched = [*SETTINGS, *(variable for _, _, variable, _ in MALLOPT.values())]
    watched += ["GLIBC_TUNABLES", "MXNET_ENGINE_TYPE"]
    kept = {name: environ[name] for name in watched if environ.get(name) and name not in done}
    late_warnings = _late_warnings(missing) if late else []
    return Prepared(done, kept, late_warnings + _value_warnings(kept), tune_malloc(environ, libc))


def warn(texts: Iterable[str], stacklevel: int = 2) -> None:
    """Issue each text as an :class:`MxdpWarning`, once a process: not again in every cell of a notebook."""
    for text in texts:
        if text not in _issued:
            _issued.add(text)
            warnings.warn(text, MxdpWarning, stacklevel=stacklevel + 1)


def unprepared(environ: Mapping[str, str] = os.environ) -> Dict[str, str]:
    """A copy of ``environ`` without what :func:`prepare_process` set: for a child process with other settings."""
    ours = {MARK, *_ours(environ)}
    return {name: value for name, value in environ.items() if name not in ours}


def tune_malloc(environ: Mapping[str, str] = os.environ, libc: Any = None) -> Dict[str, bool]:
    """Make this process keep freed memory (see :data:`MALLOPT`), in huge pages where Linux has them. Returns for each
    option whether it was set: not if the user has, by a ``MALLOC_*`` variable or ``GLIBC_TUNABLES``, if the allocator
    or Linux refused, or if this C library has no ``mallopt`` (macOS, musl)."""
    libc = libc or _libc()
    mallopt = getattr(libc, "mallopt", None)
    tunables = {part.partition("=")[0] for part in environ.get("GLIBC_TUNABLES", "").split(":")}
    done = {}
    for name, (option, values, variable, tunable) in MALLOPT.items():
        by_user = bool(environ.get(variable)) or tunable in tunables
        done[name] = False
        if mallopt is not None and not by_user:
            done[name] = any(mallopt(option, value) == 1 for value in values)
    by_tunable = tunables & {"glibc.malloc.top_pad", "glibc.malloc.hugetlb"}
    by_user = bool(environ.get("MALLOC_TOP_PAD_") or by_tunable)
    done["MADV_HUGEPAGE"] = all(done.values()) and not by_user and _huge_pages(libc)
    return done


def concurrency_warnings(environ: Mapping[str, str] = os.environ) -> List[str]:
    """A sentence for each setting that makes two or more CPU devices wait or hang. None with ``MXDP_PREPARE=0``."""
    if environ.get("MXDP_PREPARE") == "0":
        return []
    sentences = []
    copies = _number(environ.get("MXNET_CPU_TEMP_COPY") or str(MXNET_TEMP_COPY))
    if copies is not None and 0 < copies < SMALL_TEMP_COPY:
        sentences.append(
            f"CPU devices wait for each other, since they share {copies} copies of temporary space"
            " (MXNET_CPU_TEMP_COPY): unset it before Python starts (mxdp then takes"
            f" {SETTINGS['MXNET_CPU_TEMP_COPY']}), or set at least {SMALL_TEMP_COPY}."
        )
    threads = _number(environ.get("OMP_NUM_THREADS") or str(_default_threads()))
    if threads is not None and threads >= 2:
        sentences.append(
            f"MXNet uses {threads} OpenMP threads (OMP_NUM_THREADS), and with two or more, two CPU devices that run a"
            " large np.dot at the same time hang for ever in OpenBLAS (exec_blas): unset it before Python starts (mxdp"
            " then takes 1), or use npx.fully_connected."
        )
    pinned = pinning(environ)
    if pinned:
        sentences.append(
            f"All CPU devices share one core, on which OpenMP keeps MXNet's threads ({pinned}): unset it before Python"
            " starts."
        )
    return sentences


def pinning(environ: Mapping[str, str] = os.environ) -> str:
    """The variables by which OpenMP keeps MXNet's threads on one core, from its first use on; nothing if none does."""
    places = environ.get("OMP_PLACES") or "cores"
    one_core = re.match(r"cores|threads|\{\d+(:1)?\}", places)
    if environ.get("OMP_PROC_BIND", "").lower() == "false" or not one_core:
        return ""
    names = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY")
    return ", ".join(f"{name}={environ[name]}" for name in names if environ.get(name))


def describe(environ: Mapping[str, str] = os.environ) -> Dict[str, str]:
    """The variables now set that change how MXNet and its libraries behave, by name; for environment records."""
    return {name: environ[name] for name in sorted(environ) if _IN_FORCE.match(name)}


def installed_backends() -> Dict[str, str]:
    """The installed MXNet distributions and their versions (``{"mxnet": "1.9.1"}``). Doesn't import MXNet."""
    versions = {}
    for distribution in metadata.distributions():
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
        if re.fullmatch(r"mxnet(-cu\d+)?", name):
            versions[name] = distribution.version
    return versions


def install_problem(backends: Optional[Mapping[str, str]] = None) -> Optional[str]:
    """One sentence that says why MXNet can't be imported here, with the cure; None if it can be. ``backends``: those of
    :func:`installed_backends`, if known: to find them reads a file of every installed distribution."""
    backends = installed_backends() if backends is None else backends
    if not backends and find_spec("mxnet") is None:  # built from source it is not a distribution
        return _not_installed()
    if len(backends) > 1:
        names = sorted(backends)
        return (
            f"{' and '.join(names)} are both installed and overwrite each other's files:"
            f" `pip uninstall -y {' '.join(names)}`, then install one of them again."
        )
    try:
        metadata.version("numpy")
    except metadata.PackageNotFoundError:
        return "NumPy is not installed, and MXNet needs it: `pip install numpy`."
    return None


def _not_installed() -> str:
    major, minor = sys.version_info[:2]
    if (major, minor) < (3, 13):
        return (
            'MXNet is not installed: in the clone of mxdp, `pip install ".[cpu]"`, or `pip install ".[cu112]"` for'
            " NVIDIA GPUs, or use `make run`, which installs what it needs."
        )
    return (
        f"MXNet is not installed, and its requirements exclude every NumPy for Python {major}.{minor}: install it"
        " without them, by `pip install --no-deps mxnet==1.9.1` (for NVIDIA GPUs mxnet-cu112==1.9.1) or `make run`."
    )


def _ours(environ: Mapping[str, str]) -> List[str]:
    """Names of the variables that still have the value from :func:`prepare_process`, here or in a parent process."""
    marked = environ.get(MARK, "").split(",")
    return [name for name in SETTINGS if name in marked and environ.get(name) == SETTINGS[name]]


def _late_warnings(missing: List[str]) -> List[str]:
    lost = [effect for name, effect in _WITHOUT.items() if name in missing]
    if not lost:
        return []
    exports = " ".join(f"{name}={SETTINGS[name]}" for name in missing)
    return [
        f"MXNet was imported before mxdp and no longer takes {exports}, so {', and '.join(lost)}. Restart the kernel"
        " (or Python), and import mxdp before MXNet."
    ]


def _value_warnings(kept: Mapping[str, str]) -> List[str]:
    sentences = []
    for name, value in kept.items():
        number = _number(value)
        if SETTINGS.get(name, "").isdigit() and (number is None or number < 1):
            sentences.append(
                f"{name} is {value!r}, not a whole number of at least 1, and MXNet may stop or hang: correct it or"
                " unset it."
            )
        elif name.startswith("MALLOC_") and number is None:
            sentences.append(f"{name} is {value!r}, not a whole number: correct it or unset it.")
    if kept.get("MXNET_ENGINE_TYPE") == "NaiveEngine":
        sentences.append(
            "MXNET_ENGINE_TYPE is NaiveEngine, which runs each operator alone, so no two devices ever work at the same"
            " time: unset it before Python starts."
        )
    return sentences


def cores() -> int:
    """How many processors this process may use (by its affinity mask, where the system has one)."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


def _number(text: str) -> Optional[int]:
    return int(text) if re.fullmatch(r"\s*[+-]?\d+\s*", text, re.ASCII) else None


def _default_threads() -> int:
    """MXNet's default number of OpenMP threads (source: src/engine/openmp.cc)."""
    return cores() // 2 if platform.machine().lower() in ("x86_64", "amd64") else cores()


def _libc() -> Any:
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):  # TypeError: Windows has no "this process"
        return None


def _huge_pages(libc: Any) -> bool:
    """Let the heap grow by a GiB, and ask for pages of 2 MiB there. With them a step on one device is some 5 % shorter.
    What is never touched takes no memory; a process that trains LeNet takes 50 to 100 MB more."""
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.sbrk.restype = ctypes.c_void_p
    libc.sbrk.argtypes = [ctypes.c_ssize_t]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.mallopt(_M_TOP_PAD, 1 << 30)
    # Less than any M_MMAP_THRESHOLD above, and more than the heap has left.
    block = libc.malloc(31 << 20)
    libc.mallopt(_M_TOP_PAD, 128 << 10)  # glibc's own
    start = -(-(block or 0) // _HUGE) * _HUGE  # rounded up
    length = libc.sbrk(0) - start
    accepted = bool(block) and length > 0 and libc.madvise(start, length, _MADV_HUGEPAGE) == 0
    libc.free(block)
    return accepted
