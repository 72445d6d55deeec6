"""The command line: what is printed, where, and the exit status."""

from __future__ import annotations

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
from mxdp.experiments.show import listing, page

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


def results(folder, name="faulty"):
    return [result.read(path) for path in sorted((folder / name).glob("*.json"))]


def test_list_names_every_question_and_what_it_answers(run):
    known = json.loads(Path(experiments.__file__).with_name("reference.json").read_text(encoding="utf-8"))
    found = {one["name"]: one for one in json.loads(run("list", "--json").stdout)}
    for name, question in discover().items():
        one = found.pop(name)
        assert (one["question"], one["source"]) == (question.question, question.SOURCE)
        assert one["tour"] is (name in ("epochs", "two-jobs"))
        assert one["answer"] == known["answers"].get(name)
    assert found == {}
    said = run("list").stdout
    assert max(map(len, said.splitlines())) <= 80
    shown = " ".join(said.split())
    assert f"Answers were measured {known['measured']} Each takes about a minute with --preset quick." in shown
    assert shown.count("No answer yet: the reference results don't have it.") == len(
        set(discover()) - {*known["answers"]}
    )
    assert re.search(r"^epochs +What does .*\n^in the tour +", said, re.MULTILINE)
    assert listing.about("x", {"processes": 2, "minutes": None}) == "x: 2 processes of each case"
    assert listing.about("x", {"processes": None, "minutes": 2.0}) == "x: about 2 min"


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


def test_a_run_prints_a_table_an_answer_and_a_report_and_why_if_asked(run, tmp_path):
    done = run("run", "faulty", "--out", tmp_path / "out")
    assert done.returncode == 0
    assert ("It takes 0.25 s." in done.stdout, "prediction   Good, soon." in done.stdout) == (True, True)
    assert "It takes at most 0.3 s." not in done.stdout
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 80
    assert (tmp_path / "out" / "report.html").is_file()
    done = run("run", "faulty", "--processes", 1, "--why", "--json", "--out", tmp_path / "out")
    assert json.loads(done.stdout) == results(tmp_path / "out")[1:]
    done = run("report", tmp_path / "out", "--picture", "faulty", "--panel", 1)
    assert Path(done.stdout.strip()) == tmp_path / "out" / "faulty-panel-1.png"
    assert Path(run("report", tmp_path / "out", "--slides").stdout.strip()).is_file()


@pytest.mark.parametrize("seen", [True, False])
def test_ctrl_c_while_the_report_is_written_waits_for_it(seen, tmp_path, monkeypatch, capsys):
    """Also where nobody reads what is printed."""
    measured, write = [], page.write_report

    def interrupted(folder):
        signal.raise_signal(signal.SIGINT)
        return write(folder)

    def kept(question, preset, settings, folder, progress):
        result.write(record("faulty"), folder)
        measured.append(question)
        if not seen:
            monkeypatch.setattr(sys, "stdout", open("/dev/full", "w"))  # noqa: SIM115
        return record("faulty")

    monkeypatch.setattr(lab_run, "run", kept)
    monkeypatch.setattr(page, "write_report", interrupted)
    with pytest.raises((KeyboardInterrupt, OSError)):
        command.ask([Question(faulty)], "quick", {"faulty": {"processes": 1}}, tmp_path, False, False, {})
    assert measured
    assert (tmp_path / "report.html").exists()
    assert "there is no report" not in capsys.readouterr().err


def test_a_failure_is_exit_status_1_and_the_others_complete(run, tmp_path):
    path = tmp_path / "faults.toml"
    path.write_text("[faulty]\nfaults = 'raises in round'\n[links]\nsizes = [4, 8]\n")
    done = run("run", "faulty", "links", "--preset", path, "--out", tmp_path, "--processes", 1)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert [results(tmp_path, name)[0]["status"] for name in ("faulty", "links")] == ["failed", "ok"]


