"""The questions on data-parallel training: what the catalogue, with its little settings, doesn't see."""

import itertools
import math
import os
import subprocess
import time
from types import SimpleNamespace

import numpy as onp
import psutil
import pytest
from littles import little

from mxdp import process
from mxdp.backend import devices, gluon, mx, np
from mxdp.datasets import load
from mxdp.errors import MxdpError, UsageError
from mxdp.experiments import book_loop
from mxdp.experiments.data_parallel import (
    batch_norm,
    batch_scaling,
    break_even,
    bugs,
    epochs,
    lenet_steps,
    scaling,
    sharded_optimizer,
    silent_bugs,
    uneven,
    where_the_time_went,
)
from mxdp.experiments.data_parallel.lenet_steps import synced_step
from mxdp.experiments.data_parallel.normed_lenet import OWN, SYNCED, NormedLeNet
from mxdp.experiments.data_parallel.silent_bugs import LAST_BATCH
from mxdp.experiments.lab import Case, Row, Skipped
from mxdp.experiments.lab.module import Question
from mxdp.experiments.oracle import count
from mxdp.plans.cost.link import Link
from mxdp.plans.cost.step import break_even as least_batch
from mxdp.plans.cost.step import step_seconds
from mxdp.scratch import get_params, in_sync, init_lenet

# The book's loop


def test_the_books_loader_delivers_them_all_and_is_left_as_it_was():
    data, before = load("digits").take(50, 20), gluon.data.vision.FashionMNIST
    batches = list(book_loop.data_loader(data.train, data.test, 20))
    assert gluon.data.vision.FashionMNIST is before
    assert [len(y) for _, y in batches] == [20, 20, 10]
    assert batches[0][0].shape == (20, 1, 28, 28)
    labels = onp.concatenate([y.asnumpy() for _, y in batches])
    assert sorted(labels) == sorted(data.train.y)
    loaded = onp.concatenate([X.asnumpy() for X, _ in batches])
    for axes in ((1, 2), (1, 3)):  # by row and by column: no picture is turned
        sums, expected = (onp.sort(X.sum(axis=axes), axis=0) for X in (loaded, data.train.X))
        onp.testing.assert_allclose(sums, expected, atol=28 / 510)


def test_an_epoch_moves_the_parameters_and_a_last_batch_that_devices_cannot_share_is_left_out():
    devices = [mx.cpu(0), mx.cpu(1)]
    replicas = [get_params(book_loop.book_layout(init_lenet(0)), device) for device in devices]
    odd = load("digits").take(25, 20)
    even = book_loop.splittable(odd, 2)
    assert (len(even.train), len(even.test)) == (24, 20)
    book_loop.train_epoch(book_loop.data_loader(even.train, even.test, 20), replicas, devices, 0.1)
    assert (replicas[0][-1].asnumpy() != 0).all()
    onp.testing.assert_array_equal(replicas[0][-1].asnumpy(), replicas[1][-1].asnumpy())
    with pytest.raises(ValueError, match="cannot be evenly split into 2"):
        book_loop.train_epoch(book_loop.data_loader(odd.train, odd.test, 20), replicas, devices, 0.1)


# Epochs


@pytest.mark.parametrize(("kind", "cores", "possible"), [("cpu", 2, 2), ("cpu", 8, 4), ("gpu", 2, 4)])
def test_no_more_is_possible_than_the_machine_can_give(monkeypatch, kind, cores, possible):
    monkeypatch.setattr(process, "cores", lambda: cores)
    assert epochs.possible([mx.Context(kind, number) for number in range(4)]) == possible


@pytest.mark.parametrize("case", [Case("x"), Case("x", 2), Case("x", processes=2, reference=True)])
def test_a_process_goes_on_with_the_training_of_the_one_before(tmp_path, monkeypatch, case):
    """Over the end of an epoch, too: 200 pictures are one. Of a ceiling's processes the second one, too; a ceiling is
    not evaluated, and a replica that is alone is not compared with itself."""
    data, case.process = load("synthetic").take(200, 50), case.processes - 1
    monkeypatch.setattr(lenet_steps, "pictures", lambda s: data)

    def measured(rounds, folder, number=0):
        case.folder, case.number = folder, number
        work = epochs.set_up(case, little(Question(epochs), samples=120))
        numbers = [more for _, more in (work.round() for _ in range(rounds))]
        for more in numbers:
            assert ("test_accuracy" in more, "in_sync" in more) == (not case.reference, case.devices > 1)
            assert sum(more[part] for part in lenet_steps.PARTS) == pytest.approx(1)
        return [(more["loss"], more.get("test_accuracy")) for more in numbers]

    assert measured(2, str(tmp_path)) + measured(1, str(tmp_path), number=2) == measured(3, "")


