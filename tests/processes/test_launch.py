"""``python -m mxdp.launch``: real ranks by a real ``mpiexec``, ended in every way that may happen to them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

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
def test_output_has_the_rank_before_each_line_and_streams_stay_apart():
    lines = "[print('x' * 3000, rank) or print('bad', rank, file=sys.stderr) for _ in range(20)]; print('end', end='')"
    status, out, err = finish(start(RANKED + lines, n=3))
    assert status == 0
    assert out == sorted([f"[{r}] {'x' * 3000} {r}" for r in range(3)] * 20 + [f"[{r}] end" for r in range(3)])
    assert sorted(err) == sorted([f"[{r}] bad {r}" for r in range(3)] * 20)


BAR = """
def draw(text, file=sys.stderr):
    file.write(text); file.flush()
go = time.monotonic() + 3
while time.monotonic() < go:
    draw(f"\\r{time.monotonic() - go:.2f} s"); time.sleep(0.02)
draw("\\r0 s\\n")
draw("with Windows' ends\\r\\n\\nlast", sys.stdout)
"""


@needs_mpi
def test_a_bar_that_is_drawn_over_itself_is_shown_once_a_second_as_it_goes():
    launcher = start(f"{RANKED}exec({BAR!r})", n=1)
    states = [launcher.stderr.readline()]
    assert launcher.poll() is None
    _, out, err = finish(launcher)
    states += [f"{line}\n" for line in err]
    assert [re.fullmatch(r"\[0\] -?[0-9.]+ s\n", state) is not None for state in states] == [True] * len(states)
    assert 2 <= len(states) <= 5
    assert states[-1] == "[0] 0 s\n"
    assert out == ["[0] ", "[0] last", "[0] with Windows' ends"]


@needs_mpi
def test_the_first_failure_is_named_with_its_last_lines_and_is_the_exit_status():
    broke = "sys.exit(print('it broke', file=sys.stderr) or 3)"
    status, _, err = finish(start(f"{RANKED}print('up', flush=True); rank == 1 and {broke} or time.sleep(1000)"))
    assert status == 3
    assert err[-3].startswith("mxdp.launch: rank 1 on ")
    assert "failed with exit status 3" in err[-3]
    assert set(err[-2:]) == {"[1] up", "[1] it broke"}


@needs_mpi
def test_a_rank_that_calls_mpi_abort_is_named():
    pytest.importorskip("mpi4py")
    code = (
        "import mxdp; mxdp.world(); from mpi4py import MPI; w = MPI.COMM_WORLD; "  # which gives back MPICH's memory
        "w.Barrier(); w.rank == 1 and w.Abort(7); w.Barrier()"
    )
    status, _, err = finish(start(code))
    assert status == 7
    # Where mpiexec has killed both guards before they have read a line, all that is known is that both are lost.
    assert any(line.startswith("mxdp.launch: rank ") and "rank 1 on " in line for line in err)


@needs_mpi
@pytest.mark.parametrize("who", ["rank", "guard"])
def test_a_stopped_rank_or_guard_is_named(who):
    launcher = start(SLEEP, "--silent-after", "2")
    rank = started(launcher)[1]["[1]"]
    (rank if who == "rank" else rank.parent()).suspend()
    status, _, err = finish(launcher)
    assert status == 124
    assert "rank 1 on " in err[0]
    assert "rank 0" not in err[0]
    assert ("has been stopped for" if who == "rank" else "not heard of for") in err[0]


@needs_mpi
def test_nothing_is_left_when_the_launcher_is_killed_while_a_rank_is_stopped():
    launcher = start(SLEEP)
    processes, ranks = started(launcher)
    ranks["[0]"].suspend()
    launcher.kill()
    assert len(processes) >= 7  # mpiexec, two guards, two ranks, two of theirs: the fixture nothing_left waits for them
    launcher.communicate()


@needs_mpi
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_launcher_ends_everything(number):
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN); " if number == signal.SIGTERM else ""
    launcher = start(RANKED + ignore + SLEEP[len(RANKED) :])
    started(launcher)
    launcher.send_signal(number)
    status, _, err = finish(launcher)
    assert status == 128 + number
    assert err == [f"mxdp.launch: ended by {signal.Signals(number).name}; so are all ranks"]


@needs_mpi
def test_a_command_that_is_not_there_is_named(capfd):
    assert launch.main(["-n", "1", "--", "no-such-program"]) == 127
    assert "[0] no-such-program: No such file or directory\n" in capfd.readouterr().err


@needs_mpi
@pytest.mark.parametrize(("name", "mode"), [("train.py", 0o644), ("./train.py", 0o644), ("./train.py", 0o755)])
def test_a_script_that_the_system_can_not_start_gets_the_cure(name, mode, capfd, tmp_path, monkeypatch):
    """It is not on the PATH, or has no run bit, or no line that names its program."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print('up')")
    Path("train.py").chmod(mode)
    assert launch.main(["-n", "1", "--", name, "a"]) == 127
    err = capfd.readouterr().err
    assert err.startswith(f"[0] {name}: ")
    assert f": put its program before it, as in -- python {name} a\n" in err


