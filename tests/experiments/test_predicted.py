"""One process's time against several processes: what is judged, and that the oracle sees a sum that was left out."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from mxdp.experiments.harness import claims
from mxdp.experiments.harness.experiment import Case, Skipped
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.many_processes.predicted import Predicted
from mxdp.experiments.many_processes.work import hosts, wire
from mxdp.experiments.many_processes.work import predicted as work
from mxdp.experiments.measure.oracle import count

SETTINGS = dict(
    kind="cpu", seed=0, processes=[2, 4], rates=[10, 1000], delays=[5], lenet=[16], resnet=[8], at_least=0.01
)


def finished(**off):
    """Rows whose measured time is so many times the predicted one, by the claim that judges them."""
    experiment, rows = Predicted(), []
    for case in experiment.cases(SETTINGS):
        own = case.settings
        claim = "hosts" if own["rate"] else "processes" if own["processes"] == 2 else "more_processes"
        n = own["processes"]
        expected = 0.010 * max(1, n / 2) + 0.002
        found = dict(shard_seconds=0.010, python_seconds=0.0, sum_seconds=0.002)
        factor = off.get(claim, 1.0)
        times = [expected * each for each in (factor if isinstance(factor, list) else [factor] * 12)]
        rows.append(Row(case.label, {"cores": 2, **own}, times, dict(found), {k: [v] * 12 for k, v in found.items()}))
    experiment.finish(rows, [], SETTINGS)
    return rows


def test_a_slow_cable_carries_the_small_network_alone():
    labels = [case.label for case in Predicted().cases(SETTINGS)]
    assert labels == [
        "LeNet, batch 16, 2 processes",
        "LeNet, batch 16, 4 processes",
        "LeNet, batch 16, hosts, 10 Mbit/s",
        "LeNet, batch 16, hosts, 1,000 Mbit/s",
        "LeNet, batch 16, hosts, 100 Mbit/s + 5 ms",
        "ResNet-18, batch 8, 2 processes",
        "ResNet-18, batch 8, 4 processes",
        "ResNet-18, batch 8, hosts, 1,000 Mbit/s",
    ]


@pytest.mark.parametrize("claim", Predicted.claims)
@pytest.mark.parametrize(("times", "holds"), [(1.0, True), (1.1, True), (0.9, True), (1.3, False), (0.7, False)])
def test_each_claim_judges_its_rows(claim, times, holds):
    rows = finished(**{claim: times})
    for name, own in Predicted.claims.items():
        assert claims.judged(name, own, rows)["holds"] is (holds if name == claim else True)
    worst = max(times, 1 / times)
    usual = (1 + worst) / 2 if claim == "hosts" else 1.0  # these are half of the rows
    assert (
        Predicted()
        .answer(rows, [], SETTINGS)
        .startswith(
            f"Medians of 8 rows are off by a factor of {usual:.2f} in the middle and {worst:.2f} ({worst:.2f} to "
            f"{worst:.2f}) at most;"
        )
    )


def test_the_answer_says_how_many_single_starts_are_far_off():
    """Of the four rows between hosts one start in four takes 1.3 times as long, one in four two thirds."""
    rows = finished(hosts=[1.0, 1.0, 1.3, 0.67] * 3)
    assert "of single starts 25% are more than 15% off." in Predicted().answer(rows, [], SETTINGS)


def test_it_is_drawn():
    figure = Figure()
    Predicted().draw({"rows": finished(), "references": []}, figure)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "LeNet, processes", "LeNet, hosts", "ResNet-18, processes", "ResNet-18, hosts",
    ]  # fmt: skip


class NotSummed:
    """Two processes of which each takes a step on its own part of the batch."""

    def __init__(self, alone):
        self.alone = alone

    def ask(self, command, net, params, X, y):
        return [self.alone.stepped(net, params, *part) for part in zip(np.split(X, 2), np.split(y, 2))]


def test_the_oracle_finds_processes_that_do_not_sum(monkeypatch):
    settings = dict(SETTINGS, seed=1)
    monkeypatch.setattr(work._Places, "crew", lambda places, case: NotSummed(places.alone))
    case = Case("", 2, settings={"net": "lenet", "batch": 8, "processes": 2, "rate": 0, "delay": 0})
    checked, wrong = count(work.oracle(case, settings))
    assert checked == 2 * 129_068
    assert wrong > 0.25 * checked


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
    (host_a, end_a), (host_b, end_b) = (socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2))
    pulled, pull = os.pipe()
    delay, frames = 0.05, [bytes([number]) * 9000 for number in range(5)]
    cable = threading.Thread(target=wire._carry, args=([end_a.fileno(), end_b.fileno()], delay, pulled))
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
        for each in (host_a, end_a, host_b, end_b):
            each.close()
        os.close(pulled)
    assert not cable.is_alive()


@pytest.mark.skipif(not shutil.which("ip"), reason="there is no `ip` here")
@pytest.mark.parametrize("delay", [0.0, 0.001])
def test_where_no_slow_cable_can_be_made_the_case_is_skipped_and_nothing_stays_open(delay):
    own = hosts.Hosts(["mxdp-no-such-host", "mxdp-nor-this"], [], [], {})
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(Skipped, match=r"no (slow )?cable"), wire.slow_cable(own, 100, delay):
        pass
    assert len(os.listdir("/proc/self/fd")) == before
