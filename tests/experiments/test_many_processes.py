"""What the experiments on several processes make of their numbers, and that their oracles catch what is wrong."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from mxdp import process
from mxdp.backend import NDArray, npx
from mxdp.datasets import load
from mxdp.engine import CompletionEvent
from mxdp.errors import UsageError
from mxdp.experiments.harness.environments import defaults
from mxdp.experiments.harness.exchanges import ALONE, ASYNC, DDP, HOROVOD, MPI, ONE, SYNC
from mxdp.experiments.harness.experiment import Case
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.harness.settings import resolve
from mxdp.experiments.many_processes.async_sgd import EVEN, ONE_SLOW, AsyncSgd
from mxdp.experiments.many_processes.loader import Loaders
from mxdp.experiments.many_processes.lost_worker import KILLED, LostWorker
from mxdp.experiments.many_processes.machines import Machines
from mxdp.experiments.many_processes.peers import BOOK, CEILING, GLUON, HYBRID, MXDP, MXDP_MPI, TORCH, Peers
from mxdp.experiments.many_processes.work import async_sgd, exchanges, loader, lost_worker, machines, peers
from mxdp.experiments.measure.oracle import count
from mxdp.scratch import init_lenet
from mxdp.training import RUN_AHEAD

SETTINGS = dict(devices=[2], kind="cpu", data="synthetic", data_dir=None, seed=0, lr=0.2, batch_size=16, steps=10)


def row(seconds, label="", metrics=(), **case):
    return Row(label, case, samples=[seconds * drift for drift in (1, 2, 3, 4, 5, 6)], metrics=dict(metrics))


def machine_rows(mpi, processes=2):
    place = {"processes": processes, "devices_in_all": processes}
    rows = [
        row(1.0, "one", engine=ONE, processes=1, devices_in_all=processes),
        row(mpi, "mpi", engine=MPI, **place),
        row(1.5, "stores", engine=SYNC, **place),
    ]
    alone = row(0.95, "alone", engine=ALONE, **place)
    Machines().finish(rows, [alone], SETTINGS)
    return rows


def test_machines_judges_nothing_where_processes_share_a_core(monkeypatch):
    monkeypatch.setattr(process, "cores", lambda: 2)
    rows = machine_rows(1.0, processes=4)
    assert not any("exchange" in each.rounds or "as_one" in each.rounds for each in rows)


def test_one_process_exchanges_nothing_so_nothing_is_judged(monkeypatch):
    monkeypatch.setattr(process, "cores", lambda: 2)
    rows = machine_rows(1.0, processes=1)
    assert "of_alone" in rows[1].rounds
    assert not any("exchange" in each.rounds or "as_one" in each.rounds for each in rows)


def test_machines_answers_with_the_most_processes_that_have_a_core_each(monkeypatch):
    monkeypatch.setattr(process, "cores", lambda: 2)
    rows = machine_rows(1.0, processes=2) + machine_rows(1.4, processes=4)
    said = Machines().answer(rows, [], {**SETTINGS, "devices": [2, 4]})
    assert "of 2 processes 1.05 (1.05 to 1.05) times as long by MPI" in said


def ask_instead(monkeypatch, module, answers):
    """In place of a crew: one that answers so."""

    class Crew:
        def ask(self, command, *arguments):
            return answers

    @contextmanager
    def crew(*_):
        yield Crew()

    monkeypatch.setattr(module, "crew" if module is machines else "_crew", crew)


@pytest.fixture(scope="module")
def trained():
    """The parameters after each of the oracle's steps, by one rank of one device."""
    random = np.random.RandomState(0)
    X, y = random.uniform(size=(60, 1, 28, 28)).astype("float32"), random.randint(0, 10, 60).astype("int32")
    params = [param.asnumpy() for param in init_lenet(0, scale=0.1)]
    rank = machines.TrainingRank({**SETTINGS, "engine": ONE, "devices": 1, "params": params})
    return rank.check(X, y, params)


def altered(trail, change, at):
    found = [[[param.copy() for param in replica] for replica in replicas] for replicas in trail]
    change(found[at][0])
    return found


def averaged(params):
    for param, start in zip(params, init_lenet(0, scale=0.1)):
        param[...] = (param + start.asnumpy()) / 2


def another_bit(params):
    params[0].view("u4").flat[0] ^= 1


