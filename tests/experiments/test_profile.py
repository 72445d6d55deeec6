from __future__ import annotations

import pytest
from littles import little

from mxdp.backend import mx, np
from mxdp.errors import UsageError
from mxdp.experiments.automatic_parallelism import profile, two_jobs
from mxdp.experiments.lab import Case, Work
from mxdp.experiments.lab.module import Question
from mxdp.experiments.timelines import recorded

SETTINGS = little(Question(profile), kind="cpu")
CASES = list(profile.cases(SETTINGS))
CPU = mx.cpu(0)


def test_its_cases_are_those_of_the_other_question_in_one_process_with_its_settings(monkeypatch):
    own = two_jobs.cases(little(Question(two_jobs)))
    assert [(case.label, case.settings, case.environment) for case in CASES] == [
        (case.label, case.settings, case.environment) for case in own
    ]
    assert {case.devices for case in profile.cases(little(Question(profile), devices=[3]))} == {3}
    assert profile.expect(SETTINGS, 2).startswith("What two-jobs expects: ")
    monkeypatch.setattr(two_jobs, "cases", lambda s: [Case("2 processes", processes=2), Case("alone")])
    assert [case.label for case in profile.cases(SETTINGS)] == ["alone"]


@pytest.mark.parametrize(
    ("of", "message"),
    [
        ("two-job", "no experiment is called 'two-job'; did you mean 'two-jobs'"),
        ("profile", "profile can't record itself"),
    ],
)
def test_what_it_cannot_record(of, message):
    with pytest.raises(UsageError, match=message):
        profile.cases(little(Question(profile), of=of))


def ready(monkeypatch, work):
    monkeypatch.setattr(two_jobs, "set_up", lambda case, s: work)
    return profile.set_up(CASES[0], SETTINGS)


def test_one_that_records_its_own_rounds_is_refused(monkeypatch):
    work = Work(lambda: (1.0, recorded(lambda: np.ones((4,)), [CPU])), [CPU])
    with pytest.raises(UsageError, match="two-jobs records its own rounds: run it by itself"):
        ready(monkeypatch, work).round()


def test_devices_that_the_profiler_does_not_know_are_refused(monkeypatch):
    monkeypatch.setattr(profile, "recorded", lambda action, devices: {})
    with pytest.raises(UsageError, match="MXNet's profiler can't follow 99 CPU devices"):
        ready(monkeypatch, Work(lambda: 1.0, [CPU] * 99)).round()


@pytest.mark.parametrize("answer", [lambda took: took, lambda took: (took, {"more": 1}), lambda took: None])
def test_a_round_is_a_plain_and_a_recorded_one_of_the_other(monkeypatch, virtual, answer):
    times, done = [0.5, 0.6], []

    def add():
        np.ones((4,), ctx=CPU)
        done.append(times[len(done)])
        return answer(done[-1])

    other = Work(add, [CPU], size=3)
    found = ready(monkeypatch, other)
    assert (found.devices, found.facts, found.record) == ([CPU], {"size": 3}, None)
    seconds, numbers = found.round()
    assert done == times
    assert (seconds, numbers["cost"]) == ((0.6, 0.6 / 0.5) if answer(1) else (2.0, 1.0))
    assert numbers["timeline"]
    assert list(numbers["busy"]) == ["cpu(0)"]
