"""The process that reads a student's file and calls its functions: ``python -m mxdp.exercises.child FILE CHANNEL``.

It writes a JSON object a line to the file descriptor CHANNEL, before each thing that might never end and after it.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import sys
from typing import Any, Dict, List, TextIO

from mxdp.exercises import EXERCISES
from mxdp.exercises.check import CHANNEL_CLOSED
from mxdp.exercises.trial import Trial, explained, tried


def main(file: str, channel: TextIO) -> None:
    """Check everything that the file defines."""

    def tell(**message: Any) -> None:
        try:
            channel.write(json.dumps(message) + "\n")
            channel.flush()
        except OSError:
            os._exit(CHANNEL_CLOSED)

    cases: Dict[str, List[Trial]] = {}
    for name, exercise in EXERCISES.items():
        cases[name] = list(getattr(importlib.import_module(f"mxdp.exercises.{exercise.module}"), name)())
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
    tell(found={name: [case.title for case in cases[name]] for name in written})
    for name, function in written.items():
        for number, case in enumerate(cases[name]):
            tell(trying=[name, number])
            tell(tried=tried(case, function, file))
    tell(done=True)


def _own(found: Any) -> bool:
    """Is it a function, and not one that the file imports from mxdp?"""
    return callable(found) and not str(getattr(found, "__module__", "")).startswith("mxdp")


if __name__ == "__main__":
    main(sys.argv[1], os.fdopen(int(sys.argv[2]), "w"))
