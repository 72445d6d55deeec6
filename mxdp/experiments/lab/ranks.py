"""Starts the processes of one case, and tells each its rank. Imports no MXNet.

Each process runs the same command. An engine that exchanges something has its own way to start it::

    (none)       as many processes, which exchange nothing
    mpi          mxdp's launcher, by mpiexec
    horovod      horovodrun, by Gloo
    dist_sync    a scheduler and a server of MXNet's beside them; dist_async likewise
    torch-ddp    each is told an address and a port

They wait for each other, as before a round, and share what they have, by files in a folder that all of them see: not by
the engine, so that no engine is measured with another one's barrier.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

ALONE, MPI, SYNC, ASYNC, HOROVOD, DDP = "", "mpi", "dist_sync", "dist_async", "horovod", "torch-ddp"
WORDS = {
    ALONE: "processes that exchange nothing",
    MPI: "mxdp's world, by MPI",
    SYNC: "MXNet's dist_sync",
    ASYNC: "MXNet's dist_async",
    HOROVOD: "Horovod, by Gloo",
    DDP: "PyTorch's DDP, by Gloo",
}
_BUILT = (
    "`HOROVOD_WITH_MXNET=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_PYTORCH=1 "
    "HOROVOD_WITHOUT_TENSORFLOW=1 pip install --no-build-isolation horovod==0.28.1`"
)
NEEDS: Mapping[str, Mapping[str, str]] = {
    MPI: {"mpi4py": "`pip install mpi4py mpich`"},
    HOROVOD: {"horovod": _BUILT},
    DDP: {"torch": "`pip install torch`"},
}
"""By engine: the module that it needs, and how to install it."""
RANKS = {MPI: "PMI_RANK", HOROVOD: "HOROVOD_RANK"}
OTHERS = "RANK"
Command = Tuple[List[str], Dict[str, str]]


def commands(
    engine: str, size: int, command: Sequence[str], environ: Mapping[str, str]
) -> Tuple[List[Command], List[Command]]:
    """What to start, each with its environment: the processes that end by themselves, and those that serve them."""
    plain = dict(environ)
    if not engine and size == 1:
        return [([*command], plain)], []
    if engine == MPI:
        return [([sys.executable, "-m", "mxdp.launch", "-n", str(size), "--", *command], plain)], []
    if engine == HOROVOD:
        horovodrun = str(Path(sys.executable).with_name("horovodrun"))
        return [([horovodrun, "--gloo", "-np", str(size), *command], plain)], []
    shared: Dict[str, str] = {"WORLD_SIZE": str(size)}
    if engine == DDP:
        shared.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    servers: List[Command] = []
    if engine in (SYNC, ASYNC):
        shared.update(DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=str(free_port()))
        shared.update(DMLC_NUM_SERVER="1", DMLC_NUM_WORKER=str(size), DMLC_ROLE="worker")
        # `import mxnet` does their work, and never returns.
        server = [sys.executable, "-c", "from mxdp.backend import mx; mx.nd"]
        servers = [(server, {**plain, **shared, "DMLC_ROLE": role}) for role in ("scheduler", "server")]
    return [([*command], {**plain, **shared, OTHERS: str(rank)}) for rank in range(size)], servers


def rank(engine: str) -> int:
    """Which of the processes this is."""
    return int(os.environ.get(RANKS.get(engine, OTHERS), "0"))


def sharing(folder: Path, number: int, size: int) -> Callable[..., List[Any]]:
    """:attr:`mxdp.experiments.lab.module.Case.share` of process ``number``; ``folder`` is of these processes alone."""
    meetings = 0

    def share(value: Any = None) -> List[Any]:
        nonlocal meetings
        if size == 1:
            return [value]
        meetings += 1
        here = folder / str(meetings)
        here.mkdir(parents=True, exist_ok=True)
        part = folder / f"{number}.part"
        part.write_bytes(pickle.dumps(value))
        part.rename(here / str(number))
        while len(os.listdir(here)) < size:  # one that ends without coming here is noticed by whoever started all
            time.sleep(0.0005)
        return [pickle.loads((here / str(other)).read_bytes()) for other in range(size)]

    return share


def free_port() -> int:
    """A port of the loopback interface that nobody has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
