"""Trains by the launcher, hurts the training at random moments, and looks whether anything is lost.

    make torture                                      24 faults; the seed is printed
    make torture ARGS="--faults 200 --seed 7"         about an hour on two cores
    make torture ARGS="--seed 7 --only 31"            fault 31 of seed 7 again, alone
    make torture ARGS="--kinds kill_rank,full_disk"   these kinds alone

A fault is a training of 1 to 3 ranks with 1 or 2 devices each, and one of the kinds below. Each draws its numbers from
the seed and its own number, so it can be repeated alone. After each fault it looks at three things:

- the launcher's exit status, and one sentence of the launcher's on stderr that names the cause
- what is left: processes (and so ports), files of checkpoints and of MPI, network namespaces
- the parameters and the history of the training, started again if it was ended: those of an undisturbed one, bit for bit

It stops at the first violation, with the command that repeats it. Linux. Without root some kinds are skipped.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Counter, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from torture_victim import STEPS  # noqa: E402

from mxdp.experiments.harness.experiment import Skipped  # noqa: E402
from mxdp.experiments.measure.hosts import two_hosts  # noqa: E402

MARK = "MXDP_TORTURE"
"""Variable by which the processes of a fault are known, in /proc."""
LIMIT = 30.0
"""Seconds in which a launcher must end, or a moment must come; more where an undisturbed training takes long."""
SILENT = 3
Process = psutil.Process


class Violation(Exception):
    """Something that must not be."""


class Undisturbed(NamedTuple):
    """What a training gives that nobody hurts."""

    digest: str
    seconds: float
    checkpoints: List[str]
    size: int


class Job:
    """A training in ``folder``, and what a kind does to it. ``rank`` is the one that is hurt."""

    def __init__(self, folder: Path, chance: random.Random, ranks: int, devices: int, known: Optional[Undisturbed]):
        self.folder, self.chance, self.ranks, self.devices, self.known = folder, chance, ranks, devices, known
        self.mark, self.rank = f"{os.getpid()}-{chance.random()}", chance.randrange(ranks)
        self.checkpoints, self.steps = folder / "checkpoints", folder / "steps"
        self.pace, self.disk = chance.choice([0, 0.02]), chance.choice([0, 0.1])
        self.limit = LIMIT + 5 * (known.seconds if known else 0)
        self.what, self.inside, self.complete, self.starts = "", [], False, 0  # type: ignore[var-annotated]
        self.checkpoints.mkdir()
        (folder / "tmp").mkdir()

    def start(self, *options: str, environ: Any = (), stdout: Any = None, before: Any = None, **order: Any) -> None:
        """Start the launcher. ``order``: for the ranks. What they and the launcher print goes to files."""
        self.starts += 1
        self.out, self.err = (self.folder / f"{name}.{self.starts}" for name in ("out", "err"))
        self.steps.write_bytes(bytes(8 * self.ranks))
        command = [sys.executable, "-m", "mxdp.launch", "-n", str(self.ranks), *options, "--"]
        self.began = time.monotonic()
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.launcher = subprocess.Popen(
                [*self.inside, *command, *self.command(**order)], stdin=subprocess.DEVNULL, stdout=stdout or out,
                stderr=err, env=self.environ(environ), preexec_fn=before,
            )  # fmt: skip

    def command(self, **order: Any) -> List[str]:
        """The command of a rank."""
        fixed = dict(devices=self.devices, folder=str(self.checkpoints), steps=str(self.steps), rank=self.rank)
        whole = json.dumps({**fixed, "pace": self.pace, "disk": self.disk, **order})
        return [sys.executable, str(ROOT / "tools" / "torture_victim.py"), whole]

    def environ(self, more: Any = ()) -> Dict[str, str]:
        """The environment of a fault's processes."""
        return {**os.environ, MARK: self.mark, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.folder / "tmp"), **dict(more)}

    def processes(self, contains: str = "") -> List[Process]:
        """The processes of this fault, in whose command line is ``contains``."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and contains in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def of_rank(self, guard: bool = False) -> Optional[Process]:
        """The process of the rank that is hurt, or its guard; None before it is there, and afterwards."""
        for process in self.processes("torture_victim.py"):
            with contextlib.suppress(psutil.Error):
                is_guard = "guard.py" in " ".join(process.cmdline())
                if process.environ().get("PMI_RANK") == str(self.rank) and is_guard == guard:
                    return process
        return None

    def done(self) -> int:
        """Steps of the rank that is hurt."""
        return int.from_bytes(self.steps.read_bytes()[8 * self.rank :][:8], "little")

    def moment(self) -> None:
        """Wait for a random moment: while it starts, after a step, while a checkpoint is written, at the end."""
        when = self.chance.choice(["start", "step", "write", "end"])
        step, more = self.chance.randint(1, STEPS), self.chance.random()
        self.what += {"step": f" at step {step}", "start": f" {more:.0%} of the way to step 1"}.get(when, f" at {when}")
        if when == "start":
            self.wait_for(lambda: len(self.processes("guard.py")) > self.ranks)
            return time.sleep(more * max(0.0, (self.known.seconds if self.known else 2) - 1.5))
        if when == "write":
            return self.wait_for(lambda: bool(list(self.checkpoints.glob("*.part*"))) and more > 0.3)
        self.wait_for(lambda: self.done() >= (STEPS if when == "end" else step))
        if when == "end":
            time.sleep(more * 0.5)

    def wait_for(self, condition: Callable[[], Any]) -> None:
        """Until it holds, or the launcher has ended."""
        until = time.monotonic() + self.limit
        while self.launcher.poll() is None and not condition():
            if time.monotonic() > until:
                raise Violation(f"no {self.what} within {self.limit:.0f} s")
            time.sleep(0.005)

    def strike(self, do: Callable[[Process], Any], guard: bool = False) -> None:
        """Do it to the rank's process, or its guard, at a random moment, if it is there."""
        self.moment()
        self.wait_for(lambda: self.of_rank(guard))
        with contextlib.suppress(psutil.Error, AttributeError):
            do(self.of_rank(guard))

    def ended(self, statuses: Sequence[int], sentence: str, late: bool = True) -> None:
        """Wait for the launcher's end, and look: status, stderr, what is left, and the result if it came to its end.

        ``late``: what was done may have come after the training's end.
        """
        try:
            status = self.launcher.wait(self.limit)
        except subprocess.TimeoutExpired:
            raise Violation(f"the launcher has not ended within {self.limit:.0f} s") from None
        text = self.err.read_text(errors="replace")
        own = [line for line in text.splitlines() if not re.match(r"\[(\d+|mpiexec)\]", line)]
        self.nothing_left()
        if status == 0 and (late or 0 in statuses) and not own:
            self.finished()
        elif status not in statuses:
            raise Violation(f"exit status {status} in place of {' or '.join(map(str, statuses))}: {own or 'no word'}")
        elif sentence and (len(own) != 1 or not re.search(f"^mxdp.launch: .*{sentence}", own[0])):
            raise Violation(f"on stderr is not one sentence with {sentence!r}: {own}")

    def named(self, what: str) -> str:
        """A pattern for the launcher's sentence about the rank that is hurt."""
        return rf"rank {self.rank} on \S+( after step \d+)? {what}"

    def finished(self) -> None:
        """Compare the result with the undisturbed one's."""
        lines = self.out.read_text(errors="replace").splitlines()
        found = sorted(line for line in lines if re.match(r"\[\d+\] digest ", line))
        digest = self.known.digest if self.known else found[0].split()[-1] if found else ""
        if found != [f"[{rank}] digest {digest}" for rank in range(self.ranks)]:
            raise Violation(f"another result than the undisturbed {digest}: {found}")
        left = [path.name for path in self.checkpoints.iterdir() if not path.name.endswith((".npz", ".lock"))]
        if left:
            raise Violation(f"left in the folder of checkpoints: {left}")
        self.complete = True

    def kept(self) -> List[str]:
        """The names of the checkpoints."""
        return sorted(path.name for path in self.checkpoints.glob("*.npz"))

    def as_undisturbed(self) -> None:
        """Raise if a training that nobody ended has not the checkpoints of an undisturbed one."""
        assert self.known is not None
        if self.complete and self.kept() != self.known.checkpoints:
            raise Violation(f"the checkpoints are {self.kept()}, undisturbed {self.known.checkpoints}")

    def nothing_left(self) -> None:
        """Raise if a process (so a port), a temporary file or shared memory of MPI's is left after some seconds."""
        until = time.monotonic() + 15
        while True:
            with contextlib.suppress(psutil.Error):
                processes = [f"{each.pid} {' '.join(each.cmdline())[:200]}" for each in self.processes()]
            shared = {path for file in self.folder.glob("steps.shared.*") for path in file.read_text().split()}
            files = [*(self.folder / "tmp").rglob("*"), *(path for path in shared if os.path.exists(path))]
            if not (processes or files):
                return
            if time.monotonic() > until:
                raise Violation(f"left behind: {[*processes, *map(str, files)]}")
            time.sleep(0.1)

    def again(self) -> None:
        """Start the training again, if it was ended, and wait for its end."""
        if not self.complete:
            self.start()
            self.ended([0], "")

    def end_all(self) -> None:
        """End what a violation, or Ctrl-C, may have left."""
        for _ in range(50):
            for process in self.processes():
                with contextlib.suppress(psutil.Error):
                    process.kill()
            if not self.processes():
                break
            time.sleep(0.1)


