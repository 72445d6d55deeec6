"""The questions on MXNet's automatic parallelism: what the catalogue, with its little settings, doesn't see."""

import subprocess
import sys
import threading
from pathlib import Path
from unittest import mock

import numpy as onp
import pytest
from gate import Gate
from hypothesis import given, settings
from hypothesis import strategies as st
from littles import little

from mxdp import memory
from mxdp.backend import mx, np, npx
from mxdp.datasets.minibatches import Stream
from mxdp.datasets.synthetic import load_synthetic
from mxdp.engine import CompletionEvent
from mxdp.errors import BackendError, MemoryShortage, UsageError
from mxdp.experiments.automatic_parallelism import (
    copy_overlap,
    graph,
    memory_guard,
    mixed_devices,
    profile,
    run_ahead,
    small_ops,
    two_jobs,
)
from mxdp.experiments.automatic_parallelism.copy_overlap import balanced
from mxdp.experiments.automatic_parallelism.graph import TASKS, WAYS, modelled
from mxdp.experiments.automatic_parallelism.memory_guard import BigResults, run_job, slices_of
from mxdp.experiments.automatic_parallelism.products import Products, compare_products, factors, whole_factors
from mxdp.experiments.lab import Case, Work
from mxdp.experiments.lab.module import Question, Settings
from mxdp.experiments.lab.rows import Number
from mxdp.experiments.memory_use import grown
from mxdp.experiments.oracle import count
from mxdp.experiments.timelines import recorded
from mxdp.training import RUN_AHEAD

CPU = mx.cpu(0)


def cases(question, **changes):
    """Its settings, and its cases by label."""
    s = little(Question(question), kind="cpu", **changes)
    return s, {case.label: case for case in question.cases(s)}


# Products


def test_one_wrong_number_and_a_result_in_the_place_of_another_are_found():
    lefts, w = whole_factors(3, CPU, seed=3)
    made = Products(lefts, w, chain=False)
    for _ in range(2):  # pushed again, they are the same
        made.push()
    assert count(compare_products([[made.results[i]] for i in (0, 2, 1)], lefts, w, chain=False))[1] > 1000
    made.results[1][7, 8] += 1
    assert count(compare_products([[y] for y in made.results], lefts, w, chain=False)) == (3 * 33 * 33, 1)


def test_factors_can_be_multiplied_for_ever():
    y, w = factors(70, 20, CPU, seed=0)
    for _ in range(500):
        y = np.dot(y, w)
    assert 0.0 < float(y.min()) <= float(y.max()) <= 1.0 + 1e-3


def test_more_products_than_pieces_of_temporary_space_ask_for_as_many():
    _, many = cases(two_jobs, devices=[2, 4], products=50)
    asked = {(case.devices, case.reference): case.environment.get("MXNET_CPU_TEMP_COPY") for case in many.values()}
    assert asked == {(2, False): None, (2, True): "4", (4, False): "200", (4, True): "4"}


# Small operators


def test_of_large_arrays_the_oracle_compares_smaller_ones():
    s, large = cases(small_ops, sizes=[1 << 20])
    assert count(small_ops.oracle(large["2 workers, 1 MiB"], s)) == (2 * small_ops.COUNT * (1 << 16), 0)


def test_ready_calls_do_not_go_through_mxnets_function(monkeypatch):
    calls, ready = (small_ops.group(way, 4, cases(small_ops)[0])[-1] for way in ("calls", "ready"))
    monkeypatch.setattr(small_ops.np, "add", None)
    ready()
    with pytest.raises(TypeError):
        calls()


# Copies


def test_copies_of_all_cases_of_a_process_are_balanced_once(monkeypatch):
    balanced.cache_clear()
    asked = []
    monkeypatch.setattr(copy_overlap, "timed", lambda push: asked.append(push) or 1.0 + len(asked))
    s, known = cases(copy_overlap)
    facts = [copy_overlap.set_up(known[label], s).facts for label in ("indep., 1 worker", "chain, 1 worker")]
    assert facts[0] == facts[1]
    assert len(asked) == 8 + 2 * 3  # twice with a first number of copies, and with the number that follows
    balanced.cache_clear()


@pytest.mark.parametrize(("room", "fits"), [(10**9, 50), (30 * 40_000, 30), (40_000, 1), (39_998, 0)])
def test_as_many_results_as_half_the_memory_has_room_for(room, fits, monkeypatch):
    monkeypatch.setattr(copy_overlap, "balanced", lambda *more: 1)
    monkeypatch.setattr(copy_overlap, "one_round", lambda job: None)
    monkeypatch.setattr(memory, "available_bytes", lambda device: room if device == CPU else 10**12)
    s, known = cases(copy_overlap, products=50, nbytes=20_000, width=5)
    if not fits:
        with pytest.raises(MemoryShortage, match=r"this job needs 20\.0 kB"):
            copy_overlap.set_up(known["chain, 1 worker"], s)
        return
    assert copy_overlap.set_up(known["chain, 1 worker"], s).facts["products"] == fits


