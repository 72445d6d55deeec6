"""Trains under the launcher, injects faults at random moments, and checks that nothing is lost.

    make torture                                      each kind of fault once; the seed is printed
    make torture ARGS="--faults 200 --seed 7"         half an hour on two cores
    make torture ARGS="--seed 7 --only 31"            fault 31 of seed 7 again, alone
    make torture ARGS="--kinds kill_rank,full_disk"   these kinds alone

A fault is a training of 1 to 3 ranks with 1 or 2 devices each, and one of the kinds below. Its numbers are drawn from
the seed and its own number, so it can be repeated alone. After each fault three things are checked:

- the launcher's exit status, and its one sentence on stderr, which names the cause
- what is left: processes (and so ports), files of the checkpoints and of MPI, network namespaces
- the parameters and the history of the training, started again if it was ended: an undisturbed one's, bit for bit

It stops at the first violation, with the command that repeats it. Linux; without root some kinds are skipped.
"""

from __future__ import annotations

import argparse
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
from collections import Counter
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from torture_victim import STEPS  # noqa: E402

from mxdp.experiments.lab.module import Skipped  # noqa: E402
from mxdp.experiments.many_processes.hosts import two_hosts  # noqa: E402

MARK = "MXDP_TORTURE"
"""Variable by which the processes of a fault are known, in /proc."""
LIMIT = 180
"""Seconds in which a launcher must end, or a moment must come."""
SILENT = 3
FAILED, KILLED = "failed with exit status", r"was killed by signal 9 \(SIGKILL\)"
UNHEARD = ".*(not heard of for|did not start)"
Process = psutil.Process


class Violation(Exception):
    """A broken promise of the launcher or the checkpoints."""


class Undisturbed(NamedTuple):
    """The result of a training without a fault: a hash of it, how long it took, its checkpoints and their size."""

    digest: str = ""
    seconds: float = 2.0
    checkpoints: Sequence[str] = ()
    size: int = 0


