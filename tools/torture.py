"""Trains by the launcher, hurts the training at random moments, and looks whether anything is lost.

    make torture                                      each kind of fault once; the seed is printed
    make torture ARGS="--faults 200 --seed 7"         half an hour on two cores
    make torture ARGS="--seed 7 --only 31"            fault 31 of seed 7 again, alone
    make torture ARGS="--kinds kill_rank,full_disk"   these kinds alone

A fault is a training of 1 to 3 ranks with 1 or 2 devices each, and one of the kinds below. Each draws its numbers from
the seed and its own number, so it can be repeated alone. After each fault it looks at three things:

- the launcher's exit status, and one sentence of the launcher's on stderr that names the cause
- what is left: processes (and so ports), files of the checkpoints and of MPI, network namespaces
- the parameters and the history of the training, started again if it was ended: an undisturbed one's, bit for bit

It stops at the first violation, with the command that repeats it. Linux; without root some kinds are skipped.
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
from typing import Any, Callable, Counter, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from torture_victim import STEPS  # noqa: E402

from mxdp.experiments.lab.module import Skipped  # noqa: E402
from mxdp.experiments.many_processes.hosts import CABLE, two_hosts  # noqa: E402

MARK = "MXDP_TORTURE"
"""Variable by which the processes of a fault are known, in /proc."""
LIMIT = 30.0
"""Seconds in which a launcher must end, or a moment must come, and five times an undisturbed training's more."""
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
        self.pace, self.disk = chance.choice([0, 0.02]), chance.choice([0, 0.1])
        self.checkpoints, self.steps, self.temporary = (folder / name for name in ("checkpoints", "steps", "tmp"))
        self.checkpoints.mkdir()
        self.temporary.mkdir()
        self.inside: List[str] = []
        self.what, self.starts, self.complete, self.numbered = "", 0, False, True

    @property
    def limit(self) -> float:
        """Seconds in which each thing must happen."""
        return LIMIT + 5 * (self.known.seconds if self.known else LIMIT)

    def start(self, *options: str, environ: Any = (), stdout: Any = None, before: Any = None, **order: Any) -> None:
        """Start the launcher. ``order``: for the ranks. What they and the launcher print goes to files."""
        self.starts += 1
        self.out, self.err = (self.folder / f"{name}.{self.starts}" for name in ("out", "err"))
        self.steps.write_bytes(bytes(8 * self.ranks))
        launch = [*self.inside, sys.executable, "-m", "mxdp.launch", "-n", str(self.ranks), *options, "--"]
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            to = {"stdin": subprocess.DEVNULL, "stdout": stdout or out, "stderr": err}
            self.launcher = subprocess.Popen(
                [*launch, *self.command(**order)], env=self.environ(environ), preexec_fn=before, **to
            )

    def command(self, **order: Any) -> List[str]:
        """The command of a rank."""
        fixed = dict(devices=self.devices, folder=str(self.checkpoints), steps=str(self.steps), rank=self.rank)
        whole = json.dumps({**fixed, "pace": self.pace, "disk": self.disk, **order})
        return [sys.executable, str(ROOT / "tools" / "torture_victim.py"), whole]

    def environ(self, more: Any = ()) -> Dict[str, str]:
        """The environment of all processes of this fault."""
        return {**os.environ, MARK: self.mark, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.temporary), **dict(more)}

    def processes(self, contains: str = "") -> List[Process]:
        """The processes of this fault that have ``contains`` in their command line."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and contains in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def hurt(self, guard: bool) -> Optional[Process]:
        """The process of the rank that is hurt, or its guard; None before it is there, and afterwards."""
        for process in self.processes("torture_victim.py"):
            with contextlib.suppress(psutil.Error):
                same = process.environ().get("PMI_RANK") == str(self.rank)
                if same and any(word.endswith("guard.py") for word in process.cmdline()) == guard:
                    return process
        return None

    def moment(self) -> None:
        """Wait for a random moment: while it starts, after a step, while a checkpoint is written, at the end."""
        when = self.chance.choice(["start", "step", "write", "end"])
        step, more = self.chance.randint(1, STEPS) if when == "step" else STEPS, self.chance.random()
        self.what += f" at {when}" + (f" {step}" if when == "step" else f" {more:.2f}")
        if when == "start":
            self.wait_for(lambda: len(self.processes("guard.py")) >= self.ranks)
            time.sleep(more * max(0.0, (self.known.seconds if self.known else 2) - 1.5))
        elif when == "write":
            self.wait_for(lambda: any(self.checkpoints.glob("*.part")) and self.chance.random() < 0.01)
        else:
            mine = slice(8 * self.rank, 8 * self.rank + 8)
            self.wait_for(lambda: int.from_bytes(self.steps.read_bytes()[mine], "little") >= step)
            time.sleep(more * 0.5 if when == "end" else 0)

    def wait_for(self, condition: Callable[[], Any]) -> None:
        """Until it holds, or the launcher has ended."""
        until = time.monotonic() + self.limit
        while self.launcher.poll() is None and not condition():
            if time.monotonic() > until:
                raise Violation(f"not there within {self.limit:.0f} s")
            time.sleep(0.005)

    def ended(self, statuses: Sequence[int], sentence: str, late: bool = False) -> None:
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
        return rf"rank {self.rank}( on \S+)?( after step \d+)? {what}" if what else ""

    def finished(self) -> None:
        """Compare the result and the checkpoints with the undisturbed ones."""
        lines = self.out.read_text(errors="replace").splitlines()
        found = sorted(line for line in lines if re.match(r"\[\d+\] digest ", line))
        digest = self.known.digest if self.known else found[0].split()[-1] if found else ""
        if found != [f"[{rank}] digest {digest}" for rank in range(self.ranks)]:
            raise Violation(f"another result than the undisturbed {digest}: {found}")
        if self.known and self.numbered and self.kept()[-3:] != self.known.checkpoints:
            raise Violation(f"the checkpoints are {self.kept()}, undisturbed {self.known.checkpoints}")
        left = [path.name for path in self.checkpoints.iterdir() if path.suffix not in (".npz", ".lock")]
        if left:
            raise Violation(f"left in the folder of checkpoints: {left}")
        self.complete = True

    def kept(self) -> List[str]:
        """The names of the checkpoints."""
        return sorted(path.name for path in self.checkpoints.glob("*.npz"))

    def nothing_left(self) -> None:
        """Raise if a process (so a port), a temporary file or shared memory of MPI's is left after some seconds."""
        until = time.monotonic() + 15
        while True:
            left = [f"process {each.pid}" for each in self.processes()] + [
                str(each) for each in self.temporary.rglob("*")
            ]
            shared = {path for file in self.folder.glob("steps.shared.*") for path in file.read_text().split()}
            left += [path for path in shared if os.path.exists(path)]
            if not left:
                return
            if time.monotonic() > until:
                raise Violation(f"left behind: {', '.join(left)}")
            time.sleep(0.1)

    def again(self) -> None:
        """Start the training again, if it was ended, and wait for its end."""
        if not self.complete:
            self.start()
            self.ended([0], "")

    def end_all(self) -> None:
        """End what a violation, or Ctrl-C, may have left."""
        until = time.monotonic() + 10
        while self.processes() and time.monotonic() < until:
            for process in self.processes():
                with contextlib.suppress(psutil.Error):
                    process.kill()
            time.sleep(0.1)


