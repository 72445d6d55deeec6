"""Two network namespaces with names of their own stand in for two hosts; MPI's messages go over TCP."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MPIEXEC = Path(sys.executable).with_name("mpiexec")
NAMES = ("mxdp-a", "mxdp-b")
ADDRESSES = ("10.213.77.1", "10.213.77.2")
SHELL = """#!/bin/sh
# In place of ssh: its options, the host, the command.
while [ "${1#-}" != "$1" ]; do shift; done
case $1 in %s) name=%s ;; *) name=%s ;; esac
shift
exec ip netns exec $name unshare --uts sh -c "hostname $name; exec $*"
"""
TRAINING = """
import socket, sys, zlib, mxdp
world = mxdp.world()
data = mxdp.load("synthetic").take(200, 50)
history = mxdp.train(1, 20, 0.3, 2, kind="cpu", data=data, report=lambda line: None, world=world)
bits = [zlib.crc32(param.asnumpy()) for param in history.device_params[0]]
print(world.rank, socket.gethostname(), bits, flush=True)
"""


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30)


@pytest.fixture
def hosts(tmp_path):
    """A script in place of ssh, and the file of hosts."""
    if not MPIEXEC.exists():
        pytest.skip('no mpiexec beside this Python: pip install "mxdp[mpi]"')
    try:
        made = [ip("netns", "add", name) for name in NAMES]
    except OSError as error:
        pytest.skip(f"there is no `ip`: {error}")
    try:
        if any(each.returncode for each in made):
            pytest.skip(f"no network namespaces can be made here (root can): {made[0].stderr.strip()}")
        ip("link", "add", "mxdp0", "netns", NAMES[0], "type", "veth", "peer", "name", "mxdp0", "netns", NAMES[1])
        for name, address in zip(NAMES, ADDRESSES):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "mxdp0")
            for device in ("lo", "mxdp0"):
                ip("-n", name, "link", "set", device, "up")
        shell, file = tmp_path / "shell", tmp_path / "hosts"
        shell.write_text(SHELL % (ADDRESSES[0], *NAMES))
        shell.chmod(0o755)
        file.write_text("\n".join(ADDRESSES))
        yield shell, file
    finally:
        for name in NAMES:
            ip("netns", "del", name)


def test_training_on_two_hosts_equals_two_processes_on_one(hosts, tmp_path):
    shell, file = hosts
    script = tmp_path / "training.py"
    script.write_text(TRAINING)
    launch = [sys.executable, "-m", "mxdp.launch", "-n", "2"]
    far = ["--hosts", file, "--interface", "mxdp0", f"--mpiexec=-ppn 1 -launcher ssh -launcher-exec {shell}"]

    def lines(*command, **environment):
        environ = {**os.environ, **environment}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environ)
        assert done.returncode == 0, done.stdout + done.stderr
        return [line.split(maxsplit=3) for line in sorted(done.stdout.splitlines())]

    inside = ["ip", "netns", "exec", NAMES[0], "unshare", "--uts", "sh", "-c", f'hostname {NAMES[0]}; exec "$@"', "sh"]
    ranks = lines(*inside, *launch, *far, "--", sys.executable, script, UCX_TLS="tcp,self")
    assert [line[:3] for line in ranks] == [["[0]", "0", NAMES[0]], ["[1]", "1", NAMES[1]]]
    near = lines(*launch, "--", sys.executable, script)
    assert [line[3] for line in ranks] == [line[3] for line in near]
    assert ranks[0][3] == ranks[1][3]
