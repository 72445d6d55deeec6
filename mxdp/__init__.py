"""mxdp: data-parallel training of MXNet/Gluon networks, from scratch, in pieces that can be read.

``import mxdp`` prepares the process (see :mod:`mxdp.process`), makes MXNet importable on newer releases of Python and
NumPy (:mod:`mxdp.compat`), sees to it that MXNet will know mxdp's stores (:mod:`mxdp.plugin`) and loads nothing else: a
name such as ``mxdp.allreduce`` brings in MXNet when it is first used.
Import mxdp before MXNet. If MXNet is loaded already, a warning says what is lost.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import nullcontext as _nullcontext
from importlib.util import find_spec as _find_spec
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

_command = sys.argv[0] == "-m"  # of `python -m mxdp.scratch` and its like
_needed = ("filelock", "jinja2", "matplotlib", "numpy", "psutil", "rich", "wrapt") if _command else ("wrapt",)
_missing = ", ".join(name for name in _needed if not _find_spec(name))
if _missing:
    _sentence = (
        f"mxdp needs {_missing}, which the Python {sys.executable} does not have: activate the environment that mxdp "
        "is installed in (`. .venv/bin/activate` in each new terminal), or install it first (`make run`)"
    )
    if _command:
        sys.exit(f"mxdp: {_sentence}")
    raise ModuleNotFoundError(_sentence)

_process.warn(_process.prepare().warnings)
_compat.install()
_plugin.register_stores()


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'mxdp' has no attribute {name!r}; it has: {', '.join(__all__)}")
    # Ranks are also of classic programs. (mxdp.gluon keeps their semantics itself.)
    with _plugin.semantics_kept() if name == "world" else _nullcontext():
        globals()[name] = value = getattr(importlib.import_module(_HOME[name]), name)
    return value


def __dir__() -> List[str]:
    return sorted([*globals(), *__all__])