Kind = Callable[[Job], Any]
KINDS: Dict[str, Tuple[Kind, Tuple[int, ...]]] = {}
"""Each kind of fault, and how many ranks it may have."""
FAILED, KILLED = "failed with exit status", r"was killed by signal 9 \(SIGKILL\)"
UNHEARD = "?.*(not heard of for|did not start)"
LATER = STEPS + 1


def kind(function: Kind, name: str = "", ranks: Tuple[int, ...] = (1, 2, 3)) -> Kind:
    """Add a kind of fault."""
    KINDS[name or function.__name__] = function, ranks
    return function


def harm(job: Job, do: str, *options: str, last: int = STEPS, environ: Any = (), **order: Any) -> None:
    """Start a training in which the rank does something to itself, after a random one of its steps up to ``last``."""
    at = job.chance.randint(1, last)
    job.what += f" {do} at step {at}" + "".join(
        f" {key}={value}"[:24] for key, value in order.items() if key != "stdout"
    )
    job.start(*options, environ=environ, harm=do, at=at, **order)


def by_itself(name: str, do: str, last: int, statuses: Sequence[int], words: str, least: int = 1, **draw: Any) -> None:
    """Add a kind in which a rank harms itself. ``draw``: for each word of its order, what it is drawn from."""

    def function(job: Job) -> None:
        order = {key: job.chance.choice(values) for key, values in draw.items()}
        harm(job, do, last=last, **order)
        status = order.get("status", statuses)
        job.ended(statuses if status is statuses else [1 if status == "words" else status], words and job.named(words))

    kind(function, name, tuple(range(least, 4)))