@pytest.mark.parametrize(("error", "measured"), [(None, [record()]), (RuntimeError, []), (KeyboardInterrupt, None)])
def test_a_defect_and_a_damaged_file_cost_no_result_and_hide_no_interrupt(
    error, measured, tmp_path, monkeypatch, capsys
):
    (tmp_path / "epochs").mkdir()
    (tmp_path / "epochs" / "1.json").write_text('{"experiment"')
    monkeypatch.setattr(lab_run, "run", mock.Mock(side_effect=error, return_value=record()))
    with nullcontext() if measured is not None else pytest.raises(error):
        assert not command.ask(
            [Question(faulty)], "quick", {"faulty": {"processes": 1, "minutes": None}}, tmp_path, True, False, {}
        )
    said = capsys.readouterr()
    assert measured is None or json.loads(said.out) == measured
    assert f"mxdp: there is no report: {tmp_path / 'epochs' / '1.json'} is damaged" in said.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "epoch"], "no experiment is called 'epoch'; did you mean 'epochs'?"),
        (["run", "two-jobs", "--data", "digits"], "--data has no effect on two-jobs"),
        (["run", "epochs", "--data", "fashion"], "no data set is called 'fashion'"),
        (["run", "epochs", "--preset", "quik"], "did you mean 'quick'?"),
        (["run", "epochs", "--minutes", "0"], "minutes must be more than 0, not 0.0"),
        (["run", "epochs", "--minutes", "1", "--processes", "2"], "epochs: give minutes or processes, not both"),
        (["run", "epochs", "--devices", "two"], "'two' is not a list of numbers, as in 1,2"),
        (["run", "epochs", "--kind", "tpu"], "invalid choice: 'tpu'"),
        (["run"], "required: NAME"),
        (["runn"], "invalid choice: 'runn'"),
        (["report", "/nowhere/at/all"], "/nowhere/at/all"),
        (["report", "/nowhere/at/all", "--picture", "epochs"], "there is no folder /nowhere/at/all; give one"),
        (["report", "runs", "--picture", "epochs", "--slides"], "not allowed with argument"),
        (["report", "runs", "--panel", "2"], "name it with --picture NAME"),
        (["compare", ".", "no-such-commit", "two-jobs"], "no-such-commit is neither a folder with a checkout"),
        (["compare", "/nowhere", "/either"], "there is no folder /nowhere"),
    ],
)
def test_bad_usage_is_one_sentence_and_exit_status_2(arguments, expected, tmp_path, run):
    out = ["--out", tmp_path / "out"] if arguments[:1] == ["run"] else []
    assert expected in sentence(run(*arguments, *out))


def test_a_preset_that_is_nested_too_deeply_is_one_sentence(run, tmp_path):
    path = tmp_path / "deep.toml"
    path.write_text(f"[faulty]\nfaults = {'[' * 3000}{']' * 3000}\n")
    said = sentence(run("run", "faulty", "--preset", path, "--out", tmp_path / "out"))
    assert said.startswith(f"mxdp: --preset {path}: not a TOML file that can be read")


def test_a_folder_that_cannot_be_made_or_written_to_is_refused_before_anything_is_measured(run, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    words = "can't write results to the folder"
    assert words in sentence(run("run", "faulty", "--out", tmp_path / "file" / "out"))

    def denied(**_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(command.tempfile, "TemporaryFile", denied)
    with pytest.raises(UsageError, match=f"{words} .*: Permission denied; name another with --out"):
        command.ask([Question(faulty)], "quick", {"faulty": {}}, tmp_path, False, False, {})


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_run_finds_a_question_in_the_folder_that_it_was_called_from(tmp_path):
    own = "'''Found?'''\nPRESETS = {'quick': {}}\ncases = expect = oracle = set_up = tell = None\n"
    (tmp_path / "made_from_here.py").write_text(own)
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "ARGS"))}
    command = ["make", "--silent", "-C", Path(HERE).parents[1], "run", "install=@:", f"python={sys.executable}"]
    done = subprocess.run(
        [*command, "ARGS=list --json"],
        cwd=tmp_path, env={**outer, "PWD": str(tmp_path), "MXDP_EXPERIMENTS": "made_from_here"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert '"made-from-here"' in done.stdout


def test_wrong_data_are_told_before_anything_is_measured(run, tmp_path):
    (tmp_path / "own").mkdir()
    for name in ("new", "own"):
        done = run("run", "two-jobs", "epochs", "--data-dir", tmp_path / "none", "--out", tmp_path / name)
        assert "is not a folder" in sentence(done, status=1)
    assert [path.name for path in tmp_path.rglob("*")] == ["own"], "no folder is left behind, and none taken away"


def test_two_checkouts_are_measured_in_turns(run, tmp_path):
    done = run("compare", HERE + "/../..", HERE + "/../..", "faulty", "--quick", "--json")
    (found,) = json.loads(done.stdout)
    assert done.returncode == 0
    assert "faulty" in done.stderr.splitlines()[0]  # before anything is measured, with its time where that is known
    assert re.findall(r"(\d) process(?:es)? of each case", done.stderr)[-6:] == list("123456")
    assert [row["verdict"] for row in found["rows"]] == ["undecided"]  # both took 0.25 s, by their own clock
    assert found["rows"][0]["ratio"] == {"median": 1.0, "low": None, "high": None}  # one value is no interval
    for name in "ab":
        result.write(record("faulty"), tmp_path / name)
    assert "--processes has no effect" in sentence(run("compare", tmp_path / "a", tmp_path / "b", "--quick"))
    assert "nothing is judged" in run("compare", tmp_path / "a", tmp_path / "b").stdout
