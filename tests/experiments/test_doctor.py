from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mxdp.experiments import doctor
from mxdp.experiments.doctor import GOOD, LIMIT, PROBLEM


@pytest.fixture
def probe(monkeypatch):
    """What the child that tries MXNet answers."""

    def set_answer(**answer):
        whole = {"version": "1.9.1", "answers": [128.0, 128.0], "gpus": 0, "usable": 0, **answer}
        monkeypatch.setattr(doctor, "_probe", lambda: (whole, ""))

    set_answer()
    return set_answer


def state(name):
    return next(check for check in doctor.checks() if check.name == name)


def test_this_machine_has_no_problem_with_mxnet():
    assert state("MXNet").state == GOOD


@pytest.mark.parametrize(("python", "expected"), [((3, 8), GOOD), ((3, 13), GOOD), ((3, 14), LIMIT)])
def test_a_python_that_nobody_tried_is_a_limit(probe, monkeypatch, python, expected):
    monkeypatch.setattr(doctor.sys, "version_info", python)
    assert state("Python").state == expected


def test_on_numpy_2_what_mxnet_fails_is_listed(probe, monkeypatch):
    monkeypatch.setattr(doctor.provenance, "versions", lambda: {"numpy": "1.26.4", "d2l": "1.0.3"})
    error = "AttributeError: module 'numpy' has no attribute 'bool'"
    quoted = f"import mxdp before mxnet; otherwise `import mxnet` ends in: {error}"
    assert error in (Path(__file__).parents[2] / "docs" / "install.md").read_text(encoding="utf-8")
    assert state("NumPy") == doctor.Check("NumPy", LIMIT, "1.26.4", quoted)
    assert state("d2l") == doctor.Check("d2l", GOOD, "1.0.3")
    monkeypatch.setattr(doctor.provenance, "versions", lambda: {"numpy": "2.0.0"})
    check = state("NumPy")
    assert check.state == LIMIT
    assert check.found.startswith("2.0.0; ")
    assert "test_metric::test_acc" in doctor.DIFFERENCES.read_text()
    assert len(check.found.splitlines()) > 2
    assert str(doctor.DIFFERENCES) in check.cure
    assert quoted in check.cure
    for version in ("1.23.5", "1.9.3"):
        monkeypatch.setattr(doctor.provenance, "versions", lambda version=version: {"numpy": version})
        assert state("NumPy") == doctor.Check("NumPy", GOOD, version)
    monkeypatch.setattr(doctor.provenance, "versions", lambda: {"numpy": "2.0.0"})
    assert "pip install --no-deps d2l==1.0.3" in state("d2l").cure


def test_one_core_cannot_show_a_speed_up(probe, monkeypatch):
    monkeypatch.setattr(doctor.process, "cores", lambda: 1)
    check = state("cores")
    assert check.state == LIMIT
    assert "can't show a speed-up" in check.cure


def test_the_users_variables_that_spoil_devices_are_a_problem(probe, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    check = state("variables")
    assert check.state == PROBLEM
    assert "OMP_NUM_THREADS" in check.cure


def test_our_own_preparation_is_not_taken_for_the_users(probe):
    assert state("variables").found == "none set by you"


@pytest.mark.parametrize(("answer", "expected"), [({}, LIMIT), ({"gpus": 2, "usable": 2}, GOOD)])
def test_gpus(probe, monkeypatch, answer, expected):
    monkeypatch.setattr(doctor.process, "installed_backends", lambda: {"mxnet": "1.9.1"})
    probe(**answer)
    assert state("GPUs").state == expected


def test_the_gpu_build_without_gpus_is_a_problem_with_its_reason(probe, monkeypatch):
    monkeypatch.setattr(doctor.process, "installed_backends", lambda: {"mxnet-cu112": "1.9.1"})
    monkeypatch.setattr(doctor.cuda, "problems", lambda: ["the driver is too old."])
    assert state("GPUs") == doctor.Check("GPUs", PROBLEM, "MXNet sees 0 and can use 0", "the driver is too old.")


def test_a_wrong_installation_is_named_and_mxnet_not_tried(monkeypatch):
    monkeypatch.setattr(doctor.process, "install_problem", lambda: "NumPy is too new.")
    monkeypatch.setattr(doctor, "_probe", lambda: pytest.fail("tried"))
    assert state("MXNet").cure == "NumPy is too new."


def test_wrong_arithmetic_is_a_problem(probe):
    probe(answers=[128.0, 0.0])
    assert state("MXNet").state == PROBLEM


def test_an_import_that_hangs_or_fails_is_an_answer(monkeypatch):
    monkeypatch.setattr(doctor, "PROBE", "import time; time.sleep(60)")
    monkeypatch.setattr(doctor, "IMPORT_SECONDS", 1)
    assert doctor._probe()[1].startswith("importing MXNet did not end within 1 s")
    monkeypatch.setattr(doctor, "IMPORT_SECONDS", 60)
    monkeypatch.setattr(doctor, "PROBE", "raise RuntimeError('mxdp.errors.BackendError: one sentence')")
    assert doctor._probe() == ({}, "one sentence")
    monkeypatch.setattr(doctor, "PROBE", "import os; os._exit(3)")
    assert doctor._probe() == ({}, "the import ended with status 3")


def test_data(probe, monkeypatch, tmp_path):
    monkeypatch.setenv("MXDP_DATA_DIR", str(tmp_path))
    assert state("Fashion-MNIST").state == PROBLEM
    for file in doctor.FILES:
        (tmp_path / file.name).write_text("")
    assert state("Fashion-MNIST").state == GOOD
    monkeypatch.delenv("MXDP_DATA_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    assert state("Fashion-MNIST").state == LIMIT


@pytest.mark.parametrize(("broken", "status"), [(False, 0), (True, 1)])
def test_exit_status_and_json(probe, monkeypatch, capsys, tmp_path, broken, status):
    monkeypatch.delenv("MXDP_DATA_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if broken:
        probe(answers=[0.0, 0.0])
    assert doctor.main(as_json=True) == status
    checks = json.loads(capsys.readouterr().out)
    assert [set(check) for check in checks] == [{"name", "state", "found", "cure"}] * len(checks)
    assert any(check["state"] == PROBLEM for check in checks) is broken


def test_the_table_keeps_brackets_and_fits_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    doctor._print([doctor.Check("MXNet", PROBLEM, "not installed", 'do `pip install "mxdp[cpu]"` ' + "now " * 30)])
    out = capsys.readouterr().out
    assert "mxdp[cpu]" in out
    assert max(map(len, out.splitlines())) <= 80


def test_it_runs_as_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "mxdp.experiments", "doctor", "--json"], capture_output=True, text=True, timeout=120
    )
    assert {check["name"] for check in json.loads(done.stdout)} >= {"Python", "MXNet", "cores", "GPUs"}
