"""Two network namespaces of this machine that stand in for two hosts: names, addresses and a cable of their own.

Linux with ``ip``, and root, can make them. MPI's messages between them go over TCP. The cable can be made slow. Linux's
``tc`` limits its rate. It can delay, too, with ``netem``, which the kernels of many virtual machines lack. So a thread
of this process is the cable then: each host's end is a TAP device, from which it reads frames that it later writes to
the other (source: Documentation/networking/tuntap.rst in Linux's sources).
"""

from __future__ import annotations

import fcntl
import os
import pickle
import re
import select
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Callable, Deque, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import psutil

from mxdp.errors import MxdpError
from mxdp.experiments.lab import Skipped
from mxdp.processes import World, world

ADDRESSES = ("10.213.77.1", "10.213.77.2")
CABLE = "mxdp0"
TUNSETIFF = 0x400454CA
TAP = 0x0002
NO_PREFIX = 0x1000
PLUGGED_IN = 10.0
"""Seconds until a cable must be up."""
FRAME = 9000
"""Bytes in a frame, as in fast networks: Python takes some 20 microseconds for each."""
# In place of ssh: its options, the host, the command.
SHELL = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
case $1 in %s) name=%s ;; *) name=%s ;; esac
shift
exec ip netns exec $name unshare --uts sh -c "hostname $name; exec $*"
"""


class Hosts(NamedTuple):
    """What a command on the first host begins with, the options by which ``mxdp.launch`` starts a rank on each, and
    the environment for both."""

    names: List[str]
    inside: List[str]
    options: List[str]
    environ: Dict[str, str]

    def cable(self, state: str) -> None:
        """Plug the second host in (``up``) or out (``down``). Plugged in, both can use the cable when this returns."""
        _ip("-n", self.names[1], "link", "set", CABLE, state)
        if state == "up":
            _wait_for_cable(self.names)


@contextmanager
def two_hosts(folder: Path) -> Iterator[Hosts]:
    """Two hosts, gone at the end. Their files are in ``folder``. Raises Skipped if they can't be made here."""
    pair = f"mxdp-{os.getpid()}-{token_hex(3)}"  # a process may need several
    names = [pair + letter for letter in "ab"]
    try:
        try:
            _remove_left_behind()
            made = [_ip("netns", "add", name) for name in names]
        except OSError as error:
            raise Skipped(f"there is no `ip` to make network namespaces: {error}") from error
        if any(done.returncode for done in made):
            raise Skipped(
                f"no network namespaces can be made here (root can): {made[0].stderr.strip()}"
            )
        first, second = names
        ends = [CABLE, "netns", first, "type", "veth", "peer", "name", CABLE, "netns", second]
        _ip("link", "add", *ends)
        for name, address in zip(names, ADDRESSES):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", CABLE)
            for device in ("lo", CABLE):
                _ip("-n", name, "link", "set", device, "up")
        _wait_for_cable(names)
        shell = folder / "shell"
        shell.write_text(SHELL % (ADDRESSES[0], first, second))
        shell.chmod(0o755)
        file = folder / "hosts"
        file.write_text("\n".join(ADDRESSES))
        named = f'hostname {first}; exec "$@"'
        inside = ["ip", "netns", "exec", first, "unshare", "--uts", "sh", "-c", named, "sh"]
        mpiexec = f"--mpiexec=-ppn 1 -launcher ssh -launcher-exec {shell}"
        options = ["--hosts", str(file), "--interface", CABLE, mpiexec]
        yield Hosts(names, inside, options, {**os.environ, "UCX_TLS": "tcp,self"})
    finally:
        for name in names:
            with suppress(OSError, subprocess.TimeoutExpired):
                _ip("netns", "del", name)


