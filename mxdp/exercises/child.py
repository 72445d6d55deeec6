"""The process that reads a student's file and calls its functions.

``python -m mxdp.exercises.child FILE CHANNEL SEED PASSWORD`` writes a JSON object a line to the file descriptor
CHANNEL, before each thing that might never end and after it. PASSWORD stands before each object: a line without it was
written by the student's code.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import runpy
import signal
import sys
from typing import Any, Dict, List, TextIO

from mxdp.backend import mx
from mxdp.exercises import EXERCISES
from mxdp.exercises.check import CHANNEL_CLOSED
from mxdp.exercises.trial import Case, explained, outcome, title


def cases(name: str, seed: int) -> List[Case]:
    """The cases of an exercise: the drawn ones, then one of sizes at random, which follow from ``seed``."""
    module = importlib.import_module(f"mxdp.exercises.{EXERCISES[name].module}")
    return list(getattr(module, name)(random.Random(f"{seed} {name}")))


def main(file: str, channel: TextIO, seed: int, password: str) -> None:
    """Check everything that the file defines."""

    def tell(**message: Any) -> None:
        try:
            channel.write(f"{password}{json.dumps(message)}\n")
            channel.flush()
        except OSError:
            os._exit(CHANNEL_CLOSED)

    tasks: Dict[str, List[Case]] = {name: cases(name, seed) for name in EXERCISES}
    mx.nd.waitall()  # so MXNet is loaded before the file is read, and not in the time of its first case
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # MXNet's handler turns a crash into an exit
    tell(reading=file)
    sys.path[0] = os.path.dirname(os.path.abspath(file))
    try:
        namespace = runpy.run_path(file)
    except BaseException as error:
        tell(problem=explained(error, file))
        return
    written = {name: namespace[name] for name in EXERCISES if _own(namespace.get(name))}
    if not written:
        tell(problem=f"It defines none of the functions that can be checked: {', '.join(EXERCISES)}.")
        return
    tell(found={name: [title(case, seed) for case in tasks[name]] for name in written})
    for name, function in written.items():
        for number, case in enumerate(tasks[name]):
            for trying, found in outcome(case, seed, function, file):
                tell(trying=[name, number, trying]) if found is None else tell(tried=found)
    tell(done=True)


def _own(found: Any) -> bool:
    """Is it a function, and not one that the file imports from mxdp?"""
    return callable(found) and not str(getattr(found, "__module__", "")).startswith("mxdp")


if __name__ == "__main__":
    given, sys.argv[1:] = sys.argv[1:], []
    main(given[0], os.fdopen(int(given[1]), "w"), int(given[2]), given[3])