Kind = Callable[[Job], Any]
KINDS: Dict[str, Tuple[Kind, Tuple[int, ...]]] = {}


def kind(function: Kind, ranks: Tuple[int, ...] = (1, 2, 3)) -> Kind:
    """Add a kind of fault; ``ranks``: how many it may have."""
    KINDS[function.__name__] = function, ranks
    return function


def several(function: Kind) -> Kind:
    """A kind of fault that one rank alone can't have."""
    return kind(function, (2, 3))


def harm(job: Job, name: str, *options: str, until: int = STEPS, **order: Any) -> None:
    """Start a training in which the rank does ``name`` to itself, after one of its steps up to ``until``."""
    at = order["at"] = job.chance.randint(1, until)
    shown = [f"{key}={order[key]}" for key in ("by", "status", "device", "bound") if key in order]
    job.what += " ".join(["", name, "at step", str(at), *shown])
    job.start(*options, harm=name, **order)


@kind
def kill_rank(job: Job) -> None:
    job.start()
    job.strike(Process.kill)
    job.ended([137], job.named(r"was killed by signal 9 \(SIGKILL\)"))


@kind
def kill_rank_restart(job: Job) -> None:
    """The launcher itself starts all again."""
    harm(job, "kill", "--restarts", "1")
    job.wait_for(lambda: False)
    text = job.err.read_text()
    if not re.search(f"(?m)^mxdp.launch: {job.named('was killed by signal 9')}", text):
        raise Violation(f"the rank that was killed is not named: {text}")
    job.err.write_text(re.sub(r"(?m)^mxdp.launch: (rank|starts all).*\n", "", text))
    job.ended([0], "", late=False)


