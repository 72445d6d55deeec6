"""``python -m mxdp.launch -n 4 -- COMMAND``: the command line of the launcher."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import psutil

from mxdp import process
from mxdp.errors import (
    MxdpError,
    SentenceParser,
    UsageError,
    as_command,
    did_you_mean,
    tidy_after_signals,
)
from mxdp.launch import guard
from mxdp.launch.guarded import print_line
from mxdp.launch.job import Launch, Logs

INTERFACES = ("UCX_NET_DEVICES", "FI_TCP_IFACE")
"""Variables by which MPICH's two transports bind their sockets to a network interface."""
PLACES = ("launcher", "bootstrap", "rmk", "f", "hosts", "host", "machinefile")
"""Options of MPICH's ``mpiexec`` that say where ranks run. Without one, in a cluster's job, it asks the cluster's
manager. It then starts even this host's ranks by ``srun`` or its like, which a container doesn't have."""


@as_command("mxdp.launch")
def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command; the exit status: 0, that of the first rank that failed, 128 + a signal's number, or 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    end = words.index("--") if "--" in words else len(words)
    command = words[end + 1 :]
    options = parser().parse_args(words[:end])
    if options.command:
        script = ["python"] if options.command[0].endswith(".py") else []
        example = f"python -m mxdp.launch -n {options.n} -- {shlex.join(script + options.command)}"
        raise UsageError(
            f"{options.command[0]} is no option: put -- before the command, as in {example}"
        )
    if not command:
        raise UsageError(
            "no command: write it last, after --, as in python -m mxdp.launch -n 2 -- python train.py"
        )
    return run_command(options, command)


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = SentenceParser(
        prog="python -m mxdp.launch",
        usage="%(prog)s -n N [options] -- COMMAND",
        description="Start COMMAND in N processes by mpiexec, show their output, and end all if one fails.",
        epilog="Standard input is empty. A rank that hangs without being stopped is noticed with --hung-after alone.",
    )
    add = options.add_argument
    add("-n", type=int, required=True, metavar="N", help="number of processes (ranks)")
    add("--hosts", metavar="FILE", help="run on these hosts, one a line, as mpiexec takes them")
    add(
        "--restarts",
        type=int,
        default=0,
        metavar="N",
        help="after a failure, start all again, N times",
    )
    silent = "end all if a rank is stopped or cut off for S seconds (default %(default)s; at least 2, or 0: never)"
    add("--silent-after", type=float, default=60, metavar="S", help=silent)
    hung = (
        "end all if no rank makes a step for S seconds (a batch of mxdp's training, or a call of "
        "mxdp.world().step_done()), and show where the last ones stand; counts from the first step; at least 2, or 0: "
        "never (default); longer than any evaluation"
    )
    add("--hung-after", type=float, default=0, metavar="S", help=hung)
    add(
        "--log-dir",
        metavar="DIR",
        help="also append each rank's output to DIR/rank-0.log, and so on",
    )
    add(
        "--interface",
        metavar="IF",
        help="network interface for all sockets; on one host the loopback",
    )
    add(
        "--mpiexec", default="", metavar="ARGS", help='more for it, as in --mpiexec="-bind-to core"'
    )
    add("--print", action="store_true", help="show mpiexec's command line and run nothing")
    add("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)  # which has to stand after --
    return options


def run_command(options: argparse.Namespace, command: List[str]) -> int:
    """Start all ranks, again after a failure if that is asked for; the exit status."""
    if options.n < 1:
        raise UsageError(f"-n is at least 1, not {options.n}")
    if options.restarts < 0:
        raise UsageError(f"--restarts is at least 0, not {options.restarts}")
    for name, seconds in (("silent", options.silent_after), ("hung", options.hung_after)):
        if not (seconds == 0 or 2 <= seconds < float("inf")):
            raise UsageError(f"--{name}-after is 0 (never) or at least 2 seconds, not {seconds:g}")
    address, interface = bound(options.interface, options.hosts)
    added = {name: interface for name in INTERFACES if interface and name not in os.environ}
    try:
        more = shlex.split(options.mpiexec)
    except ValueError as error:
        raise UsageError(f"--mpiexec {options.mpiexec}: {error}") from error
    words = mpiexec(options.n, options.hosts, interface, added, more)
    if options.print:
        settings = [f"{name}={value}" for name, value in added.items()]
        print(shlex.join([*settings, *words, *command]))
        return 0
    environ = {"PYTHONUNBUFFERED": "1", **process.unprepared(), **added}
    words += [sys.executable, guard.__file__, *command]
    with ExitStack() as last:
        logs: Logs = {}
        if options.log_dir is not None:
            logs = log_files(options.log_dir, options.n, last)
        try:
            for restart in range(options.restarts + 1):
                if restart:
                    again = f"restart {restart} of {options.restarts}, from the last checkpoint if there is one"
                    print_line(f"mxdp.launch: starts all ranks again: {again}", sys.stderr)
                job = Launch(
                    words,
                    environ,
                    options.n,
                    address,
                    options.silent_after,
                    options.hung_after,
                    logs,
                )
                failure = job.run()
                if failure is None:
                    return 0
                print_line(str(failure), sys.stderr)
                status = failure.status
            return status
        except KeyboardInterrupt as stopped:
            by = signal.Signals(*stopped.args or (signal.SIGINT,))
            print_line(f"mxdp.launch: ended by {by.name}; so are all ranks", sys.stderr)
            return 128 + by


def log_files(folder: str, size: int, last: ExitStack) -> Logs:
    """A file for each rank, at whose end its lines are added; ``last`` closes them."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        paths = [Path(folder, f"rank-{rank}.log") for rank in range(size)]
        return {
            rank: last.enter_context(open(path, "ab", buffering=0))
            for rank, path in enumerate(paths)
        }
    except OSError as error:
        raise UsageError(f"--log-dir {folder}: {error.strerror}") from error


def bound(interface: Optional[str], hosts: Optional[str]) -> Tuple[str, Optional[str]]:
    """The launcher's own address, and the network interface for all other sockets, None for any."""
    addresses: Dict[str, str] = {}
    for name, known in psutil.net_if_addrs().items():
        addresses.update((name, x.address) for x in known if x.family == socket.AF_INET)
    if interface:
        if interface not in addresses:
            meant = did_you_mean(interface, addresses)
            raise UsageError(f"no network interface {interface!r} with an IPv4 address; {meant}")
        return addresses[interface], interface
    if hosts is None:
        loopback = [name for name, address in addresses.items() if address == "127.0.0.1"]
        return "127.0.0.1", loopback[0] if loopback else None
    try:
        lines = Path(hosts).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"--hosts {hosts}: {error.strerror}") from error
    entries = [line.partition("#")[0].split() for line in lines]
    names = [entry[0].split(":")[0] for entry in entries if entry]
    if not names:
        raise UsageError(f"--hosts {hosts} names no host")
    for name in names:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((name, 9))  # sends nothing; the system chooses the way
            except OSError as error:
                raise UsageError(
                    f"no way to host {name} ({error}): name one with --interface"
                ) from error
            address = str(probe.getsockname()[0])
        if not address.startswith("127."):
            break
    return address, None


