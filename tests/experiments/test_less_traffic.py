"""Gradients in fewer bytes, and the hosts between which they go."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as onp
import pytest
from littles import little

from mxdp.collectives import compress
from mxdp.errors import MxdpError
from mxdp.experiments.lab.module import Question, Skipped
from mxdp.experiments.many_processes import hosts, less_traffic, traffic_ranks

QUESTION = Question(less_traffic)
S = little(QUESTION)


def test_a_sum_of_many_stands_still_where_the_bits_end():
    assert less_traffic.sums_of_ones(compress.FLOAT16) == {str(n): min(1.0, 2048 / n) for n in less_traffic.MANY}
    assert less_traffic.sums_of_ones(compress.BFLOAT16)["4096"] == 256 / 4096


def test_hosts_that_can_not_be_made_are_skipped_with_a_sentence(monkeypatch):
    monkeypatch.setattr(hosts, "_ip", lambda *words: (_ for _ in ()).throw(OSError("none")))
    less_traffic.between_hosts.cache_clear()
    case = next(case for case in less_traffic.cases(S) if case.place == "hosts")
    with pytest.raises(Skipped, match="there is no `ip` to make network namespaces"):
        next(less_traffic.oracle(case, S))


def test_known_gradients_are_such_that_float16_must_round():
    vector = traffic_ranks.known_gradient(0, 0, [1000], 0)
    assert (vector != vector.astype("float16")).any()
    assert (vector * 1024 == onp.rint(vector * 1024)).all()


@pytest.mark.parametrize("status", [0, 2])
def test_a_cable_has_its_rate_at_both_ends_or_the_case_is_skipped(status, monkeypatch):
    asked = []
    done = SimpleNamespace(returncode=status, stderr="no tc")
    monkeypatch.setattr(hosts, "_ip", lambda *words: asked.append(" ".join(words)) or done)
    cable = hosts.slow_cable(hosts.Hosts(["a", "b"], [], [], {}), 70, 0.0)
    with pytest.raises(Skipped, match=r"no slow cable .* says: no tc") if status else cable:
        cable.__enter__() if status else None
    limit = "tc qdisc add dev mxdp0 root tbf rate 70mbit burst 16kb latency 400ms"
    assert asked == [f"netns exec {name} {limit}" for name in ("a" if status else "ab")]


def test_ranks_get_the_order_and_leave_their_answers_and_a_rank_that_fails_is_told(tmp_path, monkeypatch):
    pytest.importorskip("mpi4py")
    code = "from mxdp.experiments.many_processes.hosts import answer\n"
    code += "answer(lambda order, ranks: (order, ranks.rank, ranks.size))"
    (tmp_path / "answering.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    assert hosts.launched("answering", {"of": 7}, 3) == [({"of": 7}, rank, 3) for rank in range(3)]
    with pytest.raises(MxdpError, match=r"processes ended with status 1: .*No module named nosuch"):
        hosts.launched("nosuch", None, 2)
