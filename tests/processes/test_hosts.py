"""Two network namespaces with names of their own stand in for two hosts; MPI's messages go over TCP."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mxdp.experiments.lab import Skipped
from mxdp.experiments.many_processes import hosts as measured
from mxdp.experiments.many_processes.hosts import two_hosts


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
