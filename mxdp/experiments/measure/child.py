"""A process for one case, or for several that share it: ``python -m mxdp.experiments.measure.child``.

The runner starts it and writes lines; the child answers each command with a line of JSON, ``{"ok": ...}`` or
``{"error": ...}``, or ``{"skipped": ...}`` where this machine can't do it::

    runner                                   child
    {"module", "class", "settings"}    ->    (one instance of the experiment, for all its cases; it loads MXNet)
    load                               ->    {"ok": {}}   it has
    case {"label", "devices", ...}     ->    (no answer: it is case 0, the next will be case 1)
    oracle 0                           ->    {"ok": {"checked": 80, "wrong": 0}}
    ready 0                            ->    {"ok": {"devices": ["cpu(0)"], ...}}   set up and warmed up
    round 0                            ->    {"ok": {"seconds": 1.2, "metrics": {...}, "last": {...}}}
    record 0                           ->    {"ok": {"timeline": ...}}   once more, recorded
    (end of input)                     ->    ends

MXNet is loaded under the environment the child was started with. After an error the child goes on: the runner decides
whether other cases still need it. A case is sent just before its first command, so
that no line is longer than a pipe holds.

Whatever else the process prints goes to stderr, which the runner keeps in a file.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from contextlib import suppress
from typing import Any, Dict, List, Optional, TextIO

from mxdp import process
from mxdp.errors import described
from mxdp.experiments.harness.experiment import Case, Experiment, Round, Settings, Skipped, Work
from mxdp.launch.guard import die_with_parent


class ServedCase:
    """The child's side of one case."""

    def __init__(self, experiment: Experiment, case: Case, settings: Settings) -> None:
        self.experiment, self.case, self.settings = experiment, case, settings
        self.work: Optional[Work] = None

    def oracle(self) -> Dict[str, int]:
        """Compare with the serial run."""
        from mxdp.experiments.measure.oracle import count

        checked, wrong = count(self.experiment.oracle(self.case, self.settings))
        return {"checked": checked, "wrong": wrong}

    def ready(self) -> Dict[str, Any]:
        """Set up, warm up, and say on which devices, under which variables and by which modules."""
        self.work = work = self.experiment.set_up(self.case, self.settings)
        own = type(self.experiment).__module__
        return {
            "devices": [str(device) for device in work.devices],
            "case": dict(work.case),
            "shared": dict(work.shared),
            "records": work.record is not None,
            "variables": process.describe(),
            "modules": sorted({__spec__.name, own, *(name for name in sys.modules if name.startswith("mxdp."))}),
        }

    def round(self) -> Dict[str, Any]:
        """One measured round."""
        assert self.work is not None
        done = one_round(self.work)
        return {"seconds": done.seconds, "metrics": dict(done.metrics), "last": dict(done.last)}

    def record(self) -> Dict[str, Any]:
        """One more run, recorded."""
        from mxdp.experiments.measure.timelines import recorded

        assert self.work is not None
        assert self.work.record is not None
        return recorded(self.work.record(), self.work.devices)

    def drop(self) -> None:
        """Forget what a case that failed has set up; other cases may need the memory."""
        self.work = None


def one_round(work: Work) -> Round:
    """Do one round of ``work``. Unless it gives its own time, that is taken between two waits."""
    _wait()
    started = time.perf_counter()
    done = work.round()
    _wait()
    return done or Round(time.perf_counter() - started)


def _wait() -> None:
    """Wait for all devices, if MXNet is loaded."""
    backend = sys.modules.get("mxdp.backend")
    if backend is not None:
        backend.npx.waitall()


def serve(commands: TextIO, answers: TextIO) -> None:
    """Answer each command until the input ends."""
    order = json.loads(commands.readline())
    experiment: Experiment = getattr(importlib.import_module(order["module"]), order["class"])()
    cases: List[ServedCase] = []
    with suppress(Exception):  # the first case meets it again, and answers with it
        experiment.load()
    for line in commands:
        command, _, rest = line.strip().partition(" ")
        if command == "case":
            cases.append(ServedCase(experiment, Case(**json.loads(rest)), order["settings"]))
            continue
        answers.write((_answer(cases[int(rest)], command) if rest else json.dumps({"ok": {}})) + "\n")
        answers.flush()


def _answer(served: ServedCase, command: str) -> str:
    """The line that answers ``command``."""
    try:
        return json.dumps({"ok": getattr(served, command)()})
    except Skipped as error:
        return json.dumps({"skipped": str(error)})
    except Exception as error:
        print(f"{served.case.label}, {command}:", file=sys.stderr)
        traceback.print_exc()
        text = described(error)
    served.drop()
    if served.experiment.together:
        # MXNet raises an operator's error at the next wait, whoever waits: here, not in the next case.
        try:
            _wait()
        except Exception:
            traceback.print_exc()
    return json.dumps({"error": text})


def main() -> None:
    """Keep the real stdout for answers, and send every other print to stderr, C libraries' too."""
    die_with_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