@pytest.mark.parametrize(
    ("change", "at", "right"),
    [(list, 0, True), (averaged, 0, False), (averaged, 2, False), (another_bit, 0, False), (another_bit, 2, False)],
)
def test_machines_compares_every_rank_with_the_serial_run_and_bit_for_bit(monkeypatch, trained, change, right, at):
    ask_instead(monkeypatch, machines, [trained, altered(trained, change, at)])
    case = Case("", 2, settings={"engine": MPI, "processes": 2, "devices_in_all": 2})
    checked, wrong = count(machines.oracle(case, SETTINGS))
    assert checked > 2 * sum(param.size for param in trained[0][0])
    assert (wrong == 0) == right


def test_processes_that_exchange_nothing_must_not_equal_the_serial_run(monkeypatch, trained):
    ask_instead(monkeypatch, machines, [trained, trained])
    case = Case("", 2, settings={"engine": ALONE, "processes": 2, "devices_in_all": 2})
    assert count(machines.oracle(case, SETTINGS))[1] > 0


@pytest.mark.parametrize(("ranks", "right"), [(3, True), (1, False)])
def test_a_loaders_part_of_a_batch_counts_for_what_it_is(ranks, right):
    """Of 20 samples rank 0 of 3 has 7: its step, by itself, is 7 / 20 of the mean's over its own samples."""
    random = np.random.RandomState(0)
    X, y = random.uniform(size=(20, 1, 28, 28)).astype("float32"), random.randint(0, 10, 20).astype("int32")
    params = [param.asnumpy() for param in init_lenet(0, scale=0.1)]
    order = {**SETTINGS, "engine": ONE, "devices": 1, "params": params, "scale": 1}
    one, other = loader.LoadingRank(order), machines.TrainingRank(order)
    one.ranks, other.ranks = exchanges.placed(0, ranks), exchanges.placed(0, 3)
    found, expected = (rank.check(X, y, params)[-1][0] for rank in (one, other))
    assert (count(zip(found, expected))[1] == 0) == right


@pytest.mark.parametrize("scale", [1, 3])
def test_stored_pictures_are_decoded_as_they_were(scale):
    split = load("synthetic").take(12, 1).train
    numbers = np.array([7, 0, 7, 11])
    found = loader.Stored(split, scale).decode(numbers)
    assert (found.dtype, found.shape) == (np.float32, (4, 1, 28, 28))
    assert np.abs(found - np.rint(split.X[numbers] * 255) / 255).max() < 1e-6


def test_ranks_of_other_engines_are_on_this_host():
    """So each of them gets GPUs of its own, as a rank of mxdp's would."""
    ranks = exchanges.placed(2, 4)
    assert (ranks.rank, ranks.size, ranks.local_rank) == (2, 4, 2)
    assert ranks.shard(10) == slice(6, 8)


def async_rows(slow, updates=60):
    found = {"reached": True, "staleness": 1.0}
    rows = [
        row(seconds, f"{engine}, {workers}", found, engine=engine, workers=workers, processes=2)
        for engine, workers, seconds in (
            (SYNC, EVEN, 1.0),
            (ASYNC, EVEN, 1.1),
            (SYNC, ONE_SLOW, 2.0),
            (ASYNC, ONE_SLOW, slow),
        )
    ]
    for each in rows:
        each.rounds["updates"] = [updates if each is rows[-1] else 60] * 6
    AsyncSgd().finish(rows, [], SETTINGS)
    return rows


def test_async_sgd_tells_which_trainings_did_not_get_there():
    rows, settings = async_rows(1.4), {**SETTINGS, "accuracy": 0.5, "most_updates": 9}
    rows[1].metrics["reached"] = False
    said = AsyncSgd().answer(rows, [], settings)
    assert said == "1 of 4 trainings did not reach the accuracy 0.5 within 9 updates."
    assert AsyncSgd().explanation(rows, [], settings).startswith("Not reached by dist_async, equal workers: ")
    assert AsyncSgd().explanation(async_rows(1.4), [], settings) == ""


@pytest.mark.parametrize(("engine", "size"), [(ASYNC, 1), (ASYNC, 3), (SYNC, 3)])
def test_a_gradient_is_stale_by_the_updates_of_others_alone(monkeypatch, engine, size):
    """Each time that this worker updates, the server has counted all workers' updates."""
    worker = object.__new__(async_sgd.ServedWorker)
    X, y = np.zeros((4, 1, 28, 28), "float32"), np.zeros(4, "int32")
    stream = SimpleNamespace(take=lambda samples: iter([(X, y)]))
    monkeypatch.setattr(async_sgd, "train_batch", lambda *arguments: None)
    worker.__dict__.update(
        store=SimpleNamespace(num_workers=size), batch_size=12, seen=0, device=None, _stream=stream, _params=None,
        _wait=0.0, _at_once=size if engine == SYNC else 1,
    )  # fmt: skip
    worker._exchange = lambda: worker.seen + size
    assert worker.train(3 * size) == [0 if engine == SYNC else size - 1] * 3


