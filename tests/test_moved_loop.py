"""The page for an engineer who moves a gluon loop: its files are one training, and its changes are theirs."""

import difflib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOOPS = [ROOT / "experiments" / "gluon" / f"{name}.py" for name in ("one_device", "two_devices", "ranks", "shards")]
PAGE = (ROOT / "docs" / "move-a-loop.md").read_text(encoding="utf-8")
MPI = Path(sys.executable).with_name("mpiexec").exists()
KILLED = """
    if epoch == 2 and world.rank == 1 and not os.path.exists("killed"):
        checkpoint.wait()
        open("killed", "w").close()
        os.kill(os.getpid(), 9)
"""


def body(loop):
    """Without the docstring."""
    return loop.read_text(encoding="utf-8").partition('"""\n\n')[2]


def change(before, after):
    lines = difflib.unified_diff(body(before).splitlines(), body(after).splitlines(), n=1, lineterm="")
    return "\n".join("@@" if line.startswith("@@") else line for line in list(lines)[2:]) + "\n"


def test_the_page_shows_the_first_file_and_the_whole_difference_to_each_next():
    assert re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S) == [body(LOOPS[0])]
    shown = re.findall(r"^```diff\n(.*?)^```$", PAGE, re.M | re.S)
    assert shown == [change(*pair) for pair in zip(LOOPS, LOOPS[1:])]


@pytest.fixture(scope="module")
def accuracy(tmp_path_factory):
    """That of the training on one device."""
    return run([sys.executable, str(LOOPS[0])], tmp_path_factory.mktemp("one"))


def run(command, folder):
    """The accuracy that the command prints in this folder."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "MXDP_OFFLINE": "1"}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    (number,) = set(re.findall(r"test accuracy (\d\.\d+)", done.stdout))  # of all ranks
    return float(number)


def test_two_devices_learn_the_same(accuracy, tmp_path):
    assert accuracy > 0.9
    assert run([sys.executable, str(LOOPS[1])], tmp_path) == pytest.approx(accuracy, abs=0.01)


@pytest.mark.skipif(not MPI, reason="no mpiexec beside this Python: pip install mpi4py mpich")
@pytest.mark.parametrize("loop", LOOPS[2:], ids=lambda path: path.stem)
def test_ranks_learn_the_same_although_one_is_killed(loop, accuracy, tmp_path):
    text = loop.read_text(encoding="utf-8").replace("import mxdp ", "import os\nimport mxdp ", 1)
    (tmp_path / loop.name).write_text(
        text.replace("    checkpoint.save", f"{KILLED}    checkpoint.save"), encoding="utf-8"
    )
    command = re.search(r"python (-m mxdp.launch .*) -- python \S*ranks.py", PAGE)[1].split()
    assert run([sys.executable, *command, "--", sys.executable, loop.name], tmp_path) == pytest.approx(
        accuracy, abs=0.01
    )
    assert (tmp_path / "killed").exists()
