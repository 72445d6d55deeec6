"""Two network namespaces with names of their own stand in for two hosts; MPI's messages go over TCP."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mxdp.experiments.lab import Skipped
from mxdp.experiments.many_processes import hosts


@pytest.mark.parametrize("broken", ["body", ("netns", "add"), ("link", "add"), ("netns", "del"), "write_text"])
def test_namespaces_are_gone_whatever_happens(tmp_path, monkeypatch, broken):
    """In the body, where they are made or deleted, or where a file is written: the fixture nothing_left looks."""

    def ip(*words, real=hosts._ip):
        done = real(*words)
        if words[:2] == broken:
            raise subprocess.TimeoutExpired("ip", 30)
        return done

    monkeypatch.setattr(hosts, "_ip", ip)
    if broken == "write_text":
        monkeypatch.setattr(Path, "write_text", lambda *_: 1 // 0)
    try:
        with pytest.raises((ZeroDivisionError, subprocess.TimeoutExpired)), hosts.two_hosts(tmp_path):
            raise ZeroDivisionError
    except Skipped as reason:
        pytest.skip(str(reason))