class Job:
    """A training in ``folder``. ``rank`` is its victim: the rank to which a fault happens."""

    def __init__(self, folder: Path, chance: random.Random, ranks: int, devices: int):
        self.folder, self.chance, self.ranks, self.devices, self.known = folder, chance, ranks, devices, Undisturbed()
        self.mark, self.rank = f"{os.getpid()}-{chance.random()}", chance.randrange(ranks)
        self.pace, self.disk = chance.choice([0, 0.02]), chance.choice([0, 0.1])
        self.checkpoints, self.steps, self.temporary = (folder / name for name in ("checkpoints", "steps", "tmp"))
        self.checkpoints.mkdir()
        self.temporary.mkdir()
        self.inside: List[str] = []
        self.what, self.starts, self.complete, self.numbered = "", 0, False, True

    def start(self, *options: str, environ: Any = (), before: Any = None, **order: Any) -> None:
        """Start the launcher. ``order``: for the ranks. What they and the launcher print goes to files."""
        self.starts += 1
        self.out, self.err = (self.folder / f"{name}.{self.starts}" for name in ("out", "err"))
        self.steps.write_bytes(bytes(8 * self.ranks))
        order.update(devices=self.devices, folder=str(self.checkpoints), steps=str(self.steps), rank=self.rank)
        order.update(pace=self.pace, disk=self.disk)
        command = [*self.inside, sys.executable, "-m", "mxdp.launch", "-n", str(self.ranks), *options, "--"]
        command += [sys.executable, str(ROOT / "tools" / "torture_victim.py"), json.dumps(order)]
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            to = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err}
            self.launcher = subprocess.Popen(command, env=self.environ(environ), preexec_fn=before, **to)

    def environ(self, more: Any = ()) -> Dict[str, str]:
        """The environment of all processes of this fault."""
        return {**os.environ, MARK: self.mark, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.temporary), **dict(more)}

    def processes(self, contains: str = "") -> List[Process]:
        """The processes of this fault that have ``contains`` in their command line."""
        marked = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and contains in " ".join(process.cmdline()):
                    marked.append(process)
        return marked

    def victim(self, guard: bool) -> Optional[Process]:
        """The victim's process, or its guard; None before it is there, and afterwards."""
        for process in self.processes("torture_victim.py"):
            with contextlib.suppress(psutil.Error):
                same = process.environ().get("PMI_RANK") == str(self.rank)
                if same and any(word.endswith("guard.py") for word in process.cmdline()) == guard:
                    return process
        return None

    def wait_for_moment(self) -> None:
        """Wait for a random moment: while it starts, after a step, while a checkpoint is written, at the end."""
        when = self.chance.choice(["start", "step", "write", "end"])
        step, more = self.chance.randint(1, STEPS) if when == "step" else STEPS, self.chance.random()
        self.what += f" at {when}" + (f" {step}" if when == "step" else f" {more:.2f}")
        if when == "start":
            self.wait_for(lambda: len(self.processes("guard.py")) >= self.ranks)
            time.sleep(more * max(0.0, self.known.seconds - 1.5))
        elif when == "write":
            self.wait_for(lambda: any(self.checkpoints.glob("*.part")) and self.chance.random() < 0.01)
        else:
            mine = slice(8 * self.rank, 8 * self.rank + 8)
            self.wait_for(lambda: int.from_bytes(self.steps.read_bytes()[mine], "little") >= step)
            time.sleep(more * 0.5 if when == "end" else 0)

    def wait_for(self, condition: Callable[[], Any]) -> None:
        """Until it holds, or the launcher has ended."""
        until = time.monotonic() + LIMIT
        while self.launcher.poll() is None and not condition():
            if time.monotonic() > until:
                raise Violation(f"not there within {LIMIT} s")
            time.sleep(0.005)

    def check_end(self, statuses: Sequence[int], sentence: str, late: bool = False) -> None:
        """Wait for the launcher's end, and check status, stderr, what is left, and the result of a whole training.

        ``sentence``: a pattern, in which ``RANK`` stands for the victim. ``late``: the fault may have come after the
        training's end.
        """
        try:
            status = self.launcher.wait(LIMIT)
        except subprocess.TimeoutExpired:
            raise Violation(f"the launcher has not ended within {LIMIT} s") from None
        sentence = sentence.replace("RANK", rf"rank {self.rank}( on \S+)?( after step \d+)?")
        text = self.err.read_text(errors="replace")
        lines = [line for line in text.splitlines() if not re.match(r"\[(\d+|mpiexec)\]", line)]
        self.nothing_left()
        if status == 0 and (late or 0 in statuses) and not lines:
            self.check_result()
        elif status not in statuses:
            raise Violation(f"exit status {status} in place of {' or '.join(map(str, statuses))}: {lines or 'no word'}")
        elif sentence and (len(lines) != 1 or not re.search(f"^mxdp.launch: .*{sentence}", lines[0])):
            raise Violation(f"on stderr is not one sentence with {sentence!r}: {lines}")

    def check_result(self) -> None:
        """Compare the result and the checkpoints with the undisturbed ones."""
        lines = self.out.read_text(errors="replace").splitlines()
        results = sorted(line for line in lines if re.match(r"\[\d+\] digest ", line))
        digest = self.known.digest or "".join(results).split(" ")[-1]
        if results != [f"[{rank}] digest {digest}" for rank in range(self.ranks)]:
            raise Violation(f"another result than the undisturbed {digest}: {results}")
        if self.known.digest and self.numbered and self.kept()[-3:] != self.known.checkpoints:
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
            left = [f"process {process.pid}" for process in self.processes()]
            shared = {path for file in self.folder.glob("steps.shared.*") for path in file.read_text().split()}
            left += [*map(str, self.temporary.rglob("*")), *filter(os.path.exists, shared)]
            if not left:
                return
            if time.monotonic() > until:
                raise Violation(f"left behind: {', '.join(left)}")
            time.sleep(0.1)

    def restart(self) -> None:
        """Start the training again, if it was ended, and wait for its end."""
        if not self.complete:
            self.start()
            self.check_end([0], "")

    def end_all(self) -> None:
        """End what a violation, or Ctrl-C, may have left."""
        until = time.monotonic() + 10
        while self.processes() and time.monotonic() < until:
            for process in self.processes():
                with contextlib.suppress(psutil.Error):
                    process.kill()
            time.sleep(0.1)