@pytest.mark.parametrize(("gradients", "right"), [(async_sgd.CHECKED, True), (async_sgd.CHECKED - 1, False)])
def test_a_gradient_that_is_lost_on_the_way_is_seen(monkeypatch, gradients, right):
    step = gradients * (1 + 2) * SETTINGS["lr"] / SETTINGS["batch_size"]
    params = [param.asnumpy() - np.float32(step) for param in init_lenet(0, scale=0.1)]
    ask_instead(monkeypatch, async_sgd, [params, params])
    assert (count(async_sgd.oracle(Case(""), SETTINGS))[1] == 0) == right


def test_the_bits_of_undisturbed_trainings_are_compared(monkeypatch):
    case = Case("", 2, settings={"engine": MPI, "processes": 2, "harm": KILLED})
    for bits, wrong in (([[1, 2], [1, 2]], 0), ([[1, 2], [1, 3]], 1)):
        monkeypatch.setattr(lost_worker, "undisturbed", lambda *_, bits=bits: (bits, 10))
        assert count(lost_worker.oracle(case, SETTINGS)) == (2, wrong)


@pytest.mark.parametrize(
    ("bits", "same"), [([[1, 2], [1, 2]], True), ([[1, 2], [1, 3]], False), ([[1, 3], [1, 2]], False)]
)
def test_all_ranks_of_a_training_that_was_started_again_must_end_alike(monkeypatch, bits, same):
    def launch(case, settings, folder, harm, at):
        (folder / "harmed").write_text("100.0")
        return 103.5

    # Of 10 steps the worker was lost after 5, and 8 were made after the restart: 3 of them for the second time.
    found = [{"steps": steps, "bits": own} for steps, own in zip((9, 8), bits)]
    monkeypatch.setattr(lost_worker, "launch", launch)
    monkeypatch.setattr(lost_worker, "results", lambda folder, case: found)
    done = lost_worker.by_launcher(Case("", 2, settings={"harm": KILLED}), SETTINGS, [[1, 2], [1, 2]], 10)
    assert (done.seconds, done.metrics) == (3.5, {"noticed": True, "lost": 3, "same": same})


def test_a_training_that_failed_is_none_that_noticed():
    done = []
    command = ["sh", "-c", "echo 'mxdp.launch: rank 1 was killed' >&2; exit $0"]
    assert lost_worker.heard([*command, "0"], dict(os.environ), lambda: done.append(1)) > 0
    assert done == [1]
    with pytest.raises(RuntimeError, match=r"ended with status 3: .*rank 1 was killed"):
        lost_worker.heard([*command, "3"], dict(os.environ), lambda: None)


@pytest.mark.parametrize("experiment", [Peers, Machines, Loaders], ids=lambda each: each.name)
def test_only_the_books_loop_has_mxnets_own_environment(experiment):
    for case in experiment().cases({**experiment.presets["quick"], "devices": [1, 2]}):
        book = case.settings.get("peer") == BOOK
        assert case.environment == (defaults(case.devices) if book else {}), case.label
    assert defaults(2)


def test_each_peers_rank_gets_its_own_devices_batch_and_settings(monkeypatch):
    made = []
    monkeypatch.setattr(peers, "Crew", lambda *arguments: made.append(arguments))
    monkeypatch.setitem(sys.modules, "mxdp.experiments.measure.torch_ddp", SimpleNamespace(TorchRank="torch"))
    settings = {**Peers.presets["quick"], "devices": [1, 2], "seed": 3, "lr": 0.3}
    kinds = {BOOK: peers.BookRank, GLUON: peers.GluonRank, HYBRID: peers.GluonRank, TORCH: "torch", DDP: "torch"}
    for case in Peers().cases(settings):
        peers._crew(case, settings)
        engine, size, rank, order = made[-1]
        peer, each = case.settings["peer"], case.devices // size
        assert (engine, rank) == (case.settings["engine"], kinds.get(peer, machines.TrainingRank))
        assert size == (case.devices if peer in (DDP, HOROVOD, MXDP_MPI, CEILING) else 1)
        expected = {"peer": peer, "devices": each, "threads": each, "batch_size": case.settings["batch_size"]}
        assert {**order, **expected, "lr": 0.3, "kind": settings["kind"], "data": settings["data"]} == order
        assert order["batch_size"] == (128 if "batch 128" in case.label else 256)
        for own, expected in zip(order["params"], init_lenet(3)):
            assert (own == expected.asnumpy()).all()


