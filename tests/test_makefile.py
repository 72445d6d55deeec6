"""The shell around the package: Makefile, tools/*.sh and .ci/run, with interpreters and a pip that only pretend."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import mxdp

REPOSITORY = Path(__file__).resolve().parent.parent
REFERENCE = "experiments/reference"
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


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def fake_python(path, version):
    """An interpreter of this version; without venv if it ends with NONE; or a shim that fails."""
    fake = FAKE_PYTHON.format(version=version.replace(NONE, "").strip(), has_venv=int(version.endswith(NONE)))
    return script(path, "#!/bin/sh\nexit 127\n" if version == BROKEN else fake)


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def choose(*folders, order="newest", **variables):
    """Run choose-python.sh in the last of these folders, with nothing but them on the PATH."""
    environ = {"PATH": os.pathsep.join(map(str, folders)), **variables}
    words = ["/bin/sh", str(REPOSITORY / "tools" / "choose-python.sh"), order]
    return run(words, env=environ, cwd=str(folders[-1]))


VERSIONS = ["2.7.18", "3.7.1", "3.8.18", "3.9.2", "3.10.4", "3.13.0", "3.14.0", f"3.11.2 {NONE}", BROKEN]
NAMES = ["python3.8", "python3.11", "python3", "python"]
FOLDER = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VERSIONS))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=FOLDER, second=FOLDER, order=st.sampled_from(["newest", "oldest"]))
@example(first={"python3": "3.14.0"}, second={}, order="newest")
def test_which_python_is_chosen(first, second, order, tmp_path):
    """The newest or oldest that is tested, wherever it stands and whatever its name; else a newer one, with a word;
    else a sentence lists what was found."""
    root = tmp_path.resolve() / "two folders"
    shutil.rmtree(root, ignore_errors=True)
    found = {}
    for folder, files in (("one", first), ("two", second)):
        (root / folder).mkdir(parents=True)
        for name, version in files.items():
            found[fake_python(root / folder / name, version)] = version
    minors = {path: int(version.split(".")[1]) for path, version in found.items() if re.match(r"3\S+$", version)}
    tested = {path: minor for path, minor in minors.items() if 8 <= minor <= 13}
    newer = [path for path, minor in minors.items() if minor > 13]
    answer = choose(root / "one", root / "nowhere", root / "two", root / "one", order=order)
    path = answer.stdout.rstrip("\n")
    if tested:
        wanted = max(tested.values()) if order == "newest" else min(tested.values())
        assert (answer.returncode, answer.stderr, tested.get(path)) == (0, "", wanted)
    elif newer:
        assert (answer.returncode, answer.stderr) == (0, UNTESTED.format(path))
        assert path in newer
    else:
        assert (answer.returncode, path) == (1, "")
        listed = answer.stderr.partition("found ")[2].rpartition("; install one")[0]
        assert answer.stderr == SENTENCE.format(listed)
        apt = "without venv: on Debian or Ubuntu, apt install python3.11-venv"
        assert set(re.findall(r"\((.*?)\)", listed)) == {version.replace(NONE, apt) for version in found.values()}
        assert found or listed == "none"
        assert all(part.split(" (")[0] in found for part in listed.split("), ") if found)


def test_the_variable_python_overrides_and_an_unsuitable_one_is_refused(tmp_path):
    folder = tmp_path.resolve()
    apple = "(3.11.7 arm64: MXNet has no build for Apple silicon; see docs/install.md)"
    refused = {"old": "(3.7.1)", "broken": f"({BROKEN})", "no": "is not there", "apple": apple}
    for name, version in {"python3.11": "3.11.7", "old": "3.7.1", "apple": "3.11.7 arm64", "broken": BROKEN}.items():
        fake_python(folder / name, version)
    wanted = fake_python(folder / "mine", "3.8.18")
    assert choose(folder, PYTHON="mine").stdout == choose(folder, PYTHON=wanted).stdout == f"{wanted}\n"
    for name, words in refused.items():
        answer = choose(folder, PYTHON=name)
        assert (answer.returncode, answer.stdout) == (1, "")
        assert answer.stderr.endswith(f" PYTHON={name} {words}.\n")


def test_the_project_s_own_activated_environment_is_no_candidate(tmp_path):
    folder = tmp_path.resolve()
    fake_python(folder / "mine" / "bin" / "python", "3.12.7")
    wanted = fake_python(folder / "python3.8", "3.8.18")
    assert choose(folder / "mine" / "bin", folder, VENV="mine").stdout == f"{wanted}\n"


class Checkout:
    """A copy of what install.sh reads, with a fake Python to make .venv with."""

    def __init__(self, folder):
        self.folder = folder / "check out"
        shutil.copytree(str(REPOSITORY / "tools"), str(self.folder / "tools"))
        for name in ("setup.cfg", "pyproject.toml"):
            shutil.copy(str(REPOSITORY / name), str(self.folder))
        self.python = fake_python(folder / "python3.9", "3.9.18")
        self.log = folder / "pip.log"

    def install(self, *words, status=0, **variables):
        """Run install.sh, check its exit status, and return what it said."""
        environment = {"PATH": os.defpath, "PYTHON": self.python, "PIP_LOG": str(self.log), **variables}
        answer = run(["/bin/sh", str(self.folder / "tools" / "install.sh"), *words], env=environment)
        assert (answer.returncode, answer.stdout) == (status, ""), answer.stderr
        return answer.stderr

    def asked_of_pip(self):
        """What pip was asked to do since the last look, without the options that every call has."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.write_text("")
        return [line.replace(" --quiet --disable-pip-version-check", "") for line in lines]

    def installed(self, venv=".venv"):
        return (self.folder / venv / "installed").exists()