def from_outside(name: str, do: Kind, silent: int, statuses: Sequence[int], words: str, guard: bool = False) -> None:
    """Add a kind in which something is done to a rank's process, or to its guard, at a random moment."""

    def function(job: Job) -> None:
        job.start("--silent-after", str(silent))
        job.moment()
        job.wait_for(lambda: job.hurt(guard))
        with contextlib.suppress(psutil.Error, AttributeError):  # it has ended
            do(job.hurt(guard))
        job.ended(statuses, words and job.named(words), late=True)

    kind(function, name)


def pause(process: Process) -> None:
    """Stop a process for a moment."""
    process.suspend()
    time.sleep(1)
    process.resume()


WAYS = {"by": ["sys", "raise"]}
by_itself("exit_status", "exit_with", LATER, [], FAILED, status=[1, 2, 3, 42, 125, "words"], **WAYS)
by_itself("exit_early", "exit_with", STEPS - 1, [1], "ended with exit status 0 before", least=2, **WAYS)
by_itself("exception", "fail", LATER, [1], FAILED)
by_itself("exception_in_job", "fail_in_job", STEPS - 1, [1], FAILED, least=2)
by_itself("exception_in_operator", "fail_in_operator", STEPS, [1], FAILED, device=[0, -1])
by_itself("fork", "fork", LATER, [0], "", by=["multiprocessing", "os.fork", "preexec_fn"])
by_itself("child_left", "leave_child", LATER, [0], "")
by_itself("unencodable", "shout", LATER, [0], "", lines=[1], text=["\u2192 \U0001f600"], environ=[
    {"PYTHONIOENCODING": "latin-1"}, {"PYTHONIOENCODING": "ascii"}])  # fmt: skip
from_outside("kill_rank", Process.kill, 60, [137], KILLED)
from_outside("kill_guard", Process.kill, 60, [1, 9, 137], "?.*killed", guard=True)
from_outside("stop_rank_short", pause, 10, [0], "")
from_outside("stop_rank_long", Process.suspend, SILENT, [124], "has been stopped for")
from_outside("stop_guard", Process.suspend, SILENT, [124], UNHEARD, guard=True)


@kind
def kill_and_restart(job: Job) -> None:
    """The launcher itself starts all ranks again."""
    harm(job, "kill", "--restarts", "1")
    job.wait_for(lambda: False)
    text = job.err.read_text()
    if not re.search(f"(?m)^mxdp.launch: {job.named(KILLED)}", text):
        raise Violation(f"the rank that was killed is not named: {text}")
    job.err.write_text(re.sub(r"(?m)^mxdp.launch: (rank|starts all).*\n", "", text))
    job.ended([0], "")


