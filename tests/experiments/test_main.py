"""The command line, as a child process: what is printed, where, and the exit status."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import faulty
import pytest

from mxdp import experiments
from mxdp.errors import UsageError
from mxdp.experiments import session
from mxdp.experiments.__main__ import main
from mxdp.experiments.harness import runner
from mxdp.experiments.harness.experiment import discover

HERE = str(Path(__file__).parent)
MADE = {"MXDP_EXPERIMENTS": "faulty", "PYTHONPATH": os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH")]))}


def run(*arguments, timeout=120, **environment):
    return subprocess.run(
        [sys.executable, "-m", "mxdp.experiments", *map(str, arguments)],
        capture_output=True, text=True, timeout=timeout, env={**os.environ, "COLUMNS": "80", **environment},
    )  # fmt: skip


def sentence(done, status=2):
    """The one line that a refused call prints."""
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr.strip().splitlines()[-1]


def test_list_names_every_catalogue_entry_without_loading_mxnet():
    found = json.loads(run("list", "--json").stdout)
    assert {"epochs", "two-jobs", "stock-loop"} <= {each["name"] for each in found}
    assert [each["name"] for each in found if each["tour"]] == ["epochs", "two-jobs"]
    code = "import sys; from mxdp.experiments.__main__ import main; main(['list']); sys.exit('mxnet' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 0


def test_list_says_what_each_answers_how_long_it_takes_and_on_which_machine():
    known = json.loads(Path(experiments.__file__).with_name("reference.json").read_text(encoding="utf-8"))
    found = {each["name"]: each for each in json.loads(run("list", "--json", **MADE).stdout)}
    assert found["made-good"]["seconds"] == {"quick": None, "full": None}
    assert found["made-good"]["answer"] is None
    for preset in ("quick", "full"):
        seconds = {name: own["seconds"][preset] for name, own in found.items() if own["seconds"][preset]}
        assert seconds == known[preset]
    assert {name: own["answer"] for name, own in found.items() if own["answer"]} == known["answers"]
    assert max(map(len, run("list").stdout.splitlines())) <= 80


def test_all_runs_every_experiment_once_but_the_one_that_repeats_another(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(session, "run", lambda experiments, *more: asked.extend(experiments) or True)
    assert main(["run", "epochs", "all", "--preset", "full", "--out", str(tmp_path)]) == 0
    names = [each.name for each in asked]
    assert names[0] == "epochs"
    assert sorted(names) == sorted(set(discover()) - {"profile"})


def test_one_failure_among_several_is_exit_status_1_and_the_others_complete(tmp_path):
    done = run("run", "made-hang", "made-kill", "made-raise", "made-good", "--out", tmp_path, **MADE)
    assert done.returncode == 1
    states = {
        name: json.loads((tmp_path / f"made-{name}.json").read_text())["status"]
        for name in ("hang", "kill", "raise", "good")
    }
    assert states == {"hang": "timeout", "kill": "failed", "raise": "failed", "good": "ok"}
    assert (tmp_path / "report.html").is_file()
    assert "Traceback" not in done.stdout + done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80 + len(str(tmp_path))
    for reason in ("timed out", "memory runs out", "out of luck", "It ended well."):
        assert reason in " ".join(done.stdout.split())


def test_wrong_numbers_are_exit_status_1(tmp_path):
    assert run("run", "made-wrong", "--out", tmp_path, **MADE).returncode == 1


def test_json_output_is_the_files_content(tmp_path):
    done = run("run", "made-good", "--json", "--rounds", 2, "--out", tmp_path, **MADE)
    assert done.returncode == 0
    (result,) = json.loads(done.stdout)
    assert result == json.loads((tmp_path / "made-good.json").read_text())
    assert result["settings"]["rounds"] == 2


def test_json_output_is_json_where_a_metric_is_no_number(tmp_path):
    def refuse(constant):
        raise AssertionError(constant)

    done = run("run", "made-nan-metric", "--json", "--out", tmp_path, **MADE)
    (result,) = json.loads(done.stdout, parse_constant=refuse)
    assert result == json.loads((tmp_path / "made-nan-metric.json").read_text())
    assert result["rows"][0]["metrics"]["loss"] is None


def test_a_table_that_cannot_be_made_costs_no_other_experiment(tmp_path):
    done = run("run", "made-nan-metric", "made-good", "--rounds", 1, "--out", tmp_path, **MADE)
    assert done.returncode == 1
    assert "mxdp: made-nan-metric: RuntimeError: no columns" in done.stderr
    assert "mxdp: there is no report: RuntimeError: no columns" in done.stderr
    assert "It ended well." in " ".join(done.stdout.split())
    for name in ("nan-metric", "good"):
        assert json.loads((tmp_path / f"made-{name}.json").read_text())["status"] == "ok"


@pytest.mark.parametrize("text", ['{"experiment"', "[" * 100_000], ids=["cut", "deep"])
def test_a_damaged_file_in_the_folder_costs_the_report_and_nothing_else(text, tmp_path):
    (tmp_path / "epochs.json").write_text(text)
    done = run("run", "made-good", "--json", "--rounds", 1, "--out", tmp_path, **MADE)
    assert done.returncode == 1
    (result,) = json.loads(done.stdout)
    assert result["status"] == "ok"
    (said,) = [line for line in done.stderr.splitlines() if "mxdp" in line]
    assert said.startswith(f"mxdp: there is no report: {tmp_path / 'epochs.json'} is damaged")


def test_a_damaged_file_does_not_hide_an_interrupt(tmp_path, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    (tmp_path / "epochs.json").write_text('{"experiment"')
    monkeypatch.setattr(session.runner, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.run([faulty.Good()], "quick", {"made-good": {}}, tmp_path, as_json=False)
    assert "epochs.json is damaged" in capsys.readouterr().err


def test_the_default_folder_is_named_after_the_time(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mxdp.experiments", "run", "made-good"],
        cwd=tmp_path, env={**os.environ, **MADE}, capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "made-good.json").is_file()
    assert time.strptime(folder.name, "%Y-%m-%d_%H-%M-%S")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_and_its_like_keep_what_was_measured(number, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "mxdp.experiments", "run", "made-hang", "--timeout", "60", "--out", str(tmp_path)],
        env={**os.environ, **MADE}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # As in a terminal: in the background of a script SIGINT is ignored, by nohup SIGHUP, and so in all processes.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )  # fmt: skip
    try:
        for _ in range(1000):
            if any("hanging" in log.read_text() for log in tmp_path.glob("*case-2*")):
                break
            time.sleep(0.05)
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "Traceback" not in errors
    assert errors.strip().endswith("mxdp: interrupted")
    result = json.loads((tmp_path / "made-hang.json").read_text())
    assert result["error"] == "interrupted by the user"
    assert [len(row["seconds"]["samples"]) for row in result["rows"]] == [2, 1]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "epoch"], "no experiment is called 'epoch'; did you mean 'epochs'?"),
        (["run", "zzzzzz"], "no experiment is called 'zzzzzz'; there are: allreduce, "),
        (["run", "two-jobs", "--data", "digits"], "--data has no effect on two-jobs"),
        (["run", "epochs", "--data", "fashion"], "no data set is called 'fashion'"),
        (["run", "epochs", "--preset", "quik"], "did you mean 'quick'?"),
        (["run", "epochs", "--rounds", "0"], "rounds must be more than 0, not 0"),
        (["run", "epochs", "--timeout", "-1"], "timeout must be more than 0, not -1.0"),
        (["run", "epochs", "--devices", "0,2"], "devices must be different numbers of at least 1"),
        (["run", "epochs", "--devices", "two"], "'two' is not a list of numbers, as in 1,2"),
        (["run", "epochs", "--seed", "-3"], "seed must be from 0 to 4294967295, not -3"),
        (["run", "epochs", "--kind", "tpu"], "invalid choice: 'tpu'"),
        (["run", "epochs", "--rounds", "many"], "invalid int value: 'many'"),
        (["run"], "required: NAME"),
        (["runn"], "invalid choice: 'runn'"),
        (["report", "/nowhere/at/all"], "/nowhere/at/all"),
        (["report", "/nowhere/at/all", "--picture", "epochs"], "there is no folder /nowhere/at/all; give one"),
        (["report", "runs", "--picture", "epochs", "--slides"], "not allowed with argument"),
        (["report", "runs", "--picture", "epochs", "--format", "gif"], "choose from"),
        (["report", "runs", "--picture", "epochs", "--panel", "first"], "invalid int value: 'first'"),
        (["report", "runs", "--panel", "2"], "name it with --picture NAME"),
        (["report", "runs", "--format", "pdf", "--slides"], "name it with --picture NAME"),
    ],
)
def test_bad_usage_is_one_sentence_and_exit_status_2(arguments, expected, tmp_path, capsys):
    out = ["--out", str(tmp_path / "out")] if arguments[:1] == ["run"] else []
    try:
        status = main([*arguments, *out])
    except SystemExit as stop:  # argparse's way
        status = stop.code
    said = capsys.readouterr()
    assert expected in sentence(subprocess.CompletedProcess(arguments, status, said.out, said.err))


@pytest.mark.parametrize("arguments", [["run", "epoch"], ["runn"]])
def test_the_process_exits_with_status_2_and_the_sentence(arguments):
    assert arguments[-1] in sentence(run(*arguments))


def test_a_folder_that_cannot_be_made_or_written_to_is_refused_before_anything_is_measured(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    words = "can't write results to the folder"
    assert words in sentence(run("run", "made-good", "--out", tmp_path / "file" / "out", **MADE))

    def denied(**_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(session.tempfile, "TemporaryFile", denied)
    monkeypatch.delattr(session.runner, "run")
    with pytest.raises(UsageError, match=f"{words} .*: Permission denied; name another with --out"):
        session.run([faulty.Good()], "quick", {"made-good": {}}, tmp_path, as_json=False)


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_run_finds_an_experiment_in_the_folder_that_it_was_called_from(tmp_path):
    (tmp_path / "a_teachers.py").write_text(
        "from mxdp.experiments.harness.experiment import Experiment, experiment\n"
        "@experiment\nclass Own(Experiment):\n"
        "    name, question, source = 'made-from-here', 'Found?', 'a test'\n"
    )
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "ARGS"))}
    command = ["make", "--silent", "-C", Path(HERE).parents[1], "run", "install=@:", f"python={sys.executable}"]
    done = subprocess.run(
        [*command, "ARGS=list --json"],
        cwd=tmp_path, env={**outer, "PWD": str(tmp_path), "MXDP_EXPERIMENTS": "a_teachers"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert '"made-from-here"' in done.stdout


def test_gpus_that_are_not_there_are_a_failure_that_says_how_many_there_are(tmp_path):
    done = run("run", "links", "--kind", "gpu", "--out", tmp_path)
    if done.returncode == 0:
        pytest.skip("this machine has GPUs that MXNet can use")
    assert done.returncode == 1
    assert "MXNet can use 0" in json.loads((tmp_path / "links.json").read_text())["error"]
    assert "Traceback" not in done.stdout + done.stderr


def test_an_extra_module_that_is_missing_is_named():
    assert "'no_such_module'" in sentence(run("list", MXDP_EXPERIMENTS="no_such_module"))


def test_report_makes_the_page_again(tmp_path):
    run("run", "made-good", "--out", tmp_path, **MADE)
    (tmp_path / "report.html").unlink()
    done = run("report", tmp_path, **MADE)
    assert done.returncode == 0
    assert Path(done.stdout.strip()) == tmp_path / "report.html"
    assert (tmp_path / "report.html").is_file()
    assert Path(run("report", tmp_path, "--slides", **MADE).stdout.strip()) == tmp_path / "slides.html"
    assert (tmp_path / "slides.html").is_file()
    done = run("report", tmp_path, "--picture", "made-good", "--panel", 1, **MADE)
    assert Path(done.stdout.strip()) == tmp_path / "made-good-panel-1.png"
    assert (tmp_path / "made-good-panel-1.png").is_file()


def test_stale_measures_what_has_no_result_of_todays_code(tmp_path):
    def due(preset="quick"):
        return runner.due(faulty.Good(), preset, tmp_path)

    command = ["run", "made-good", "made-raise", "--stale", "--json", "--out", tmp_path]
    assert due() == "not measured yet"
    done = run(*command, **MADE)
    assert [line for line in done.stderr.splitlines() if "made-" in line] == [
        "made-good: not measured yet",
        "made-raise: not measured yet",
    ]
    assert due() == ""
    assert due("full") == "measured with the preset quick"
    path = tmp_path / "made-good.json"
    result = json.loads(path.read_text())
    assert {"faulty", "mxdp.experiments.measure.child"} <= set(result["sources"])
    (tmp_path / "made-raise.json").write_text(path.read_text().replace("made-good", "made-raise"))
    done = run(*command, **MADE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
    path.write_text(json.dumps({**result, "sources": {**result["sources"], "mxdp.process": "0", "mxdp.timing": "0"}}))
    assert due() == "measured before a change of mxdp.process and 1 more"
    done = run(*command, **MADE)
    assert [each["experiment"] for each in json.loads(done.stdout)] == ["made-good"]
    path.write_text(json.dumps({**result, "status": "failed"}))
    assert due() == "its result is failed"
    path.write_text("{")
    assert "made-good.json is damaged" in sentence(run(*command, **MADE), status=1)
    assert sentence(run("run", "epochs", "--stale")).endswith("name their folder with --out DIR")


def test_wrong_data_are_told_before_anything_is_measured(tmp_path):
    done = run("run", "two-jobs", "epochs", "--data-dir", tmp_path / "none", "--out", tmp_path / "out")
    assert "is not a folder" in sentence(done, status=1)
    assert list((tmp_path / "out").iterdir()) == []
