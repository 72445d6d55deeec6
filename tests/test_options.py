"""The command lines: every option arrives, and every place for a file that can't be written is one sentence."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mxdp.experiments import doctor
from mxdp.experiments.predict import command, inputs
from mxdp.experiments.show import compare, page, pictures

REFERENCE = Path(__file__).parents[1] / "experiments" / "reference"
A, B = (REFERENCE / "amd-epyc-2-cores" / name for name in ("epochs", "two-jobs"))
PREDICTED = "predict --speed 1000 --nodes 2"
RUN, COMPARE = f"run epochs --out {A.parent}", "compare . .. epochs"
SETTINGS = (
    "--preset full", "--devices 1,3", "--kind cpu", "--data digits", "--data-dir d", "--seed 3", "--processes 2",
    "--rounds 2", "--timeout 9",
)  # fmt: skip
COMMANDS = {  # a line, and lines of which each has one other option or argument
    "plans": {
        "": ["ring", "--list 8"],
        "ring": ["ring 3", "ring --json", "ring --html"],
        "sharded 3": ["sharded 3 --sizes 5,4,3"],
        "broadcast": ["broadcast --source 1"],
        "gpipe": ["gpipe --micro-batches 3"],
        "tiles": ["tiles --picture 6", "tiles --window 5"],
        "fully-sharded": ["fully-sharded --layers 4", "fully-sharded --stage 1"],
    },
    "exercises": {
        "check a.py": [
            "check b.py", "check a.py --json", "check a.py --junit x.xml", "check a.py --seconds 3",
            "check a.py --megabytes 700", "check a.py --seed 7", "check a.py --exercise 3", "check a.py --csv x.csv",
        ],
        "watch a.py": [
            "watch b.py", "watch a.py --seconds 3", "watch a.py --megabytes 700", "watch a.py --seed 7", "list",
        ],
        "copy a": ["copy b"],
    },
    "book": {"run a.md": ["run b.md", "run a.md --samples 33", "run a.md --devices 3", "list"]},
    "launch": {
        "-n 2": [
            "-n 3", "-n 2 --hosts hosts", "-n 2 --restarts 2", "-n 2 --silent-after 7", "-n 2 --hung-after 8",
            "-n 2 --log-dir logs", "-n 2 --mpiexec=-v", "-n 2 --print",
        ],
        "-n 2 --hosts hosts": ["-n 2 --hosts hosts --interface lo"],
    },
    "experiments": {
        RUN: [
            RUN.replace("epochs", "two-jobs"),
            *(f"{RUN} {more}" for more in (*SETTINGS, "--out elsewhere", "--stale", "--json", "--why", "--guess")),
        ],
        "run profile --out x": ["run profile --out x --of epochs"],
        "run resnet --out x": ["run resnet --out x --net a:b"],
        "compare . .. resnet": ["compare . .. resnet --net a:b"],
        COMPARE: [f"{COMPARE} {more}" for more in SETTINGS],
        "compare . .. two-jobs": ["compare . .. two-jobs --quick"],
        "compare . .. profile": ["compare . .. profile --of epochs"],
        "list": ["list --json"],
        f"report {A.parent}": [
            f"report {B}", f"report {A.parent} --slides", f"report {A.parent} --picture epochs",
        ],
        f"report {A.parent} --picture epochs": [
            f"report {A.parent} --picture epochs {more}" for more in ("--panel 1", "--format svg")
        ],
        f"compare {A} {A}": [
            f"compare {B} {A}", f"compare {A} {B}", f"compare {A} {A} --json", f"compare {A} {A} two-jobs",
        ],
        "doctor": ["doctor --json"],
        PREDICTED: [
            f"{PREDICTED} {more}" for more in (
                "--model resnet18", "--batch 7", "--speed 9", "--machine horovod-2017", "--devices 3", "--nodes 3",
                "--link 10gbe", "--inside pcie", "--picture x.svg", "--html x.html", "--published", "--json",
            )
        ],
        "predict": ["predict --batch 7", "predict --kind cpu", "predict --input 3,8,8", "predict --save x.toml"],
        "predict --published": ["predict --published --memory"],
        "predict --memory": [
            f"predict --memory {more}" for more in ("--parameters 7e9", "--optimizer sgd", "--dtype mixed", "--room 9")
        ],
    },
}  # fmt: skip
LINES = [(name, line, other) for name, lines in COMMANDS.items() for line, others in lines.items() for other in others]


def of(name):
    found = importlib.import_module(f"mxdp.{name}.__main__")
    if name == "book":
        sys.modules["mxdp.book"].restore()  # the import has replaced the book's functions in pytest's process
    return found


def options_of(parser, words=()):
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield (*words, action.dest)
            for name, sub in action.choices.items():
                yield from options_of(sub, (*words, name))
        elif not isinstance(action, argparse._HelpAction):
            yield (*words, action.dest)


def changed(name, line, other):
    """The option in which the lines differ."""
    a, b = (vars(of(name).parser().parse_args(words.split())) for words in (line, other))
    if a.get("command") != b.get("command"):
        return ("command",)
    (dest,) = (dest for dest in a if a[dest] != b.get(dest))
    return tuple(filter(None, [a.get("command"), dest]))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_tried(name):
    tried = {changed(name, line, other) for each, line, other in LINES if each == name}
    assert tried | {("command",)} == set(options_of(of(name).parser())) | {("command",)}


def interrupt(seconds):
    raise KeyboardInterrupt


@pytest.fixture
def seen(monkeypatch, tmp_path, capsys):
    """What a command line does: what it prints and writes, its exit status, and what it asks others to do."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("a", "import x"), ("b", "import y")):
        Path(f"{name}.py").write_text(text)
        Path(f"{name}.md").write_text(f"```{{.python .input}}\n{text}\n```\n")
    Path("hosts").write_text("127.0.0.1\n")
    measured = inputs.as_toml(inputs.known_network("lenet", 1000.0)[0], "steps")
    calls = []

    def spy(owner, attribute, result=None):
        def call(*arguments, **more):
            calls.append(re.sub(r"0x\w+|\d{4}-[\d_-]+", "", f"{attribute} {arguments} {more}"))
            calls.append({key: value for key, value in os.environ.items() if key.startswith("MXDP_BOOK")})
            return result

        monkeypatch.setattr(owner, attribute, call)

    def call(name, line):
        calls.clear()
        monkeypatch.setenv("MXDP_BOOK_SAMPLES", "")
        monkeypatch.setenv("MXDP_BOOK_DEVICES", "")
        words = line.split()
        if name == "launch":
            words += ["--", "true"]
        before = set(Path().iterdir())
        calls.append(of(name).main(words))
        new = {str(file): file.is_file() and file.read_bytes() for file in set(Path().iterdir()) - before}
        for file in new:
            os.rename(file, tmp_path.parent / f"{tmp_path.name}-{os.urandom(8).hex()}")
        return [*calls, *capsys.readouterr(), new]

    for owner, attribute, result in (
        (of("experiments"), "ask", True), (of("experiments"), "_find_data", None),
        (compare, "measured", []), (doctor, "main", 0),
        (page, "write_report", "page"), (pictures, "export", "picture"),
        (of("exercises"), "check", {"right": True}), (of("exercises"), "show", None), (of("exercises"), "junit", "xml"),
        (of("exercises"), "grades", "csv"),
        (of("book"), "run_cells", 0), (of("launch"), "Launch", None),
    ):  # fmt: skip
        spy(owner, attribute, result)
    failed = SimpleNamespace(what="failed", lines=[], status=3)
    launched = of("launch").Launch
    monkeypatch.setattr(of("launch"), "Launch", lambda *a: launched(*a) or SimpleNamespace(run=lambda: failed))
    monkeypatch.setattr(of("exercises"), "time", SimpleNamespace(sleep=interrupt))
    monkeypatch.setattr("builtins.input", lambda prompt: "a dozen")
    run, done = subprocess.run, SimpleNamespace(returncode=0, stdout=measured, stderr="")
    spy(command.subprocess, "run", done)
    spied = subprocess.run
    monkeypatch.setattr(command.subprocess, "run", lambda *a, **b: spied(a) if "measured" in str(a) else run(*a, **b))
    return call


