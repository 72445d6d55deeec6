"""``python -m mxdp.launch``: real ranks by a real ``mpiexec``, ended in every way that may happen to them."""

import io
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

import psutil
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from mxdp.launch import __main__ as launch

BESIDE = Path(sys.executable).with_name("mpiexec")
needs_mpi = pytest.mark.skipif(not BESIDE.exists(), reason="no mpiexec beside this Python: pip install mpi4py mpich")
RANKED = "import os, signal, subprocess, sys, time; rank = int(os.environ['PMI_RANK']); "
SLEEP = RANKED + "subprocess.Popen(['sleep', '1000']); print('up', os.getpid(), flush=True); time.sleep(1000)"
SECONDS = 120
"""A limit for busy machines alone."""


def start(code, *options, n=2, below=()):
    command = [sys.executable, "-m", "mxdp.launch", "-n", str(n), *options, "--", *below, sys.executable, "-c", code]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(launcher):
    """Exit status, and the sorted lines of stdout and of stderr."""
    out, err = launcher.communicate(timeout=SECONDS)
    return launcher.returncode, sorted(out.splitlines()), err.splitlines()


def started(launcher, ranks=2):
    """All processes of the job, once each rank has said that it is up; and the ranks' own, by rank."""
    lines = [launcher.stdout.readline().split() for _ in range(ranks)]
    processes = psutil.Process(launcher.pid).children(recursive=True)
    return processes, {prefix: psutil.Process(int(pid)) for prefix, _, pid in lines}


@needs_mpi
def test_nothing_is_left_when_the_launcher_is_killed_while_a_rank_is_stopped():
    launcher = start(SLEEP)
    processes, ranks = started(launcher)
    ranks["[0]"].suspend()
    launcher.kill()
    assert len(processes) >= 7  # mpiexec, two guards, two ranks, two of theirs: the fixture nothing_left waits for them
    launcher.communicate()