@kind
def kill_guard(job: Job) -> None:
    job.start()
    job.strike(Process.kill, guard=True)
    job.ended([1, 9, 137], rf"(rank {job.rank}\b|mpiexec failed)")


@kind
def stop_rank_short(job: Job) -> None:
    job.start("--silent-after", "10")
    job.strike(lambda process: (process.suspend(), time.sleep(job.chance.uniform(0.1, 2)), process.resume()))
    job.ended([0], "")
    job.as_undisturbed()


@kind
def stop_rank_long(job: Job) -> None:
    job.start("--silent-after", str(SILENT))
    job.strike(Process.suspend)
    job.ended([124], job.named("has been stopped for"))


@kind
def stop_guard(job: Job) -> None:
    job.start("--silent-after", str(SILENT))
    job.strike(Process.suspend, guard=True)
    job.ended([124], job.named("?.*(not heard of for|did not start)"))


@kind
def exit_status(job: Job) -> None:
    status = job.chance.choice([1, 2, 3, 42, 125, "words"])
    harm(job, "exit_with", status=status, by=job.chance.choice(["sys", "raise"]), until=STEPS + 1)
    job.ended([1 if status == "words" else status], job.named("failed with exit status"), late=False)


@kind
def exit_early(job: Job) -> None:
    """Without a status, in the middle. Alone a rank may do so."""
    harm(job, "exit_with", by=job.chance.choice(["sys", "raise"]), until=STEPS - 1)
    if job.ranks > 1:
        return job.ended(list(range(1, 128)), f"rank {job.rank} on", late=False)
    job.launcher.wait(job.limit)
    job.nothing_left()