@pytest.mark.parametrize(("name", "line", "other"), LINES, ids=[f"{name} {other}" for name, _, other in LINES])
def test_each_option_arrives(name, line, other, seen):
    first, again, changed = (seen(name, words) for words in (line, line, other))
    assert first == again
    assert changed != first
    assert "Traceback" not in str(changed)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("plans", "ring 4 --html"), ("plans", "tiles --html"), ("experiments", f"{PREDICTED} --html"),
        ("experiments", f"{PREDICTED} --picture"), ("experiments", "predict --save"),
        ("exercises", "check a.py --junit"), ("exercises", "check a.py --csv"), ("launch", "-n 2 --log-dir"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", [".", "..", "folder.svg", "a.py/x.svg", "/proc/no/such.svg", "new/x.svg"])
def test_where_a_file_can_not_be_written_is_one_sentence(name, line, place, seen):
    Path("folder.svg").mkdir()
    folder = line.endswith("--log-dir")
    *_, status, out, err, new = seen(name, f"{line} {place}")
    assert "Traceback" not in out + err
    if place == "new/x.svg" or (folder and place in (".", "..", "folder.svg")):
        assert status in (0, True, 3)
    else:
        *_, sentence = err.splitlines()
        assert (status in (1, 2), sentence.startswith("mxdp"), place.rstrip("x.svg") in sentence, new) == (
            True, True, True, {},
        )  # fmt: skip
    assert not [file for file in Path().rglob("*") if file.name.endswith((".tmp", ".part"))]
