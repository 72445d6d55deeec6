"""A network of the reader's own, in place of a question's: ``--net MODULE:FUNCTION``.

The function takes nothing and returns a gluon network, initialised or not: it is initialised anew. Its attributes
``shape`` (of a sample; (1, 28, 28) without) and ``classes`` (10) say what the network takes and tells apart::

    def make():
        return gluon.model_zoo.vision.mobilenet0_25(classes=100)

    make.shape, make.classes = (3, 64, 64), 100
"""

import importlib
import re
import subprocess
import sys
from textwrap import shorten

from mxdp.backend import gluon, mx, np
from mxdp.errors import UsageError
from mxdp.experiments.lab import Skipped

FORM = (
    lambda given: not given or re.fullmatch(r"[\w.]+:\w+", given),
    "MODULE:FUNCTION, as in mine:make",
)
LIMIT = 300.0
"""Seconds that :func:`check` waits."""


def samples(where):
    """The shape of a sample, and the number of classes; without ``where``, pictures of the book's."""
    function = _function(where) if where else None
    return tuple(getattr(function, "shape", (1, 28, 28))), getattr(function, "classes", 10)


def _function(where):
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(module), name)


def make(where):
    """The network that this function returns. Raises a UsageError if there is no such function, or it raises."""
    try:
        net = _function(where)()
    except Exception as error:
        raise UsageError(
            f"--net {where} can't be used ({type(error).__name__}: {_first_line(error)}): give a function without "
            "arguments that returns a gluon network, of a module that Python finds from here, as in mine:make"
        ) from error
    if not isinstance(net, gluon.Block):
        raise UsageError(
            f"--net {where} returns {type(net).__name__}: it must return a gluon network"
        )
    return net


def stop_dropout(block):
    """Stop a block's dropout, whose random numbers differ on each device: then a serial run can be compared."""
    if isinstance(block, gluon.nn.Dropout):
        block._rate = 0


def check(where):
    """See that this network can be trained, in a process of its own: MXNet is not loaded in this one. Waits. Raises a
    UsageError if it can't."""
    code = f"import sys; from {__name__} import try_out; try_out(sys.argv[1])"
    command = [sys.executable, "-c", code, where]
    try:
        done = subprocess.run(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"--net {where}: a pass of two samples takes more than {LIMIT:g} s: give a smaller one"
        ) from None
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]  # of the error, behind its type
        raise UsageError(
            last.rpartition("mxdp.errors.UsageError: ")[2] or f"--net {where}: its process died"
        )


def try_out(where):
    """See, in this process, that this network can be trained. Waits. Raises a UsageError if it can't."""
    net = make(where)
    shape, classes = samples(where)
    name = where.partition(":")[2]
    try:
        scores = _scores(net, shape)
    except Exception as error:
        raise UsageError(
            f"--net {where} can't take samples of the shape {shape} ({_first_line(error)}): write their shape below "
            f"the function, {name}.shape = ..., and use operators that take MXNet's NumPy arrays"
        ) from error
    if scores.shape != (2, classes):
        raise UsageError(
            f"--net {where} makes scores of the shape {scores.shape} of two samples, not (2, {classes}): write "
            f"{name}.classes = ... below the function"
        )


def _scores(net, shape):
    net.initialize(mx.init.Xavier(), force_reinit=True)
    scores = net(np.zeros((2, *shape)))
    scores.wait_to_read()
    return scores


def see_hybrid(where):
    """See, in this process, that this network can be hybridised: many can't, whose plain form trains well. Waits.
    Raises Skipped if it can't."""
    net = make(where)
    shape, _ = samples(where)
    try:
        net.hybridize(static_alloc=True, static_shape=True)
        _scores(net, shape)
    except Exception as error:
        raise Skipped(f"{where} can't be hybridised: {_first_line(error)}") from error


def _first_line(error):
    lines = [line for line in str(error).splitlines() if not line.startswith("Traceback")]
    return shorten(lines[0], 200, placeholder="...") if lines else "no message"