@pytest.fixture(scope="module")
def ranks_of_one():
    """A rank of each class in this process; the peer's two devices are in one process."""
    params = [param.asnumpy() for param in init_lenet(0)]
    order = {**SETTINGS, "engine": ONE, "devices": 2, "params": params, "scale": 1, "peer": HYBRID}
    return {kind: kind(order) for kind in (machines.TrainingRank, loader.LoadingRank, peers.GluonRank)}


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        (machines.TrainingRank, "train"),
        (peers.GluonRank, "train"),
        *((loader.LoadingRank, each) for each in ("train", "all", "compute", "exchange")),
    ],
)
def test_what_a_rank_is_timed_for_is_done_when_it_answers(monkeypatch, ranks_of_one, kind, command):
    """The last thing that it does is to wait: whatever it pushed has ended."""
    done = []
    monkeypatch.setattr(npx, "waitall", lambda usual=npx.waitall: (usual(), done.append("waited")))
    rank = ranks_of_one[kind]
    for name in ("_step", "_alone", "_own"):
        if hasattr(rank, name):
            usual = getattr(rank, name)
            monkeypatch.setattr(rank, name, lambda *given, usual=usual: (done.append("pushed"), usual(*given))[1])
    getattr(rank, command)(4)
    assert done.count("pushed") == 4
    assert done[-1] == "waited"


def test_gluons_python_is_bounded_as_mxdps_is(monkeypatch, ranks_of_one):
    """By completion events of the step two before: ``wait_to_read`` would wait for later steps, too."""
    waited = []
    usual = CompletionEvent.wait
    monkeypatch.setattr(CompletionEvent, "wait", lambda event: (usual(event), waited.append(event))[0])
    monkeypatch.setattr(NDArray, "wait_to_read", None)
    ranks_of_one[peers.GluonRank].train(6)
    assert len(waited) == 6 - RUN_AHEAD


def test_a_rank_tells_the_seconds_of_its_steps_and_what_waiting_for_each_other_would_cost():
    params = [param.asnumpy() for param in init_lenet(0, scale=0.1)]
    rank = machines.TrainingRank({**SETTINGS, "engine": ONE, "devices": 1, "params": params})
    rank.train(2)
    start = time.perf_counter()
    seconds = rank.train(9)
    assert 0 < sum(seconds) < time.perf_counter() - start
    assert len(seconds) == 9 - 1 - 3
    assert rank.train(4) == []
    faster = [each / 2 for each in seconds]
    assert peers.waiting([seconds, faster]) == peers.waiting([seconds, seconds]) == 1.0
    assert peers.waiting([[3.0, 1.0, 1.0], [1.0, 1.0, 3.0]]) == 7 / 5


@pytest.mark.parametrize(("factor", "right"), [(1.0, True), (1.01, False)])
def test_a_peer_that_computes_something_else_is_not_timed(monkeypatch, factor, right):
    random = np.random.RandomState(0)
    X, y = random.uniform(size=(60, 1, 28, 28)).astype("float32"), random.randint(0, 10, 60).astype("int32")
    params = [param.asnumpy() for param in init_lenet(0, scale=0.1)]
    rank = machines.TrainingRank({**SETTINGS, "engine": ONE, "devices": 1, "params": params})
    losses = rank.losses(X, y, params, peers.LR * factor, peers.STEPS)
    ask_instead(monkeypatch, peers, [losses])
    case = Case("", 1, settings={"engine": ONE, "peer": MXDP})
    assert (count(peers.oracle(case, SETTINGS))[1] == 0) == right


def test_a_single_worker_can_not_be_lost():
    settings = resolve([LostWorker()], "quick", {"devices": [2, 3]})[1]["lost-worker"]
    assert settings["devices"] == [2, 3]
    with pytest.raises(UsageError, match="must be 2 or more, since one process is lost"):
        resolve([LostWorker()], "quick", {"devices": [1]})