def installs(extras, wheel="mxnet"):
    """What pip is asked for: mxdp with what it needs, then MXNet and d2l without what they say they need."""
    return [f"install --no-warn-conflicts --editable .[{extras}]", f"install --no-deps {wheel}==1.9.1 d2l==1.0.3"]


@pytest.fixture
def checkout(tmp_path):
    made = Checkout(tmp_path)
    output = made.install("cpu", "test")
    assert output.startswith(
        f"mxdp: making .venv with {made.python}\nmxdp: installing mxdp[cpu,experiments,book,mpi,test] "
    )
    assert made.asked_of_pip() == ["install pip>=25", *installs("cpu,experiments,book,mpi,test")]
    return made


def test_what_is_installed_is_not_installed_again_but_after_a_change_or_with_more_extras(checkout):
    for words in (("cpu", "test"), ("", "test"), ("cpu",)):
        assert (checkout.install(*words), checkout.asked_of_pip()) == ("", [])
    for name in ("setup.cfg", "pyproject.toml", "tools/install.sh"):
        with (checkout.folder / name).open("a") as file:
            file.write("# changed\n")
        assert "making" not in checkout.install("cpu", "test")
        assert checkout.asked_of_pip()[1:] == installs("cpu,experiments,book,mpi,test")
    checkout.install("", "test", "dev")
    assert checkout.asked_of_pip()[1:] == installs("cpu,experiments,book,mpi,test,dev")
    assert checkout.install("", "test") == ""


def test_another_backend_takes_both_wheels_out_first_and_stays(checkout):
    assert "taking mxnet out, for mxnet-cu112" in checkout.install("cu112", PIP_HAS="mxnet")
    uninstall, _, *rest = checkout.asked_of_pip()
    assert uninstall == "uninstall --yes mxnet-cu112 mxnet"
    assert rest == installs("cu112,experiments,book,mpi", "mxnet-cu112")
    assert checkout.install("") == ""
    checkout.install("cpu", PIP_HAS="mxnet-cu112")
    assert checkout.asked_of_pip()[0] == "uninstall --yes mxnet mxnet-cu112"


