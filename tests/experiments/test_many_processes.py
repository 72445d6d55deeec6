"""That the oracles of the questions on several processes catch what is wrong, and that their clocks are right."""

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from littles import little

from mxdp.backend import NDArray
from mxdp.collectives import compress
from mxdp.datasets import load
from mxdp.engine import CompletionEvent
from mxdp.errors import MxdpError
from mxdp.experiments.lab import Case, Skipped, ranks
from mxdp.experiments.lab.ranks import ASYNC, MPI, SYNC
from mxdp.experiments.many_processes import (
    async_sgd,
    hosts,
    less_traffic,
    loader,
    lost_worker,
    machines,
    peers,
    traffic_ranks,
    victim,
)
from mxdp.experiments.many_processes.lenet_ranks import CHECKED, TrainingRank, compare_ranks
from mxdp.experiments.many_processes.peer_ranks import BookRank, GluonRank
from mxdp.experiments.oracle import count, random_batch
from mxdp.processes import Ranks
from mxdp.scratch import init_lenet
from mxdp.training import RUN_AHEAD

S = little(machines, kind="cpu", batch_size=16, steps=10)
ONE = Case("", 1, scale=1, batch_size=16)


def beside(engine, *others, size=2):
    """A case of which the other processes have shared these values before, or else what this one shares."""
    case = Case("", 1, size, engine, workers=async_sgd.EVEN)
    case.share = lambda value=None: [*others, value] if others else [value] * size
    return case


@pytest.fixture(scope="module")
def trained():
    """The parameters after each of the oracle's steps, by one process of one device."""
    return TrainingRank(ONE, S).check(*random_batch(CHECKED, S.seed), init_lenet(0, scale=0.1))


def averaged(params):
    for param, start in zip(params, init_lenet(0, scale=0.1)):
        param[...] = (param + start.asnumpy()) / 2


def another_bit(params):
    params[0].view("u4").flat[0] ^= 1


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(
    ("change", "at", "right"),
    [(list, 0, True), (averaged, 0, False), (averaged, 2, False), (another_bit, 0, False), (another_bit, 2, False)],
)
def test_each_process_is_compared_with_the_serial_run_and_with_the_first(trained, change, at, right, own):
    other = pickle.loads(pickle.dumps(trained))
    change(other[at][0])
    mine, first = (other, trained) if own else (trained, other)
    rank = SimpleNamespace(check=lambda *_: mine)
    checked, wrong = count(compare_ranks(beside(MPI, first), S, rank))
    assert checked == 2 * sum(param.size for params in trained for param in params[0])
    assert (wrong == 0) == right


def test_processes_that_exchange_nothing_must_not_equal_the_serial_run(trained):
    rank = SimpleNamespace(check=lambda *_: trained, ranks=Ranks(1, 2))
    assert count(compare_ranks(beside(""), S, rank))[1] > 0


@pytest.mark.parametrize(("size", "right"), [(3, True), (1, False)])
def test_a_loaders_part_of_a_batch_counts_for_what_it_is(size, right):
    """Of 20 samples rank 0 of 3 has 7: its step, by itself, is 7 / 20 of the mean's over its own samples."""
    X, y = (part[:20] for part in random_batch(CHECKED, S.seed))
    one, other = loader.LoadingRank(ONE, S), TrainingRank(ONE, S)
    one.ranks, other.ranks = Ranks(0, size), Ranks(0, 3)
    found, expected = (rank.check(X, y, init_lenet(0, scale=0.1))[-1][0] for rank in (one, other))
    assert (count(zip(found, expected))[1] == 0) == right


def test_a_loaders_time_is_the_slowest_processs(virtual):
    rounds = []
    for more in (0, 100):
        case = Case("", 1, scale=1, batch_size=16)
        case.share = lambda value=0, more=more: [value, value + more]
        rounds.append(loader.set_up(case, S).round())
    (own, own_parts), (seconds, parts) = rounds
    assert seconds == own + 100
    assert parts == pytest.approx({name: value + 100e3 / S.steps for name, value in own_parts.items()})


@pytest.mark.parametrize("scale", [1, 3])
def test_stored_pictures_are_decoded_as_they_were(scale):
    split = load("synthetic").take(12, 1).train
    numbers = np.array([7, 0, 7, 11])
    pictures = loader.stored(split, scale)
    found = loader.decoded([pictures[number] for number in numbers], scale)
    assert (found.dtype, found.shape) == (np.float32, (4, 1, 28, 28))
    assert np.abs(found - np.rint(split.X[numbers] * 255) / 255).max() < 1e-6


