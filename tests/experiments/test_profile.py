from __future__ import annotations

import shlex

import pytest

from mxdp.errors import UsageError
from mxdp.experiments.__main__ import parser
from mxdp.experiments.automatic_parallelism.profile import nsys_command
from mxdp.experiments.harness.experiment import find

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


def test_the_nsys_command_runs_the_same_experiment():
    words = shlex.split(nsys_command("two-jobs", ["--preset", "full", "--data-dir", "my data"]))
    assert words[:2] == ["nsys", "profile"]
    assert "--output=two-jobs" in words
    start = words.index("python")
    assert words[start : start + 3] == ["python", "-m", "mxdp.experiments"]
    options = parser().parse_args(words[start + 3 :])
    assert (options.names, options.preset, str(options.data_dir)) == (["two-jobs"], "full", "my data")
