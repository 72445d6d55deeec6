"""The command lines. Every option that a parser has is set to an unusual value, which arrives where it is used, as a
parameter of a function outside the command's own module; also where a preset, a file or a machine says otherwise."""

import argparse
import contextlib
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from mxdp.exercises.check import check
from mxdp.experiments.lab.module import Question
from mxdp.experiments.predict import fits, inputs
from mxdp.plans.__main__ import OPTIONS as OF_PLANS
from mxdp.plans.cost.link import Link

PACKAGE = Path(inputs.__file__).parents[2]
COMMANDS = ("plans", "exercises", "book", "launch", "experiments")
SEVERAL = ("epochs", "resnet", "profile")
LINES = {  # of each command some, in one of which an option or argument at {} does something
    "plans": ["ring {}", "{}", *(f"{option.plans[0]} 3 {{}}" for option in OF_PLANS.values())],
    "exercises check": ["check a.py {}"], "exercises watch": ["watch a.py {}", "watch {}"],
    "exercises copy": ["copy {}"],
    "book run": ["run a.md {}", "run {}"],
    "launch": ["-n 2 {} -- true", "-n 2 --hosts hosts {} -- true"],
    "experiments run": ["run epochs {}", *(f"run {name} {{}} --out results" for name in SEVERAL)],
    "experiments compare": [
        *(f"compare . .. {name} {{}}" for name in SEVERAL), "compare {} .. epochs", "compare . {} epochs",
    ],
    "experiments list": ["list {}"], "experiments doctor": ["doctor {}"],
    "experiments report": ["report a --picture epochs {}", "report a {}", "report {}"],
    "experiments predict": [
        "predict --speed 1000 --nodes 2 {}", "predict {}", "predict --memory --json {}",
        "predict --memory --model net.json {}",
    ],
}  # fmt: skip
UNUSUAL = dict(
    name="gpipe", files="b.py", path="b.py", folder="b", file="b.md", names="two-jobs", a="b", b="b",
    sizes="5,4,3", source="1", stage="1", window="5", exercise="3", hosts="hosts", interface="lo", mpiexec="-v",
    of="all", model="resnet18", log_dir="logs", preset="full", data="digits", data_dir="b", net="a:b",
    machine="horovod-2017", link="10gbe", inside="pcie", parameters="7e9", optimizer="sgd", dtype="mixed",
    input="1,9,9",
)  # fmt: skip
ARRIVES = {"file": "importy", "room": "7000000000.0", "guess": "adozen"}
"""What arrives, where it is not what was given."""
SYMBOL = """{"nodes": [{"op": "null", "name": "x", "inputs": []}, {"op": "null", "name": "w", "inputs": []},
{"op": "FullyConnected", "name": "d", "inputs": [[0, 0, 0], [1, 0, 0]], "attrs": {"num_hidden": "3"}}]}"""


def of(name):
    found = importlib.import_module(f"mxdp.{name}.__main__")
    if name == "book":
        sys.modules["mxdp.book"].restore()  # the import has replaced the book's functions in pytest's process
    return found


