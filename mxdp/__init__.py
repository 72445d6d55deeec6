"""mxdp: data-parallel training of MXNet/Gluon networks, from scratch, in pieces that can be read.

``import mxdp`` prepares the process (:mod:`mxdp.process`), makes MXNet importable on newer releases of Python and NumPy
(:mod:`mxdp.compat`) and registers mxdp's stores with MXNet (:mod:`mxdp.plugin`). It loads nothing else: a name such as
``mxdp.allreduce`` loads MXNet when it is first used. Import mxdp before MXNet; otherwise a warning says what is lost.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec as _find_spec
from typing import Any, List

from mxdp import compat as _compat
from mxdp import plugin as _plugin
from mxdp import process as _process

__version__ = "0.2.0"

_NAMES = {
    "collectives": "allreduce AllReduce reduce_scatter all_gather broadcast GradientSync",
    "collectives.calibration": "calibrate",
    "scratch": "split_and_load split_batch get_params in_sync init_lenet lenet cross_entropy sgd train_batch evaluate",
    "backend": "devices",
    "datasets": "load",
    "curves": "Curves",
    "timing": "Timer Benchmark",
    "training": "train",
    "gluon": "Trainer Checkpoint",
    "processes": "world",
}
_HOME = {name: f"mxdp.{module}" for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOME)

_command = sys.argv[0] == "-m"  # of `python -m mxdp.scratch` and its like
_needed = ("numpy", "psutil", "wrapt") if _command else ("wrapt",)
_missing = ", ".join(name for name in _needed if not _find_spec(name))
_sentence = (
    f"mxdp needs {_missing}, which the Python {sys.executable} does not have: activate the environment that mxdp "
    "is installed in (`. .venv/bin/activate` in each new terminal), or install it first (`make run`)"
)
if _missing and _command:
    raise SystemExit(f"mxdp: {_sentence}")
if _missing and _find_spec("mxnet"):
    raise ModuleNotFoundError(_sentence)

if not _missing:  # else there is no MXNet to prepare for: plans and predictions need neither
    _process.warn(_process.prepare_process().warnings)
    _compat.install()
    # To make a store loads MXNet.
    _plugin.register_stores(lambda name: importlib.import_module("mxdp.gluon.store").by_name(name))


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(
            f"module 'mxdp' has no attribute {name!r}; it has: {', '.join(__all__)}"
        )
    if _missing:
        raise ModuleNotFoundError(_sentence)
    # To look at a name changes no semantics: functions that promise NumPy's turn them on when they are called.
    with _plugin.semantics_kept():
        value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted([*globals(), *__all__])