def test_an_unknown_backend_is_refused_before_anything_is_done_and_a_failure_of_pip_leaves_nothing_recorded(checkout):
    assert checkout.install("tpu", status=2) == "mxdp: BACKEND is 'tpu': choose cpu or cu112.\n"
    assert checkout.installed()
    noise = "WARNING: Location 'file:///opt/simple/rich/' is ignored: it is neither a file nor a directory.\n"
    output = checkout.install("", "test", "dev", status=1, PIP_SAYS=f"{noise}ERROR: no network\n", PIP_ENDS="1")
    assert "\nERROR: no network\nmxdp: pip install failed, see above;" in output
    assert "ignored" not in output
    assert not checkout.installed()
    assert "installing mxdp[cpu,experiments,book,mpi,test]" in checkout.install("", "test")


CHANGES = {
    "its Python does not run\n": lambda made: (made.folder / ".venv" / "bin" / "python").unlink(),
    "it was made in another folder\n": lambda made: setattr(made, "folder", made.folder.rename(f"{made.folder} 2")),
    "its Python is 3.7\n": lambda made: fake_python(made.folder / ".venv" / "bin" / "python", "3.7.0"),
    "its Python is 3.9, and PYTHON=": lambda made: setattr(made, "python", fake_python(made.folder / "x", "3.13.0")),
}


def test_an_environment_that_does_not_fit_is_made_again(checkout):
    for words, change in CHANGES.items():
        change(checkout)
        assert checkout.install("", "test").startswith(f"mxdp: remaking .venv, for {words}")
        assert checkout.asked_of_pip()[1:] == installs("cpu,experiments,book,mpi,test")


def test_another_folder_has_an_environment_of_its_own(checkout):
    output = checkout.install("cpu", VENV=".venv-3.13", PYTHON=fake_python(checkout.folder / "other", "3.13.0"))
    assert output.startswith("mxdp: making .venv-3.13 with ")
    assert checkout.installed(".venv-3.13")
    assert checkout.install("", "test") == ""


def environment_without_make():
    """Ours, without what an outer `make test ARGS=...` hands down."""
    ours = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "ARGS", "BACKEND", "PYTHON", "VENV", "MXDP_DATA_DIR")
    return {name: value for name, value in os.environ.items() if name not in ours}


def make(*words):
    answer = run(["make", *words], env=environment_without_make(), cwd=str(REPOSITORY))
    assert (answer.returncode, answer.stderr) == (0, "")
    return answer.stdout.splitlines()


def test_make_alone_lists_every_target_with_a_word_about_it():
    targets = re.search(r"^\.PHONY: (.*)$", (REPOSITORY / "Makefile").read_text(), re.M)
    assert targets is not None
    lines = [line.split(maxsplit=2) for line in make()]
    assert [line[:2] for line in lines] == [["make", name] for name in targets.group(1).split()]
    assert all(len(line) == 3 for line in lines)


def test_targets_install_first_and_hand_on_what_they_are_given():
    given = ("BACKEND=cu112", "PYTHON=/opt/my python", "ARGS=-k ring")
    install = 'PYTHON="/opt/my python" VENV=".venv" tools/install.sh "cu112"'
    for target, extras, command in (
        ("run", "", "-m mxdp.experiments"),
        ("test", " test", "-m pytest -n 2 --dist worksteal"),
        ("mutants", " test mutants", "tools/mutants.py"),
        ("torture", "", "tools/torture.py"),
    ):
        assert make("-n", target, *given) == [install + extras, f".venv/bin/python {command} -k ring"]
    assert make("-n", "test", "VENV=.venv-3.8")[1].split()[0] == ".venv-3.8/bin/python"
    assert make("-n", "lint", *given)[0] == f"{install} test dev"
    here = f"{REFERENCE}/here/{mxdp.__version__}"
    _, full, tables = make("-n", "reference", "MACHINE=here", "ARGS=--json")
    words = ["run", "all", "profile", "--preset", "full", "--processes", "3", "--out", here, "--json"]
    assert (full.split()[3:], tables) == (words, ".venv/bin/python tools/tables.py")
    for machine, own in (("amd-epyc-2-cores", "amd-epyc-2-cores"), ("without-results", "*")):
        versions = (mxdp.__version__, "*.*.*")  # before it was measured, an older one
        found = [path for version in versions for path in sorted(REPOSITORY.glob(f"{REFERENCE}/{own}/{version}"))]
        folder = found[0].relative_to(REPOSITORY).as_posix()
        words = " ".join(make("-n", "report", f"MACHINE={machine}")[1:]).replace("\\", "").split()
        assert words[2:] == ["mxdp.experiments", "report", "--across-commits", folder]