@kind
def exception(job: Job) -> None:
    harm(job, "fail", until=STEPS + 1)
    job.ended([1], job.named("failed with exit status 1"), late=False)


@several
def exception_in_job(job: Job) -> None:
    harm(job, "fail_in_job", until=STEPS - 1)
    job.ended([1], job.named("failed with exit status 1"), late=False)


@kind
def exception_in_operator(job: Job) -> None:
    harm(job, "fail_in_operator", device=job.chance.randrange(job.devices))
    job.ended([1], job.named("failed with exit status 1"), late=False)


@kind
def signal_to_launcher(job: Job) -> None:
    number = job.chance.choice([signal.SIGTERM, signal.SIGINT])
    job.what += f" {number.name}"
    job.start()
    job.moment()
    job.wait_for(lambda: job.processes("mpiexec"))
    job.launcher.send_signal(number)
    job.ended([128 + number], f"ended by {number.name}")


@kind
def kill_launcher(job: Job) -> None:
    job.start()
    job.moment()
    job.launcher.kill()
    job.ended([-signal.SIGKILL], "")


@kind
def full_disk(job: Job) -> None:
    assert job.known is not None
    room = job.chance.choice([0.5, 1.5, 2.5, 3.5])
    job.what += f" room for {room} checkpoints"
    size = int(room * job.known.size) // 4096 * 4096
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", job.checkpoints]).returncode:
        raise Skipped("no tmpfs can be mounted here (root can)")
    try:
        job.start()
        job.ended([0], "", late=False)
        said = job.out.read_text()
        if job.kept()[-1:] != job.known.checkpoints[-1:] and (job.kept() and room > 1 or "written" not in said):
            raise Violation(f"the checkpoints end with {job.kept()[-1:]}: {said}")
        subprocess.run(["mount", "-o", "remount,size=64m", job.checkpoints], check=True)
        job.complete = False
        job.again()
    finally:
        subprocess.run(["umount", "-l", job.checkpoints], check=True)


@kind
def damaged_checkpoint(job: Job) -> None:
    harm(job, "kill")
    job.ended([137], job.named("was killed"), late=False)
    how, files = job.chance.choice(["flip", "cut", "empty", "foreign", "folder"]), job.kept()[-job.chance.randint(1, 2) :]
    job.what += f", {how} {' '.join(files)}"
    for path in (job.checkpoints / name for name in files):
        content = bytearray(path.read_bytes())
        content[job.chance.randrange(len(content))] ^= 1 << job.chance.randrange(8)
        path.unlink()
        if how == "folder":
            path.mkdir()
            continue
        cut = content[: job.chance.randrange(len(content))]
        path.write_bytes({"flip": content, "cut": cut, "empty": b"", "foreign": b"PK\3\4 not mine" * 99}[how])
    job.again()
    said = job.out.read_text()
    if [name for name in files if not re.search(rf"{name} is not used", said)]:
        raise Violation(f"damaged checkpoints were not named: {said}")


@kind
def reader(job: Job) -> None:
    job.pace, job.disk = 0.02, 0.1
    process = subprocess.Popen(job.command(read=True), env=job.environ())
    job.start()
    job.wait_for(lambda: False)
    ended = process.poll() is not None
    process.kill()
    process.wait()
    if ended:
        raise Violation("the reader has ended")
    job.ended([0], "", late=False)
    job.as_undisturbed()


@kind
def second_writer(job: Job) -> None:
    job.rank = 0
    harm(job, "hold", until=STEPS - 1)
    job.wait_for(Path(f"{job.steps}.harmed").exists)
    command = [sys.executable, "-m", "mxdp.launch", "-n", "1", "--", *job.command(steps=f"{job.steps}2", rank=0)]
    second = subprocess.run(command, env=job.environ(), capture_output=True, text=True, timeout=job.limit)
    Path(f"{job.steps}.go").touch()
    job.ended([0], "", late=False)
    job.as_undisturbed()
    if second.returncode != 1 or not re.search(r"another training writes checkpoints in", second.stdout + second.stderr):
        raise Violation(f"the second writer ends with status {second.returncode}: {second.stdout}{second.stderr}")


