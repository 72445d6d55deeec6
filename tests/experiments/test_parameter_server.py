from __future__ import annotations

import ctypes
from dataclasses import replace

import pytest

from mxdp import cuda, process
from mxdp.backend import mx
from mxdp.experiments.allreduce.parameter_server import BOOK_LINK, BOOK_MS, ParameterServer, schedule_of
from mxdp.experiments.allreduce.work import parameter_server as work
from mxdp.experiments.allreduce.work.parameter_server import ODD, summed
from mxdp.experiments.harness import claims
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.measure.child import one_round
from mxdp.experiments.measure.oracle import count
from mxdp.plans.collective.one_hop import naive, server, sharded
from mxdp.plans.collective.rings import ring
from mxdp.plans.collective.schedule import ADD
from mxdp.plans.cost.link import Link, allreduce_seconds
from mxdp.plans.cost.machine import CPU
from mxdp.plans.cost.simulate import predict

SETTINGS = dict(devices=[4], kind="cpu", seed=0, rounds=2, timeout=60.0, nbytes=4000)
CASES = {case.settings["algorithm"]: case for case in ParameterServer().cases(SETTINGS)}


def cpus(count):
    return [mx.cpu(rank) for rank in range(count)]


def row(algorithm, ms, replicas=4, wrong=0, device="cpu"):
    where = [f"{device}({rank})" for rank in range(replicas)]
    return Row(
        algorithm,
        {"devices": where, "algorithm": algorithm, "bytes": 4000, "replicas": replicas},
        [ms / 1e3] * 9,
        {"predicted_ms": 1.5 * ms, "textbook_ms": 2 * ms, "wrong": 0},
        {"wrong": [0, wrong, *[0] * 7], "predicted_ms": [1.5 * ms] * 9},
    )


def judged(rows, devices=(4,)):
    """The answer, what explains it, and whether each claim holds."""
    experiment, settings = ParameterServer(), {**SETTINGS, "devices": list(devices)}
    experiment.finish(rows, [], settings)
    held = {name: claims.judged(name, claim, rows)["holds"] for name, claim in experiment.claims.items()}
    return experiment.answer(rows, [], settings), experiment.explanation(rows, [], settings), held


def test_the_books_arithmetic():
    for name, ms in BOOK_MS.items():
        assert allreduce_seconds(schedule_of(CASES[name], 40_000_000), 160_000_000, BOOK_LINK) * 1e3 == pytest.approx(
            ms
        )
    assert BOOK_MS["server"] / BOOK_MS["sharded"] == pytest.approx(5.3, abs=0.05)


def test_sharded_is_dealt_as_many_equal_arrays_as_there_are_devices():
    assert schedule_of(CASES["sharded"], 10).sizes == (3, 3, 2, 2)
    assert schedule_of(CASES["server"], 10).devices == 5


@pytest.mark.parametrize("algorithm", CASES)
def test_the_oracle_compares_every_element_of_every_replica(algorithm):
    assert count(work.oracle(CASES[algorithm], SETTINGS)) == (4 * ODD, 0)


@pytest.mark.parametrize("replicas", [1, 2, 3, 6])
def test_a_server_sums_what_the_others_have(replicas):
    seconds, compared = summed(server(replicas + 1), cpus(replicas + 1), replicas, 1000, seed=1)
    assert seconds > 0
    assert count(compared) == (replicas * 1000, 0)


def server_adds_its_own(schedule):
    first = tuple(replace(send, action=ADD) for send in schedule.steps[0])
    return replace(schedule, steps=(first, *schedule.steps[1:]))


def a_step_left_out(schedule):
    return replace(schedule, steps=schedule.steps[:-1])


def a_device_left_out(schedule):
    return replace(schedule, steps=(*schedule.steps[:-1], schedule.steps[-1][1:]))


def a_chunk_off_by_one(schedule):
    step = tuple(replace(send, chunk=(send.chunk + 1) % schedule.chunks) for send in schedule.steps[-1])
    return replace(schedule, steps=(*schedule.steps[:-1], step))


@pytest.mark.parametrize(
    ("broken", "least"),
    [
        (server_adds_its_own(server(4)), 2000),
        (a_step_left_out(server(4)), 2000),
        (a_device_left_out(server(4)), 900),
        (a_step_left_out(naive(3)), 1900),
        (a_chunk_off_by_one(ring(3)), 900),
        (a_chunk_off_by_one(sharded(3, [400, 300, 300])), 900),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_broken_plan_is_caught(broken, least):
    sizes = [400] * 3 if broken.name == "sharded" else ()
    broken = replace(broken, sizes=tuple(sizes))
    checked, wrong = count(summed(broken, cpus(broken.devices), 3, 1200, seed=0)[1])
    assert checked == 3600
    assert least <= wrong <= checked


def test_a_sum_that_is_not_made_again_is_caught(monkeypatch):
    class Once(work.Program):
        def __call__(self):
            super().__call__()
            self.calls = []

    monkeypatch.setattr(work, "Program", Once)
    checked, wrong = count(summed(ring(2), cpus(2), 2, 1000, seed=0)[1])
    assert wrong == checked == 2000


def test_whole_arrays_are_arrays_of_their_own(monkeypatch):
    seen = []

    class Watched(work.Program):
        def __init__(self, schedule, places):
            seen.append(places)
            super().__init__(schedule, places)

    monkeypatch.setattr(work, "Program", Watched)
    for schedule in (sharded(2, [5, 5]), ring(2)):
        summed(schedule, cpus(2), 2, 10, seed=0)
    for places, views in zip(seen, (False, True)):
        chunks = places[0]
        assert [chunk.size for chunk in chunks] == [5, 5]
        # A view begins where its neighbour in the same memory ends.
        assert (_address(chunks[1]) == _address(chunks[0]) + 5 * 4) is views


def _address(array):
    pointer = ctypes.c_void_p()
    assert mx.base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer)) == 0
    return pointer.value


