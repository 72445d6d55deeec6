"""How questions are found, and their settings."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

from mxdp.errors import UsageError
from mxdp.experiments.lab.module import Case, Question, Settings, discover, find
from mxdp.experiments.lab.settings import resolve

EPOCHS, TWO_JOBS = find("epochs"), find("two-jobs")


def test_importing_all_questions_loads_nothing_heavy():
    code = (
        "import sys; from mxdp.experiments.lab.module import discover; discover(); "
        "print(sorted({'mxnet', 'torch', 'scipy', 'sklearn', 'matplotlib', 'horovod', 'mpi4py'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("name", "parts", "said"),
    [
        ("own", {"tell": None}, "own is no question: it has no PRESETS, cases, expect, oracle, set_up"),
        ("all", None, "no question can be called 'all'"),
        ("_x", None, "no question can be called '-x'"),
    ],
)
def test_what_is_no_question(name, parts, said):
    module = types.ModuleType(name)
    whole = {**dict.fromkeys(("cases", "expect", "oracle", "set_up", "tell")), "PRESETS": {}}
    module.__dict__.update(whole if parts is None else parts)
    with pytest.raises(ValueError, match=said):
        Question(module)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise KeyError('x')", "names 'teachers', which can't be used: KeyError: 'x'"),
        ("raise SystemExit(3)", r"names 'teachers', which can't be used: it calls sys.exit\(3\)"),
        ("x = 1", "ValueError: teachers is no question"),
        (None, "names 'teachers', which can't be used: ModuleNotFoundError"),
    ],
)
def test_what_is_wrong_in_a_teachers_file_names_it(text, said, tmp_path, monkeypatch):
    if text is not None:
        (tmp_path / "teachers.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MXDP_EXPERIMENTS", "teachers")
    monkeypatch.delitem(sys.modules, "teachers", raising=False)
    with pytest.raises(UsageError, match=said):
        discover()


def test_two_questions_of_one_name_are_refused(tmp_path, monkeypatch):
    (tmp_path / "two_jobs.py").write_text("cases = expect = oracle = set_up = tell = None\nPRESETS = {'quick': {}}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MXDP_EXPERIMENTS", "two_jobs")
    with pytest.raises(UsageError, match=r"two questions are called 'two-jobs': .* and .*; rename"):
        discover()


def test_settings_and_cases_say_what_they_lack():
    with pytest.raises(AttributeError, match="no setting 'y'; there are x"):
        Settings(x=1).y  # noqa: B018
    case = Case("a", devices=2, job=3)
    assert (case.job, case.get("job"), case.get("y", 4)) == (3, 3, 4)
    with pytest.raises(AttributeError, match="the case 'a' has no 'y'"):
        case.y  # noqa: B018


def test_presets_options_and_files_lie_one_over_the_other(tmp_path):
    assert resolve([EPOCHS], "full", {}) == ("full", {"epochs": EPOCHS.preset("full")})
    _, settings = resolve([EPOCHS, TWO_JOBS], "quick", {"data": "digits", "seed": 3})
    assert (settings["epochs"]["data"], "data" in settings["two-jobs"]) == ("digits", False)
    assert settings["epochs"]["seed"] == settings["two-jobs"]["seed"] == 3
    assert "seed" not in EPOCHS.PRESETS["quick"]
    path = tmp_path / "mine.toml"
    path.write_text("[epochs]\nbatch_size = 64\nlr = 1  # an int will do\ndevices = [1, 4]\n")
    name, settings = resolve([EPOCHS, TWO_JOBS], str(path), {"seed": 7})
    changed = {"batch_size": 64, "lr": 1.0, "devices": [1, 4], "seed": 7}
    assert (name, settings["epochs"]) == ("mine", {**EPOCHS.preset("full"), **changed})
    assert settings["two-jobs"] == {**TWO_JOBS.preset("full"), "seed": 7}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[epochs]\nbatchsize = 3", "epochs has no setting 'batchsize'; it has: processes, "),
        ("[epochs]\nbatch_size = 'many'", "batch_size must be of type int, not 'many'"),
        ("[epochs]\nbatch_size = true", "batch_size must be of type int, not True"),
        ("[epochs]\nbatch_size = 0", "batch_size must be more than 0, not 0"),
        ("[epochs]\nseed = -1", "seed must be from 0 to 4294967295, not -1"),
        ("[epochs]\nkind = 'tpu'", "kind must be auto, cpu or gpu, not 'tpu'"),
        ("[epochs]\nlr = nan", "lr must be more than 0, not nan"),
        ("[epochs]\ndevices = [1, 1]", "devices must be different numbers"),
        ("[epochs]\ndevices = [1, '2']", "devices must be different numbers"),
        ("[epochs]\nsamples = 'all'", "samples must be of type int, not 'all'"),
        ("[allreduce]\nsizes = []", "allreduce: sizes must be one or more whole numbers above 0, not "),
        ("[pipeline]\nmicro_batches = [1, 1.5]", "micro_batches must be one or more whole numbers above 0, not "),
        ("[buckets]\nbucket_mb = [4, 0]", "bucket_mb must be one or more numbers above 0, not "),
        ("batch_size = 3", "'batch_size' stands outside a table"),
        ("[epoch]\nseed = 1", "has no table for epochs, only for epoch"),
        ("", "has no table for epochs, only for nothing"),
        ("[epochs\n", "not a TOML file"),
        ("\xff\xfe\0", "not a TOML file"),
    ],
)
def test_a_file_that_is_wrong(tmp_path, text, message):
    path = tmp_path / "wrong.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=message.replace("[", r"\[")):
        resolve(
            [EPOCHS, *(find(name) for name in ("allreduce", "pipeline", "buckets") if f"[{name}]" in text)],
            str(path),
            {},
        )
