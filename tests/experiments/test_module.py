"""How questions are found, and their settings."""

import copy
import subprocess
import sys
import types
from itertools import islice

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mxdp.errors import UsageError
from mxdp.experiments.lab.module import COMMON, DEFAULTS, Case, Question, Settings, Work, discover, find, lacking
from mxdp.experiments.lab.settings import resolve

EPOCHS, TWO_JOBS = find("epochs"), find("two-jobs")
FUNCTIONS = ("cases", "expect", "oracle", "set_up", "tell")


def test_importing_all_questions_loads_nothing_heavy():
    code = (
        "import sys; from mxdp.experiments.lab.module import discover; discover(); "
        "print(sorted({'mxnet', 'torch', 'scipy', 'sklearn', 'matplotlib', 'horovod', 'mpi4py'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize(
    ("name", "lacks", "said"),
    [
        ("own", True, "own is no question: it has no PRESETS, cases, expect, oracle, set_up"),
        ("all", False, "no question can be called 'all'"),
        ("_x", False, "no question can be called '-x'"),
    ],
)
def test_what_is_no_question(name, lacks, said):
    parts = {"tell": None} if lacks else {**dict.fromkeys(FUNCTIONS), "PRESETS": {}}
    with pytest.raises(ValueError, match=said):
        Question(types.SimpleNamespace(__name__=name, **parts))


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


VALUES = {
    "batch_size": st.integers(1, 999),
    "lr": st.sampled_from([1, 0.5]),
    "devices": st.sampled_from([[1], [1, 4]]),
    "data": st.sampled_from(["digits", "synthetic"]),
    "seed": st.integers(0, 2**32 - 1),
    "minutes": st.sampled_from([2, 0.5]),
    "processes": st.integers(1, 40),
    "kind": st.sampled_from(["cpu", "gpu"]),
}
GIVEN = st.fixed_dictionaries({}, optional=VALUES).filter(lambda given: not {"minutes", "processes"} <= {*given})


@settings(max_examples=60)
@example("file", {"lr": 1, "seed": 1, "minutes": 2}, {"lr": 0.5, "processes": 2}, {})
@given(st.sampled_from(["quick", "full", "file"]), GIVEN, GIVEN, st.sampled_from([{}, {"processes": 4}]))
def test_presets_options_and_files_lie_one_over_the_other(tmp_path_factory, preset, in_file, options, own):
    """``minutes`` and ``processes`` exclude each other: the last that was given counts. A whole number is a float where
    one is wanted. What a question doesn't know, another one takes."""
    asked = Question(types.SimpleNamespace(**{**vars(EPOCHS.module), "__name__": "own"}))
    asked.module.PRESETS = {"quick": {**EPOCHS.PRESETS["quick"], **own}}
    path = tmp_path_factory.mktemp("presets") / "mine.toml"
    path.write_text("[own]\n" + "".join(f"{key} = {value!r}\n" for key, value in in_file.items()))
    name, resolved = resolve([asked, TWO_JOBS], str(path) if preset == "file" else preset, options)
    expected = dict(COMMON["quick" if preset == "quick" else "full"])
    for changes in (asked.PRESETS["quick"], in_file if preset == "file" else {}, options):
        if {"minutes", "processes"} & {*changes}:
            expected.update(minutes=None, processes=None)
        expected.update(changes)
    assert (name, resolved["own"]) == ({"file": "mine"}.get(preset, preset), expected)
    assert {type(resolved["own"][key]) for key in ("minutes", "lr")} <= {float, type(None)}
    other = TWO_JOBS.preset("quick" if preset == "quick" else "full")
    if {"minutes", "processes"} & {*options}:
        other.update(minutes=None, processes=None)
    assert resolved["two-jobs"] == {**other, **{key: value for key, value in options.items() if key in other}}


@given(st.integers(0, 2**31), st.integers(0, 2**31), st.integers(0, 99), st.integers(0, 99))
def test_each_round_process_and_run_has_a_seed_of_its_own(first, draw, number, rounds):
    case = Case("")
    case.number, case.draw = number, draw
    seeds = list(islice(case.seeds(first), rounds + 1))
    assert seeds == list(range(seeds[0], seeds[0] + rounds + 1))
    assert seeds[0] == (first + 1000 * number + 10**6 * draw) % 2**31


@given(st.dictionaries(st.sampled_from(["json", "no_such", "nor_this"]), st.text(max_size=3)))
def test_the_first_module_that_is_missing_is_named_with_its_command(needs):
    missing = [f"{name} is not installed: {command}" for name, command in needs.items() if name != "json"]
    assert lacking(needs) == (missing or [""])[0]


def test_what_a_question_leaves_out_has_its_default():
    parts = {**dict.fromkeys(FUNCTIONS), "PRESETS": {"quick": dict(size=3)}}
    asked = Question(types.SimpleNamespace(__name__="plain_one", __doc__="Is it?\n\nIt is.\nSo.\n", **parts))
    assert (asked.name, asked.question) == ("plain-one", "Is it?")
    assert {name: getattr(asked, name) for name in DEFAULTS} == DEFAULTS
    assert asked.preset("full") == {**COMMON["full"], "size": 3}
    one = Case("a")
    assert (one.devices, one.processes, one.engine, one.environment, one.reference) == (1, 1, "", {}, False)
    assert (one.process, one.number, one.draw, one.share(3)) == (0, 0, 0, [3])
    assert copy.deepcopy(Case("a", job=3)).job == 3
    work = Work(list)
    assert (work.devices, work.record, work.facts) == (None, None, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[epochs]\nbatchsize = 3", "epochs has no setting 'batchsize'; it has: processes, "),
        ("[epochs]\nbatch_size = 'many'", "batch_size must be of type int, not 'many'"),
        ("[epochs]\nlr = nan", "lr must be more than 0, not nan"),
        ("[epochs]\ndevices = [1, 1]", "devices must be different numbers"),
        ("[epochs]\nseed = -1", "seed must be from 0 to 4294967295, not -1"),
        ("[epochs]\nkind = 'tpu'", "kind must be auto, cpu or gpu, not 'tpu'"),
        ("[allreduce]\nsizes = []", "allreduce: sizes must be one or more whole numbers above 0, not "),
        ("[pipeline]\nmicro_batches = [1, 1.5]", "micro_batches must be one or more whole numbers above 0, not "),
        ("[buckets]\nbucket_mb = [4, 0]", "bucket_mb must be one or more numbers above 0, not "),
        ("batch_size = 3", "'batch_size' stands outside a table"),
        ("[epoch]\nseed = 1", "has no table for epochs, only for epoch"),
        ("[epochs\n", "not a TOML file"),
        ("\xff\xfe\0", "not a TOML file"),
    ],
)
def test_a_file_that_is_wrong(tmp_path, text, message):
    path = tmp_path / "wrong.toml"
    path.write_bytes(text.encode("latin-1"))
    asked = [EPOCHS, *(find(name) for name in ("allreduce", "pipeline", "buckets") if f"[{name}]" in text)]
    with pytest.raises(UsageError, match=message.replace("[", r"\[")):
        resolve(asked, str(path), {})
