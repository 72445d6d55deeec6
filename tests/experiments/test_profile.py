from __future__ import annotations

import shlex

import pytest

from mxdp.backend import mx, np
from mxdp.errors import UsageError
from mxdp.experiments.__main__ import parser
from mxdp.experiments.automatic_parallelism.profile import nsys_command
from mxdp.experiments.automatic_parallelism.work import profile as work
from mxdp.experiments.harness.experiment import Round, Work, find
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.measure.child import one_round
from mxdp.experiments.measure.timelines import recorded

PROFILE = find("profile")


def settings(**changes):
    return {**PROFILE.presets["quick"], **changes}


def test_its_cases_are_those_of_the_other_experiment():
    other = find("two-jobs")
    assert PROFILE.cases(settings()) == other.cases({**other.presets["quick"], "devices": [2]})
    assert {case.devices for case in PROFILE.cases(settings(devices=[3]))} == {3}
    assert "What two-jobs expects: " in PROFILE.predict(settings(), 2)


def test_cases_of_several_processes_are_left_out():
    labels = [case.label for case in PROFILE.cases(settings(of="epochs"))]
    assert labels == ["2 devices"]


def test_what_it_cannot_record():
    with pytest.raises(UsageError, match="no experiment is called 'two-job'; did you mean 'two-jobs'"):
        PROFILE.cases(settings(of="two-job"))
    with pytest.raises(UsageError, match="profile can't record itself"):
        PROFILE.cases(settings(of="profile"))


def test_one_that_records_its_own_rounds_is_refused(monkeypatch):
    other = Work([mx.cpu(0)], lambda: Round(1.0, recorded(lambda: np.ones((4,)), [mx.cpu(0)])))
    monkeypatch.setattr(type(find("two-jobs")), "set_up", lambda self, case, settings: other)
    with pytest.raises(UsageError, match="two-jobs records its own rounds: run it by itself"):
        one_round(work.set_up(PROFILE.cases(settings())[0], settings()))


def test_the_nsys_command_runs_the_same_experiment():
    words = shlex.split(nsys_command("two-jobs", ["--preset", "full", "--data-dir", "my data"]))
    assert words[:2] == ["nsys", "profile"]
    assert "--output=two-jobs" in words
    start = words.index("python")
    assert words[start : start + 3] == ["python", "-m", "mxdp.experiments"]
    options = parser().parse_args(words[start + 3 :])
    assert (options.names, options.preset, str(options.data_dir)) == (["two-jobs"], "full", "my data")


def test_a_round_is_a_plain_and_a_recorded_one_of_the_other(monkeypatch):
    times, done = [0.5, 0.6], []
    device = mx.cpu(0)

    def add():
        np.ones((4,), ctx=device)
        done.append(times[len(done)])
        return Round(done[-1])

    others = Work([device], add, case={"size": 3}, shared={"rate": 2.0})
    monkeypatch.setattr(type(find("two-jobs")), "set_up", lambda self, case, settings: others)
    ready = work.set_up(PROFILE.cases(settings())[0], settings())
    assert (ready.devices, ready.case, ready.shared, ready.record) == ([device], {"size": 3}, {"rate": 2.0}, None)
    measured = one_round(ready)
    assert (done, measured.seconds, measured.metrics) == (times, 0.6, {"cost": 0.6 / 0.5})
    assert measured.last["timeline"]
    assert measured.last["busy"]["cpu(0)"] > 0


def test_devices_that_the_profiler_does_not_know_are_refused(monkeypatch):
    monkeypatch.setattr(type(find("two-jobs")), "set_up", lambda *more: Work([mx.cpu(0)] * 99, lambda: Round(1.0)))
    monkeypatch.setattr(work, "recorded", lambda action, devices: {})
    with pytest.raises(UsageError, match="MXNet's profiler can't follow 99 CPU devices"):
        one_round(work.set_up(PROFILE.cases(settings())[0], settings()))


def test_its_oracle_is_that_of_the_other(monkeypatch):
    monkeypatch.setattr(type(find("two-jobs")), "oracle", lambda self, case, its: [(its["products"], case.label, 0.0)])
    case = PROFILE.cases(settings())[0]
    assert list(work.oracle(case, settings())) == [(50, case.label, 0.0)]


@pytest.mark.parametrize(("costs", "doubted"), [([1.2] * 6, False), ([1.3] * 6, True), ([1.2, 1.3] * 3, False)])
def test_timelines_that_cost_too_much_for_sure_are_doubted(costs, doubted):
    rows = [Row("at once", rounds={"cost": costs}), Row("alone", rounds={"cost": [1.0] * 6})]
    text = PROFILE.explanation(rows, [], settings())
    assert text.startswith(
        f"A recorded round takes at most {rows[0].estimate('cost'):.2f} times as long as a plain one."
    )
    assert ("Doubt timelines" in text) is doubted
    assert nsys_command("two-jobs", ["--kind", "gpu"]) in text