class Servers:
    """MXNet's servers, where ``losing`` of the updates get lost, and all ``size`` workers push the same."""

    def __init__(self, size, losing=0):
        self.size, self.losing, self.values = size, losing, {}

    def set_optimizer(self, optimizer):
        self.step = optimizer.lr * optimizer.rescale_grad

    def init(self, key, value):
        assert key not in self.values
        self.values[key] = value.asnumpy()

    def push(self, key, gradient):
        if self.losing and key % 9 == 0:  # the first of nine arrays
            self.losing -= 1
        else:
            self.values[key] = self.values[key] - self.size * self.step * gradient.asnumpy()

    def pull(self, key, value):
        value[:] = self.values[key]


@pytest.mark.parametrize(("losing", "right"), [(0, True), (1, False)])
def test_a_gradient_that_is_lost_on_the_way_is_seen(monkeypatch, losing, right):
    monkeypatch.setattr(async_sgd, "store", lambda engine: Servers(1, losing))
    assert (count(async_sgd.oracle(beside(ASYNC, size=1), little(async_sgd)))[1] == 0) == right


@pytest.mark.parametrize(("engine", "size"), [(ASYNC, 1), (ASYNC, 3), (SYNC, 3)])
def test_a_gradient_is_stale_by_the_updates_of_others_alone(monkeypatch, virtual, engine, size):
    """Each time that this worker updates, the server has counted all workers' updates. It sleeps for a step's time."""
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(async_sgd, "store", lambda engine: Servers(size))
    worker = async_sgd.Worker(beside(engine, size=size), little(async_sgd, batch_size=12))
    for worker._wait in (1.0, 3.0):  # from the start again
        worker.start()
        assert worker.train(3 * size) == [0 if engine == SYNC else size - 1] * 3
    assert slept[1:3] + slept[4:] == [slept[1]] * 2 + [3 * slept[1]] * 2  # a first step also waits for the start


def lost(by=MPI):
    return Case("", 2, by=by, workers=2, harm=victim.KILLED)


def test_the_bits_of_undisturbed_trainings_are_compared(monkeypatch):
    for bits, wrong in (([[1, 2], [1, 2]], 0), ([[1, 2], [1, 3]], 1)):
        monkeypatch.setattr(lost_worker, "undisturbed", lambda *_, bits=bits: (bits, 10))
        assert count(lost_worker.oracle(lost(), S)) == (2, wrong)


@pytest.mark.parametrize(
    ("bits", "same"), [([[1, 2], [1, 2]], True), ([[1, 2], [1, 3]], False), ([[1, 3], [1, 2]], False)]
)
def test_all_ranks_of_a_training_that_was_started_again_must_end_alike(monkeypatch, bits, same):
    def launch(workers, s, folder, harm, at):
        (folder / "harmed").write_text("100.0")
        return 103.5, found

    # Of 10 steps the worker was lost after 5, and 8 were made after the restart: 3 of them for the second time.
    found = [{"steps": steps, "bits": own} for steps, own in zip((9, 8), bits)]
    monkeypatch.setattr(lost_worker, "launch", launch)
    monkeypatch.setattr(lost_worker, "undisturbed", lambda *_: ([[1, 2], [1, 2]], 10))
    done = lost_worker.lost_by_launcher(lost(), S)
    assert done == (3.5, {"noticed": True, "lost": 3, "same": same})


def test_a_training_that_failed_is_none_that_noticed(monkeypatch):
    done = []
    command = ["sh", "-c", "echo 'mxdp.launch: rank 1 was killed' >&2; exit $0"]
    monkeypatch.setattr(lost_worker, "time", SimpleNamespace(time=lambda: 7.0))
    assert lost_worker.heard([*command, "0"], dict(os.environ), lambda: done.append(1)) == 7.0
    assert done == [1]
    with pytest.raises(MxdpError, match=r"ended with status 3: .*rank 1 was killed"):
        lost_worker.heard([*command, "3"], dict(os.environ), lambda: None)


@pytest.mark.parametrize("ends", [True, False])
def test_an_engine_notices_if_its_first_process_ends(monkeypatch, ends):
    """Instead of trainings: the second is killed; the first ends with it, or goes on."""

    def commands(by, workers, command, environ):
        folder = command[3]
        script = f"import os, pickle, pathlib, time; p = pathlib.Path({folder!r}); n = int(os.environ['N'])\n"
        script += "part = p / f'{n}.part'; part.write_bytes(pickle.dumps(os.getpid())); part.rename(p / f'rank.{n}')\n"
        if ends:
            script += (
                "import psutil\n"
                "while n == 0 and not (p / 'rank.1').exists(): time.sleep(0.01)\n"
                "other = psutil.Process(pickle.loads((p / 'rank.1').read_bytes())) if n == 0 else None\n"
                "while other and other.is_running() and other.status() != 'zombie': time.sleep(0.01)\n"
                "n == 0 and os._exit(0)\n"
            )
        script += "time.sleep(60)"
        return [([sys.executable, "-c", script], {**environ, "N": str(n)}) for n in range(workers)], []

    monkeypatch.setattr(ranks, "commands", commands)
    seconds, more = lost_worker.lost_by_engine(lost(SYNC), little(lost_worker, wait=5.0 if ends else 0.3))
    assert more["noticed"] is ends
    assert seconds < 5 if ends else seconds >= 0.3


