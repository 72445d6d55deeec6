"""What else the machine did during a round: other programs, the host that lends the processors, the clock.

The share that went elsewhere is what all processors worked, less what mxdp's own processes did, over all that they
could have worked. The counters go in steps of 10 ms. Where the process may use a part of the machine only (a container
with a quota), the counters say nothing about that part, and the share is unknown.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

import psutil

from mxdp import process

BUSY = 0.1
"""A round is disturbed if a larger share of the processors' time went elsewhere."""


class _Counters(NamedTuple):
    clock: float
    idle: float
    stolen: float
    own: float
    page_faults: int


class Watch:
    """Reads the machine's counters after each round. ``rounds`` has a list for each number, one entry a round:
    ``elsewhere`` and ``stolen`` as shares (None: unknown), ``page_faults`` of our processes, and ``mhz``."""

    def __init__(self) -> None:
        self.rounds: Dict[str, List[Any]] = {"elsewhere": [], "stolen": [], "page_faults": [], "mhz": []}
        self._before = _read()

    def restart(self) -> None:
        """A round begins now."""
        self._before = _read()

    def round(self) -> None:
        """A round has ended; the next begins now."""
        before, now = self._before, _read()
        processors = psutil.cpu_count() or 1
        most = processors * (now.clock - before.clock)
        known = most > 0 and process.cores() >= processors and not _quota()
        elsewhere = most - (now.idle - before.idle) - (now.own - before.own)
        stolen = now.stolen - before.stolen
        self.rounds["elsewhere"].append(round(min(1.0, max(0.0, elsewhere / most)), 4) if known else None)
        self.rounds["stolen"].append(round(stolen / most, 4) if known else None)
        self.rounds["page_faults"].append(now.page_faults - before.page_faults)
        self.rounds["mhz"].append(_mhz())
        self._before = now


def _read() -> _Counters:
    times = psutil.cpu_times()
    own, faults = 0.0, 0
    me = psutil.Process()
    for each in [me, *me.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):  # it has just ended
            own += sum(each.cpu_times()[:4])  # with those of its children that have ended
            faults += _page_faults(each.pid)
    idle = times.idle + getattr(times, "iowait", 0.0)
    return _Counters(time.monotonic(), idle, getattr(times, "steal", 0.0), own, faults)


def _page_faults(pid: int) -> int:
    """Of a process, so far; 0 where the system does not tell. psutil does not read them."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return int(fields[7]) + int(fields[9])
    return 0


def _quota() -> bool:
    """Does this container get a part of the processors' time only?"""
    with contextlib.suppress(OSError):
        return not Path("/sys/fs/cgroup/cpu.max").read_text().startswith("max")
    return False


def _mhz() -> Optional[float]:
    with contextlib.suppress(Exception):  # some systems have no such file, and psutil raises what it met
        return round(psutil.cpu_freq().current) or None
    return None


def disturbed(rounds: Mapping[str, List[Any]]) -> List[bool]:
    """Which rounds were disturbed."""
    return [(share or 0.0) > BUSY for share in rounds.get("elsewhere", ())]


def elsewhere(rounds: Mapping[str, List[Any]]) -> Optional[float]:
    """The share of the processors' time that went elsewhere, the median of all rounds, if most of them were disturbed;
    otherwise None."""
    marks = disturbed(rounds)
    if sum(marks) * 2 <= len(marks):
        return None
    return float(statistics.median(share for share in rounds["elsewhere"] if share is not None))


def now(seconds: float = 0.5) -> str:
    """How busy the machine is without us, in a sentence; takes ``seconds``."""
    share = psutil.cpu_percent(seconds) / 100
    text = f"This machine's {psutil.cpu_count()} processors are {share:.0%} busy with other work"
    return f"{text}: times will be disturbed." if share > BUSY else f"{text}."