def launched(
    module: str,
    order: Any,
    ranks: int,
    rate: int = 0,
    delay: float = 0.0,
) -> List[Any]:
    """What each of ``ranks`` processes of ``module``, started by mxdp's launcher, has written. They are given a folder
    with the ``order``, and write ``rank.0``, ``rank.1`` and so on there; all are pickles. Each has a core: one that
    waits for the others polls MPI in a busy loop. With a ``rate`` two of them are on two hosts, whose cable is slow
    (:func:`slow_cable`); raises Skipped where there can't be such hosts."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mxdp-hosts-")))
        (folder / "order").write_bytes(pickle.dumps(order))
        command = [sys.executable, "-m", "mxdp.launch", "-n", str(ranks)]
        environ = dict(os.environ)
        if rate:
            hosts = stack.enter_context(two_hosts(folder))
            stack.enter_context(slow_cable(hosts, rate, delay))
            command = [*hosts.inside, *command, *hosts.options]
            environ = hosts.environ
        else:
            command.append("--mpiexec=-bind-to core")
        command += ["--", sys.executable, "-m", module, str(folder)]
        done = subprocess.run(command, env=environ, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise MxdpError(
                f"its processes ended with status {done.returncode}: {done.stderr[-500:]}"
            )
        return written(folder, ranks)


def answer(do: Callable[[Any, World], Any]) -> None:
    """In a process that :func:`launched` has started: do what is ordered, and write what came of it."""
    folder = Path(sys.argv[1])
    ranks = world()
    write(folder, ranks.rank, do(pickle.loads((folder / "order").read_bytes()), ranks))


def write(folder: Path, rank: int, result: Any) -> None:
    """Leave what a process has found in ``folder``, whole or not at all."""
    part = folder / f"{rank}.part"
    part.write_bytes(pickle.dumps(result))
    part.rename(folder / f"rank.{rank}")


def written(folder: Path, ranks: int) -> List[Any]:
    """What all ``ranks`` processes have left by :func:`write`."""
    return [pickle.loads((folder / f"rank.{rank}").read_bytes()) for rank in range(ranks)]


def _remove_left_behind() -> None:
    """Remove hosts of a process that was killed, and could not remove them."""
    listed = _ip("netns", "list").stdout
    for name, pid in re.findall(r"^(mxdp-(\d+)-\w+)", listed, re.MULTILINE):
        if not psutil.pid_exists(int(pid)):
            _ip("netns", "del", name)


def _wait_for_cable(names: Sequence[str]) -> None:
    """Linux tells up to a second later that a cable is plugged in. MPI does not use one of which it was not told."""
    until = time.monotonic() + PLUGGED_IN
    for name in names:
        while " state UP " not in _ip("-n", name, "link", "show", CABLE).stdout:
            if time.monotonic() > until:
                raise MxdpError(
                    f"the network interface {CABLE} of {' and '.join(names)} is not up within {PLUGGED_IN:g} s"
                )
            time.sleep(0.02)


@contextmanager
def slow_cable(hosts: Hosts, rate: int, delay: float) -> Iterator[None]:
    """Make the cable between ``hosts`` carry ``rate`` Mbit/s in each direction. With a ``delay`` in seconds, each frame
    arrives so much later. Raises Skipped if such a cable can't be made here."""
    with _late_cable(hosts, delay) if delay else nullcontext():
        for name in hosts.names:
            # What the cable lets through at once after a pause would hide a part of each sum behind the step.
            limit = ["rate", f"{rate}mbit", "burst", "16kb", "latency", "400ms"]
            queue = ["tc", "qdisc", "add", "dev", CABLE, "root", "tbf", *limit]
            _cable_ip("netns", "exec", name, *queue)
        yield


@contextmanager
def _late_cable(hosts: Hosts, delay: float) -> Iterator[None]:
    with ExitStack() as stack:
        ends = []
        made = []
        request = struct.pack("16sH22x", b"mxdp%d", TAP | NO_PREFIX)
        try:
            for _ in hosts.names:
                file = stack.enter_context(open("/dev/net/tun", "r+b", buffering=0))
                ends.append(file.fileno())
                made.append(fcntl.ioctl(ends[-1], TUNSETIFF, request))
        except OSError as error:
            raise Skipped(
                f"no cable that delays can be made here (root can, with /dev/net/tun): {error}"
            ) from error
        _cable_ip("-n", hosts.names[0], "link", "del", CABLE)
        for name, address, device in zip(hosts.names, ADDRESSES, made):
            end = device[:16].rstrip(b"\0").decode()
            _cable_ip("link", "set", end, "netns", name, "name", CABLE, "mtu", str(FRAME))
            _cable_ip("-n", name, "addr", "add", f"{address}/24", "dev", CABLE)
            _cable_ip("-n", name, "link", "set", CABLE, "up")
        pulled, pull = os.pipe()
        stack.callback(os.close, pulled)
        thread = threading.Thread(target=_carry, args=(ends, delay, pulled), daemon=True)
        thread.start()
        stack.callback(thread.join, 10.0)
        stack.callback(os.close, pull)
        yield


def _carry(ends: Sequence[int], delay: float, pulled: int) -> None:
    """Carry frames until ``pulled`` can be read, or an end is gone."""
    # All take equally long, so they arrive as they were sent.
    under_way: Deque[Tuple[float, int, bytes]] = deque()
    with suppress(OSError):
        while True:
            wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
            ready = select.select([*ends, pulled], [], [], wait)[0]
            if pulled in ready:
                return
            for end in ready:
                arrives = time.monotonic() + delay
                other = ends[1 - ends.index(end)]
                under_way.append((arrives, other, os.read(end, 1 << 16)))
            while under_way and under_way[0][0] <= time.monotonic():
                _, other, frame = under_way.popleft()
                os.write(other, frame)


def _cable_ip(*words: str) -> None:
    done = _ip(*words)
    if done.returncode:
        raise Skipped(
            f"no slow cable can be made here: `ip {' '.join(words)}` says: {done.stderr.strip()}"
        )


def _ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30)