def actions(parser, *words):
    """Each option and argument, with the command that it is of."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield from actions(sub, *words, name)
        elif not isinstance(action, argparse._HelpAction) and action.help != argparse.SUPPRESS:
            yield " ".join(words), action


ACTIONS = [pair for name in COMMANDS for pair in actions(of(name).parser(), name)]


def unusual(command, action):
    """A value that the action takes, in words."""
    if action.choices:
        return str([choice for choice in action.choices if choice != action.default][-1])
    if action.dest == "picture" and command != "plans":
        return "x.svg" if "predict" in command else "epochs"
    if action.dest == "devices" and hasattr(action.type, "__module__") and "experiments" in action.type.__module__:
        return "1,3"
    return UNUSUAL.get(action.dest, "x.json" if action.type is Path else "7")


def in_words(value):
    return re.sub(r"[\[\]() ']|\\n", "", str(value))


class Seen:
    """What functions of mxdp are called with by the modules ``own``, and are none of theirs: names and values."""

    def __init__(self, *own):
        self.own = {module.__file__ for module in own}
        self.pairs = set()
        self.calls = {}

    def called(self, function, arguments):
        self.calls[function] = arguments
        self.pairs.add(("called", function))
        self.note("arguments", arguments)

    def note(self, name, value):
        if isinstance(value, dict):
            for key, inner in value.items():
                self.note(str(key), inner)
                self.note("names", str(key))
        elif isinstance(value, (list, tuple)):
            for inner in value:
                self.note(name, inner)
        elif type(value).__module__.startswith("mxdp.plans"):
            self.note(name, vars(value))
        if isinstance(value, (str, int, float, Path, list, tuple)):
            self.pairs.add((name, in_words(value)))
        elif isinstance(value, Question):
            self.pairs.add((name, value.name))

    def __call__(self, frame, event, _):
        if event == "call" and frame.f_back.f_code.co_filename in self.own:
            code = frame.f_code
            if code.co_filename.startswith(str(PACKAGE)) and code.co_filename not in self.own:
                self.called(code.co_name, dict(frame.f_locals))


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """A function that runs a command without what takes long; the pairs that were seen, the exit status, the output."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("a", "import x"), ("b", "import y")):
        Path(f"{name}.py").write_text(text)
        Path(f"{name}.md").write_text(f"```{{.python .input}}\n{text}\n```\n")
        Path(name).mkdir()
    Path("hosts").write_text("127.0.0.1\n")
    Path("net.json").write_text(SYMBOL)
    for variable in ("MXDP_BOOK_SAMPLES", "MXDP_BOOK_DEVICES"):
        monkeypatch.setenv(variable, "")
    experiments, exercises, launcher = of("experiments"), of("exercises"), of("launch")
    seen = Seen()

    def spy(owner, name, answer=lambda **_: None):
        signature = inspect.signature(getattr(owner, name))

        def called(*args, **more):
            bound = signature.bind(*args, **more)
            bound.apply_defaults()
            seen.called(name, dict(bound.arguments))
            return answer(**bound.arguments)

        monkeypatch.setattr(owner, name, called)

    def ends(code):
        seen.note("environ", {key: value for key, value in os.environ.items() if key.startswith("MXDP_BOOK")})

    def launched(size, logs, **_):
        seen.note("log_dir", [Path(file.name).parent for file in logs.values()])
        starts.append(size)
        seen.note("restarts", len(starts) - 1)
        return SimpleNamespace(run=lambda: SimpleNamespace(status=3))

    def process(args, **_):
        seen.note("args", args)
        measured = "mpiexec" not in args[0]
        said = inputs.as_toml(inputs.known_network("lenet", 1000.0)[0], "steps") if measured else run.mpi
        return SimpleNamespace(returncode=0, stdout=said, stderr="")

    def asleep(seconds):
        raise KeyboardInterrupt

    starts, result = [], {"status": "ok", "oracle": {"wrong": []}}
    quiet = SimpleNamespace(found="", cure="")
    spy(experiments.run, "run", lambda **_: result)
    spy(experiments.terminal, "print_result")
    spy(experiments.doctor, "busy", lambda **_: quiet)
    spy(experiments.doctor, "main")
    spy(experiments.compare, "measured", lambda **_: [{"failed": False}])
    spy(experiments.compare, "print_compared")
    spy(experiments.page, "write_report")
    spy(experiments.pictures, "export")
    spy(experiments.datasets, "load", lambda name, **_: SimpleNamespace(name=name))
    spy(exercises, "check", lambda file, **_: dict(file=str(file), exercises=[], problem="", printed="", right=True))
    spy(exercises, "copy")
    spy(of("book"), "run_cells", ends)
    spy(launcher, "Launch", launched)
    monkeypatch.setattr(subprocess, "run", process)
    monkeypatch.setattr(launcher.shutil, "which", lambda name: "mpiexec")
    monkeypatch.setattr(exercises, "time", SimpleNamespace(sleep=asleep))
    monkeypatch.setattr("builtins.input", lambda prompt: "a dozen")

    def run(line):
        name, *words = line.split()
        seen.__init__(of(name), experiments.predict, fits)
        starts.clear()
        sys.setprofile(seen)
        try:
            status = of(name).main(words)
        except SystemExit as error:  # argparse's
            status = error.code
        finally:
            sys.setprofile(None)
        out, err = capsys.readouterr()
        with contextlib.suppress(ValueError):
            seen.note("printed", json.loads(out))
            seen.note("printed json", True)
        return SimpleNamespace(pairs=seen.pairs, calls=seen.calls, status=status, err=err)

    run.mpi = "HYDRA"
    return run


