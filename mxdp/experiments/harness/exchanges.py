"""The engines that sum gradients over processes, in words. Pure Python."""

from __future__ import annotations

from typing import Mapping

ONE = "one process"
ALONE = "alone"
MPI = "mpi"
SYNC = "dist_sync"
ASYNC = "dist_async"
HOROVOD = "horovod"
DDP = "torch-ddp"

WORDS = {
    ONE: "one process, a device for each",
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