@kind
def hang(job: Job) -> None:
    """A rank makes no step any more, and is not stopped."""
    harm(job, "hang", "--hung-after", "5", last=STEPS - 1)
    job.ended([124], f"no rank has made a step for 5 s; behind: .*rank {job.rank} on")


@kind
def signal_to_launcher(job: Job) -> None:
    """Ctrl-C, or a batch system's end."""
    number = job.chance.choice([signal.SIGTERM, signal.SIGINT])
    job.what += f" {number.name}"
    job.start()
    job.wait_for(lambda: job.processes("guard.py"))
    job.moment()
    job.launcher.send_signal(number)
    job.ended([128 + number], f"ended by {number.name}", late=True)


@kind
def kill_launcher(job: Job) -> None:
    """Nobody is left who could say a word."""
    job.start()
    job.moment()
    job.launcher.kill()
    job.ended([-signal.SIGKILL], "", late=True)


@kind
def full_disk(job: Job) -> None:
    """The checkpoints' folder has room for few of them."""
    assert job.known
    room = job.chance.choice([0.5, 1.5, 2.5, 3.5])
    job.what += f" room for {room} checkpoints"
    mount = ["mount", "-t", "tmpfs", "-o", f"size={int(room * job.known.size) // 4096 * 4096}", "none"]
    if subprocess.run([*mount, job.checkpoints], stderr=subprocess.DEVNULL).returncode:
        raise Skipped("no tmpfs can be mounted here (root can)")
    try:
        job.numbered = False
        job.start()
        job.ended([0], "")
        said, newest = job.out.read_text(), job.kept()[-1:]
        if newest != job.known.checkpoints[-1:] and (room > 2 or "nothing is saved from" not in said):
            raise Violation(f"the newest checkpoint is {newest}: {said}")
        subprocess.run(["mount", "-o", "remount,size=64m", job.checkpoints], check=True)
        job.complete = False
        job.again()
    finally:
        subprocess.run(["umount", "-l", job.checkpoints], check=True)


@kind
def damaged_checkpoint(job: Job) -> None:
    """The newest checkpoints are not what was written."""
    harm(job, "kill")
    job.ended([137], job.named(KILLED))
    how, files = (
        job.chance.choice(["flip", "cut", "empty", "foreign", "folder"]),
        job.kept()[-job.chance.randint(1, 2) :],
    )
    job.what += f", {how} {' '.join(files)}"
    for path in (job.checkpoints / name for name in files):
        content = bytearray(path.read_bytes())
        cut = content[: job.chance.randrange(len(content))]
        content[job.chance.randrange(len(content))] ^= 1 << job.chance.randrange(8)
        path.unlink()
        if how == "folder":
            path.mkdir()
        else:
            path.write_bytes({"flip": content, "cut": cut, "empty": b"", "foreign": b"PK\3\4 not mine" * 99}[how])
    job.numbered = False
    job.again()
    said = job.out.read_text()
    if not all(re.search(f"{name} is not used", said) for name in files):
        raise Violation(f"damaged checkpoints are not named: {said}")


@kind
def reader(job: Job) -> None:
    """Somebody looks at the checkpoints again and again."""
    job.pace, job.disk = 0.02, 0.1
    process = subprocess.Popen(job.command(read=True), env=job.environ())
    job.start()
    job.wait_for(lambda: False)
    ended = process.poll()
    process.kill()
    process.wait()
    if ended is not None:
        raise Violation(f"the reader has ended with status {ended}")
    job.ended([0], "")


