"""The shell around the package: Makefile, tools/*.sh and .ci/run, with interpreters and a pip that only pretend."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import pytest

import mxdp

REPOSITORY = Path(__file__).resolve().parent.parent
SENTENCE = (
    "mxdp needs Python 3.8 or newer with its venv module: found {}; install one, or name it with"
    " PYTHON=/path/to/python.\n"
)
UNTESTED = "mxdp: {} is newer than Python 3.13, the newest that mxdp was tested with.\n"

# Its pip notes in $PIP_LOG what it is asked, says what $PIP_SAYS holds and ends with $PIP_ENDS.
FAKE_PYTHON = """#!/bin/sh
case "$*" in
    "--version") echo "Python {version}"; exit ;;
    "-c "*%d.%d.%d*) echo "{version}"; exit {has_venv} ;;
    "-c "*) v="{version}"; echo ${{v%.*}} ;;
    "-m venv --clear "*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python"; exit ;;
    "-m pip --version") exit 0 ;;
    "-m pip show --quiet $PIP_HAS") exit 0 ;;
    "-m pip show "*) exit 1 ;;
    "-m pip "*) shift 2; echo "$*" >>"$PIP_LOG"; printf "$PIP_SAYS" >&2; exit ${{PIP_ENDS:-0}} ;;
esac
echo "unexpected: $*" >&2; exit 9
"""


NONE = "no venv"
BROKEN = "does not run"


def fake_python(path: Path, version: str) -> str:
    """An interpreter of this version; without venv if it ends with NONE; or a shim that fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    has_venv = 1 if version.endswith(NONE) else 0
    fake = FAKE_PYTHON.format(version=version.replace(NONE, "").strip(), has_venv=has_venv)
    path.write_text('#!/bin/sh\necho "pyenv: command not found" >&2\nexit 127\n' if version == BROKEN else fake)
    path.chmod(0o755)
    return str(path)


def pythons(folder: Path, files: Dict[str, str]) -> None:
    for name, version in files.items():
        fake_python(folder / name, version)