def to_itself(harm: str, options: List[str], last: int, statuses: List[int], words: str, job: Job) -> None:
    """The victim does ``harm`` to itself, after a random one of its steps up to ``last``."""
    order = dict(harm=harm, at=job.chance.randint(1, last), device=job.chance.choice([0, -1]))
    order["status"] = job.chance.choice([1, 2, 3, 42, 125, "words"])  # with text Python ends with 1
    job.what += f" {harm} at step {order['at']}"
    job.start(*options, **order)
    if harm == "kill":
        job.wait_for(lambda: False)
        text = job.err.read_text()
        if not re.search(rf"(?m)^mxdp.launch: rank {job.rank} .*{KILLED}", text):
            raise Violation(f"the rank that was killed is not named: {text}")
        job.err.write_text(re.sub(r"(?m)^mxdp.launch: (rank|starts all).*\n", "", text))
    job.check_end(statuses or [1 if order["status"] == "words" else order["status"]], words)


def at_a_moment(do: Callable[[Job], Any], silent: int, statuses: List[int], words: str, job: Job) -> None:
    """Do something to a training at a random moment."""
    job.start("--silent-after", str(silent))
    job.wait_for_moment()
    do(job)
    job.check_end(statuses, words, late=True)


def to_victim(do: Callable[[Process], Any], guard: bool, job: Job) -> None:
    """Do something to the victim's process, or to its guard, if it has not ended."""
    job.wait_for(lambda: job.victim(guard))
    with contextlib.suppress(psutil.Error, AttributeError):
        do(job.victim(guard))


def pause(process: Process) -> None:
    """Stop a process for a moment."""
    process.suspend()
    time.sleep(1)
    process.resume()


def full_disk(job: Job) -> None:
    """The checkpoints' folder has room for few of them."""
    room = job.chance.choice([0.5, 1.5, 2.5, 3.5])
    job.what += f" room for {room} checkpoints"
    mount = ["mount", "-t", "tmpfs", "-o", f"size={int(room * job.known.size) // 4096 * 4096}", "none"]
    if subprocess.run([*mount, job.checkpoints], stderr=subprocess.DEVNULL).returncode:
        raise Skipped("no tmpfs can be mounted here (root can)")
    try:
        job.numbered = False
        job.start()
        job.check_end([0], "")
        text, newest = job.out.read_text(), job.kept()[-1:]
        if newest != job.known.checkpoints[-1:] and (room > 2 or "nothing is saved from" not in text):
            raise Violation(f"the newest checkpoint is {newest}: {text}")
        subprocess.run(["mount", "-o", "remount,size=64m", job.checkpoints], check=True)
        job.complete = False
        job.restart()
    finally:
        subprocess.run(["umount", "-l", job.checkpoints], check=True)


def cut_link(seconds: float, silent: int, statuses: List[int], words: str, job: Job) -> None:
    """The cable between two hosts, which are network namespaces with a rank each, is cut at a random moment. It is
    plugged in again after some ``seconds``, if they are more than 0."""
    job.rank = 1
    with two_hosts(job.folder) as hosts:
        job.inside = hosts.inside
        job.start("--silent-after", str(silent), *hosts.options, environ={"UCX_TLS": "tcp,self"})
        job.wait_for_moment()
        hosts.cable("down")
        if seconds:
            time.sleep(seconds)
            hosts.cable("up")
        job.check_end(statuses, words, late=True)
        job.inside = []
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=30).stdout
    if any(name in names for name in hosts.names):
        raise Violation(f"left behind: network namespaces {names}")