def test_more_devices_than_the_profiler_can_follow_are_refused(monkeypatch):
    monkeypatch.setattr(where_the_time_went, "can_record", lambda devices: False)
    with pytest.raises(UsageError, match="can't follow 2 CPU devices on this machine: ask for fewer"):
        where_the_time_went.set_up(Case("", 2), little(Question(where_the_time_went), kind="cpu"))


# When a second device pays


@pytest.mark.parametrize(
    ("small", "large", "expected"),
    [("open", "yes", "from 64 for LeNet (4: open)"), ("yes", "no", "nowhere for LeNet (64: no)")],
)
def test_the_answer_is_the_batch_from_which_all_measured_ones_pay_and_what_is_known_below(small, large, expected):
    s = little(Question(break_even), lenet=[4, 64])
    rows = [Row("", False, dict(net="lenet", batch=batch, pays=pays)) for batch, pays in ((4, small), (64, large))]
    assert break_even._tell_batches("lenet", s, rows) == expected


@pytest.mark.parametrize("cores", [2, 4, 8, None])
@pytest.mark.parametrize(("n", "python"), [(2, 0.0), (4, 1e-4)])
def test_at_the_break_even_both_take_the_same_time(cores, python, n):
    device = Link(1e-3, 1e-3)
    least = least_batch(device, python, n, cores, allreduce=2e-3)
    assert 0 < least < math.inf
    expected = step_seconds(device.seconds(least), python, n, cores, 2e-3)
    assert device.seconds(n * least) == pytest.approx(expected)


def test_devices_share_a_sample_or_more():
    cases = scaling.cases(little(Question(scaling), devices=[4], lenet=1))
    assert [(case.devices, case.batch) for case in cases][:3] == [(1, 1), (1, 2), (4, 4)]


# Batches and normalisation


def test_the_accuracy_of_a_training_is_the_mean_of_the_last_three(monkeypatch):
    s = little(Question(batch_scaling), kind="cpu")
    calls = itertools.count(-1)
    monkeypatch.setattr(batch_scaling, "evaluate", lambda *_, **more: next(calls))
    one_round = batch_scaling.set_up(next(iter(batch_scaling.cases(s))), s).round
    assert [one_round()[1]["test_accuracy"] for _ in range(2)] == [6, 14]


def test_synchronised_replicas_save_the_same_and_own_ones_do_not(monkeypatch):
    monkeypatch.setattr(NormedLeNet, "accuracy", lambda own, data, running: float(running[0].sum()))
    s = little(Question(batch_norm), kind="cpu", steps=3, test=100)
    cases = {case.way: case for case in batch_norm.cases(s)}
    (_, synced), (_, own) = (batch_norm.set_up(cases[way], s).round() for way in (SYNCED, OWN))
    assert (synced["other_replica"], synced["differs"] < 1e-3) == (0, True)
    assert (own["other_replica"] > 0, own["differs"] > 1e-2) == (True, True)


def test_it_evaluates_with_the_running_statistics_that_it_is_given():
    data = load("synthetic")
    net = NormedLeNet(devices(2), SYNCED, 0, 32, 0.25)
    net.train(data.train, 0, 60)
    running, other = net.running
    before = [array.asnumpy() for array in running]
    right, wrong = (net.accuracy(data.test, arrays) for arrays in (running, [array * 0 + 1 for array in running]))
    assert right > wrong + 0.2
    assert in_sync([running, other, list(map(np.array, before))])


# The optimiser's state in shards


@pytest.mark.parametrize("n", [2, 3])
def test_it_measures_the_state_and_counts_what_is_moved(n):
    """Adam's two numbers a parameter; in shards of nearly one length. An all-reduce sends 2 (n - 1) times all bytes."""
    parameters = 784 * 64 + 64 * 64 + 64 * 10 + 2 * 64 + 10
    s = little(Question(sharded_optimizer), kind="cpu", devices=[n])
    cases = [Case("", n, net="mlp", optimizer="adam", sharded=sharded) for sharded in (False, True)]
    (_, plain), (_, parts) = (sharded_optimizer.set_up(case, s).round() for case in cases)
    assert plain == {"state_bytes": 8 * parameters, "moved_bytes": 12 * (n - 1) * parameters}
    assert parts["moved_bytes"] == 8 * (n - 1) * parameters
    assert parts["state_bytes"] == pytest.approx(8 * parameters / n, abs=8 * n)
    states = {number: np.zeros(3 + 2 * number, ctx=mx.cpu(number)) for number in (0, 1)}
    trainer = SimpleNamespace(_updaters=[SimpleNamespace(states=states)])
    assert [sharded_optimizer._state_bytes(trainer, sharded) for sharded in (True, False)] == [4 * 5, 4 * 8]


