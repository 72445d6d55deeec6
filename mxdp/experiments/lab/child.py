"""One process of a measurement: ``python -m mxdp.experiments.lab.child ORDER``.

``ORDER`` is a JSON file: the module, its settings, the cases that share this process, and what to do with them. The
process answers by lines of JSON in a file beside it, each with the index of its case, as it goes::

    {"case": 0, "doing": "measuring round 1"}    what took too long, or crashed, if nothing comes after it
    {"case": 0, "oracle": {"checked": 80, "wrong": 0}}
    {"case": 0, "ready": {...}}                  set up: devices, facts, variables
    {"case": 0, "round": {"seconds": 1.2}}       of each round: all cases take turns
    {"case": 0, "timeline": {...}}               one more round, recorded
    {"case": 0, "failed": [1.5, "..."]}          when, and why; or "skipped": this case alone; the others go on

If several processes work on one case, one that fails ends, so that all are ended. All prints go into the log.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Callable, Dict

from mxdp import process
from mxdp.backend import npx
from mxdp.errors import MxdpError, described, without_exit
from mxdp.experiments.devices import devices_of
from mxdp.experiments.lab import ranks
from mxdp.experiments.lab.module import Case, Settings, Skipped, Work
from mxdp.experiments.lab.result import plain
from mxdp.experiments.lab.rows import Record
from mxdp.experiments.oracle import count
from mxdp.experiments.timelines import recorded
from mxdp.launch.guard import die_with_parent


class Child:
    """What one process does, and where it answers."""

    def __init__(self, order: Record, path: Path) -> None:
        self.order = order
        with without_exit():
            self.question = importlib.import_module(order["module"])
        self.settings = Settings(order["settings"])
        self.works: Dict[int, Work] = {}
        self.cases = [Case(**record) for record in order["cases"]]
        self.size = self.cases[0].processes
        self.rank = ranks.rank(self.cases[0].engine)
        for index, case in enumerate(self.cases):
            case.process = self.rank
            case.number = order["number"]
            case.draw = order["draw"]
            case.folder = order["folders"][index]
            os.makedirs(case.folder, exist_ok=True)
            if self.size > 1:
                case.share = ranks.sharing(path.with_name(f"shared-{index}"), self.rank, self.size)
        self._answers = path.with_name(f"answer-{self.rank}").open("a", encoding="utf-8")

    def measure(self) -> None:
        """Oracle and warm-up of every case, rounds in turn, a recording. A case that fails is left out."""
        compare = self.order["compare"]
        for index in range(len(self.cases)):
            if not compare or self._do(index, "comparing with the serial run", self._compare):
                self._do(index, "setting up and warming up", self._set_up)
        for number in range(self.order["rounds"]):
            for index in list(self.works):
                self._do(index, f"measuring round {number + 1}", self._round)
        for index in list(self.works):
            if compare and self.works[index].record:
                self._do(index, "recording one more run", self._record)
            self.works.pop(index, None)  # the next recording may need the memory

    def _do(self, index: int, doing: str, action: Callable[[int, Case], Any]) -> bool:
        """Do it for the case, and answer; False if that failed."""
        case = self.cases[index]
        self._answer(case=index, doing=doing)
        try:
            with without_exit():
                action(index, case)
            return True
        except Skipped as error:
            self._answer(case=index, skipped=str(error))
        except Exception as error:
            print(f"{case.label}, {doing}:", file=sys.stderr)
            traceback.print_exc()
            why = f"{described(error)} (while {doing})"
            if self.size > 1:
                why = f"process {self.rank} of {self.size}: {why}"
            self._answer(case=index, failed=[time.time(), why])
        if self.size > 1:
            sys.stderr.flush()
            os._exit(1)  # at a usual end it might wait for the others
        self.works.pop(index, None)  # other cases may need the memory
        try:
            wait()  # MXNet raises an operator's error at the next wait, whoever waits: here, not in the next case
        except Exception:
            traceback.print_exc()
        return False

    def _answer(self, **line: Any) -> None:
        self._answers.write(json.dumps(plain(line)) + "\n")
        self._answers.flush()

    def _compare(self, index: int, case: Case) -> None:
        checked, wrong = count(self.question.oracle(case, self.settings))
        self._answer(case=index, oracle={"checked": checked, "wrong": wrong})
        if wrong:
            raise MxdpError(
                f"{wrong:,} of {checked:,} numbers differ from the serial run, so it was not timed"
            )
        if not checked:
            raise MxdpError("nothing was compared with the serial run, so it was not timed")

    def _set_up(self, index: int, case: Case) -> None:
        work = self.question.set_up(case, self.settings)
        self.works[index] = work
        if work.devices is None:
            work.devices = devices_of(case, self.settings)
        ready = dict(devices=work.devices, facts=work.facts, variables=process.describe())
        self._answer(case=index, ready=ready)

    def _round(self, index: int, case: Case) -> None:
        wait()
        case.share()
        started = time.perf_counter()
        done = self.works[index].round()
        wait()
        seconds = time.perf_counter() - started
        more: Record = {}
        if isinstance(done, tuple):
            seconds, more = done
        elif done is not None:
            seconds = done
        if not 0 <= seconds < math.inf:
            raise MxdpError(f"it took {seconds} seconds; a time is finite and not negative")
        self._answer(case=index, round={**more, "seconds": seconds})

    def _record(self, index: int, case: Case) -> None:
        work = self.works[index]
        work.prepare()
        self._answer(case=index, timeline=recorded(work.record, work.devices or []))


def wait() -> None:
    """Wait for all devices, if MXNet is loaded."""
    if "mxnet" in sys.modules:
        npx.waitall()


if __name__ == "__main__":
    die_with_parent()
    os.dup2(2, 1)  # all prints go to the log, C libraries' too
    order = Path(sys.argv[1])
    Child(json.loads(order.read_text("utf-8")), order).measure()
