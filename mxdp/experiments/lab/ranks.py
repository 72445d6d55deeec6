"""Starts the processes of one case, tells each its rank, waits for them, and says how one has died. Imports no MXNet.

Each process runs the same command. An engine that exchanges something has its own way to start it::

    (none)       as many processes, which exchange nothing
    mpi          mxdp's launcher, by mpiexec
    horovod      horovodrun, by Gloo
    dist_sync    a scheduler and a server of MXNet's beside them; dist_async likewise
    torch-ddp    each is told an address and a port

They wait for each other and share what they have by files in a folder: no engine is measured with another's barrier.
"""

from __future__ import annotations

import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import (
    IO,
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from mxdp.errors import plural
from mxdp.launch.guard import die_with_parent
from mxdp.launch.guarded import ending

ALONE = ""
MPI = "mpi"
SYNC = "dist_sync"
ASYNC = "dist_async"
HOROVOD = "horovod"
DDP = "torch-ddp"
WORDS = {
    ALONE: "processes that exchange nothing",
    MPI: "mxdp's world, by MPI",
    SYNC: "MXNet's dist_sync",
    ASYNC: "MXNet's dist_async",
    HOROVOD: "Horovod, by Gloo",
    DDP: "PyTorch's DDP, by Gloo",
}
NEEDS: Mapping[str, Mapping[str, str]] = {
    MPI: {"mpi4py": "`pip install mpi4py mpich`"},
    HOROVOD: {
        "horovod": "`HOROVOD_WITH_MXNET=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_PYTORCH=1 "
        "HOROVOD_WITHOUT_TENSORFLOW=1 pip install --no-build-isolation horovod==0.28.1`"
    },
    DDP: {"torch": "`pip install torch`"},
}
"""The module that each engine needs, and how to install it."""
RANKS = {MPI: "PMI_RANK", HOROVOD: "HOROVOD_RANK"}
"""Variables that tell a process its rank; of the other engines it is ``RANK``."""
GRACE = 5.0
"""Seconds that a process has to end what it has started elsewhere, as launchers do, before it is killed."""
Command = Tuple[List[str], Dict[str, str]]
Commands = Tuple[List[Command], List[Command]]
Failure = Tuple[str, str]
"""A result's status, and the reason in words."""


def commands(
    engine: str, size: int, command: Sequence[str], environ: Mapping[str, Optional[str]]
) -> Commands:
    """What to start, each with its environment: the processes that end by themselves, and those that serve them."""
    plain = {name: value for name, value in environ.items() if value is not None}
    launcher: List[str] = []
    if engine == MPI:
        launcher = [sys.executable, "-m", "mxdp.launch", "-n", str(size), "--"]
    if engine == HOROVOD:
        horovodrun = str(Path(sys.executable).with_name("horovodrun"))
        launcher = [horovodrun, "--gloo", "-np", str(size)]
    if launcher:
        return [([*launcher, *command], plain)], []
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = map(str, server.getsockname())  # a port that nobody has
    shared = {"WORLD_SIZE": str(size)}
    servers = []
    if engine == DDP:
        shared.update(MASTER_ADDR=host, MASTER_PORT=port)
    if engine in (SYNC, ASYNC):
        shared.update(DMLC_PS_ROOT_URI=host, DMLC_PS_ROOT_PORT=port)
        shared.update(DMLC_NUM_SERVER="1", DMLC_NUM_WORKER=str(size), DMLC_ROLE="worker")
        # `import mxnet` does their work, and never returns.
        serve = [sys.executable, "-c", "from mxdp.backend import mx; mx.nd"]
        for role in ("scheduler", "server"):
            servers.append((serve, {**plain, **shared, "DMLC_ROLE": role}))
    ranks = []
    for rank in range(size):
        ranks.append(([*command], {**plain, **shared, "RANK": str(rank)}))
    return ranks, servers


def use_checkout(root: Path, environ: Dict[str, Optional[str]]) -> Path:
    """Change ``environ`` so that processes run the code of the checkout ``root``, and find the user's modules and files
    as this process does. Returns the folder in which they must be started: the one of this process."""
    here = os.getcwd()
    others = (environ.get("PYTHONPATH") or "").split(os.pathsep)
    places = [str(root), here, *(os.path.abspath(place) for place in others if place)]
    environ["PYTHONPATH"] = os.pathsep.join(places)
    # Else `python -m` takes the mxdp of the folder where it is started.
    environ["PYTHONSAFEPATH"] = "1"
    if sys.version_info < (3, 11) and Path(here, "mxdp", "__init__.py").exists():
        # These Pythons don't know the variable: files are then looked for in the checkout.
        return root
    return Path(here)


def wait_for(
    to_start: Commands, limit: float, log: Path, folder: Optional[Path], tick: Callable[[], Any]
) -> Optional[Failure]:
    """Start these in this ``folder``, and wait for those that end by themselves. Returns None if all did well
    within ``limit`` seconds. In the end nothing that they have started runs. All that they print goes to ``log``.
    ``tick`` is called a few times a second."""
    commands, servers = to_start
    with open(log, "wb") as out, running([*commands, *servers], out, folder) as started:
        until = time.monotonic() + limit
        while left := [one for one in started[: len(commands)] if one.poll() is None]:
            if time.monotonic() > until:
                return "timeout", f"no answer within the time limit of {limit:g} s"
            if any(one.poll() for one in started):
                break  # the others may wait for it for ever
            tick()
            with suppress(subprocess.TimeoutExpired):
                left[0].wait(0.2)
        code = next(filter(None, [one.poll() for one in started]), 0)
    if not code:
        return None
    reason = f"the process {ending(code)}"
    if code == -signal.SIGKILL:
        reason += ", as the system does when memory runs out,"
    printed = re.findall(rb"\S[^\n]*", log.read_bytes()[-4000:])
    if printed and code > 0:
        reason += f": {printed[-1].decode(errors='replace')}"
    return "failed", reason


def in_words(failures: Mapping[str, Failure]) -> Optional[str]:
    """Failures by label: each reason once, with the first case that gave it and the number of the others."""
    labels: Dict[str, List[str]] = {}
    for label, (_, reason) in failures.items():
        labels.setdefault(reason, []).append(label)
    sentences = []
    for reason, (first, *others) in labels.items():
        more = f" (and {plural(len(others), 'more case')})" if others else ""
        sentences.append(f"{first}{more}: {reason}" if first else reason)
    return "; ".join(sentences) or None


@contextmanager
def running(
    commands: Sequence[Command], out: Union[int, IO[bytes]], folder: Optional[Path] = None
) -> Iterator[List[subprocess.Popen[bytes]]]:
    """Start these, each in a process group of its own; they print into the file ``out``. In the end, end each with all
    that it has started; if this process is killed, they are, too (Linux)."""
    started: List[subprocess.Popen[bytes]] = []
    how: Dict[str, Any] = dict(
        stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder, start_new_session=True
    )
    try:
        for command, environ in commands:
            one = subprocess.Popen(command, env=environ, preexec_fn=die_with_parent, **how)
            started.append(one)
        yield started
    finally:
        for one in started:
            # Python 3.8 knows nothing of one that psutil has waited for.
            with suppress(ProcessLookupError):
                one.terminate()
        until = time.monotonic() + GRACE
        for one in started:
            with suppress(subprocess.TimeoutExpired):
                one.wait(max(0.0, until - time.monotonic()))
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()


def rank(engine: str) -> int:
    """Which of the processes this is."""
    return int(os.environ.get(RANKS.get(engine, "RANK"), "0"))


def sharing(folder: Path, number: int, size: int) -> Callable[..., List[Any]]:
    """:attr:`mxdp.experiments.lab.module.Case.share` of process ``number``; ``folder`` is of these processes alone."""
    meetings = 0

    def share(value: Any = None) -> List[Any]:
        nonlocal meetings
        meetings += 1
        here = folder / str(meetings)
        here.mkdir(parents=True, exist_ok=True)
        part = folder / f"{number}.part"
        part.write_bytes(pickle.dumps(value))
        part.rename(here / str(number))
        # One that ends without coming here is noticed by whoever started all.
        while len(os.listdir(here)) < size:
            time.sleep(0.0005)
        return [pickle.loads((here / str(other)).read_bytes()) for other in range(size)]

    return share