def test_a_machine_s_name_can_be_a_folder_s():
    answer = run([str(REPOSITORY / "tools" / "machine.sh")])
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*-\d+-cores\n", answer.stdout)


FAKE_MAKE = """#!/bin/sh
venv=.venv
for word; do case $word in PYTHON=*) python=${word##*python} ;; VENV=*) venv=${word#VENV=} ;; esac; done
echo "$1 $python $venv $PWD $MXDP_DATA_DIR" >>"$LOG"
cat
[ "$1 $python" != "$FAILS" ] || exit 1
echo "$python passed"
"""
"""It notes what it is asked and where, and ends as pytest would."""


@pytest.mark.parametrize("fails", ["", "test 3.13", "test 3.8", "lint 3.13"])
@pytest.mark.parametrize("pythons", ["3.8.1 3.13.0 3.14.0", "3.13.0"])
def test_ci_tests_and_lints_with_the_newest_and_the_oldest_python(tmp_path, fails, pythons):
    repository, data, log = tmp_path / "repository", tmp_path / "shared" / "data", tmp_path / "log"
    for name in (".ci", "tools"):
        shutil.copytree(str(REPOSITORY / name), str(repository / name))
    data.mkdir(parents=True)
    folder = tmp_path / "bin"  # what .ci/run calls, and no other Python
    for version in pythons.split():
        fake_python(folder / f"python{version.rpartition('.')[0]}", version)
    script(folder / "make", FAKE_MAKE)
    for name in ("bash", "sh", "dirname", "mktemp", "rm", "tee", "tail", "cat"):
        (folder / name).symlink_to(str(shutil.which(name)))
    variables = {**environment_without_make(), "PATH": str(folder), "PYENV_ROOT": "nowhere"}
    variables.update(LOG=str(log), FAILS=fails)
    answer = run([str(repository / ".ci" / "run")], env=variables, input="standard input\n")
    oldest = ["test 3.8 .venv-oldest", "lint 3.8 .venv-oldest"] if "3.8" in pythons else []
    called = ["test 3.13 .venv", *oldest, "lint 3.13 .venv"]
    failed = [number for number, line in enumerate(called, 1) if fails and line.startswith(fails)]
    assert log.read_text().splitlines() == [f"{line} {repository} {data}" for line in called[: (failed or [None])[0]]]
    assert answer.returncode == len(failed)
    closing = [line.partition(": ")[2] for line in answer.stdout.splitlines() if line.startswith("Python")]
    assert failed or closing == [f"{line.split()[1]} passed" for line in called if line.startswith("test")]
    assert "standard input" not in answer.stdout


@pytest.mark.parametrize(("most", "devices", "sums"), [("", "1,2,4,8,16", "8,16"), ("2", "1,2", "2")])
def test_what_a_machine_with_many_cores_is_asked(most, devices, sums, tmp_path):
    """And if one question fails, the other is measured nevertheless."""
    python = script(tmp_path / "python", '#!/bin/sh\necho "$@"\n[ "$4" != scaling ]\n')
    environ = {"PATH": os.environ["PATH"], "PYTHON": python, "OUT": "out", **({"MOST": most} if most else {})}
    done = run([str(REPOSITORY / "tools" / "sixteen-cores.sh")], env=environ, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "mxdp: the results are in out\n")
    preset = "--preset experiments/presets/sixteen-cores.toml"
    words = f"-m mxdp.experiments run {{}} {preset} --kind cpu --devices {{}} --out out"
    assert done.stdout.splitlines() == [words.format("scaling", devices), words.format("allreduce", sums)]
