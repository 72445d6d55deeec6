"""Two network namespaces with names of their own stand in for two hosts; MPI's messages go over TCP."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mxdp.experiments.lab import Skipped
from mxdp.experiments.many_processes import hosts as measured
from mxdp.experiments.many_processes.hosts import two_hosts

MPIEXEC = Path(sys.executable).with_name("mpiexec")
TRAINING = """
import socket, sys, zlib, mxdp
world = mxdp.world()
data = mxdp.load("synthetic").take(200, 50)
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


def test_training_on_two_hosts_equals_two_processes_on_one(hosts, tmp_path):
    script = tmp_path / "training.py"
    script.write_text(TRAINING)
    launch = [sys.executable, "-m", "mxdp.launch", "-n", "2"]

    def lines(*command, **environment):
        environ = {**os.environ, **environment}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environ)
        assert done.returncode == 0, done.stdout + done.stderr
        return [line.split(maxsplit=3) for line in sorted(done.stdout.splitlines())]

    ranks = lines(*hosts.inside, *launch, *hosts.options, "--", sys.executable, script, **hosts.environ)
    assert [line[:3] for line in ranks] == [["[0]", "0", hosts.names[0]], ["[1]", "1", hosts.names[1]]]
    near = lines(*launch, "--", sys.executable, script)
    assert [line[3] for line in ranks] == [line[3] for line in near]
    assert ranks[0][3] == ranks[1][3]


def listed():
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=30).stdout


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
    assert not [name for name in made if name in listed()]
