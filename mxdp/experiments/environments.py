"""Environment variables for child processes that need another engine than mxdp's. MXNet reads them when it is loaded.
With one OpenMP thread a device keeps one core busy, and two products at a time can't hang (:mod:`mxdp.process`)."""

from __future__ import annotations

from typing import Dict, Optional

from mxdp import process

Environment = Dict[str, Optional[str]]


def defaults(devices: int) -> Environment:
    """MXNet's default environment, for this number of devices: its allocator, its temporary space, its single worker.
    With four cores or more, its two OpenMP threads would let ``np.dot`` on two devices hang: there it gets one."""
    threads = "1" if devices > 1 and process.cores() >= 4 else None
    return {**dict.fromkeys(process.SETTINGS), "MXDP_PREPARE": "0", "OMP_NUM_THREADS": threads}


def workers(count: int) -> Environment:
    """mxdp's settings with ``count`` workers for each device. MXNet's own defaults are 1 on a CPU and 2 on a GPU."""
    kinds = ("MXNET_CPU_WORKER_NTHREADS", "MXNET_GPU_WORKER_NTHREADS")
    return {"OMP_NUM_THREADS": "1", **dict.fromkeys(kinds, str(count))}