def mpiexec(
    size: int,
    hosts: Optional[str],
    interface: Optional[str],
    added: Mapping[str, str],
    more: Sequence[str] = (),
) -> List[str]:
    """The command line of the ``mpiexec`` beside this Python, or else on the PATH, with the user's options ``more``, up
    to the ranks' command. Raises an MxdpError if there is none, or if its MPI is unknown here."""
    beside = Path(sys.executable).with_name("mpiexec")
    program = str(beside) if beside.exists() else shutil.which("mpiexec")
    if program is None:
        raise MxdpError("there is no mpiexec: pip install mpi4py mpich, or load your cluster's MPI")
    done = subprocess.run(
        [program, "--version"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    words = [program, "-n", str(size)]
    if "HYDRA" in done.stdout or "Intel(R) MPI" in done.stdout:
        if hosts:
            words += ["-f", hosts]
        elif "HYDRA" in done.stdout and not any(word.lstrip("-") in PLACES for word in more):
            words += ["-launcher", "fork", "-rmk", "user"]
        words += ["-iface", interface] if interface else []
        return [*words, *more]
    if "Open MPI" in done.stdout or "OpenRTE" in done.stdout:
        words += ["--hostfile", hosts] if hosts else []
        for layer in ("btl", "oob") if interface and hosts else ():  # it refuses the loopback
            words += ["--mca", f"{layer}_tcp_if_include", str(interface)]
        for name in (guard.ADDRESS, "PYTHONUNBUFFERED", *added):
            words += ["-x", name]
        return [*words, *more]
    raise MxdpError(
        f"{program} is not of MPICH, its kin or Open MPI: start the command by it yourself"
    )


if __name__ == "__main__":
    tidy_after_signals()
    sys.exit(main())
