from __future__ import annotations

import configparser
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mxdp


@pytest.mark.parametrize("name", mxdp.__all__)
def test_every_public_name_is_there(name):
    assert callable(getattr(mxdp, name))
    assert name in dir(mxdp)


@pytest.mark.parametrize("name", mxdp.__all__)
def test_no_module_hides_a_public_name(name):
    assert importlib.util.find_spec(f"mxdp.{name}") is None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'allreduec'"):
        mxdp.allreduec  # noqa: B018


def test_importing_mxdp_prepares_the_process_and_loads_nothing_heavy():
    code = (
        "import os, sys, mxdp\n"
        "assert os.environ['MXNET_CPU_TEMP_COPY'] == '128'\n"
        "heavy = ('mxnet', 'numpy', 'matplotlib', 'mxdp.backend', 'mxdp.gluon', 'mxdp.plans')\n"
        "assert not [name for name in sys.modules if name.startswith(heavy)]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("words", "lines"),
    [(["-m", "mxdp.experiments", "list"], 1), (["-m", "mxdp.launch"], 1), (["-c", "import mxdp"], 6)],
)
def test_a_python_without_what_mxdp_needs_is_told_to_activate_the_environment(words, lines, tmp_path):
    bare = [sys.executable, "-S", "-E", *words]  # as a Python that nothing was installed for
    done = subprocess.run(bare, cwd=Path(mxdp.__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 1
    assert re.search(r"mxdp needs .*wrapt.*\.venv/bin/activate", done.stderr.splitlines()[-1])
    assert len(done.stderr.splitlines()) <= lines


def test_the_package_says_what_it_can_be_run_as():
    printed = subprocess.run([sys.executable, "-m", "mxdp"], capture_output=True, text=True, check=True).stdout
    for name in re.findall(r"python -m (mxdp\.\w+)", printed):
        assert importlib.util.find_spec(name)
    assert "mxdp.experiments" in printed


@pytest.mark.parametrize("words", [["-c", "import mxdp; print(mxdp.devices(1))"], ["-m", "mxdp.experiments", "list"]])
def test_a_script_beside_the_clone_finds_the_package_and_not_the_clone(words, tmp_path):
    (tmp_path / "mxdp").symlink_to(Path(__file__).parents[1])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, *words], cwd=str(tmp_path), env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "cpu(0)" in done.stdout or "stock-loop" in done.stdout


def test_a_wheel_has_every_file_that_is_no_module():
    config = configparser.ConfigParser()
    config.read(Path(__file__).parents[1] / "setup.cfg")
    declared, root = set(), Path(mxdp.__file__).parents[1]
    for package, patterns in config["options.package_data"].items():
        for pattern in patterns.split(","):
            declared |= set(root.joinpath(*package.split(".")).glob(pattern.strip()))
    files = {path for path in (root / "mxdp").rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert files == declared