def test_a_process_of_an_engine_that_does_not_start_is_told(monkeypatch):
    monkeypatch.setattr(ranks, "commands", lambda *_: ([(["sh", "-c", "exit 5"], {}), (["sleep", "60"], {})], []))
    with pytest.raises(MxdpError, match="dist_sync ended with status 5"):
        lost_worker.lost_by_engine(lost(SYNC), little(lost_worker))


def test_each_peer_gets_its_own_devices_batch_and_settings(monkeypatch):
    made = []
    torch = SimpleNamespace(
        TorchTraining=lambda *given, **more: made.append((given, more)), initial=lambda *given: given
    )
    monkeypatch.setitem(sys.modules, "mxdp.experiments.torch_ddp", torch)
    monkeypatch.setattr("mxdp.experiments.torch_ddp", torch, raising=False)
    s = little(peers, devices=[1, 2], batch_size=256, kind="cpu")
    kinds = {peers.BOOK: BookRank, peers.GLUON: GluonRank, peers.HYBRID: GluonRank}
    several = (peers.DDP, peers.HOROVOD, peers.MXDP_MPI, peers.CEILING)
    for case in peers.cases(s):
        assert case.processes * case.devices == case.devices_in_all
        assert case.processes == (case.devices_in_all if case.peer in several else 1)
        assert case.batch_size == (128 if "batch 128" in case.label else 256)
        if case.peer in (peers.TORCH, peers.DDP):
            peers.rank_of(case, s)
            given = ((0, 0.01), s, 256)
            assert made[-1] == (given, dict(size=case.processes, threads=case.devices))
        elif case.engine != ranks.HOROVOD and (case.peer != peers.BOOK or sys.modules.get("d2l")):
            rank = peers.rank_of(case, s)
            assert (type(rank), len(rank.devices)) == (kinds.get(case.peer, TrainingRank), case.devices)


def test_gluons_python_is_bounded_as_mxdps_is(monkeypatch):
    """By completion events of the step two before: ``wait_to_read`` would wait for later steps, too."""
    waited, usual = [], CompletionEvent.wait
    monkeypatch.setattr(CompletionEvent, "wait", lambda event: (usual(event), waited.append(event))[0])
    monkeypatch.setattr(NDArray, "wait_to_read", None, raising=False)
    GluonRank(Case("", 2, batch_size=16), S, True).train(6)
    assert len(waited) == 6 - RUN_AHEAD


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (1.01, False)])
def test_a_peer_that_computes_something_else_is_not_timed(monkeypatch, factor, right):
    case = Case("", 1, peer=peers.MXDP, batch_size=16)
    rank = TrainingRank(case, S)
    usual = rank.losses
    rank.losses = lambda X, y, params, lr, steps: usual(X, y, params, lr * factor, steps)
    monkeypatch.setattr(peers, "rank_of", lambda *_: rank)
    assert (count(peers.oracle(case, S))[1] == 0) == right


def test_a_sum_of_many_stands_still_where_the_bits_end():
    assert less_traffic.sums_of_ones(compress.FLOAT16) == {str(n): min(1.0, 2048 / n) for n in less_traffic.MANY}
    assert less_traffic.sums_of_ones(compress.BFLOAT16)["4096"] == 256 / 4096


def test_hosts_that_can_not_be_made_are_skipped_with_a_sentence(monkeypatch):
    monkeypatch.setattr(hosts, "_ip", lambda *words: (_ for _ in ()).throw(OSError("none")))
    less_traffic.between_hosts.cache_clear()
    s = little(less_traffic)
    case = next(case for case in less_traffic.cases(s) if case.place == "hosts")
    with pytest.raises(Skipped, match="there is no `ip` to make network namespaces"):
        next(less_traffic.oracle(case, s))


def test_known_gradients_are_such_that_float16_must_round():
    vector = traffic_ranks.known_gradient(0, 0, [1000], 0)
    assert (vector != vector.astype("float16")).any()
    assert (vector * 1024 == np.rint(vector * 1024)).all()


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