@pytest.mark.parametrize(("command", "action"), ACTIONS, ids=[f"{words}-{action.dest}" for words, action in ACTIONS])
def test_every_option_arrives(command, action, run):
    others = {other.dest for of_command, other in ACTIONS if of_command == command} - {action.dest}

    def of_another(parameter):
        """``hung`` is that of --hung-after."""
        return not action.dest.startswith(parameter) and any(other.startswith(parameter) for other in others)

    before = action.option_strings[-1] if action.option_strings else ""
    value = str(action.const) if action.nargs == 0 else unusual(command, action)
    wanted = {in_words(ARRIVES.get(action.dest, value)), in_words((action.type or str)(value))}
    changed = before if action.nargs == 0 else f"{before}={value}" if before[:2] == "--" else f"{before} {value}"
    for line in LINES[command]:
        usual, found = (run(f"{command.split()[0]} {line.format(more)}") for more in ("", changed))
        assert "Traceback" not in found.err
        new = found.pairs - usual.pairs
        other_calls = [where for where, _ in found.pairs ^ usual.pairs if where == "called"]
        arrived = [where for where, what in new if what in wanted and not of_another(where)]
        if found.status in (0, 3) and (arrived or (action.nargs == 0 and other_calls)):
            return
    pytest.fail(f"it arrives nowhere: {sorted(new)}")


@pytest.mark.parametrize("user", ["", "FI_TCP_IFACE"])
@pytest.mark.parametrize("mpi", ["HYDRA", "Open MPI"])
def test_an_interface_reaches_every_rank_of_every_mpi(mpi, user, run, monkeypatch):
    """By variables, which Open MPI hands on only if it is told to; the user's own stay."""
    wanted = {name: "ib0" if name == user else "lo" for name in of("launch").INTERFACES}
    for name in wanted:
        monkeypatch.delenv(name, raising=False)
    if user:
        monkeypatch.setenv(user, "ib0")
    run.mpi = mpi
    arrived = run("launch -n 2 --hosts hosts --interface lo -- true").calls["Launch"]
    assert {name: arrived["environ"][name] for name in wanted} == wanted
    handed_on = {word for before, word in zip(arrived["words"], arrived["words"][1:]) if before == "-x"}
    assert handed_on & set(wanted) == (set(wanted) - {user} if mpi == "Open MPI" else set())


MACHINE = """devices = 2
nodes = 3
cores = 3
overlap = false
inside = {latency = 1e-5, bandwidth = 1e9}
between = {latency = 1e-5, bandwidth = 1e9}
samples_per_second = {lenet = 20, resnet18 = 30}
"""


CHANGES = ["--devices 5", "--nodes 4", "--link 1e-3,2e-9", "--inside 1e-4,4e-9", "--speed 70"]


@pytest.mark.parametrize("options", [CHANGES[::2], CHANGES[1::2]])
def test_what_a_machine_says_gives_way_to_an_option(options, run):
    Path("machine.toml").write_text(MACHINE)
    arrived = run(f"experiments predict --json --machine machine.toml {' '.join(options)}").calls["all_ways"]
    cluster, network = arrived["cluster"], arrived["network"]
    assert (cluster.cores, cluster.overlap) == (3, False)
    found = [cluster.devices, cluster.nodes, cluster.between, cluster.inside, round(1 / network.passes(1))]
    said = [2, 3, Link(1e-5, 1e-9), Link(1e-5, 1e-9), 20]
    changed = [5, 4, Link(1e-3, 2e-9), Link(1e-4, 4e-9), 70]
    assert found == [new if option in options else old for option, old, new in zip(CHANGES, said, changed)]


def test_the_seed_chooses_the_sizes_that_a_student_s_function_gets(tmp_path):
    file = tmp_path / "student.py"
    file.write_text("def fill_buckets(nbytes, room):\n    return 0\n")
    one, other = (check(file, seed=seed)["exercises"][0]["cases"][-1]["given"] for seed in (0, 7))
    assert one != other


WRITES = [
    (f"{command.split()[0]} {line}", action.option_strings[-1])
    for command, action in ACTIONS
    if action.metavar == "FILE" and action.option_strings and action.dest != "hosts"
    for line in [LINES[command][action.dest == "save"]]
]


@pytest.mark.parametrize(("line", "option"), WRITES)
@pytest.mark.parametrize("place", [".", "..", "folder.svg", "a.py/x.svg", "/proc/no/such.svg", "new/x.svg"])
def test_where_a_file_can_not_be_written_is_one_sentence(line, option, place, run):
    Path("folder.svg").mkdir()
    before = set(Path().rglob("*"))
    found = run(line.format(f"{option} {place}"))
    if place == "new/x.svg":
        assert (found.status, Path(place).is_file()) == (0, True), found.err
        return
    *_, sentence = found.err.splitlines()
    assert found.status in (1, 2)
    assert sentence.startswith("mxdp")
    assert place.replace("/x.svg", "") in sentence
    assert "Traceback" not in found.err
    assert set(Path().rglob("*")) == before
