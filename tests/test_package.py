import configparser
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mxdp

ROOT = Path(mxdp.__file__).parents[1]


def run(*words, **options):
    """A finished Python."""
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120, **options)


def test_every_public_name_is_there_and_no_module_hides_it():
    for name in mxdp.__all__:
        assert callable(getattr(mxdp, name))
        assert name in dir(mxdp)
        assert importlib.util.find_spec(f"mxdp.{name}") is None
    with pytest.raises(AttributeError, match="'allreduec'"):
        mxdp.allreduec  # noqa: B018


def test_an_empty_environment_is_tried_with_calls_that_work_here():
    (code,) = re.findall('-c "(.+)"', (ROOT / "tools" / "try-dist.sh").read_text(encoding="utf-8"))
    assert not run("-c", code).returncode


def test_importing_mxdp_prepares_the_process_and_loads_nothing_heavy():
    code = (
        "import os, sys, mxdp\n"
        "assert os.environ['MXNET_CPU_TEMP_COPY'] == '128'\n"
        "heavy = ('mxnet', 'numpy', 'matplotlib', 'mxdp.backend', 'mxdp.gluon', 'mxdp.plans')\n"
        "assert not [name for name in sys.modules if name.startswith(heavy)]"
    )
    assert run("-c", code).returncode == 0


@pytest.mark.parametrize(
    ("words", "lines"), [(["-m", "mxdp.experiments", "list"], 1), (["-c", "import mxdp; mxdp.train"], 6)]
)
def test_a_python_without_what_mxdp_needs_is_told_to_activate_the_environment(words, lines):
    done = run("-S", "-E", *words, cwd=ROOT)  # as a Python that nothing was installed for
    assert done.returncode == 1
    assert re.search(r"mxdp needs .*wrapt.*\.venv/bin/activate", done.stderr.splitlines()[-1])
    # Python 3.13 marks the code below each line of a traceback.
    assert len([line for line in done.stderr.splitlines() if line.strip(" ~^")]) <= lines


@pytest.mark.skipif(sys.version_info < (3, 11), reason="older Pythons read no TOML by themselves")
def test_plans_and_predictions_can_be_imported_where_nothing_is_installed():
    code = (
        "from mxdp.experiments.predict import fits, inputs, ways\n"
        "from mxdp.plans.show.moving import moving\n"
        "import sys; assert not {'numpy', 'wrapt', 'mxnet', 'matplotlib'} & set(sys.modules)"
    )
    assert run("-S", "-E", "-c", code, cwd=ROOT).returncode == 0


EXTRAS = ("filelock", "jinja2", "matplotlib", "rich", "scipy", "sklearn", "tomli")
"""What only an extra of mxdp installs. (MXNet itself needs requests.)"""
CORE = """
import mxdp, mxdp.launch.__main__, mxdp.plans.__main__, mxdp.tracing
from mxdp.backend import gluon, mx, np

history = mxdp.train(2, 20, 0.1, 1, data=mxdp.load("synthetic").take(60, 20))
devices = mxdp.devices(2)
net = gluon.nn.Dense(2, in_units=3)
net.initialize(ctx=devices)
trainer = mxdp.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
with mx.autograd.record():
    losses = [net(shard).sum() for shard in mxdp.split_and_load(np.ones((4, 3)), devices)]
mx.autograd.backward(losses)
trainer.step(4)
mxdp.Checkpoint
"""


@pytest.fixture
def without_extras(tmp_path):
    """The environment of a Python that has none of them."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS}))"  # as if they were not installed
    (tmp_path / "sitecustomize.py").write_text(blocked)
    return {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}


def test_the_core_needs_numpy_and_little_else(without_extras):
    done = run("-c", CORE, env=without_extras)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["-m", "mxdp.experiments", "list"], "experiments"),
        (["-m", "mxdp.exercises", "list"], "experiments"),
        (["-c", "import mxdp; mxdp.Curves()"], "experiments"),
        (["-c", "import mxdp; mxdp.load()"], "data"),
    ],
)
def test_a_missing_extra_is_a_sentence_with_the_command(words, extra, without_extras, tmp_path):
    environ = {**without_extras, "MXDP_DATA_DIR": "", "XDG_CACHE_HOME": str(tmp_path)}
    done = run(*words, env=environ)
    assert done.returncode in (1, 2)
    said = done.stderr.splitlines()
    assert f'`python -m pip install "mxdp[{extra}]"` installs it' in said[-1]
    assert len(said) == 1 or words[1] not in ("mxdp.experiments", "mxdp.exercises")


def test_the_package_says_what_it_can_be_run_as():
    printed = run("-m", "mxdp").stdout
    for name in re.findall(r"python -m (mxdp\.\w+)", printed):
        assert importlib.util.find_spec(name)
    assert "mxdp.experiments" in printed


@pytest.mark.parametrize("words", [["-c", "import mxdp; print(mxdp.devices(1))"], ["-m", "mxdp.experiments", "list"]])
def test_a_script_beside_the_clone_finds_the_package_and_not_the_clone(words, tmp_path):
    (tmp_path / "mxdp").symlink_to(Path(__file__).parents[1])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = run(*words, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert "cpu(0)" in done.stdout or "stock-loop" in done.stdout


def test_a_wheel_has_every_file_that_is_no_module():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    declared = set()
    for package, patterns in config["options.package_data"].items():
        for pattern in patterns.split(","):
            declared.update((ROOT / package.replace(".", "/")).glob(pattern.strip()))
    files = {path for path in (ROOT / "mxdp").rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert files - {ROOT / "mxdp" / "ruff.toml"} == declared