# Uneven devices


@pytest.mark.parametrize(("devices", "weights"), [(2, [[1, 3], [3, 1]]), (3, [[1, 1, 3], [3, 3, 1]])])
def test_its_oracle_weighs_the_shards_both_ways(monkeypatch, devices, weights):
    steps = []
    monkeypatch.setattr(uneven, "synced_step", lambda weights: steps.append(weights) or synced_step(weights))
    checked, wrong = count(uneven.oracle(Case("", devices), little(Question(uneven), devices=[devices])))
    assert (checked, wrong, steps) == (2 * 3 * 129068 * 2 * (2 * devices - 1), 0, weights)


def test_shards_are_measured_beside_a_busy_neighbour_which_this_process_ends_and_waits_for(monkeypatch):
    if len(psutil.Process().cpu_affinity()) < 2:
        pytest.skip("it needs two cores")
    ending = []
    monkeypatch.setattr(uneven.atexit, "register", ending.append)
    before = os.times().children_user
    times = itertools.cycle([1.0, 2.0])
    monkeypatch.setattr(uneven, "timed", lambda push: (push(), next(times))[1])
    try:
        work = uneven.set_up(Case("", 2, split="by speed", busy=True), little(Question(uneven), steps=3))
        (neighbour,) = psutil.Process().children()
        assert neighbour.cpu_affinity() == psutil.Process().cpu_affinity()[1:2]
        assert work.facts["shards"] == "16 + 8"
        assert work.round() == (2.0, {"slower": 0.5})  # the first round took three times
        assert neighbour.cpu_times().user > 0
    finally:
        for end in reversed(ending):
            end()
    assert not neighbour.is_running()
    assert os.times().children_user > before, "else the machine would seem busy with other work"


def test_without_a_core_for_each_device_it_is_skipped(monkeypatch):
    s = little(Question(uneven))
    case = next(iter(uneven.cases(s)))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cores: None, raising=False)
    with pytest.raises(Skipped, match="2 devices need a core each, and this process has 1"):
        uneven.set_up(case, s)
    monkeypatch.delattr(os, "sched_setaffinity")
    with pytest.raises(Skipped, match="run it on Linux"):
        uneven.set_up(case, s)


def test_the_neighbour_ends_with_its_parent():
    start = (
        f"import os, subprocess; print(subprocess.Popen(['python3', '-c', {uneven.NEIGHBOUR!r}, str(os.getpid())]).pid)"
    )
    done = subprocess.run(["python3", "-c", start], stdout=subprocess.PIPE, text=True, check=True)
    deadline = time.monotonic() + 20
    while psutil.pid_exists(int(done.stdout)) and psutil.Process(int(done.stdout)).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)


# Bugs that raise no error: each is a small change of the front door, and the oracle finds it

SILENT = little(Question(silent_bugs), samples=32)
CASES = {case.label: case for case in silent_bugs.cases(SILENT)}


@pytest.mark.parametrize("bug", bugs.BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_a_change_of_a_few_lines(bug):
    changed = [line for line in bugs.diff(bug).splitlines() if line[0] in "+-"]
    assert 1 <= len(changed) <= 6


@pytest.mark.parametrize("label", [label for label, case in CASES.items() if case.bug != LAST_BATCH])
def test_two_steps_give_away_every_bug_and_no_right_version(label):
    replicas = list(silent_bugs.compare(CASES[label], SILENT, CASES[label].right))
    assert len(replicas) == 2
    assert all(checked > 2 * 129_000 for checked, _ in replicas)
    assert (max(wrong for _, wrong in replicas) == 0) == CASES[label].right


@pytest.mark.parametrize(("wrong", "right"), [(0, False), (3, True), (3, False), (0, True)])
def test_the_oracle_finds_a_bug_that_changes_nothing_and_a_right_version_that_differs(wrong, right, monkeypatch):
    case = CASES["right, SGD" if right else "rebinds, SGD"]
    monkeypatch.setattr(silent_bugs, "compare", lambda case, s, right: [(10, 0), (10, wrong)])
    ((actual, expected, _),) = silent_bugs.oracle(case, SILENT)
    assert (actual == expected) == (right == (wrong == 0))
    assert silent_bugs.WRONG[case.label] == wrong


def test_a_rank_with_a_batch_less_ends_the_job(monkeypatch):
    pytest.importorskip("mpi4py")
    assert silent_bugs.last_batch(2) < 60
    monkeypatch.setattr(silent_bugs.subprocess, "run", lambda *_, **more: subprocess.CompletedProcess([], 0))
    with pytest.raises(MxdpError, match="ended as if all were well"):
        silent_bugs.last_batch(2)
