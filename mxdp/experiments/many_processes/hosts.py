"""Two network namespaces of this machine that stand in for two hosts: names, addresses and a cable of their own.

Linux with ``ip``, and root, can make them. MPI's messages between them go over TCP.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Dict, Iterator, List, NamedTuple, Sequence

import psutil

from mxdp.errors import MxdpError
from mxdp.experiments.lab import Skipped

ADDRESSES = ("10.213.77.1", "10.213.77.2")
CABLE = "mxdp0"
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
    """Two hosts, gone at the end. Their files are in ``folder``.

    Raises:
        Skipped: they can't be made here.
    """
    pair = f"mxdp-{os.getpid()}-{token_hex(3)}"  # a process may need several
    names = [pair + letter for letter in "ab"]
    try:
        try:
            _remove_left_behind()
            made = [_ip("netns", "add", name) for name in names]
        except OSError as error:
            raise Skipped(f"there is no `ip` to make network namespaces: {error}") from error
        if any(each.returncode for each in made):
            raise Skipped(f"no network namespaces can be made here (root can): {made[0].stderr.strip()}")
        _ip("link", "add", CABLE, "netns", names[0], "type", "veth", "peer", "name", CABLE, "netns", names[1])
        for name, address in zip(names, ADDRESSES):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", CABLE)
            for device in ("lo", CABLE):
                _ip("-n", name, "link", "set", device, "up")
        _wait_for_cable(names)
        shell, file = folder / "shell", folder / "hosts"
        shell.write_text(SHELL % (ADDRESSES[0], *names))
        shell.chmod(0o755)
        file.write_text("\n".join(ADDRESSES))
        inside = ["ip", "netns", "exec", names[0], "unshare", "--uts", "sh", "-c"]
        inside += [f'hostname {names[0]}; exec "$@"', "sh"]
        options = ["--hosts", str(file), "--interface", CABLE]
        options += [f"--mpiexec=-ppn 1 -launcher ssh -launcher-exec {shell}"]
        yield Hosts(names, inside, options, {**os.environ, "UCX_TLS": "tcp,self"})
    finally:
        for name in names:
            with suppress(OSError, subprocess.TimeoutExpired):
                _ip("netns", "del", name)


def _remove_left_behind() -> None:
    """A process that was killed could not remove its hosts."""
    for name, pid in re.findall(r"^(mxdp-(\d+)-\w+)", _ip("netns", "list").stdout, re.MULTILINE):
        if not psutil.pid_exists(int(pid)):
            _ip("netns", "del", name)


def _wait_for_cable(names: Sequence[str], limit: float = 10.0) -> None:
    """Linux tells up to a second later that a cable is plugged in. MPI does not use one of which it was not told."""
    until = time.monotonic() + limit
    while any(" state UP " not in _ip("-n", name, "link", "show", CABLE).stdout for name in names):
        if time.monotonic() > until:
            raise MxdpError(f"the network interface {CABLE} of {' and '.join(names)} is not up within {limit:g} s")
        time.sleep(0.02)


def _ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30)