@kind
def second_writer(job: Job) -> None:
    """A second training in the same folder."""
    job.rank = 0
    harm(job, "hold", last=STEPS - 1)
    job.wait_for(Path(f"{job.steps}.harmed").exists)
    command = [sys.executable, "-m", "mxdp.launch", "-n", "1", "--", *job.command(steps=f"{job.steps}2")]
    second = subprocess.run(command, env=job.environ(), capture_output=True, text=True, timeout=job.limit)
    Path(f"{job.steps}.go").touch()
    job.ended([0], "")
    if second.returncode != 1 or "another training writes checkpoints in" not in second.stderr:
        raise Violation(f"the second writer ends with status {second.returncode}: {second.stdout}{second.stderr}")


@kind
def blocked_output(job: Job) -> None:
    """Nobody reads the launcher's output for longer than a rank may be silent."""
    read, write = os.pipe()
    harm(job, "shout", "--silent-after", str(SILENT), lines=5000, text="x" * 80, stdout=write, last=STEPS - 1)
    os.close(write)
    job.wait_for(Path(f"{job.steps}.harmed").exists)
    time.sleep(SILENT * 2 + 2)
    with open(read, "rb") as pipe:
        job.out.write_bytes(pipe.read())
    job.ended([0], "")
    if job.out.read_text().count("x" * 80) != 5000:
        raise Violation("lines of the output are lost")


def on_two_hosts(job: Job, do: Kind, statuses: Sequence[int], sentence: str, silent: int) -> None:
    """A rank on each of two network namespaces; ``do`` something to the cable at a random moment."""
    job.rank = 1
    with two_hosts(job.folder) as hosts:
        job.inside = hosts.inside
        job.start("--silent-after", str(silent), *hosts.options, environ={"UCX_TLS": "tcp,self"})
        job.moment()
        do(hosts)  # type: ignore[arg-type]
        job.ended(statuses, job.named(sentence), late=True)
        job.inside = []
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=30).stdout
    if any(name in names for name in hosts.names):
        raise Violation(f"left behind: network namespaces {names}")


def cut_link(job: Job) -> None:
    """The second host is gone."""
    on_two_hosts(job, lambda hosts: hosts.cable("down"), [124], UNHEARD, SILENT)


def slow_link(job: Job) -> None:
    """The cable is out for a moment, and then has 20 Mbit/s."""

    def slow(hosts: Any) -> None:
        words = f"tc -n {hosts.names[1]} qdisc add dev {CABLE} root tbf rate 20mbit burst 32kb latency 400ms"
        subprocess.run(words.split(), check=True, capture_output=True, timeout=30)
        hosts.cable("down")
        time.sleep(job.chance.uniform(0.1, 1.5))
        hosts.cable("up")

    on_two_hosts(job, slow, [0], "", 20)


kind(cut_link, ranks=(2,))
kind(slow_link, ranks=(2,))
STRANGE = {
    "garbage": b"\x00\xff\xfe garbage \n" * 500,
    "deep": b"[" * 60000 + b"\n",
    "number": b'{"step":0,"password":1}\n',
    "other": b'[1]\n"text"\n1e999\nnull\n{"\xff":1}\n',
    "endless": b"x" * (1 << 18),
    "web": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "silent": b"",
}


@kind
def strangers(job: Job) -> None:
    """Connections to the launcher's port without the password; of those that say nothing more than may be open."""
    names = job.chance.sample(sorted(STRANGE), 4)
    job.what += f" {' '.join(names)}"
    few = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))) if "silent" in names else None
    job.start("--silent-after", "20", before=few)
    ports: List[int] = []

    def listens() -> bool:
        with contextlib.suppress(psutil.Error):
            launcher = Process(job.launcher.pid)
            connections = getattr(launcher, "net_connections", None) or launcher.connections  # its name before psutil 6
            found = connections(kind="tcp")
            ports.extend(each.laddr.port for each in found if each.status == psutil.CONN_LISTEN)
        return bool(ports)

    job.wait_for(listens)
    job.moment()
    with contextlib.ExitStack() as stack:
        for name in names:
            with contextlib.suppress(OSError):  # the port takes no more
                for _ in range(200 if name == "silent" else 1):
                    stranger = stack.enter_context(socket.create_connection(("127.0.0.1", ports[0]), timeout=2))
                    stranger.sendall(STRANGE[name])
        job.wait_for(lambda: False)
    job.ended([0], "")