@needs_mpi
def test_in_a_job_of_slurm_ranks_start_here_without_srun_if_no_hosts_are_given(monkeypatch, tmp_path):
    """Of two nodes there, which would be two hosts to MPI. A container has no ``srun``; here one that fails."""
    pytest.importorskip("mpi4py")
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\nexit 9\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    nodes, names = "node[7-8]", ("SLURM_NODELIST", "SLURM_JOB_NODELIST")
    slurm = dict(SLURM_JOB_ID="1", SLURM_NNODES="2", SLURM_JOB_NUM_NODES="2", SLURM_TASKS_PER_NODE="1(x2)")
    for variable, value in {**slurm, **dict.fromkeys(names, nodes)}.items():
        monkeypatch.setenv(variable, value)
    code = "from mpi4py import MPI; print(MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED).size)"
    assert finish(start(code)) == (0, ["[0] 2", "[1] 2"], [])


@needs_mpi
def test_what_mpiexec_itself_says_is_shown():
    status, _, err = finish(start("", "--mpiexec=-no-such-option", n=1))
    assert status > 0
    assert err[0].startswith("[mpiexec] ")
    assert any(line.startswith("mxdp.launch: mpiexec failed with exit status") for line in err)


@needs_mpi
def test_print_shows_the_line_with_hosts_or_the_interface_and_runs_nothing(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("UCX_NET_DEVICES", "mine")
    hosts = tmp_path / "hosts"
    hosts.write_text("# mine\nlocalhost:2\n")
    for options, words in (([], "-launcher fork -rmk user -iface lo"), (["--hosts", str(hosts)], f"-f {hosts}")):
        line = ["-n", "2", "--print", "--mpiexec", "-bind-to core", *options, "--", "python", "a b.py"]
        assert launch.main(line) == 0
        line = capsys.readouterr().out
        assert line.endswith(f"{BESIDE} -n 2 {words} -bind-to core python 'a b.py'\n")
        assert "UCX_NET_DEVICES" not in line
    assert launch.bound(None, str(hosts)) == ("127.0.0.1", None)
    loopback = launch.bound(None, None)[1]
    assert launch.bound(loopback, str(hosts)) == ("127.0.0.1", loopback)


# Each time that it is started, the ranks make two sums, and then one ends in its own way. The last time all end well.
ENDS = """
import argparse, sys, time, mxdp
from mxdp.backend import np
WAYS = [(1, lambda: argparse.ArgumentParser(prog="it").error("bad")), (0, sys.exit)]
WAYS += [(0, lambda: sys.exit(world.sum([x])))]
with open({file!r}, "a+") as file:
    file.seek(0)
    turn = len(file.read()) // 2
    world = mxdp.world()
    world.barrier()
    file.write("x")
victim, end = WAYS[turn] if turn < len(WAYS) else (None, None)
other, x = mxdp.world(), np.ones((3,))
world.sum([x])
other.sum([x])
world.step_done()
if world.rank == victim:
    end()
if turn == 1:
    mxdp.world()  # for which the others wait, too
other.sum([x])
world.gather([x.tolist()])
if world.rank == 0:
    time.sleep(1)  # evaluates
    print("evaluated", flush=True)
sys.exit(0)
"""


@needs_mpi
def test_however_a_rank_ends_while_others_wait_for_it_the_job_ends(tmp_path):
    """By argparse; with status 0 though too early; while it waits for the others, too, which don't come; then well."""
    pytest.importorskip("mpi4py")
    status, out, err = finish(start(ENDS.format(file=str(tmp_path / "turns")), "--restarts", "9"))
    assert status == 0
    assert out == ["[0] evaluated"]
    ends = [line.partition("; all ranks")[0] for line in err if line.startswith("mxdp.launch: rank")]
    assert [(end.split()[2], end.partition(" after step 1 ")[2]) for end in ends] == [
        ("1", "failed with exit status 2"),
        ("0", "ended with exit status 0 before the other ranks"),
        ("0", "failed with exit status 1"),
    ]
    assert "[0] rank 0 of 2 ranks has ended, but rank 1 waits for its next sum, broadcast or gather" in err
    assert "[1] it: error: bad" in err


@needs_mpi
@pytest.mark.parametrize("below", [[], ["sh", "-c", '"$@"; exit $?', "sh"], ["timeout", "1000"]])
def test_ranks_that_hang_show_where_they_stand_and_logs_are_kept(tmp_path, below):
    """Python may be a process of a shell's, or of a program that makes a group of processes of its own."""
    pytest.importorskip("mpi4py")
    code = RANKED + (
        "import mxdp; world = mxdp.world(); world.step_done(); world.step_done(); print('up')\n"
        "def stands_here(): time.sleep(1000)\n"
        "world.rank or world.step_done()\n"
        "stands_here()"
    )
    options = ("--hung-after", "2", "--log-dir", str(tmp_path / "logs"))
    status, _, err = finish(start(code, *options, below=below))
    assert status == 124
    assert err[-1].startswith("mxdp.launch: no rank has made a step for 2 s; behind: rank 1 on ")
    assert "after step 2 (" in err[-1]
    stands = [line for line in err if "stands_here" in line]
    assert [line[:4] for line in stands] == ["[1] "]
    logs = [(tmp_path / "logs" / f"rank-{rank}.log").read_text() for rank in range(2)]
    assert (logs[0], logs[1].splitlines()[0]) == ("up\n", "up")
    assert stands[0][4:] in logs[1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-n", "2"], "no command: write it last, after --"),
        (["--", "true"], "the following arguments are required: -n"),
        (
            ["-n", "2", "train.py", "--lr", "1"],
            "put -- before the command, as in python -m mxdp.launch -n 2 -- python train.",
        ),
        (
            ["-n", "2", "python", "x.py", "--restarts", "x"],
            "put -- before the command, as in python -m mxdp.launch -n 2 -- ",
        ),
        (["-n", "2", "--no", "python", "x.py"], "unrecognized arguments: --no"),
        (["-n", "0", "--", "true"], "-n is at least 1, not 0"),
        (["-n", "x", "--", "true"], "argument -n: invalid int value: 'x'"),
        (["-n", "1", "--restarts", "-1", "--", "true"], "--restarts is at least 0, not -1"),
        (["-n", "1", "--silent-after", "1", "--", "true"], "--silent-after is 0 (never) or at least 2 seconds, not 1"),
        (["-n", "1", "--silent-after", "nan", "--", "true"], "--silent-after is 0 (never) or at least 2"),
        (["-n", "1", "--hung-after", "1", "--", "true"], "--hung-after is 0 (never) or at least 2 seconds, not 1"),
        (["-n", "1", "--hung-after", "inf", "--", "true"], "--hung-after is 0 (never) or at least 2 seconds, not inf"),
        (["-n", "1", "--log-dir", f"{__file__}/x", "--", "true"], "x: Not a directory"),
        (["-n", "1", "--interface", "no", "--", "true"], "no network interface 'no' with an IPv4 address; "),
        (["-n", "1", "--hosts", "no-such", "--", "true"], "--hosts no-such: No such file or directory"),
        (["-n", "1", "--hosts", os.devnull, "--", "true"], "names no host"),
        (["-n", "1", "--mpiexec", "'", "--", "true"], "--mpiexec ': No closing quotation"),
    ],
)
def test_bad_input_is_one_sentence(words, sentence, capsys):
    assert launch.main(words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("mxdp.launch: ")
    assert sentence in err


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        (
            "mpiexec (Open MPI) 5.0.11",
            "--hostfile hosts --mca btl_tcp_if_include eth1 --mca oob_tcp_if_include eth1 -x MXDP",
        ),
        ("Intel(R) MPI Library for Linux* OS", "-f hosts -iface eth1"),
        ("Microsoft MPI", "mpiexec is not of MPICH, its kin or Open MPI"),
        (None, "there is no mpiexec: pip install mpi4py mpich"),
    ],
)
def test_each_mpi_gets_its_own_options_and_another_or_none_is_a_sentence(says, expected, monkeypatch, tmp_path, capsys):
    program = tmp_path / "mpiexec"
    if says:
        program.write_text(f"#!/bin/sh\necho '{says}'\n")
        program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    if expected.startswith("-"):
        assert " ".join(launch.mpiexec(3, "hosts", "eth1", {})).startswith(f"{program} -n 3 {expected}")
    else:
        assert launch.main(["-n", "1", "--", "true"]) == 1
        assert expected in capsys.readouterr().err


def test_it_loads_neither_mxnet_nor_numpy():
    code = "import sys, mxdp.launch.__main__; assert not {'mxnet', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