STRANGE = {
    "garbage": b"\x00\xff\xfe garbage \n" * 500,
    "deep": b"[" * 60000 + b"\n",
    "number": b'{"step":0,"password":1}\n',
    "other": b'[1]\n"text"\n1e999\nnull\n{"\xff":1}\n',
    "endless": b"x" * (1 << 18),
    "web": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "silent": b"",
}


def strangers(job: Job) -> None:
    """Connections to the launcher's port without the password; of the silent ones more than may be open."""
    names = job.chance.sample(sorted(STRANGE), 4)
    job.what += f" {' '.join(names)}"
    few = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))) if "silent" in names else None
    job.start("--silent-after", "20", before=few)
    ports: List[int] = []

    def listens() -> bool:
        with contextlib.suppress(psutil.Error):
            launcher = Process(job.launcher.pid)
            connections = getattr(launcher, "net_connections", None) or launcher.connections  # its name before psutil 6
            ports.extend(open_.laddr.port for open_ in connections("tcp") if open_.status == psutil.CONN_LISTEN)
        return bool(ports)

    job.wait_for(listens)
    job.wait_for_moment()
    with contextlib.ExitStack() as stack:
        for name in names:
            with contextlib.suppress(OSError):  # the port takes no more
                for _ in range(200 if name == "silent" else 1):
                    stranger = stack.enter_context(socket.create_connection(("127.0.0.1", ports[0]), timeout=2))
                    stranger.sendall(STRANGE[name])
        job.wait_for(lambda: False)
    job.check_end([0], "")


MOMENTS: Dict[str, Tuple[Callable[[Job], Any], int, List[int], str]] = {
    "kill_rank": (partial(to_victim, Process.kill, False), 60, [137], f"RANK {KILLED}"),
    "kill_guard": (partial(to_victim, Process.kill, True), 60, [1, 9, 137], "RANK .*killed"),
    "stop_rank_short": (partial(to_victim, pause, False), 10, [0], ""),
    "stop_rank_long": (partial(to_victim, Process.suspend, False), SILENT, [124], "RANK has been stopped for"),
    "stop_guard": (partial(to_victim, Process.suspend, True), SILENT, [124], f"RANK{UNHEARD}"),
    "interrupt_launcher": (lambda job: job.launcher.send_signal(signal.SIGINT), 60, [130], "ended by SIGINT"),
    "terminate_launcher": (lambda job: job.launcher.terminate(), 60, [143], "ended by SIGTERM"),
    "kill_launcher": (lambda job: job.launcher.kill(), 60, [-signal.SIGKILL], ""),
}
"""The arguments of :func:`at_a_moment`, by the kind of fault."""
HARMS: Dict[str, Tuple[str, List[str], int, List[int], str]] = {
    "exit_status": ("exit_with", [], STEPS + 1, [], f"RANK {FAILED}"),
    "exception": ("fail", [], STEPS + 1, [1], f"RANK {FAILED}"),
    "exception_in_operator": ("fail_in_operator", [], STEPS, [1], f"RANK {FAILED}"),
    "kill_and_restart": ("kill", ["--restarts", "1"], STEPS, [0], ""),
    "hang": ("hang", ["--hung-after", "5"], STEPS - 1, [124], "no rank has made a step for 5 s; behind: .*RANK on"),
}
"""The arguments of :func:`to_itself`, by the kind of fault."""
KINDS: Dict[str, Callable[[Job], Any]] = {
    **{name: partial(to_itself, *arguments) for name, arguments in HARMS.items()},
    **{name: partial(at_a_moment, *arguments) for name, arguments in MOMENTS.items()},
    "full_disk": full_disk,
    "cut_link": partial(cut_link, 0, SILENT, [124], f"RANK{UNHEARD}"),
    "cut_link_short": partial(cut_link, 1, 20, [0], ""),
    "strangers": strangers,
}
"""All kinds of faults."""


