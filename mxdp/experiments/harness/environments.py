"""Environments for child processes that need another engine than mxdp's: MXNet reads them once, when it is loaded.

All of them have one OpenMP thread: a device keeps one core busy, and two products at the same time can't hang (see
:mod:`mxdp.process`). Pure Python.
"""

from __future__ import annotations

from typing import Dict, Optional

from mxdp import process

Environment = Dict[str, Optional[str]]

STOCK: Environment = {**dict.fromkeys(process.SETTINGS), "MXDP_PREPARE": "0", "OMP_NUM_THREADS": "1"}
"""MXNet as it comes, but for the threads: its allocator, temporary space and single worker."""

# mxdp would warn of just what this is to show.
NAIVE: Environment = {"OMP_NUM_THREADS": "1", "MXNET_ENGINE_TYPE": "NaiveEngine", "PYTHONWARNINGS": "ignore"}
"""No engine at all: an operator runs where it is called, before the call returns."""


def workers(count: int) -> Environment:
    """mxdp's settings with so many workers for each device; MXNet's own numbers are 1 for a CPU device, 2 for a GPU.

    >>> workers(2)["MXNET_CPU_WORKER_NTHREADS"]
    '2'
    """
    return {
        "OMP_NUM_THREADS": "1",
        "MXNET_CPU_WORKER_NTHREADS": str(count),
        "MXNET_GPU_WORKER_NTHREADS": str(count),
    }
