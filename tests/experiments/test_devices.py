"""What several questions place, time and record."""

import pytest

from mxdp.backend import mx, np
from mxdp.experiments import devices as work
from mxdp.experiments import timelines
from mxdp.experiments.devices import devices_of, mean_seconds
from mxdp.experiments.lab import Case, Settings
from mxdp.tracing import Event, Timeline

CPUS = [mx.cpu(0), mx.cpu(1)]
USERS = {"PATH": "/bin", "MXNET_CPU_TEMP_COPY": "128", "MXNET_CPU_WORKER_NTHREADS": "7", "OMP_NUM_THREADS": "4"}
STOCK = {"PATH": "/bin", "MXDP_PREPARE": "0"}
ONE = {"OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    ("case", "counts", "kind", "expected"),
    [
        (Case("one GPU is not compared with two CPUs"), [1, 2], "auto", [CPUS[:1]]),
        (Case("two", 2), [1, 2], "auto", [CPUS]),
        (Case("one GPU alone is used"), [1], "auto", [[mx.gpu(0)]]),
        (Case("unless CPUs are asked for"), [1], "cpu", [CPUS[:1]]),
        (Case("processes get a device each", processes=2), [1, 2], "auto", [CPUS[:1], CPUS[1:]]),
        (Case("ranks that exchange share what there is", processes=2, engine="mpi"), [1], "auto", [[mx.gpu(0)]] * 2),
    ],
    ids=lambda value: getattr(value, "label", None),
)
def test_the_largest_case_decides_the_kind_for_all(monkeypatch, case, counts, kind, expected):
    """On a machine with one GPU."""
    machine = lambda n, kind: [mx.gpu(0)] if n == 1 and kind != "cpu" else [mx.cpu(i) for i in range(n)]  # noqa: E731
    monkeypatch.setattr(work, "devices", machine)
    for case.process, devices in enumerate(expected):
        assert devices_of(case, Settings(devices=counts, kind=kind)) == devices


@pytest.mark.parametrize(("at_least", "calls"), [(10, 5), (1e-9, work.FEWEST)])
def test_a_mean_is_of_several_calls_and_splits_off_the_front_end(virtual, at_least, calls):
    """A call takes a second, and so does the wait; none of it is Python's."""
    x = np.ones(1)
    assert mean_seconds(lambda: x + 1, at_least) == (0, (calls + 1) / calls)


@pytest.mark.parametrize(
    ("of", "devices", "cores", "expected"),
    [
        # Two large products at the same time hang for ever with two OpenMP threads, which MXNet takes from 4 cores on.
        (work.defaults, 1, 8, STOCK),
        (work.defaults, 2, 2, STOCK),
        (work.defaults, 2, 4, {**STOCK, **ONE}),
        (work.workers, 2, 2, {**USERS, **ONE, **dict.fromkeys(work.workers(2), "2"), **ONE}),
    ],
)
def test_what_a_case_of_another_engine_is_started_with(monkeypatch, of, devices, cores, expected):
    monkeypatch.setattr(work.process, "cores", lambda: cores)
    changed = {**USERS, **of(devices)}
    assert {name: value for name, value in changed.items() if value is not None} == expected


def test_shares_by_hand_and_a_timeline_if_it_is_not_too_long(monkeypatch):
    events = [("cpu(0)", "dot", "compute", 0.0, 2.0), ("cpu(1)", "_copyto", "copy", 1.0, 4.0)]
    timeline = Timeline(4.0, tuple(Event(*event) for event in events))
    for most in (2, 1):
        monkeypatch.setattr(timelines, "MOST_EVENTS", most)
        metrics = timelines.timeline_shares(timeline)
        assert (metrics["busy"], metrics["critical"]) == ({"cpu(0)": 0.5, "cpu(1)": 0.75}, "cpu(1)")
        assert (metrics["together"], metrics["beside"], metrics["hidden"]) == (0.25, 0.25, pytest.approx(1 / 3))
        assert ("timeline" in metrics) is (most == 2)


def test_what_has_no_work_has_no_timeline_but_all_shares():
    shares = timelines.timeline_shares(Timeline(1.0, (Event("cpu(0)", "dot", "compute", 0.0, 1.0),)))
    nothing = timelines.recorded(lambda: None, CPUS)
    assert set(nothing) == set(shares) - {"timeline"}
    assert not any(nothing[name] for name in ("busy", "together", "beside", "hidden"))
