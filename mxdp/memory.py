"""Checks whether a job fits into memory, before it starts: a job that does not fit crashes.

The book's notebook for "Automatic Parallelism" crashed like this: it makes 50 results of 64 MB on a card of 4 GB. So::

    check_fits(50 * 64_000_000, device)                        raises MemoryShortage, with both numbers
    for start, stop in slices(50, 64_000_000, available_bytes(device)):
        ...                                                    compute these results, and wait before the next slice

Python runs ahead of MXNet: a slice has ended only after a wait. Make the arrays that are kept before the first slice:
later they would lie in the holes that a slice has left, and the next slice would take more room.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import List, Optional, Tuple

import psutil

from mxdp.backend import Device, mx
from mxdp.errors import MemoryShortage, plural
from mxdp.plans.partition import bounds

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
VERSION_2 = ("memory.max", "memory.current", "inactive_file")
"""The files of a cgroup's limit and of what it uses, and what is counted there of cached files."""
UNLIMITED = 1 << 60
"""Limits from here on mean "no limit", which cgroup v1 writes as a number near 2**63."""
SHARED_MEMORY = "/dev/shm"
RANK_BYTES = 1_064_960
"""What each rank of MPICH 5.0 takes of the shared memory."""


def need_shared_memory() -> None:
    """Raise a MemoryShortage if MPI would find too little shared memory for its ranks on this host: the system would
    end this process (SIGBUS)."""
    ranks = int(os.environ.get("MPI_LOCALNRANKS", 1))  # as MPICH's mpiexec says
    try:
        shared = psutil.disk_usage(SHARED_MEMORY)
    except OSError:  # macOS has none
        return
    if shared.total < ranks * RANK_BYTES or shared.free < RANK_BYTES:
        raise MemoryShortage(
            f"{SHARED_MEMORY} has {shared.free >> 10} of {shared.total >> 10} KiB left, and MPI needs"
            f" {ranks * RANK_BYTES >> 10} for {plural(ranks, 'rank')}: remove old files there, or start a container"
            " with more, as by --shm-size=1g"
        )


def available_bytes(device: Device) -> int:
    """Bytes that a new job can have on ``device`` now, without swapping. On a GPU by the driver, without what MXNet's
    pool keeps for its next arrays. CPU devices share the system's available memory, or the rest of this container's
    limit (cgroup v1 or v2) if that is less. Other jobs may take them a moment later."""
    if device.device_type == "gpu":
        free, _ = mx.context.gpu_memory_info(device.device_id)
        return int(free)
    left = cgroup_bytes()
    system = int(psutil.virtual_memory().available)
    return system if left is None else min(system, left)


def check_fits(needed: int, device: Device, limit: Optional[int] = None) -> None:
    """Raise a MemoryShortage unless ``device`` has ``needed`` bytes for a job that may take at most ``limit``."""
    available = available_bytes(device)
    room = available
    has = f"{device} has {in_words(available)} left"
    if limit is not None and limit < available:
        room = limit
        has = f"may take {in_words(limit)} of the {in_words(available)} that {device} has left"
    if needed > room:
        raise MemoryShortage(
            f"this job needs {in_words(needed)} and {has}, so it was not started: cut it into slices that fit"
            " (mxdp.memory.slices), or make it smaller."
        )


def slices(items: int, item_bytes: int, available: int) -> List[Tuple[int, int]]:
    """(start, stop) of slices of ``items`` results of ``item_bytes`` each: as few as possible, of nearly equal length,
    each within ``available`` bytes. Raises a MemoryShortage if no item fits, a ValueError for less than 1 item or byte.

    >>> slices(50, 64, 1000)
    [(0, 13), (13, 26), (26, 38), (38, 50)]
    """
    if items < 1 or item_bytes < 1:
        raise ValueError(
            f"slices takes at least 1 item of at least 1 byte, not {items} of {item_bytes}"
        )
    at_once = available // item_bytes
    if at_once < 1:
        raise MemoryShortage(
            f"one slice needs {in_words(item_bytes)} at least and {in_words(max(available, 0))} are left for it: make"
            " the single results smaller, or free memory."
        )
    return bounds(items, -(-items // at_once))


UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def in_words(nbytes: int) -> str:
    """Bytes for a reader, in decimal units.

    >>> in_words(512), in_words(65_536), in_words(3_200_000_000)
    ('512 B', '65.5 kB', '3.20 GB')
    """
    for unit, name in UNITS:
        if nbytes >= 100 * unit:
            return f"{nbytes / unit:.0f} {name}"
        if nbytes >= 10 * unit:
            return f"{nbytes / unit:.1f} {name}"
        if nbytes >= unit:
            return f"{nbytes / unit:.2f} {name}"
    return f"{nbytes} B"


def cgroup_bytes(file: Path = OWN_CGROUPS, root: Path = CGROUPS) -> Optional[int]:
    """Bytes left of the memory limits of this process's container and of all groups above; None without a limit. Unused
    cached files count as free: the system drops them when it needs memory."""
    left: List[Optional[int]] = []
    for line in _text(file).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base = root
            files = VERSION_2
        elif "memory" in controllers.split(","):
            base = root / "memory"
            files = VERSION_1
        else:
            continue
        # Inside a container the path may be the host's, and the mount point the container's own group.
        group = base / path.strip("/")
        left.append(_left(group, *files))
        while group != base:
            group = group.parent
            left.append(_left(group, *files))
    return min((nbytes for nbytes in left if nbytes is not None), default=None)


def _left(group: Path, limit: str, usage: str, cached: str) -> Optional[int]:
    """Bytes left of one group's limit, whose files have these names; None without a limit."""
    most = _text(group / limit).strip()
    used = _text(group / usage).strip()
    if not (most.isdigit() and used.isdigit()) or int(most) >= UNLIMITED:
        return None
    counts = dict(line.split() for line in _text(group / "memory.stat").splitlines())
    taken = max(0, int(used) - int(counts.get(cached, 0)))
    return max(0, int(most) - taken)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
