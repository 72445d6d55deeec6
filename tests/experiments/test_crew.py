"""Ranks that obey, fail, end or say nothing. None of them imports MXNet."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from mxdp.errors import MxdpError
from mxdp.experiments.measure import crew

RANKS = """
import os, time

class Obeys:
    def __init__(self, order):
        self.number = int(os.environ["RANK"])
        self.order = order
        if order.get("ends") == self.number:
            raise SystemExit(3)
        if "hangs" in order and self.number == 2 and not os.path.exists(order["hangs"]):
            open(order["hangs"], "w").close()
            time.sleep(60)

    def place(self, word):
        time.sleep(0.1 * (2 - self.number))
        return word, self.number, self.order["size"]

    def fail(self):
        if self.number == 1:
            raise ValueError("broken")
        time.sleep(60)

    def end(self):
        if self.number == 1:
            os._exit(1)
        time.sleep(60)
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    (tmp_path / "some_ranks.py").write_text(RANKS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))))
    return lambda **order: crew.Crew("alone", 3, SimpleNamespace(__module__="some_ranks", __qualname__="Obeys"), order)


def test_answers_come_in_the_order_of_ranks(start):
    with start() as ranks:
        assert ranks.ask("place", "x") == [("x", 0, 3), ("x", 1, 3), ("x", 2, 3)]
        assert len(set(ranks.pids)) == 3


def test_between_two_commands_ranks_are_stopped(start):
    with start() as ranks:
        for _ in range(2):
            ranks.ask("place", "x")
            until = time.monotonic() + 60
            while {psutil.Process(pid).status() for pid in ranks.pids} != {psutil.STATUS_STOPPED}:
                assert time.monotonic() < until
                time.sleep(0.01)
        ranks.begin("place", "x")
        assert [rank.recv() for rank in ranks.ranks] == [(("x", number, 3), False) for number in range(3)]


def test_a_rank_that_ended_between_two_commands_is_named(start):
    with start() as ranks:
        ranks.ask("place", "x")
        ranks._processes[2].kill()
        ranks._processes[2].wait()
        with pytest.raises(MxdpError, match="rank 2 has ended before it was to place"):
            ranks.ask("place", "x")


@pytest.mark.parametrize(("command", "words"), [("fail", "rank 1: ValueError: broken"), ("end", "rank 1 has ended")])
def test_a_rank_that_fails_or_ends_is_named_at_once(start, command, words):
    started = time.monotonic()
    with start() as ranks:
        with pytest.raises(MxdpError, match=words):
            ranks.ask(command)
        assert time.monotonic() - started < 60
        pids = ranks.pids
        for process in ranks._processes:
            process.kill()
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_ranks_that_say_nothing_are_not_waited_for_for_ever(start):
    with start() as ranks:
        with pytest.raises(MxdpError, match=r"ranks that did not fail within 0\.5 s: 3 of 3|rank 1: ValueError"):
            ranks.ask("fail", limit=0.5)
        with pytest.raises(MxdpError, match="did not place within"):
            ranks.ask("place", "x", limit=0.01)
        for process in ranks._processes:
            process.kill()


def test_one_that_does_not_start_is_reported(start):
    with pytest.raises(MxdpError, match=r"a rank has ended while it was set up|did not start: a process ended"):
        start(ends=2)


def test_a_start_that_hangs_is_tried_once_more(start, monkeypatch, tmp_path):
    monkeypatch.setattr(crew, "START", 4.0)
    with start(hangs=str(tmp_path / "has hung")) as ranks:
        assert ranks.ask("place", "x")[2] == ("x", 2, 3)
    with pytest.raises(MxdpError, match=r"a rank has ended while it was set up|a rank was not ready: a process ended"):
        start(hangs=str(tmp_path / "no folder" / "x"))


def test_nothing_is_left_behind(start, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(crew, "GRACE", 0.5)
    ranks = start()
    for rank in ranks.ranks:
        rank.send(("fail", ()))
    time.sleep(0.2)
    assert not list(Path(tempfile.gettempdir()).glob("mxdp-crew-*"))
    ranks.close()
    assert not any(psutil.pid_exists(pid) for pid in ranks.pids)


def test_no_engine_ends_ranks_that_are_stopped_between_two_rounds(monkeypatch):
    started = []
    monkeypatch.setattr(crew.Crew, "_run", lambda self, command, environ: started.append((command, environ)))
    alone = object.__new__(crew.Crew)
    for engine in (crew.MPI, crew.HOROVOD):
        alone._start(engine, 2, ["rank"], {"MINE": "1"})
    (launch, _), (_, environ) = started
    options = launch[: launch.index("--")]
    assert options[options.index("--silent-after") + 1] == "0"
    assert "--hung-after" not in options
    assert environ == {"MINE": "1", "HOROVOD_GLOO_TIMEOUT_SECONDS": "86400"}
