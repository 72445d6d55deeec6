"""A cable between two hosts that is made slow: it has a rate, and what is sent may arrive later.

Linux's ``tc`` limits the rate. It can delay, too, with ``netem``, which the kernels of many virtual machines lack. So a
thread of this process is the cable then: each host's end is a TAP device, from which it reads frames that it later
writes to the other (source: Documentation/networking/tuntap.rst in Linux's sources).
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import threading
import time
from collections import deque
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Deque, Iterator, Sequence, Tuple

from mxdp.experiments.lab import Skipped
from mxdp.experiments.many_processes.hosts import ADDRESSES, CABLE, Hosts

TUNSETIFF, TAP, NO_PREFIX = 0x400454CA, 0x0002, 0x1000
FRAME = 9000
"""Bytes in a frame, as in fast networks: Python takes some 20 microseconds for each."""


@contextmanager
def slow_cable(hosts: Hosts, rate: int, delay: float) -> Iterator[None]:
    """Make the cable between ``hosts`` carry ``rate`` Mbit/s in each direction. With a ``delay`` in seconds, each frame
    arrives so much later.

    Raises:
        Skipped: such a cable can't be made here.
    """
    with _late_cable(hosts, delay) if delay else nullcontext():
        for name in hosts.names:
            # What the cable lets through at once after a pause would hide a part of each sum behind the step.
            limit = ["rate", f"{rate}mbit", "burst", "16kb", "latency", "400ms"]
            _ip("netns", "exec", name, "tc", "qdisc", "add", "dev", CABLE, "root", "tbf", *limit)
        yield


@contextmanager
def _late_cable(hosts: Hosts, delay: float) -> Iterator[None]:
    with ExitStack() as stack:
        ends = []
        try:
            for _ in hosts.names:
                ends.append(os.open("/dev/net/tun", os.O_RDWR))
                stack.callback(os.close, ends[-1])
            made = [fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", b"mxdp%d", TAP | NO_PREFIX)) for end in ends]
        except OSError as error:
            raise Skipped(f"no cable that delays can be made here (root can, with /dev/net/tun): {error}") from error
        _ip("-n", hosts.names[0], "link", "del", CABLE)
        for name, address, device in zip(hosts.names, ADDRESSES, made):
            _ip("link", "set", device[:16].rstrip(b"\0").decode(), "netns", name, "name", CABLE, "mtu", str(FRAME))
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", CABLE)
            _ip("-n", name, "link", "set", CABLE, "up")
        pulled, pull = os.pipe()
        stack.callback(os.close, pulled)
        thread = threading.Thread(target=_carry, args=(ends, delay, pulled), daemon=True)
        thread.start()
        stack.callback(thread.join, 10.0)
        stack.callback(os.close, pull)
        yield


def _carry(ends: Sequence[int], delay: float, pulled: int) -> None:
    """Until ``pulled`` can be read, or an end is gone."""
    under_way: Deque[Tuple[float, int, bytes]] = deque()  # all take equally long, so they arrive as they were sent
    with suppress(OSError):
        while True:
            wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
            ready = select.select([*ends, pulled], [], [], wait)[0]
            if pulled in ready:
                return
            for end in ready:
                under_way.append((time.monotonic() + delay, ends[1 - ends.index(end)], os.read(end, 1 << 16)))
            while under_way and under_way[0][0] <= time.monotonic():
                _, other, frame = under_way.popleft()
                os.write(other, frame)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise Skipped(f"no slow cable can be made here: `ip {' '.join(words)}` says: {done.stderr.strip()}")
