import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from mxdp.datasets.fetch import FAILED
from mxdp.experiments import doctor
from mxdp.experiments.doctor import GOOD, LIMIT, PROBLEM


@pytest.fixture
def probe(monkeypatch):
    """What the child that tries MXNet answers."""

    def set_answer(**answer):
        whole = {"version": "1.9.1", "answers": [128.0, 128.0], "gpus": 0, "usable": 0, **answer}
        monkeypatch.setattr(doctor, "_probe", lambda: (whole, ""))

    set_answer()
    monkeypatch.setattr(doctor.psutil, "cpu_percent", lambda seconds: 0.0)
    return set_answer


def state(name):
    return next(check for check in doctor.checks() if check.name == name)


def versions(**known):
    return doctor.provenance, "versions", lambda: known


def backend(name):
    return doctor.process, "installed_backends", lambda: {name: "1.9.1"}


SHARED = SimpleNamespace(free=31 << 20, total=64 << 20)
ALONE = ["AttributeError: module 'numpy' has no attribute 'bool'", "AttributeError: `np.PZERO` was removed"]


@pytest.mark.parametrize(
    ("patches", "answer", "name", "expected", "cure"),
    [
        ([(doctor.sys, "version_info", (3, 14))], {}, "Python", LIMIT, "tested up to Python 3.13"),
        ([versions(numpy="1.23.5", d2l="1.0.3")], {}, "NumPy", GOOD, ""),
        ([versions(numpy="1.26.4", d2l="1.0.3")], {}, "NumPy", LIMIT, f"ends in: {ALONE[0]}"),
        ([versions(numpy="2.0.0")], {}, "NumPy", LIMIT, f"ends in: {ALONE[1]}"),
        ([versions(numpy="2.0.0")], {}, "d2l", LIMIT, "pip install --no-deps d2l==1.0.3"),
        ([(doctor.process, "cores", lambda: 1)], {}, "cores", LIMIT, "can't show a speed-up"),
        ([(doctor.psutil, "disk_usage", lambda path: SHARED)], {}, "/dev/shm", LIMIT, "--shm-size="),
        ([backend("mxnet")], {}, "GPUs", LIMIT, "experiments use CPU devices"),
        ([backend("mxnet")], {"gpus": 2, "usable": 2}, "GPUs", GOOD, ""),
        ([backend("mxnet-cu112"), (doctor.cuda, "problems", lambda: ["old."])], {}, "GPUs", PROBLEM, "old."),
        ([], {"answers": [128.0, 0.0]}, "MXNet", PROBLEM, "install it again"),
        ([(doctor.process, "install_problem", lambda: "NumPy is too new.")], {}, "MXNet", PROBLEM, "NumPy is too new."),
    ],
)
def test_each_check_says_what_to_do(probe, monkeypatch, patches, answer, name, expected, cure):
    for patch in patches:
        monkeypatch.setattr(*patch)
    probe(**answer)
    check = state(name)
    assert (check.state, bool(check.cure)) == (expected, bool(cure))
    assert cure in check.cure
    assert (len(check.found.splitlines()) > 2) is (cure == f"ends in: {ALONE[1]}"), "its failures are listed"


def test_what_mxnet_says_on_a_new_numpy_is_quoted():
    install = (Path(__file__).parents[2] / "docs" / "install.md").read_text(encoding="utf-8")
    assert all(words in install for words in ALONE)


def test_the_users_variables_that_spoil_devices_are_a_problem_and_ours_are_not(probe, monkeypatch):
    assert state("variables").found == "none set by you"
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    check = state("variables")
    assert (check.state, "OMP_NUM_THREADS" in check.cure) == (PROBLEM, True)


@pytest.mark.parametrize(
    ("program", "seconds", "answer"),
    [
        ("import time; time.sleep(60)", 0.1, "importing MXNet did not end within 0.1 s; install it again"),
        ("raise RuntimeError('mxdp.errors.BackendError: one sentence')", 60, "one sentence"),
        ("import os; os._exit(3)", 60, "the import ended with status 3"),
    ],
)
def test_an_import_that_hangs_or_fails_is_an_answer(program, seconds, answer, monkeypatch):
    monkeypatch.setattr(doctor, "PROBE", program)
    monkeypatch.setattr(doctor, "IMPORT_SECONDS", seconds)
    assert doctor._probe()[1].startswith(answer)


def test_data(probe, monkeypatch, tmp_path):
    monkeypatch.setenv("MXDP_DATA_DIR", str(tmp_path))
    assert state("Fashion-MNIST").state == PROBLEM
    for file in doctor.FILES:
        (tmp_path / file.name).write_text("")
    assert state("Fashion-MNIST").state == GOOD
    monkeypatch.delenv("MXDP_DATA_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for offline, cure in (("0", "it is downloaded when first needed"), ("1", "MXDP_OFFLINE forbids downloading it")):
        monkeypatch.setenv("MXDP_OFFLINE", offline)
        assert state("Fashion-MNIST").state == LIMIT
        assert state("Fashion-MNIST").cure.startswith(cure)
    failed = tmp_path / "mxdp" / "fashion-mnist" / FAILED
    failed.parent.mkdir(parents=True)
    failed.write_text("x could not be downloaded")
    assert state("Fashion-MNIST").found.startswith("x could not be downloaded less than an hour ago; delete ")
    assert doctor.main(as_json=True) == 0, "a limit is no problem"


def test_the_table_keeps_brackets(monkeypatch, capsys):
    check = doctor.Check("MXNet", PROBLEM, "not installed", 'do `pip install "mxdp[cpu]"`')
    monkeypatch.setattr(doctor, "checks", lambda: [check])
    assert doctor.main(as_json=False) == 1
    assert "mxdp[cpu]" in capsys.readouterr().out
    assert doctor.main(as_json=True) == 1
    assert json.loads(capsys.readouterr().out) == [check._asdict()]


def test_it_finds_no_problem_with_mxnet():
    assert state("MXNet").state == GOOD
