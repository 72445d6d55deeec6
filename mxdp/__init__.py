"""mxdp: data-parallel training of MXNet/Gluon networks, from scratch, in pieces that can be read.

``import mxdp`` prepares the process (:mod:`mxdp.process`), makes MXNet importable on newer releases of Python and NumPy
(:mod:`mxdp.compat`) and registers mxdp's stores with MXNet (:mod:`mxdp.plugin`). It loads nothing else: a name such as
``mxdp.allreduce`` loads MXNet when it is first used. Import mxdp before MXNet; otherwise a warning says what is lost.
"""

from __future__ import annotations

import importlib
from typing import Any, List

from mxdp import compat as _compat
from mxdp import plugin as _plugin
from mxdp import process as _process

__version__ = "0.1.0"

_HOME = {
    "allreduce": "mxdp.collectives",
    "AllReduce": "mxdp.collectives",
    "reduce_scatter": "mxdp.collectives",
    "all_gather": "mxdp.collectives",
    "broadcast": "mxdp.collectives",
    "calibrate": "mxdp.collectives.calibration",
    "GradientSync": "mxdp.collectives",
    "split_and_load": "mxdp.scratch",
    "split_batch": "mxdp.scratch",
    "devices": "mxdp.backend",
    "get_params": "mxdp.scratch",
    "in_sync": "mxdp.scratch",
    "init_lenet": "mxdp.scratch",
    "lenet": "mxdp.scratch",
    "cross_entropy": "mxdp.scratch",
    "sgd": "mxdp.scratch",
    "load": "mxdp.datasets",
    "Curves": "mxdp.curves",
    "Timer": "mxdp.timing",
    "Benchmark": "mxdp.timing",
    "train_batch": "mxdp.scratch",
    "train": "mxdp.training",
    "evaluate": "mxdp.scratch",
    "Trainer": "mxdp.gluon",
    "Checkpoint": "mxdp.gluon",
    "world": "mxdp.processes",
}
__all__ = sorted(_HOME)

_process.warn(_process.prepare().warnings)
_compat.install()
_plugin.register_stores()


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mxdp' has no attribute {name!r}; it has: {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted([*globals(), *__all__])