# Balanced copies take as long as the product; there is one at least.
@pytest.mark.parametrize(("product", "copy", "copies"), [(2.0, 0.1, 20), (0.1, 3.0, 1)])
def test_balanced(product, copy, copies, monkeypatch):
    def timed(push):
        job = push.__self__
        return copy * sum(map(len, job.landed)) if push.__name__ == "copy" else product * len(job.results)

    monkeypatch.setattr(copy_overlap, "timed", timed)
    balanced.cache_clear()
    assert balanced(10, 10, 3, CPU, mx.cpu(1), 0) == copies
    balanced.cache_clear()


# Memory


def check_bytes():
    """Of three rounds the least counts: where the heap has holes, a result more may lie beside them."""
    s = Settings(devices=[1], kind="cpu", seed=0, size=400, products=40, limit_bytes=10_000_000)
    works = {case.way: memory_guard.set_up(case, s) for case in memory_guard.cases(s)}
    rounds = {way: [work.round()[1] for _ in range(3)] for way, work in works.items()}
    found = {way: min(each, key=lambda one: one["measured_bytes"]) for way, each in rounds.items()}
    refused = found["refused"]
    job = BigResults(400, 40)
    assert (refused["at_once"], refused["predicted_bytes"]) == (0, job.needed(40))
    assert refused["measured_bytes"] < 2 << 20
    assert refused["said"].startswith("this job needs 30.0 MB and may take 10.0 MB of the ")
    for way, at_once in (("sliced", 10), ("fits", 40)):
        one = found[way]
        assert (one["at_once"], one["said"], one["predicted_bytes"]) == (at_once, "", job.needed(at_once))
        assert abs(one["measured_bytes"] / job.needed(at_once) - 1) < 0.1
    job = BigResults(size=1000, products=20)
    for pieces, at_once in (([(0, 20)], 20), ([(0, 10), (10, 20)], 10)):
        taken = [grown(lambda pieces=pieces: run_job(job, CPU, 0, pieces)) for _ in range(3)]
        assert job.needed(at_once) * 0.9 < min(taken) < job.needed(at_once) * 1.1