@kind
def blocked_output(job: Job) -> None:
    read, write = os.pipe()
    harm(job, "shout", "--silent-after", str(SILENT), lines=5000, text="x" * 80, stdout=write, until=STEPS - 1)
    os.close(write)
    job.wait_for(lambda: job.done() >= 1)
    time.sleep(SILENT * 2 + 2)
    with open(read, "rb") as pipe:
        job.out.write_bytes(pipe.read())
    job.ended([0], "", late=False)
    if job.out.read_text().count("x" * 80) != 5000:
        raise Violation("lines of the output are lost")


@kind
def unencodable(job: Job) -> None:
    encoding = job.chance.choice(["latin-1", "ascii"])
    harm(job, "shout", lines=1, text="loss → 0 \U0001f600", environ={"PYTHONIOENCODING": encoding})
    job.ended([0], "", late=False)


def on_two_hosts(job: Job, do: Callable[[Any], Any], statuses: Sequence[int], sentence: str, silent: int) -> None:
    """A rank on each of two network namespaces; ``do`` something to the cable at a random moment."""
    job.ranks, job.rank = 2, 1
    with two_hosts(job.folder) as hosts:
        job.inside = hosts.inside
        job.start("--silent-after", str(silent), *hosts.options, environ={"UCX_TLS": "tcp,self"})
        job.moment()
        do(hosts)
        job.ended(statuses, sentence)
        job.inside = []
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=30).stdout
    if any(name in names for name in hosts.names):
        raise Violation(f"left behind: network namespaces {names}")


def cut_link(job: Job) -> None:
    on_two_hosts(job, lambda hosts: hosts.cable("down"), [124], job.named("?.*(not heard of for|did not start)"), SILENT)


def slow_link(job: Job) -> None:
    """A cable of 20 Mbit/s that is out for a moment."""

    def slow(hosts: Any) -> None:
        words = f"-n {hosts.names[1]} qdisc add dev mxdp0 root tbf rate 20mbit burst 32kb latency 400ms"
        subprocess.run(["tc", *words.split()], check=True, capture_output=True, timeout=30)
        hosts.cable("down")
        time.sleep(job.chance.uniform(0.1, 1.5))
        hosts.cable("up")

    on_two_hosts(job, slow, [0], "", 20)


kind(cut_link, (2,))
kind(slow_link, (2,))


@kind
def strangers(job: Job) -> None:
    """Connections to the launcher's port by who has no password."""
    words = {
        "garbage": os.urandom(5000) + b"\n",
        "deep": b"[" * 60000 + b"\n",
        "password": b'{"step":0,"password":1}\n',
        "list": b'[1]\n"text"\n1e999\nnull\n',
        "endless": b"x" * (1 << 18),
        "web": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "silent": b"",
    }
    names = job.chance.sample(sorted(words), 4)
    job.what += f" {' '.join(names)}"
    few = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))) if "silent" in names else None
    job.start("--silent-after", "20", before=few)
    ports: List[int] = []
    while not ports and job.launcher.poll() is None:
        with contextlib.suppress(psutil.Error):
            process = Process(job.launcher.pid)
            found = getattr(process, "net_connections", process.connections)(kind="tcp")  # its name before psutil 6
            ports = [each.laddr.port for each in found if each.status == psutil.CONN_LISTEN]
    job.moment()
    with contextlib.ExitStack() as stack:
        for name in names:
            with contextlib.suppress(ConnectionError, socket.timeout):  # the port takes no more
                for _ in range(200 if name == "silent" else 1):
                    stranger = stack.enter_context(socket.create_connection(("127.0.0.1", ports[0]), timeout=5))
                    stranger.sendall(words[name])
        job.wait_for(lambda: False)
    job.ended([0], "", late=False)
    job.as_undisturbed()


@kind
def fork(job: Job) -> None:
    harm(job, "fork", by=job.chance.choice(["multiprocessing", "os.fork", "preexec_fn"]))
    job.ended([0], "", late=False)


@kind
def child_left(job: Job) -> None:
    harm(job, "leave_child", until=STEPS + 1)
    job.ended([0], "", late=False)