def run(command: List[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def choose(*folders: Path, order: str = "newest", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run choose-python.sh in the last of these folders, with nothing but them on the PATH."""
    environment = {"PATH": os.pathsep.join(map(str, folders)), **variables}
    return run(
        ["/bin/sh", str(REPOSITORY / "tools" / "choose-python.sh"), order], env=environment, cwd=str(folders[-1])
    )


@pytest.fixture
def bin1(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "one bin"
    folder.mkdir()
    return folder


def chosen(answer: subprocess.CompletedProcess[str]) -> str:
    assert (answer.returncode, answer.stderr) == (0, "")
    return answer.stdout.rstrip("\n")


@pytest.mark.parametrize(
    ("first", "second", "order", "wanted"),
    [
        # a newer Python gives way to one that is tested
        ({"python3": "3.14.0", "python3.14": "3.14.0"}, {"python3.9": "3.9.18"}, "newest", "two/python3.9"),
        # the newest that is suitable, wherever it stands and whatever its name
        ({"python3.8": "3.8.1", "python3.9": "3.9.2"}, {"python": "3.12.4"}, "newest", "two/python"),
        ({"python3.8": "3.8.1", "python": "3.12.4"}, {"python3.13": "3.13.5"}, "newest", "two/python3.13"),
        # the oldest, if it is asked for
        ({"python3.7": "3.7.9", "python3.13": "3.13.0"}, {"python3.12": "3.12.1"}, "oldest", "two/python3.12"),
        ({"python3.14": "3.14.0", "python3.13": "3.13.0"}, {"python3.8": "3.8.18"}, "oldest", "two/python3.8"),
        # a shim that fails is passed over for the next of its name, and a Python without venv for the next
        ({"python3.9": BROKEN}, {"python3.9": "3.9.18", "python3": "3.9.18"}, "newest", "two/python3.9"),
        ({"python3.11": f"3.11.2 {NONE}"}, {"python3.8": "3.8.18"}, "newest", "two/python3.8"),
    ],
)
def test_which_python_is_chosen(bin1: Path, first: Any, second: Any, order: str, wanted: str) -> None:
    bin2 = bin1.parent / "two"
    pythons(bin1, first)
    pythons(bin2, second)
    assert chosen(choose(bin1, bin2 / "nowhere", bin2, order=order)) == str(bin1.parent / wanted)


@pytest.mark.parametrize(("version", "variables"), [("3.14.0", {}), ("3.20.1", {"PYTHON": "python3"})])
def test_where_there_is_only_a_newer_python_it_is_taken_with_a_word(bin1: Path, version: str, variables: Any) -> None:
    wanted = fake_python(bin1 / "python3", version)
    answer = choose(bin1, **variables)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, f"{wanted}\n", UNTESTED.format(wanted))


def test_with_none_suitable_one_sentence_lists_what_was_found(bin1: Path) -> None:
    bin2 = bin1.parent / "two"
    old = {"python3.11": "3.7.1", "python3.7": "3.7.0", "python3": "3.7.0", "python": "2.7.18"}
    pythons(bin1, {**old, "python3.10": f"3.10.2 {NONE}"})
    fake_python(bin2 / "python3.9", BROKEN)
    answer = choose(bin1, bin2, bin1)
    assert (answer.returncode, answer.stdout) == (1, "")
    lists = [f"{bin1}/python3.11 (3.7.1)", f"{bin1}/python (2.7.18)", f"{bin2}/python3.9 (does not run)"]
    lists.append(f"{bin1}/python3.10 (3.10.2 without venv: on Debian or Ubuntu, apt install python3.10-venv)")
    assert answer.stderr.startswith(SENTENCE.partition("{}")[0])
    assert all(words in answer.stderr for words in lists)
    assert choose(bin1.parent).stderr == SENTENCE.format("none")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("old", "(3.7.1)"),
        ("broken", "(does not run)"),
        ("no", "is not there"),
        ("apple", "(3.11.7 arm64: MXNet has no build for Apple silicon; see docs/install.md)"),
    ],
)
def test_the_variable_python_overrides_and_an_unsuitable_one_is_refused(bin1: Path, name: str, words: str) -> None:
    pythons(bin1, {"python3.11": "3.11.7", "old": "3.7.1", "apple": "3.11.7 arm64", "broken": BROKEN})
    wanted = fake_python(bin1 / "mine", "3.8.18")
    assert chosen(choose(bin1, PYTHON="mine")) == chosen(choose(bin1, PYTHON=wanted)) == wanted
    answer = choose(bin1, PYTHON=name)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.endswith(f" PYTHON={name} {words}.\n")


def test_the_project_s_own_activated_environment_is_no_candidate(bin1: Path) -> None:
    fake_python(bin1 / ".venv" / "bin" / "python", "3.11.7")
    fake_python(bin1 / "mine" / "bin" / "python", "3.12.7")
    wanted = fake_python(bin1 / "python3.8", "3.8.18")
    assert chosen(choose(bin1 / ".venv" / "bin", bin1)) == wanted
    assert chosen(choose(bin1 / "mine" / "bin", bin1, VENV="mine")) == wanted


class Checkout:
    """A copy of what install.sh reads, with a fake Python to make .venv with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "check out"
        shutil.copytree(str(REPOSITORY / "tools"), str(self.folder / "tools"))
        for name in ("setup.cfg", "pyproject.toml"):
            shutil.copy(str(REPOSITORY / name), str(self.folder))
        self.python = fake_python(folder / "python3.9", "3.9.18")
        self.log = folder / "pip.log"

    def install(self, *words: str, status: int = 0, **variables: str) -> str:
        """Run install.sh, check its exit status, and return what it said."""
        environment = {"PATH": os.defpath, "PYTHON": self.python, "PIP_LOG": str(self.log), **variables}
        answer = run(["/bin/sh", str(self.folder / "tools" / "install.sh"), *words], env=environment)
        assert (answer.returncode, answer.stdout) == (status, ""), answer.stderr
        return answer.stderr

    def asked_of_pip(self) -> List[str]:
        """What pip was asked to do since the last look, without the options that every call has."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.write_text("")
        return [line.replace(" --quiet --disable-pip-version-check", "") for line in lines]

    @property
    def installed(self) -> bool:
        return (self.folder / ".venv" / "installed").exists()


def installs(extras: str, wheel: str = "mxnet") -> List[str]:
    """What pip is asked for: mxdp with what it needs, then MXNet and d2l without what they say they need."""
    return [f"install --no-warn-conflicts --editable .[{extras}]", f"install --no-deps {wheel}==1.9.1 d2l==1.0.3"]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    made = Checkout(tmp_path)
    output = made.install("cpu", "test")
    assert output.startswith(
        f"mxdp: making .venv with {made.python}\nmxdp: installing mxdp[cpu,experiments,book,mpi,test] "
    )
    assert made.asked_of_pip() == ["install pip>=25", *installs("cpu,experiments,book,mpi,test")]
    return made


def test_what_is_installed_is_not_installed_again_and_more_extras_are_added(checkout: Checkout) -> None:
    for words in (("cpu", "test"), ("", "test"), ("cpu",)):
        assert (checkout.install(*words), checkout.asked_of_pip()) == ("", [])
    assert "making" not in checkout.install("", "test", "dev")
    assert checkout.asked_of_pip()[1:] == installs("cpu,experiments,book,mpi,test,dev")
    assert checkout.install("", "test") == ""


@pytest.mark.parametrize("name", ["setup.cfg", "pyproject.toml", "tools/install.sh"])
def test_a_changed_configuration_is_installed_again(checkout: Checkout, name: str) -> None:
    file = checkout.folder / name
    file.write_text(f"{file.read_text()}# changed\n")
    checkout.install("cpu", "test")
    assert checkout.asked_of_pip()[1:] == installs("cpu,experiments,book,mpi,test")


def test_another_backend_takes_both_wheels_out_first_and_stays(checkout: Checkout) -> None:
    assert "taking mxnet out, for mxnet-cu112" in checkout.install("cu112", PIP_HAS="mxnet")
    uninstall, _, *rest = checkout.asked_of_pip()
    assert (uninstall, rest) == (
        "uninstall --yes mxnet-cu112 mxnet",
        installs("cu112,experiments,book,mpi", "mxnet-cu112"),
    )
    assert checkout.install("") == ""
    checkout.install("cpu", PIP_HAS="mxnet-cu112")
    assert checkout.asked_of_pip()[0] == "uninstall --yes mxnet mxnet-cu112"


def test_an_unknown_backend_is_refused_before_anything_is_done(checkout: Checkout) -> None:
    assert checkout.install("tpu", status=2) == "mxdp: BACKEND is 'tpu': choose cpu or cu112.\n"
    assert checkout.installed


def test_a_failure_of_pip_is_seen_and_leaves_nothing_recorded(checkout: Checkout) -> None:
    noise = "WARNING: Location 'file:///opt/simple/rich/' is ignored: it is neither a file nor a directory.\n"
    output = checkout.install("", "test", "dev", status=1, PIP_SAYS=f"{noise}ERROR: no network\n", PIP_ENDS="1")
    assert "\nERROR: no network\nmxdp: pip install failed, see above;" in output
    assert "ignored" not in output
    assert not checkout.installed
    assert "installing mxdp[cpu,experiments,book,mpi,test]" in checkout.install("", "test")


CHANGES = {
    "its Python does not run\n": lambda made: (made.folder / ".venv" / "bin" / "python").unlink(),
    "it was made in another folder\n": lambda made: setattr(made, "folder", made.folder.rename(f"{made.folder} 2")),
    "its Python is 3.7\n": lambda made: fake_python(made.folder / ".venv" / "bin" / "python", "3.7.0"),
    "its Python is 3.9, and PYTHON=": lambda made: setattr(made, "python", fake_python(made.folder / "x", "3.13.0")),
}


@pytest.mark.parametrize("words", CHANGES)
def test_an_environment_that_does_not_fit_is_made_again(checkout: Checkout, words: str) -> None:
    CHANGES[words](checkout)
    assert checkout.install("", "test").startswith(f"mxdp: remaking .venv, for {words}")
    assert checkout.asked_of_pip()[1:] == installs("cpu,experiments,book,mpi,test")


def test_another_folder_has_an_environment_of_its_own(checkout: Checkout) -> None:
    output = checkout.install("cpu", VENV=".venv-3.13", PYTHON=fake_python(checkout.folder / "other", "3.13.0"))
    assert output.startswith("mxdp: making .venv-3.13 with ")
    assert (checkout.folder / ".venv-3.13" / "installed").exists()
    assert checkout.install("", "test") == ""


def environment_without_make() -> Dict[str, str]:
    """Ours, without what an outer `make test ARGS=...` hands down."""
    ours = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "ARGS", "BACKEND", "PYTHON", "VENV", "MXDP_DATA_DIR")
    return {name: value for name, value in os.environ.items() if name not in ours}


def make(*words: str) -> List[str]:
    answer = run(["make", *words], env=environment_without_make(), cwd=str(REPOSITORY))
    assert (answer.returncode, answer.stderr) == (0, "")
    return answer.stdout.splitlines()


def test_make_alone_lists_every_target_with_a_word_about_it() -> None:
    targets = re.search(r"^\.PHONY: (.*)$", (REPOSITORY / "Makefile").read_text(), re.M)
    assert targets is not None
    lines = [line.split(maxsplit=2) for line in make()]
    assert [line[:2] for line in lines] == [["make", name] for name in targets.group(1).split()]
    assert all(len(line) == 3 for line in lines)


PYTEST = ".venv/bin/python -m pytest -n 2 --dist worksteal"


def test_targets_install_first_and_hand_on_what_they_are_given() -> None:
    given = ("BACKEND=cu112", "PYTHON=/opt/my python", "ARGS=-k ring")
    install = 'PYTHON="/opt/my python" VENV=".venv" tools/install.sh "cu112"'
    assert make("-n", "run", *given) == [install, ".venv/bin/python -m mxdp.experiments -k ring"]
    assert make("-n", "test", *given) == [f"{install} test", f"{PYTEST} -k ring"]
    assert make("-n", "test", "VENV=.venv-3.8")[1].split()[0] == ".venv-3.8/bin/python"
    assert make("-n", "lint", *given)[0] == f"{install} test dev"
    assert make("-n", "mutants", *given) == [f"{install} test mutants", ".venv/bin/python tools/mutants.py -k ring"]
    assert make("-n", "torture", *given) == [install, ".venv/bin/python tools/torture.py -k ring"]
    here = f"experiments/reference/here/{mxdp.__version__}"
    reference = make("-n", "reference", "REFERENCE_ARGS=run epochs", "MACHINE=here")
    assert reference[1].split()[2:] == ["mxdp.experiments", "run", "epochs", "--out", here]
    _, full, tables = make("-n", "reference", "MACHINE=here")
    assert full.split()[3:] == ["run", "all", "profile", "--preset", "full", "--processes", "3", "--out", here]
    assert tables == ".venv/bin/python tools/tables.py"
    assert make("-n", "reference", "ARGS=--json")[1].endswith(" --json")
    for machine in ("amd-epyc-2-cores", "without-results"):
        folder = "experiments/reference/amd-epyc-2-cores/0.1.0"
        words = " ".join(make("-n", "report", f"MACHINE={machine}")[1:]).replace("\\", "").split()
        assert words[2:] == ["mxdp.experiments", "report", "--across-commits", folder]


def test_a_machine_s_name_can_be_a_folder_s() -> None:
    answer = run([str(REPOSITORY / "tools" / "machine.sh")])
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*-\d+-cores\n", answer.stdout)


@pytest.mark.parametrize(
    ("fails", "pythons", "called"),
    [
        (
            "",
            "3.8.1 3.13.0 3.14.0",
            ["test 3.13 .venv", "test 3.8 .venv-oldest", "lint 3.8 .venv-oldest", "lint 3.13 .venv"],
        ),
        ("", "3.11.7", ["test 3.11 .venv", "lint 3.11 .venv"]),
        ("test 3.13", "3.8.1 3.13.0", ["test 3.13 .venv"]),
        ("lint 3.11", "3.11.7", ["test 3.11 .venv", "lint 3.11 .venv"]),
    ],
)
def test_ci_tests_and_lints_with_the_newest_and_the_oldest_python(
    tmp_path: Path, fails: str, pythons: str, called: List[str]
) -> None:
    repository, data, log = tmp_path / "repository", tmp_path / "shared" / "data", tmp_path / "log"
    for name in (".ci", "tools"):
        shutil.copytree(str(REPOSITORY / name), str(repository / name))
    data.mkdir(parents=True)
    folder = tmp_path / "bin"
    for version in pythons.split():
        fake_python(folder / f"python{version.rpartition('.')[0]}", version)
    fake = folder / "make"
    fake.write_text(FAKE_MAKE.format(log=log, fails=fails))
    fake.chmod(0o755)
    tools = tmp_path / "tools"  # what .ci/run calls, and no Python
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "mktemp", "rm", "tee", "tail", "cat"):
        (tools / name).symlink_to(str(shutil.which(name)))
    variables = environment_without_make()
    variables.update(PATH=f"{folder}{os.pathsep}{tools}", PYENV_ROOT=str(tmp_path / "nowhere"))
    answer = run([str(repository / ".ci" / "run")], env=variables, input="standard input\n")
    assert log.read_text().splitlines() == [f"{line} {repository} {data}" for line in called]
    assert answer.returncode == (1 if fails else 0)
    if not fails:
        tests = [line for line in called if line.startswith("test")]
        closing = answer.stdout.splitlines()[-len(tests) :]
        assert [line.partition(": ")[2] for line in closing] == [f"{line.split()[1]} passed" for line in tests]
    assert "standard input" not in answer.stdout


# It notes what it is asked and where, and ends as pytest would.
FAKE_MAKE = """#!/bin/sh
target=$1 venv=.venv
for word; do case $word in PYTHON=*) python=${{word##*python}} ;; VENV=*) venv=${{word#VENV=}} ;; esac; done
echo "$target $python $venv $PWD $MXDP_DATA_DIR" >>"{log}"
cat
[ "$target $python" != "{fails}" ] || exit 1
echo "$python passed"
"""


@pytest.mark.parametrize(
    ("most", "devices", "sums"), [("", "1,2,4,8,16", "8,16"), ("4", "1,2,4", "2,4"), ("2", "1,2", "2")]
)
def test_what_a_machine_with_many_cores_is_asked(most, devices, sums, tmp_path):
    """And if one question fails, the other is measured nevertheless."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$@"\n[ "$4" != scaling ]\n')
    python.chmod(0o755)
    environ = {"PATH": os.environ["PATH"], "PYTHON": str(python), "OUT": "out", **({"MOST": most} if most else {})}
    script = REPOSITORY / "tools" / "sixteen-cores.sh"
    done = subprocess.run([script], env=environ, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "mxdp: the results are in out\n")
    preset = "--preset experiments/presets/sixteen-cores.toml"
    words = f"-m mxdp.experiments run {{}} {preset} --kind cpu --devices {{}} --out out"
    assert done.stdout.splitlines() == [words.format("scaling", devices), words.format("allreduce", sums)]