def test_in_a_process_whose_heap_holds_nothing_else_jobs_take_the_bytes_that_were_predicted():
    """What other tests have freed stays in the heap of their process, and is used again unseen."""
    here = Path(__file__)
    code = f"import sys; sys.path[:0] = [{str(here.parent)!r}, {str(here.parents[1])!r}]; import {__name__} as t; t."
    done = subprocess.run([sys.executable, "-c", f"{code}check_bytes()"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@settings(max_examples=60)
@given(st.integers(1, 9), st.integers(1, 12), st.floats(0, 13), st.booleans(), st.sampled_from([False, None, 10**9]))
def test_a_job_is_whole_or_cut_into_the_fewest_slices_that_fit_or_refused(size, products, fits, cut, limit):
    """With ``limit`` False it is what there is room for; else the machine has this room, and a limit above, or none."""
    room = 512 * size + int(fits * 4 * (size * size + 65 * size))
    most = (room - 512 * size) // (4 * (size * size + 65 * size))
    limit = room if limit is False else limit
    with mock.patch.object(memory, "available_bytes", return_value=10**12 if limit == room else room):
        if most < (1 if cut else products):
            with pytest.raises(MemoryShortage, match="one slice needs" if cut else "this job needs"):
                slices_of(BigResults(size, products), CPU, limit, cut)
            return
        pieces = slices_of(BigResults(size, products), CPU, limit, cut)
    assert [number for piece in pieces for number in range(*piece)] == list(range(products))
    assert len(pieces) == -(-products // most)
    assert max(stop - start for start, stop in pieces) <= most


# Mixed devices


def test_the_next_steps_first_layer_waits_for_its_own_weights_alone():
    found = {task.name: set(task.needs) for task in mixed_devices.step_tasks(workers=2, steps=2)}
    assert found["fc1 forward 1 @0"] == {"batch 1", "fc1 copy 0"}
    assert found["batch 1"] == set()


def lanes(count, kind):
    return mixed_devices.lanes(Case("", count), little(Question(mixed_devices), kind=kind))


def test_lanes_are_cpu_devices_or_gpus_behind_the_cpu_and_a_single_device_is_a_worker(monkeypatch):
    assert lanes(3, "auto") == [mx.cpu(0), mx.cpu(1), mx.cpu(2)]
    with pytest.raises(BackendError, match="2 GPUs were asked for"):
        lanes(3, "gpu")
    monkeypatch.setattr(mixed_devices, "devices", lambda n, kind: [mx.gpu(number) for number in range(n)])
    assert lanes(3, "auto") == [mx.cpu(0), mx.gpu(0), mx.gpu(1)]
    assert lanes(1, "auto") == [mx.gpu(0)]


def test_the_whole_numbers_stay_small_and_move_or_are_refused(monkeypatch):
    for seed in range(20):
        batches, weights, done = mixed_devices.whole_numbers_run(seed)
        assert all(onp.abs(layers[0][0]).max() > 0 for layers in done)
        assert not onp.array_equal(done[1][0][1], weights[0])
        assert max(onp.abs(label).max() for _, label in batches) < 2**24
    monkeypatch.setattr(mixed_devices, "EXACT", 8)
    with pytest.raises(ArithmeticError, match="not exact in float32"):
        mixed_devices.whole_numbers_run(0)


# Running ahead


@pytest.mark.parametrize(
    ("way", "most"), [("never", 6), ("each epoch", 4), (run_ahead.BOUNDED, RUN_AHEAD + 1), ("each step", 1)]
)
def test_ahead_counts_steps_that_are_pushed_and_not_done(way, most, monkeypatch):
    """None is done before the gate opens, and it opens when Python first waits, however slow the machine."""
    stream = Stream(load_synthetic(0, 48, 1).train, 8, 0)
    training = run_ahead.Training([CPU], 0, way)
    training.steps(stream.take(8), epoch_steps=6)
    npx.waitall()
    gate = Gate(training.replicas[0][0])
    for place, name in ((npx, "waitall"), (CompletionEvent, "wait")):
        wait = getattr(place, name)
        monkeypatch.setattr(place, name, lambda *event, wait=wait: [gate.open(), wait(*event)])
    assert training.steps(stream.take(48), epoch_steps=4) == most
    gate.open()


@pytest.mark.parametrize(("way", "for_all"), list(zip(run_ahead.WAITS, (True, True, False))))
def test_only_an_event_comes_back_before_the_queue_of_the_first_cpu_is_empty(way, for_all):
    """The reason for completion events: MXNet's own wait queues on ``cpu(0)`` behind all work there."""
    first, x = np.ones((2,), ctx=mx.cpu(1)), np.ones((800, 800))
    npx.waitall()
    gate = Gate(first)
    answers = [first + 1]
    behind = [npx.fully_connected(x, x, num_hidden=800, no_bias=True) for _ in range(24)]
    late = CompletionEvent([behind[12]])  # of the last, it might be noted a moment after the wait
    threading.Timer(0.02, gate.open).start()  # an answer that is there already is not waited for
    run_ahead.WAITS[way](answers)
    assert (late.at is not None) == for_all
    npx.waitall()


# Profiles of another question


def test_its_cases_are_those_of_the_other_question_in_one_process(monkeypatch):
    assert {case.devices for case in cases(profile, devices=[3])[1].values()} == {3}
    monkeypatch.setattr(two_jobs, "cases", lambda s: [Case("2 processes", processes=2), Case("alone")])
    assert list(cases(profile)[1]) == ["alone"]


@pytest.mark.parametrize(("of", "said"), [("two-job", "did you mean 'two-jobs'"), ("profile", "can't record itself")])
def test_what_it_cannot_record(of, said):
    with pytest.raises(UsageError, match=said):
        cases(profile, of=of)


def ready(monkeypatch, work):
    s, known = cases(profile)
    monkeypatch.setattr(two_jobs, "set_up", lambda case, s: work)
    return profile.set_up(next(iter(known.values())), s)


def test_one_that_records_its_own_rounds_or_has_too_many_devices_is_refused(monkeypatch):
    work = Work(lambda: (1.0, recorded(lambda: np.ones((4,)), [CPU])), [CPU])
    with pytest.raises(UsageError, match="two-jobs records its own rounds: run it by itself"):
        ready(monkeypatch, work).round()
    monkeypatch.setattr(profile, "recorded", lambda action, devices: {})
    with pytest.raises(UsageError, match="MXNet's profiler can't follow 99 CPU devices"):
        ready(monkeypatch, Work(lambda: 1.0, [CPU] * 99)).round()


@pytest.mark.parametrize("answer", [lambda took: took, lambda took: (took, {"more": 1})])
def test_a_round_is_a_plain_and_a_recorded_one_of_the_other(monkeypatch, virtual, answer):
    times = iter([0.5, 0.6])
    other = Work(lambda: answer(np.ones((4,)) is None or next(times)), [CPU], size=3)
    found = ready(monkeypatch, other)
    assert found.facts == {"size": 3}
    seconds, numbers = found.round()
    assert (seconds, numbers["cost"], list(numbers["busy"])) == (0.6, 0.6 / 0.5, ["cpu(0)"])


def test_the_model_says_what_the_file_says():
    free = {way: round(modelled(way, 2)) for way in WAYS}
    assert free == {"one": 9, "waits": 15, "by hand": 9, "engine": 9, "long last": 13, "2 workers": 11}
    # No order is faster: the stem, seven on one device, the join.
    assert sum(task.lane == 1 for task in TASKS if not task.name.startswith("copy")) + 2 == 9
    slow = {task.name: Number([2 * task.cost]) for task in reversed(TASKS)}
    assert modelled("engine", 2, slow) == pytest.approx(2 * modelled("engine", 2))


def test_a_pass_without_a_wait_after_each_task_is_recorded_on_two_devices():
    s, ways = cases(graph, size=8)
    found = {case.way for case in ways.values() if case.way != "2 workers" and graph.set_up(case, s).record}
    assert found == {"by hand", "engine", "long last"}