@kind
def other_cores(job: Job) -> None:
    """Some ranks may use one core alone, before or after the training was ended."""
    bound = sorted(job.chance.sample(range(job.ranks), job.chance.randint(1, job.ranks)))
    first, then = job.chance.choice([(bound, []), ([], bound), (bound, bound)])
    if job.known and 0 in first:  # an undisturbed training of rank 0 with one core may sum in another order
        first, then = then, first if then != first else []
    job.what += f", first {first} on one core, then {then};"
    harm(job, "kill", bound=first)
    job.ended([137], job.named("was killed"), late=False)
    job.start(bound=then)
    try:
        job.ended([0], "", late=False)
    except Violation:
        if "sums may differ in the last bits" not in job.out.read_text() or "another result" not in str(sys.exc_info()[1]):
            raise
        job.complete = True


def main(arguments: Optional[List[str]] = None) -> int:
    """Do the faults, a line for each; the exit status."""
    parser = argparse.ArgumentParser(prog="make torture", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=24, metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="what is drawn (default: another)")
    parser.add_argument("--only", type=int, metavar="K", help="fault number K alone, from 1")
    parser.add_argument("--kinds", default=",".join(KINDS), metavar="A,B", help="these alone, of: %(default)s")
    parser.add_argument("--ranks", type=int, default=3, metavar="N", help="at most (default: %(default)s)")
    parser.add_argument("--devices", type=int, default=2, metavar="N", help="of a rank, at most (default: %(default)s)")
    options = parser.parse_args(arguments)
    kinds = options.kinds.split(",")
    if set(kinds) - set(KINDS):
        parser.error(f"there is no kind {sorted(set(kinds) - set(KINDS))}; there are {', '.join(KINDS)}")
    given = f"--seed {options.seed}" + "".join(
        f" --{name} {getattr(options, name)}"
        for name in ("kinds", "ranks", "devices")
        if getattr(options, name) != parser.get_default(name)
    )
    print(f"torture: {given}", flush=True)
    known: Dict[Tuple[int, int], Undisturbed] = {}
    counts: Counter[str] = collections.Counter()
    began = time.monotonic()
    for number in [options.only] if options.only else range(1, options.faults + 1):
        turn, place = divmod(number - 1, len(kinds))
        name = random.Random(f"{options.seed} {turn}").sample(kinds, len(kinds))[place]
        chance = random.Random(f"{options.seed} {number}")
        ranks = chance.choice([n for n in KINDS[name][1] if n <= max(options.ranks, KINDS[name][1][0])])
        devices = chance.randint(1, options.devices)
        started = time.monotonic()
        if (ranks, devices) not in known:
            known[ranks, devices] = undisturbed(ranks, devices)
        with job_in_folder(chance, ranks, devices, known[ranks, devices]) as job:
            line = f"{number:4} {name}: {ranks} x {devices}"
            try:
                KINDS[name][0](job)
                job.again()
                outcome = "nothing lost"
                counts[name] += 1
            except Skipped as reason:
                outcome = f"skipped: {reason}"
                counts[f"{name} skipped"] += 1
            except Violation as violation:
                print(f"{line}{job.what}: {violation}", flush=True)
                kept = Path(tempfile.mkdtemp(prefix="mxdp-torture-"))
                job.end_all()
                shutil.copytree(job.folder, kept / "fault")
                print(f"what it has printed is in {kept}/fault; again: python tools/torture.py {given} --only {number}")
                return 1
        print(f"{line}{job.what}: {outcome}, {time.monotonic() - started:.0f} s", flush=True)
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    print(f"{sum(counts.values())} faults in {time.monotonic() - began:.0f} s; nothing was lost")
    return 0


@contextlib.contextmanager
def job_in_folder(chance: random.Random, *arguments: Any) -> Iterator[Job]:
    """A job in a new folder; at the end neither its folder nor a process of it is left."""
    with tempfile.TemporaryDirectory(prefix="mxdp-torture-") as folder:
        job = Job(Path(folder), chance, *arguments)
        try:
            yield job
        finally:
            job.end_all()


def undisturbed(ranks: int, devices: int) -> Undisturbed:
    """Train with nobody to hurt it."""
    with job_in_folder(random.Random(0), ranks, devices, None) as job:
        job.start()
        job.ended([0], "", late=False)
        seconds, kept = time.monotonic() - job.began, job.kept()
        digest = job.out.read_text().split("digest ")[1].split()[0]
        return Undisturbed(digest, seconds, kept, max((job.checkpoints / name).stat().st_size for name in kept))


if __name__ == "__main__":
    sys.exit(main())
