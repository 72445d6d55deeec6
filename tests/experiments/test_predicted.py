"""One process's time against several processes: that the oracle sees a sum that was left out, and the slow cables."""

import os
import shutil
import socket
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from littles import little

from mxdp.experiments.lab import Skipped
from mxdp.experiments.many_processes import hosts, predicted, predicted_ranks
from mxdp.experiments.many_processes.predicted_ranks import PredictedRank
from mxdp.experiments.oracle import count, random_batch

S = little(predicted, ranks=[2], rates=[], delays=[], lenet=[8], resnet=[])
(CASE,) = predicted.cases(S)


@pytest.mark.parametrize("summed", [True, False])
def test_the_oracle_finds_processes_that_do_not_sum(monkeypatch, summed):
    """Each of two takes a step on its own part of the batch; or both on all of it."""
    one, (X, y) = PredictedRank("lenet", S.seed, "cpu"), random_batch(8, S.seed)

    def launched(case, s, before):
        parts = [(X, y)] * 2 if summed else zip(np.split(X, 2), np.split(y, 2))
        return [one.stepped(before, *part) for part in parts]

    monkeypatch.setattr(predicted, "launched", launched)
    checked, wrong = count(predicted.oracle(CASE, S))
    assert checked == 2 * 129_068
    assert wrong == 0 if summed else wrong > 0.25 * checked


def test_a_prediction_is_of_all_bytes_and_a_time_of_the_slowest_rank(monkeypatch, virtual):
    found = dict(sums=[(4, 4.0), (400, 400.0)], steps=3, seconds=2.0)
    monkeypatch.setattr(predicted, "launched", lambda *_: [found])
    assert predicted.set_up(CASE, S).round()[1]["sum_seconds"] == pytest.approx(4 * 129_068)
    rank = PredictedRank("lenet", S.seed, "cpu")
    works = lambda *_: rank.params[0] + 1  # noqa: E731
    gather = lambda own: [own, 3 * own, 2 * own]  # noqa: E731
    rank.ranks = SimpleNamespace(gather=gather, shard=slice, barrier=list, sum=works)
    monkeypatch.setattr(rank.model, "step", works)
    measured = rank.measured(*random_batch(8, 0), at_least=9.0)
    assert measured == dict(steps=2, sums=[(nbytes, 6.0) for nbytes in predicted_ranks.SUMS], seconds=4.5)
    assert not virtual.readers


def test_a_cable_is_slow_in_both_directions(monkeypatch):
    asked = []
    monkeypatch.setattr(hosts, "_cable_ip", lambda *words: asked.append(words))
    with hosts.slow_cable(hosts.Hosts(["a", "b"], [], [], {}), 100, 0.0):
        assert [(words[2], words[-5:-4]) for words in asked] == [("a", ("100mbit",)), ("b", ("100mbit",))]


def test_hosts_of_a_process_that_is_gone_are_removed_and_no_others(monkeypatch):
    asked = []
    gone = 2**22 + 1  # beyond Linux's largest process number

    def ip(*words):
        asked.append(words)
        names = [f"mxdp-{gone}-a (id: 3)", f"mxdp-{os.getpid()}-b", "somebody-else", f"mxdp-{gone}-b"]
        return SimpleNamespace(stdout="\n".join(names))

    monkeypatch.setattr(hosts, "_ip", ip)
    hosts._remove_left_behind()
    assert [words[-1] for words in asked if "del" in words] == [f"mxdp-{gone}-a", f"mxdp-{gone}-b"]


def test_a_cable_that_is_late_delivers_all_frames_in_order_and_each_after_its_delay():
    """Instead of TAP devices: two pairs of sockets, whose outer ends are the hosts."""
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    (host_a, end_a), (host_b, end_b) = pairs
    pulled, pull = os.pipe()
    delay, frames = 0.05, [bytes([number]) * 9000 for number in range(5)]
    cable = threading.Thread(target=hosts._carry, args=([end_a.fileno(), end_b.fileno()], delay, pulled))
    cable.start()
    try:
        for sender, receiver in ((host_a, host_b), (host_b, host_a)):
            receiver.settimeout(10)
            started = time.monotonic()
            for frame in frames:
                sender.send(frame)
            assert [receiver.recv(1 << 16) for _ in frames] == frames
            assert time.monotonic() - started >= delay
    finally:
        os.close(pull)
        cable.join(10)
        os.close(pulled)
    assert not cable.is_alive()


@pytest.mark.skipif(not shutil.which("ip"), reason="there is no `ip` here")
@pytest.mark.parametrize("delay", [0.0, 0.001])
def test_where_no_slow_cable_can_be_made_the_case_is_skipped_and_nothing_stays_open(delay):
    own = hosts.Hosts(["mxdp-no-such-host", "mxdp-nor-this"], [], [], {})
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(Skipped, match=r"no (slow )?cable"), hosts.slow_cable(own, 100, delay):
        pass
    assert len(os.listdir("/proc/self/fd")) == before