def main(arguments: Optional[List[str]] = None) -> int:
    """Inject the faults, and print a line for each; the exit status."""
    parser = argparse.ArgumentParser(prog="make torture", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--faults", type=int, default=len(KINDS), metavar="N", help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="of all that is drawn (default: another each time)")
    parser.add_argument("--only", type=int, metavar="K", help="fault number K alone, from 1")
    parser.add_argument("--kinds", default=",".join(KINDS), metavar="A,B", help="these alone, of: %(default)s")
    parser.add_argument("--ranks", type=int, default=3, metavar="N", help="at most (default: %(default)s)")
    parser.add_argument("--devices", type=int, default=2, metavar="N", help="of a rank, at most (default: %(default)s)")
    options = parser.parse_args(arguments)
    options.seed = random.randrange(10**6) if options.seed is None else options.seed
    kinds = options.kinds.split(",")
    if not set(kinds) <= set(KINDS):
        parser.error(f"there is no kind {', '.join(set(kinds) - set(KINDS))}; there are {', '.join(KINDS)}")
    chosen = {name: getattr(options, name) for name in ("seed", "kinds", "ranks", "devices")}
    given = " ".join(f"--{name} {value}" for name, value in chosen.items() if value != parser.get_default(name))
    print("torture:", given, flush=True)
    counts: Counter[str] = Counter()
    began = time.monotonic()
    for number in [options.only] if options.only else range(1, options.faults + 1):
        turn, place = divmod(number - 1, len(kinds))
        name = random.Random(f"{options.seed} {turn}").sample(kinds, len(kinds))[place]
        chance = random.Random(f"{options.seed} {number}")
        ranks = 2 if name.startswith("cut_link") else chance.randint(1, options.ranks)
        devices = chance.randint(1, options.devices)
        started = time.monotonic()
        with job_in_folder(chance, ranks, devices) as job:
            outcome = inject(KINDS[name], job)
            words = f"{number:4} {name}, {ranks} x {devices}:{job.what}: {outcome}"
            print(words, f"({time.monotonic() - started:.0f} s)", flush=True)
            if outcome.startswith("VIOLATION"):
                job.end_all()
                folder = shutil.copytree(job.folder, Path(tempfile.mkdtemp(prefix="mxdp-torture-")) / "fault")
                print(f"its files are in {folder}; again: python tools/torture.py {given} --only {number}")
                return 1
        counts[name + outcome.startswith("skipped") * " skipped"] += 1
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    print(f"{sum(counts.values())} faults in {time.monotonic() - began:.0f} s; nothing was lost")
    return 0


def inject(function: Callable[[Job], Any], job: Job) -> str:
    """Do the fault and train to the end; the outcome in words."""
    try:
        job.known = undisturbed(job.ranks, job.devices)
        function(job)
        job.restart()
    except Skipped as reason:
        return f"skipped: {reason}"
    except Violation as violation:
        return f"VIOLATION: {violation}"
    return "nothing lost"


@contextlib.contextmanager
def job_in_folder(chance: random.Random, ranks: int, devices: int) -> Iterator[Job]:
    """A job in a new folder; at the end neither its folder nor a process of it is left."""
    with tempfile.TemporaryDirectory(prefix="mxdp-torture-") as folder:
        job = Job(Path(folder), chance, ranks, devices)
        try:
            yield job
        finally:
            job.end_all()


@lru_cache(maxsize=None)
def undisturbed(ranks: int, devices: int) -> Undisturbed:
    """Train without a fault, once for each size."""
    with job_in_folder(random.Random(0), ranks, devices) as job:
        started = time.monotonic()
        job.start()
        job.check_end([0], "")
        digest = job.out.read_text().split("digest ")[1].split()[0]
        size = max(path.stat().st_size for path in job.checkpoints.glob("*.npz"))
        return Undisturbed(digest, time.monotonic() - started, job.kept(), size)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and end what was started
    sys.exit(main())