@needs_mpi
def test_the_first_of_many_signals_to_the_launcher_ends_everything():
    """Also ranks that ignore it, and without a word of the later ones."""
    launcher = start(RANKED + "signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP[len(RANKED) :])
    started(launcher)
    while launcher.poll() is None:
        launcher.send_signal(signal.SIGTERM)
    status, _, err = finish(launcher)
    assert status == 128 + signal.SIGTERM
    assert err == ["mxdp.launch: ended by SIGTERM; so are all ranks"]


VERSIONS = {
    "HYDRA build details:": ("-f", ["-iface"]),
    "Intel(R) MPI Library for Linux* OS": ("-f", ["-iface"]),
    "mpiexec (Open MPI) 5.0.11": ("--hostfile", ["btl_tcp_if_include", "oob_tcp_if_include"]),
}
"""The options before a list of hosts and an interface."""
PLACES = ["-launcher ssh", "--bootstrap slurm", "-hosts a,b", "-host a", "-machinefile m", "-rmk slurm"]
INTERFACES = ("UCX_NET_DEVICES", "FI_TCP_IFACE")
LOOPBACK = launch.bound(None, None)[1]


@settings(max_examples=20, phases=[Phase.generate])  # each starts processes: shrinking would take minutes
@given(
    version=st.sampled_from(sorted(VERSIONS)),
    hosts=st.none() | st.sampled_from(["localhost", "localhost:2\n\n  # mine\nlocalhost\n127.0.0.1:3 # twice\n"]),
    interface=st.sampled_from([None, LOOPBACK]),
    more=st.lists(st.sampled_from(["-v", "-x A='b c'", *PLACES]), max_size=2, unique=True),
)
def test_all_options_are_handed_to_each_kind_of_mpiexec(version, hosts, interface, more):
    """And its variables (a user's own stay: tests/test_options.py). ``--print`` shows the line and runs nothing."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, PATH=f"{folder}:/bin:/usr/bin"):
        for name in INTERFACES:
            os.environ.pop(name, None)
        program, file = Path(folder, "mpiexec"), Path(folder, "hosts")
        said = f"[ $1 = --version ] && echo '{version}' && exit"
        program.write_text(f"#!/bin/sh\n{said}\ncd {folder}\nprintf '%s\\n' \"$@\" > words\nenv > environ\n")
        program.chmod(0o755)
        file.write_text(hosts or "")
        options = ["-n", "77", f"--mpiexec={' '.join(more)}", "--silent-after", "7"]
        options += [f"--interface={interface}"] * bool(interface) + [f"--hosts={file}"] * bool(hosts)
        with mock.patch.object(sys, "executable", f"{folder}/python"), mock.patch("sys.stdout", io.StringIO()) as shown:
            assert launch.main([*options, "--print", "--", "train", "x y"]) == 0
            assert not Path(folder, "words").exists()
            assert launch.main([*options, "--", "train", "x y"]) == 0
        words = Path(folder, "words").read_text().splitlines()
        environ = dict(line.split("=", 1) for line in Path(folder, "environ").read_text().splitlines() if "=" in line)
    own = shlex.split(" ".join(more))
    command = [f"{folder}/python", launch.guard.__file__, "train", "x y"]
    assert (words[:2], words[len(words) - len(own) - 4 :]) == (["-n", "77"], [*own, *command])
    words = words[2 : len(words) - len(own) - 4]
    bound = interface or (None if hosts else LOOPBACK)
    added = {name: environ[name] for name in INTERFACES if name in environ}
    assert added == {name: bound for name in INTERFACES if bound}
    *settings_, of_program = shlex.split(shown.getvalue())[: -len(words) - len(own) - 4]
    assert (settings_, of_program) == ([f"{name}={value}" for name, value in added.items()], str(program))
    after = list(zip(words, words[1:]))
    list_of_hosts, interfaces = VERSIONS[version]
    assert ((list_of_hosts, str(file)) in after) == bool(hosts)
    its = bool(bound and (hosts or "Open MPI" not in version))  # which refuses the loopback
    assert [(option, bound) in after for option in interfaces] == [its] * len(interfaces)
    assert (words[:4] == ["-launcher", "fork", "-rmk", "user"]) == (
        "HYDRA" in version and not hosts and not set(more) & set(PLACES)
    )
    handed = [value for option, value in after if option == "-x"]
    assert handed == (["MXDP_LAUNCH", "PYTHONUNBUFFERED", *added] if "Open MPI" in version else [])
    assert (environ["PYTHONUNBUFFERED"], environ["MXDP_LAUNCH"].split()[::3]) == ("1", ["127.0.0.1", "7.0"])


def test_another_mpi_or_none_is_a_sentence(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert launch.main(["-n", "1", "--", "true"]) == 1
    assert "there is no mpiexec: pip install" in capsys.readouterr().err
    (tmp_path / "mpiexec").write_text("#!/bin/sh\necho 'Microsoft MPI'\n")
    (tmp_path / "mpiexec").chmod(0o755)
    assert launch.main(["-n", "1", "--", "true"]) == 1
    assert "mpiexec is not of MPICH, its kin or Open MPI" in capsys.readouterr().err


ENDS = """
import os, sys, time, mxdp
from mxdp.backend import np
from mxdp.processes.leaving import INSIDE, launchers_file
first = not os.path.exists({file!r})
world = mxdp.world()
world.barrier()
open({file!r}, "w").close()
assert launchers_file()[1] == INSIDE
other, x = mxdp.world(), np.ones((3,))
world.sum([x])
world.step_done()
if first and world.rank == 1:
    sys.exit(2)
other.sum([x])
world.gather([x.tolist()])
if world.rank == 0:
    time.sleep(0.7)  # evaluates
    print("evaluated", flush=True)
"""


@needs_mpi
def test_where_a_rank_ends_while_others_wait_for_it_the_job_ends_and_else_well(tmp_path):
    """(Other ways to end: test_leaving, test_launcher_ends.)"""
    pytest.importorskip("mpi4py")
    status, out, err = finish(start(ENDS.format(file=str(tmp_path / "begun")), "--restarts", "9"))
    assert status == 0
    assert out == ["[0] evaluated"]
    (end,) = [line for line in err if line.startswith("mxdp.launch: rank")]
    assert end.startswith("mxdp.launch: rank 1 on ")
    assert " after step 1 failed with exit status 2; all ranks" in end
    assert "[1] rank 1 of 2 ranks has ended, but rank 0 waits for its next sum, broadcast or gather" in err


@needs_mpi
def test_ranks_that_hang_show_where_they_stand_and_logs_are_kept(tmp_path):
    """Python may be a process of a shell's, which here is that of a program that makes a group of its own."""
    pytest.importorskip("mpi4py")
    code = RANKED + (
        "import mxdp; world = mxdp.world(); world.step_done(); world.step_done(); print('up')\n"
        "def stands_here(): time.sleep(1000)\n"
        "world.rank or world.step_done()\n"
        "stands_here()"
    )
    options = ("--hung-after", "2", "--log-dir", str(tmp_path / "logs"))
    status, _, err = finish(start(code, *options, below=["timeout", "1000", "sh", "-c", '"$@"; exit $?', "sh"]))
    assert status == 124
    assert err[-1].startswith("mxdp.launch: no rank has made a step for 2 s; behind: rank 1 on ")
    assert "after step 2 (" in err[-1]
    stands = [line for line in err if "stands_here" in line]
    assert [line[:4] for line in stands] == ["[1] "]
    logs = [(tmp_path / "logs" / f"rank-{rank}.log").read_text() for rank in range(2)]
    assert (logs[0], logs[1].splitlines()[0]) == ("up\n", "up")
    assert stands[0][4:] in logs[1]


BAD = {
    "-n 2": "no command: write it last, after --",
    "-- true": "the following arguments are required: -n",
    "-n 2 train.py --lr 1": "put -- before the command, as in python -m mxdp.launch -n 2 -- python train.",
    "-n 0 -- true": "-n is at least 1, not 0",
    "-n 1 --restarts -1 -- true": "--restarts is at least 0, not -1",
    "-n 1 --silent-after 1.9 -- true": "--silent-after is 0 (never) or at least 2 seconds, not 1.9",
    "-n 1 --hung-after 1 -- true": "--hung-after is 0 (never) or at least 2 seconds, not 1",
    "-n 1 --hung-after inf -- true": "--hung-after is 0 (never) or at least 2 seconds, not inf",
    f"-n 1 --log-dir {__file__}/x -- true": "x: Not a directory",
    "-n 1 --interface no -- true": "no network interface 'no' with an IPv4 address; ",
    "-n 1 --hosts no-such -- true": "--hosts no-such: No such file or directory",
    f"-n 1 --hosts {os.devnull} -- true": "names no host",
    "-n 1 --mpiexec ' -- true": "--mpiexec ': No closing quotation",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_sentence(line, capsys):
    assert launch.main(line.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("mxdp.launch: ")
    assert BAD[line] in err


def test_it_loads_neither_mxnet_nor_numpy():
    code = "import sys, mxdp.launch.__main__; assert not {'mxnet', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
