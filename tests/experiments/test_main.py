"""The command line: what is printed, where, and the exit status."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import faulty
import psutil
import pytest
from littles import record

from mxdp import experiments
from mxdp.errors import UsageError
from mxdp.experiments import __main__ as command
from mxdp.experiments.__main__ import main
from mxdp.experiments.lab import result
from mxdp.experiments.lab import run as lab_run
from mxdp.experiments.lab.module import Question, discover
from mxdp.experiments.show import page

# mxdp.experiments.show import listing
HERE = str(Path(__file__).parent)
MADE = {"MXDP_EXPERIMENTS": "faulty", "PYTHONPATH": os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH")]))}


@pytest.fixture
def run(monkeypatch, capsys):
    """``run(*arguments)``: what this command line prints, and its exit status. It knows the question `faulty`."""
    for name, value in {**MADE, "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(psutil, "cpu_percent", lambda seconds: 0.0)

    def called(*arguments):
        try:
            status = main([*map(str, arguments)])
        except SystemExit as stop:  # argparse's way
            status = stop.code
        return subprocess.CompletedProcess(arguments, status, *capsys.readouterr())

    return called


def sentence(done, status=2):
    """The one line that a refused call prints."""
    assert done.returncode == status
    assert done.stdout == ""
    return done.stderr.strip().splitlines()[-1]


def test_list_names_every_question_and_what_it_answers(run):
    known = json.loads(Path(experiments.__file__).with_name("reference.json").read_text(encoding="utf-8"))
    answers = known["answers"]
    found = {one["name"]: one for one in json.loads(run("list", "--json").stdout)}
    for name, question in discover().items():
        one = dict(name=name, question=question.question, source=question.SOURCE, answer=answers.get(name))
        assert found[name] == {**found[name], **one, "tour": name in ("epochs", "two-jobs")}
    assert found.keys() == discover().keys()
    said = run("list").stdout
    assert max(map(len, said.splitlines())) <= 80
    shown = " ".join(said.split())
    assert f"Answers were measured {known['measured']} Each takes about a minute with --preset quick." in shown
    assert shown.count("No answer yet: the reference results don't have it.") == len({*discover()} - {*answers})
    assert re.search(r"^epochs +What does .*\n^in the tour +", said, re.MULTILINE)


def test_all_runs_every_question_once_but_the_one_that_repeats_another(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(command, "ask", lambda *given: asked.append(given) or True)
    assert main(["run", "epochs", "all", "--preset", "full", "--out", str(tmp_path)]) == 0
    assert main([]) == 0
    (every, *_, here), (tour, _, lengths, folder) = (given[:4] for given in asked)
    assert sorted(question.name for question in every) == sorted(set(discover()) - {"profile"})
    assert [question.name for question in tour] == ["epochs", "two-jobs"]
    assert {(s["minutes"], s["processes"]) for s in lengths.values()} == {(0.5, None)}
    assert (here, folder.parent) == (tmp_path, Path("runs"))
    assert time.strptime(folder.name, "%Y-%m-%d_%H-%M-%S")


def test_a_run_prints_a_table_an_answer_and_a_report(run, tmp_path):
    done = run("run", "faulty", "--processes", 1, "--out", tmp_path / "out")
    assert done.returncode == 0
    assert ("It takes 0.25 s." in done.stdout, "It takes at most 0.3 s." in done.stdout) == (True, False)
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 80
    assert (tmp_path / "out" / "report.html").is_file()
    done = run("report", tmp_path / "out", "--picture", "faulty", "--panel", 1)
    assert Path(done.stdout.strip()) == tmp_path / "out" / "faulty-panel-1.png"
    assert Path(run("report", tmp_path / "out", "--slides").stdout.strip()).is_file()


@pytest.fixture
def ask(monkeypatch, tmp_path):
    """A function that asks one question after another, with a stand-in for what measures them."""

    def asked(measure, *more, as_json=True):
        monkeypatch.setattr(lab_run, "run", measure)
        lengths = {"faulty": {"processes": 1, "minutes": None}}
        return command.ask([Question(faulty), *more], "quick", lengths, tmp_path, as_json, False, {})

    return asked


def test_ctrl_c_while_the_report_is_written_waits_for_it(tmp_path, monkeypatch, ask):
    """Also where nobody reads what is printed."""
    write = page.write_report

    def interrupted(folder):
        signal.raise_signal(signal.SIGINT)
        return write(folder)

    def kept(question, preset, settings, folder, progress):
        result.write(record("faulty"), folder)
        monkeypatch.setattr(sys, "stdout", open("/dev/full", "w"))  # noqa: SIM115
        return record("faulty")

    monkeypatch.setattr(page, "write_report", interrupted)
    with pytest.raises((KeyboardInterrupt, OSError)):
        ask(kept, as_json=False)
    assert (tmp_path / "report.html").exists()


def test_a_failure_is_exit_status_1_and_the_others_complete(ask, capsys):
    found = [record(status="failed", error="it fell"), record()]
    assert not ask(mock.Mock(side_effect=found), Question(faulty))
    assert json.loads(capsys.readouterr().out) == found


@pytest.mark.parametrize(("error", "measured"), [(None, [record()]), (RuntimeError, []), (KeyboardInterrupt, None)])
def test_a_defect_and_a_damaged_file_cost_no_result_and_hide_no_interrupt(error, measured, tmp_path, ask, capsys):
    (tmp_path / "epochs").mkdir()
    (tmp_path / "epochs" / "1.json").write_text('{"experiment"')
    with nullcontext() if measured is not None else pytest.raises(error):
        assert not ask(mock.Mock(side_effect=error, return_value=record()))
    said = capsys.readouterr()
    assert measured is None or json.loads(said.out) == measured
    assert f"mxdp: there is no report: {tmp_path / 'epochs' / '1.json'} is damaged" in said.err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("run epoch", "no experiment is called 'epoch'; did you mean 'epochs'?"),
        ("run two-jobs --data digits", "--data has no effect on two-jobs"),
        ("run epochs --minutes 1 --processes 2", "epochs: give minutes or processes, not both"),
        ("run epochs --data fashion", "no data set is called 'fashion'"),
        ("run epochs --devices two", "'two' is not a list of numbers, as in 1,2"),
        ("run faulty --preset deep.toml", "mxdp: --preset deep.toml: not a TOML file that can be read"),
        ("run faulty --out deep.toml/out", "can't write results to the folder"),
        ("report runs --panel 2", "name it with --picture NAME"),
    ],
)
def test_bad_usage_is_one_sentence_and_exit_status_2(line, expected, tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("deep.toml").write_text(f"[faulty]\nfaults = {'[' * 3000}{']' * 3000}\n")
    assert expected in sentence(run(*line.split()))
    assert [path.name for path in tmp_path.iterdir()] == ["deep.toml"]


def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_is_measured(ask, monkeypatch):
    denied = PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr(command.tempfile, "TemporaryFile", mock.Mock(side_effect=denied))
    with pytest.raises(UsageError, match=r"can't write results to the folder .*: Permission denied; name another"):
        ask(None)


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_run_finds_a_question_in_the_folder_that_it_was_called_from(tmp_path):
    own = "'''Found?'''\nPRESETS = {'quick': {}}\ncases = expect = oracle = set_up = tell = None\n"
    (tmp_path / "made_from_here.py").write_text(own)
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "ARGS"))}
    env = {**outer, "PWD": str(tmp_path), "MXDP_EXPERIMENTS": "made_from_here"}
    make = ["make", "--silent", "-C", Path(HERE).parents[1], "run", "install=@:", f"python={sys.executable}"]
    said = subprocess.check_output([*make, "ARGS=list --json"], cwd=tmp_path, env=env, text=True, timeout=120)
    assert '"made-from-here"' in said


def test_wrong_data_are_told_before_anything_is_measured(run, tmp_path):
    (tmp_path / "own").mkdir()
    for name in ("new", "own"):
        done = run("run", "two-jobs", "epochs", "--data-dir", tmp_path / "none", "--out", tmp_path / name)
        assert "is not a folder" in sentence(done, status=1)
    assert [path.name for path in tmp_path.rglob("*")] == ["own"], "no folder is left behind, and none taken away"