def test_a_round_has_its_predictions_and_the_machine_is_measured_once_a_round(monkeypatch):
    asked = []
    link = Link(1e-6, 1e-10)
    monkeypatch.setattr(work, "calibrate", lambda devices: asked.append(list(devices)) or CPU)
    monkeypatch.setattr(work, "measured_link", lambda *_: link)
    work._measured.cache_clear()
    for name in ("server", "ring"):
        ready = work.set_up(CASES[name], SETTINGS)
        assert ready.devices == cpus(5 if name == "server" else 4)
        first, second = one_round(ready), one_round(ready)
        schedule = server(5) if name == "server" else ring(4)
        assert first.seconds > 0
        assert (
            first.metrics
            == second.metrics
            == {
                "predicted_ms": predict(schedule, 4000, CPU) * 1e3,
                "textbook_ms": allreduce_seconds(schedule, 4000, link) * 1e3,
                "book_ms": allreduce_seconds(schedule, 4000, BOOK_LINK) * 1e3,
                "sent_bytes_busiest": 16000 if name == "server" else 6000,
                "wrong": 0,
            }
        )
    work._measured.cache_clear()
    assert asked == [cpus(4)] * 2


def test_wrong_sums_of_a_round_are_counted(monkeypatch):
    monkeypatch.setattr(work, "_measured", lambda *_: (CPU, BOOK_LINK))
    monkeypatch.setattr(work, "summed", lambda *_: (1.0, iter([([1, 2, 3], [1, 5, 6], 0.0)])))
    assert one_round(work.set_up(CASES["ring"], SETTINGS)).metrics["wrong"] == 2


def test_wrong_sums_of_all_rounds_are_added_up():
    wrong = row("ring", 1.0)
    wrong.rounds = {"wrong": [0, 3, 0, 0, 6]}
    ParameterServer().finish([wrong], [], SETTINGS)
    assert wrong.metrics["wrong"] == 9


def test_every_number_of_devices_must_show_the_order():
    rows = [row(name, ms, 4) for name, ms in BOOK_MS.items()] + [row(name, 1.0, 2) for name in BOOK_MS]
    assert set(judged(rows[:3])[2].values()) == {True}
    assert judged(rows, devices=(1, 2, 4))[2] == {"server_over_one": False, "one_over_parts": False, "wrong": True}


def test_wrong_sums_fail_a_claim_and_leave_no_answer():
    answer, _, held = judged([row("server", 8.0), row("naive", 6.0, wrong=1), row("sharded", 1.5)])
    assert held["wrong"] is False
    assert answer == "The timed sums were wrong for naive, so the times mean nothing."


def test_one_device_has_nothing_to_add_up():
    experiment, settings = ParameterServer(), {**SETTINGS, "devices": [1]}
    assert experiment.cases(settings) == []
    assert "nothing" in experiment.predict(settings, 2)
    assert experiment.answer([], [], settings) == "One device has nothing to add up."
    assert "--devices 4" in experiment.explanation([], [], settings)


@pytest.mark.parametrize(
    ("kind", "backend", "usable", "there"),
    [
        ("cpu", "mxnet-cu112", 8, True),
        ("gpu", "mxnet", 0, False),
        ("auto", "mxnet", 8, True),
        ("auto", "mxnet-cu112", 3, True),
        ("auto", "mxnet-cu112", 4, False),
    ],
)
def test_memory_is_shared_on_cpu_devices_alone(monkeypatch, kind, backend, usable, there):
    gpus = tuple(cuda.Gpu(index, "a GPU", (8, 0)) for index in range(usable))
    monkeypatch.setattr(process, "installed_backends", lambda: {backend: "1.9.1"})
    monkeypatch.setattr(cuda, "query_driver", lambda: cuda.Driver(gpus=gpus))
    names = [case.settings["algorithm"] for case in ParameterServer().cases({**SETTINGS, "kind": kind})]
    assert ("shared-memory" in names) is there


def test_several_numbers_of_devices_are_told_apart():
    labels = [case.label for case in ParameterServer().cases({**SETTINGS, "devices": [2, 4]})]
    assert len(set(labels)) == len(labels) == 12
    assert "2: ring" in labels
