"""One configuration, in a process of its own: ``python -m mxdp.experiments.child``, started by the runner.

The runner writes a line, the child answers with a line of JSON: ``{"ok": ...}`` or ``{"error": ...}``::

    runner                                   child
    {"module", "class", "case", ...}   ->    (loads MXNet, under the environment it was started with)
    oracle                             ->    {"ok": {"checked": 80, "wrong": 0, "text": "..."}}
    ready                              ->    {"ok": {"devices": ["cpu(0)"], ...}}   set up and warmed up
    round                              ->    {"ok": {"seconds": 1.2, "metrics": {...}}}   as often as asked
    (end of input)                     ->    ends

What anything else prints goes to stderr, which the runner keeps in a file.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import traceback
from dataclasses import asdict
from typing import Any, Dict, Iterator, TextIO

from mxdp import process
from mxdp.errors import MxdpError
from mxdp.experiments.registry import Case, Experiment, Round, Settings

PR_SET_PDEATHSIG = 1


class Configuration:
    """The child's side of one case: the experiment's ``oracle`` and ``run``, on demand."""

    def __init__(self, order: Dict[str, Any]) -> None:
        self.experiment: Experiment = getattr(importlib.import_module(order["module"]), order["class"])()
        self.case = Case(**order["case"])
        self.settings: Settings = order["settings"]
        self._rounds: Iterator[Any] = iter(())

    def oracle(self) -> Dict[str, Any]:
        """Compare with the serial run."""
        return asdict(self.experiment.oracle(self.case, self.settings))

    def ready(self) -> Dict[str, Any]:
        """Set up, warm up, and say on which devices and under which variables."""
        self._rounds = self.experiment.run(self.case, self.settings)
        ready = next(self._rounds)
        return {"devices": list(ready.devices), "case": dict(ready.case), "variables": process.describe()}

    def round(self) -> Dict[str, Any]:
        """One measured round."""
        measured: Round = next(self._rounds)
        return {"seconds": measured.seconds, "metrics": dict(measured.metrics)}


def serve(commands: TextIO, answers: TextIO) -> None:
    """Answer each command until the input ends, or the first error."""
    configuration = Configuration(json.loads(commands.readline()))
    for line in commands:
        try:
            answer = {"ok": getattr(configuration, line.strip())()}
        except Exception as error:
            traceback.print_exc()
            # A sentence of ours stands for itself; anything else needs its type to be understood.
            text = str(error) if isinstance(error, MxdpError) else f"{type(error).__name__}: {error}"
            answer = {"error": text}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if "error" in answer:
            return


def _die_with_the_runner() -> None:
    """Where the system can (Linux), be killed when the runner dies without having stopped its children."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Keep the real stdout for answers, and send every other print to stderr, C libraries' too."""
    _die_with_the_runner()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