@kind
def other_cores(job: Job) -> None:
    """Some ranks may use one core alone, before or after the training was ended."""
    bound = sorted(job.chance.sample(range(job.ranks), job.chance.randint(1, job.ranks)))
    first, then = job.chance.choice([([], bound), (bound, []), (bound, bound)])
    if 0 in first:  # rank 0 chooses the all-reduce, by its cores: an undisturbed training may sum in another order
        first, then = [], bound
    job.what += f" then {then},"
    harm(job, "kill", bound=first)
    job.ended([137], job.named(KILLED))
    job.start(bound=then)
    job.ended([0], "")


def main(arguments: Optional[List[str]] = None) -> int:
    """Do the faults, a line for each; the exit status."""
    parser = argparse.ArgumentParser(prog="make torture", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=len(KINDS), metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="what is drawn (default: another)")
    parser.add_argument("--only", type=int, metavar="K", help="fault number K alone, from 1")
    parser.add_argument("--kinds", default=",".join(KINDS), metavar="A,B", help="these alone, of: %(default)s")
    parser.add_argument("--ranks", type=int, default=3, metavar="N", help="at most (default: %(default)s)")
    parser.add_argument("--devices", type=int, default=2, metavar="N", help="of a rank, at most (default: %(default)s)")
    options = parser.parse_args(arguments)
    kinds = options.kinds.split(",")
    if not set(kinds) <= set(KINDS):
        parser.error(f"there is no kind {', '.join(set(kinds) - set(KINDS))}; there are {', '.join(KINDS)}")
    given = [f"--seed {options.seed}"]
    for name in ("kinds", "ranks", "devices"):
        given += [f"--{name} {getattr(options, name)}"] if getattr(options, name) != parser.get_default(name) else []
    print("torture:", *given, flush=True)
    known: Dict[Tuple[int, int], Undisturbed] = {}
    counts: Counter[str] = collections.Counter()
    began = time.monotonic()
    for number in [options.only] if options.only else range(1, options.faults + 1):
        turn, place = divmod(number - 1, len(kinds))
        name = random.Random(f"{options.seed} {turn}").sample(kinds, len(kinds))[place]
        chance = random.Random(f"{options.seed} {number}")
        function, possible = KINDS[name]
        ranks = chance.choice([n for n in possible if n <= options.ranks] or possible[:1])
        size = ranks, chance.randint(1, options.devices)
        started = time.monotonic()
        with job_in_folder(chance, *size, known.get(size)) as job:
            try:
                if size not in known:
                    job.known = known[size] = undisturbed(*size)
                function(job)
                job.again()
                outcome = "nothing lost"
            except Skipped as reason:
                outcome = f"skipped: {reason}"
            except Violation as violation:
                outcome = f"VIOLATION: {violation}"
            words = f"{number:4} {name}, {size[0]} x {size[1]}:{job.what}: {outcome}"
            print(words, f"({time.monotonic() - started:.0f} s)", flush=True)
            if outcome.startswith("VIOLATION"):
                job.end_all()
                folder = shutil.copytree(job.folder, Path(tempfile.mkdtemp(prefix="mxdp-torture-")) / "fault")
                print(f"its files are in {folder}; again: python tools/torture.py {' '.join(given)} --only {number}")
                return 1
        counts[name + outcome.startswith("skipped") * " skipped"] += 1
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
        started = time.monotonic()
        job.start()
        job.ended([0], "")
        digest = job.out.read_text().split("digest ")[1].split()[0]
        size = max(path.stat().st_size for path in job.checkpoints.glob("*.npz"))
        return Undisturbed(digest, time.monotonic() - started, job.kept(), size)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and end what was started
    sys.exit(main())
