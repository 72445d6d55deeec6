"""Two network namespaces with names of their own stand in for two hosts; MPI's messages go over TCP."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import mxdp
from mxdp.experiments.lab import Skipped
from mxdp.experiments.many_processes import hosts as measured
from mxdp.experiments.many_processes.hosts import two_hosts

MPIEXEC = Path(sys.executable).with_name("mpiexec")
TRAINING = """
import socket, sys, zlib, mxdp
world = mxdp.world()
data = mxdp.load("synthetic").take(100, 50)
history = mxdp.train(1, 20, 0.3, 2, kind="cpu", data=data, report=lambda line: None, world=world)
bits = [zlib.crc32(param.asnumpy()) for param in history.device_params[0]]
print(world.rank, socket.gethostname(), bits, flush=True)
"""


@pytest.fixture
def hosts(tmp_path):
    if not MPIEXEC.exists():
        pytest.skip("no mpiexec beside this Python: pip install mpi4py mpich")
    try:
        with two_hosts(tmp_path) as both:
            yield both
    except Skipped as reason:
        pytest.skip(str(reason))


def test_training_on_two_hosts_has_the_bits_of_two_devices_of_one_process(hosts):
    launch = [*hosts.inside, sys.executable, "-m", "mxdp.launch", "-n", "2", *hosts.options, "--"]
    environ = {**os.environ, **hosts.environ}
    command = [*launch, sys.executable, "-c", TRAINING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    data = mxdp.load("synthetic").take(100, 50)
    two = mxdp.train(2, 20, 0.3, 2, kind="cpu", data=data, report=lambda line: None)
    bits = [zlib.crc32(param.asnumpy()) for param in two.device_params[0]]
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] {rank} {hosts.names[rank]} {bits}" for rank in (0, 1)]


@pytest.mark.parametrize("broken", ["body", ("netns", "add"), ("link", "add"), ("netns", "del"), "write_text"])
def test_namespaces_are_gone_whatever_happens(tmp_path, monkeypatch, broken):
    """In the body, where they are made or deleted, or where a file is written."""
    made = []

    def ip(*words, real=measured._ip):
        made.extend(words[2:] if words[:2] == ("netns", "add") else [])
        done = real(*words)
        if words[:2] == broken:
            raise subprocess.TimeoutExpired("ip", 30)
        return done

    def fail(*arguments):
        raise OSError("no room")

    monkeypatch.setattr(measured, "_ip", ip)
    if broken == "write_text":
        monkeypatch.setattr(Path, "write_text", fail)
    errors = (ZeroDivisionError, OSError, subprocess.TimeoutExpired, Skipped)
    with pytest.raises(errors) as raised, two_hosts(tmp_path):
        raise ZeroDivisionError
    if raised.type is Skipped:
        pytest.skip(str(raised.value))
    assert made
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=30).stdout
    assert not [name for name in made if name in listed]
