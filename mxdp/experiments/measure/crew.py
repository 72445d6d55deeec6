"""Processes that train together, and obey the one that has started them.

A rank is a process of its own, started as its engine wants it. It connects to a socket of the harness's child, and then
does what it is told, as the child itself does what the runner tells it::

    runner  <-->  child  <-->  rank 0, rank 1, ...      (and, for MXNet's stores, a scheduler and a server)

Between two commands a rank is stopped (SIGSTOP): an engine that looks for work all the time would take a processor from
what is measured meanwhile. Horovod's two processes take half of a core when idle. A rank ends when the child does.
Imports no MXNet.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, List, Mapping, Optional, Sequence, Type

from mxdp.errors import MxdpError
from mxdp.experiments.harness.exchanges import ASYNC, HOROVOD, MPI, SYNC
from mxdp.launch.guard import die_with_parent

START = 60.0
"""Seconds in which all ranks must be there."""
GRACE = 5.0
DAY = "86400"
SOCKET = "MXDP_CREW"
"""Environment variable with the path of the child's socket."""


class Crew:
    """``size`` ranks of ``engine``, each an object of the class ``what``, made from ``order``.

    Raises:
        MxdpError: a rank did not start; what it has printed is in the child's log.
    """

    def __init__(self, engine: str, size: int, what: Type[Any], order: Mapping[str, Any]) -> None:
        self._processes: List[subprocess.Popen[bytes]] = []
        self.ranks: List[Connection] = []
        self.pids: List[int] = []
        rank = [sys.executable, "-m", f"{__package__}.rank", f"{what.__module__}:{what.__qualname__}"]
        for again in (True, False):  # the port that an engine was told may be gone before it takes it
            try:
                # A socket for each try: nobody of the first is taken for one of the second.
                with tempfile.TemporaryDirectory(prefix="mxdp-crew-") as folder, socket.socket(socket.AF_UNIX) as own:
                    own.bind(f"{folder}/socket")
                    own.listen(size)
                    own.settimeout(0.2)
                    self._start(engine, size, rank, {**os.environ, SOCKET: f"{folder}/socket"})
                    self._accept(own, size, {**order, "engine": engine, "size": size})
                return
            except BaseException as error:
                self.kill()
                if not (again and isinstance(error, MxdpError)):
                    raise
                self._processes.clear()

    def ask(self, command: str, *arguments: Any, limit: float = 3600.0) -> List[Any]:
        """Have all ranks do ``command``, a method of theirs; their answers, in the order of ranks.

        Raises:
            MxdpError: a rank has failed or ended, or there is no answer within ``limit`` seconds.
        """
        self.begin(command, *arguments)
        answers: Dict[int, Any] = {}
        until = time.monotonic() + limit
        while len(answers) < len(self.ranks):
            open_ = [rank for number, rank in enumerate(self.ranks) if number not in answers]
            ready = wait(open_, max(0.0, until - time.monotonic()))
            if not ready:
                raise MxdpError(f"ranks that did not {command} within {limit:g} s: {len(open_)} of {len(self.ranks)}")
            for number, rank in enumerate(self.ranks):
                if rank not in ready:
                    continue
                try:
                    answers[number], failed = rank.recv()
                except (EOFError, ConnectionError):
                    raise MxdpError(f"rank {number} has ended while it was to {command}") from None
                if failed:
                    raise MxdpError(f"rank {number}: {answers[number]}")
        self._signal(signal.SIGSTOP)
        return [answers[number] for number in range(len(self.ranks))]

    def begin(self, command: str, *arguments: Any) -> None:
        """Tell all ranks to do it, and wait for no answer.

        Raises:
            MxdpError: a rank has ended.
        """
        self._signal(signal.SIGCONT)
        for number, rank in enumerate(self.ranks):
            try:
                rank.send((command, arguments))
            except ConnectionError:
                raise MxdpError(f"rank {number} has ended before it was to {command}") from None

    def timed(self, command: str, *arguments: Any) -> float:
        """:meth:`ask`, and the seconds until the last answer."""
        started = time.perf_counter()
        self.ask(command, *arguments)
        return time.perf_counter() - started

    def close(self) -> None:
        """End all ranks, and what was started for them."""
        self._signal(signal.SIGCONT)
        for rank in self.ranks:
            rank.close()
        until = time.monotonic() + GRACE
        try:
            for process in self._processes:
                process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End all processes at once, whatever they do."""
        self._signal(signal.SIGKILL)
        for process in self._processes:
            process.kill()
            process.wait()

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def _start(self, engine: str, size: int, rank: Sequence[str], environ: Mapping[str, str]) -> None:
        if engine == MPI:
            options = ["-n", str(size), "--silent-after", "0"]  # never: a rank that is stopped is well
            self._run([sys.executable, "-m", "mxdp.launch", *options, "--", *rank], environ)
        elif engine == HOROVOD:
            horovodrun = Path(sys.executable).with_name("horovodrun")
            patient = {"HOROVOD_GLOO_TIMEOUT_SECONDS": DAY, **environ}  # or a rank that was stopped ends the others
            self._run([str(horovodrun), "--gloo", "-np", str(size), *rank], patient)
        elif engine in (SYNC, ASYNC):
            stores = {
                **environ,
                "DMLC_PS_ROOT_URI": "127.0.0.1",
                "DMLC_PS_ROOT_PORT": str(free_port()),
                "DMLC_NUM_SERVER": "1",
                "DMLC_NUM_WORKER": str(size),
            }
            for role in ("scheduler", "server"):  # `import mxnet` does its work, and never returns
                self._run([sys.executable, "-c", "import mxdp.backend"], {**stores, "DMLC_ROLE": role})
            for _ in range(size):
                self._run(rank, {**stores, "DMLC_ROLE": "worker"})
        else:
            port = str(free_port())
            for number in range(size):
                own = {"RANK": str(number), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
                self._run(rank, {**environ, **own})

    def _signal(self, number: int) -> None:
        for pid in self.pids:  # also those that somebody else has started
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _run(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        started = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environ, preexec_fn=die_with_parent)
        self._processes.append(started)

    def _accept(self, listener: socket.socket, size: int, order: Mapping[str, Any]) -> None:
        until = time.monotonic() + START
        found: List[Connection] = []
        while len(found) < size:
            self._not_yet(f"{size - len(found)} of {size} ranks did not start", until)
            with suppress(socket.timeout):
                connection = Connection(listener.accept()[0].detach())
                connection.send(order)
                found.append(connection)
        numbers = []
        for connection in found:
            while not connection.poll(0.2):
                self._not_yet("a rank was not ready", until)
            try:
                numbers.append(connection.recv())
            except (EOFError, ConnectionError):
                raise MxdpError("a rank has ended while it was set up") from None
        in_order = sorted(zip(numbers, found), key=lambda pair: pair[0])
        self.ranks = [connection for _, connection in in_order]
        self.pids = [pid for (_, pid), _ in in_order]

    def _not_yet(self, what: str, until: float) -> None:
        """Raise an error that says ``what`` if a process has ended, or it is too late to wait on."""
        ended = [process.returncode for process in self._processes if process.poll() is not None]
        if ended or time.monotonic() > until:
            why = f"a process ended with status {ended[0]}" if ended else f"not within {START:g} s"
            raise MxdpError(f"{what}: {why}")


def free_port() -> int:
    """A port of the loopback interface that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
