"""What Linux says of this machine's processor, and the kernels that MXNet's OpenBLAS should take for it."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path
from typing import Dict

CPUINFO = Path("/proc/cpuinfo")
CORETYPE = "OPENBLAS_CORETYPE"
"""The variable by which OpenBLAS is told whose kernels to take."""
KNOWN_BY_AMD = 25
"""The newest family of AMD's processors that MXNet's OpenBLAS knows: Zen 3 and 4."""
AVX512 = {"avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl"}


def cpuinfo(name: str) -> str:
    """The first processor's value of that name; empty if there is none, or no such file."""
    try:
        with CPUINFO.open(encoding="utf-8", errors="replace") as lines:
            # The file of a machine with many processors takes Linux long to write.
            first = "".join(takewhile(str.strip, lines))
    except OSError:
        return ""
    found = re.search(rf"^{name}\s*:\s*(.+)$", first, re.M)
    return found[1].strip() if found else ""


def kernels() -> Dict[str, str]:
    """The variable by which MXNet's OpenBLAS takes the kernels that this processor can run; nothing where it finds them
    by itself. It is 0.3.13, of 2020, and of Intel's processors since then (Rocket Lake, Alder Lake, Sapphire Rapids) it
    knows none: it takes kernels of 2004 (source: its driver/others/dynamic.c)."""
    vendor = cpuinfo("vendor_id")
    intel = vendor == "GenuineIntel"
    new_amd = vendor == "AuthenticAMD" and int(cpuinfo("cpu family") or 0) > KNOWN_BY_AMD
    flags = {*cpuinfo("flags").split()}
    if not (intel or new_amd) or not flags >= {"avx2", "fma"}:
        return {}
    # MXNet's was built without SkylakeX and takes Haswell in its place. A child's NumPy has a newer one, with both.
    return {CORETYPE: "SkylakeX" if flags >= AVX512 else "Haswell"}
