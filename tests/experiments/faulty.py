"""Experiments that end in every way they can. ``MXDP_EXPERIMENTS=faulty`` registers them.

They need no MXNet, but for one that asks what its late errors do.
"""

from __future__ import annotations

import atexit
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any, Mapping, NamedTuple, Sequence

from mxdp.errors import DataError
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Round, Skipped, Work, experiment


class Ready(NamedTuple):
    """What ``run`` yields first; then it yields the rounds."""

    devices: Sequence[str]
    case: Mapping[str, Any] = {}
    shared: Mapping[str, Any] = {}


def numbers(checked, wrong):
    return [([1.0] * checked, [0.0] * wrong + [1.0] * (checked - wrong), 0.0)]


class Made(Experiment):
    question = "How does it end?"
    source = "a test"
    how_to_read = "It is made up."
    compared = "ten numbers"
    presets = {name: dict(devices=[1, 2], seed=0, rounds=3, timeout=20.0) for name in ("quick", "full")}

    def cases(self, settings):
        return [Case(f"case {n}", n, settings={"bad": n == 2}) for n in settings["devices"]]

    def predict(self, settings, cores):
        return f"Nothing, on {cores} cores."

    def oracle(self, case, settings):
        return numbers(10, 0)

    def set_up(self, case, settings):
        rounds = self.run(case, settings)
        ready = next(rounds)
        return Work(ready.devices, lambda: next(rounds), case=ready.case, shared=ready.shared)

    def run(self, case, settings):
        yield Ready([f"made({i})" for i in range(case.devices)])
        for number in range(1, 100):
            if case.settings["bad"] and number == 2:
                self.go_wrong()
            yield Round(1.0 / case.devices + number / 64, {"number": number}, {"last_number": number})

    def go_wrong(self):
        """Only in those that do."""

    def finish(self, rows, references, settings):
        for row in rows:
            row.metrics["speedup"] = rows[0].median / row.median

    def answer(self, rows, references, settings):
        return "It ended well."

    def explanation(self, rows, references, settings):
        return "It is made up."

    def columns(self):
        return [Column("speedup", "speed-up", ".2f"), Column("devices", "devices")]

    def draw(self, result, figure):
        figure.add_subplot().plot([len(result["rows"])])


@experiment
class Good(Made):
    name = "made-good"


@experiment
class Hangs(Made):
    name = "made-hang"
    presets = {name: dict(devices=[1, 2], seed=0, rounds=3, timeout=3.0) for name in ("quick", "full")}

    def go_wrong(self):
        os.write(2, b"hanging\n")
        while True:
            time.sleep(1)


@experiment
class IsSlow(Made):
    """Each turn keeps the time limit; all of them together do not."""

    name = "made-slow"
    presets = {name: dict(devices=[1], seed=0, rounds=4, timeout=2.5) for name in ("quick", "full")}

    def run(self, case, settings):
        for made in super().run(case, settings):
            time.sleep(1)
            yield made


@experiment
class FailsAndHangs(Hangs):
    name = "made-fail-and-hang"

    def run(self, case, settings):
        for made in super().run(case, settings):
            if not case.settings["bad"]:
                raise RuntimeError("out of luck")
            yield made


@experiment
class IsKilled(Made):
    name = "made-kill"

    def go_wrong(self):
        os.kill(os.getpid(), signal.SIGKILL)


@experiment
class Raises(Made):
    name = "made-raise"

    def go_wrong(self):
        raise RuntimeError("out of luck")


@experiment
class Explains(Made):
    name = "made-explain"

    def go_wrong(self):
        raise DataError("the data are gone: put them back")


@experiment
class Exits(Made):
    name = "made-exit"

    def go_wrong(self):
        os.write(2, b"glibc says goodbye\n")
        os._exit(7)


@experiment
class Segfaults(Made):
    name = "made-segfault"

    def go_wrong(self):
        os.kill(os.getpid(), signal.SIGSEGV)


@experiment
class DiesOfARealTimeSignal(Made):
    name = "made-real-time"

    def go_wrong(self):
        os.kill(os.getpid(), signal.SIGRTMIN + 3)


@experiment
class HasATimeThatIsNone(Made):
    name = "made-nan"

    def run(self, case, settings):
        for made in super().run(case, settings):
            bad = case.settings["bad"] and getattr(made, "metrics", {}).get("number") == 2
            yield Round(math.nan) if bad else made


@experiment
class MeasuresNaN(Made):
    """Its metric is one that diverged, and its columns are what the experiment's author got wrong."""

    name = "made-nan-metric"

    def run(self, case, settings):
        yield Ready(["made(0)"])
        while True:
            yield Round(1.0, {"loss": math.nan, "all": [1.0, math.inf]})

    def columns(self):
        raise RuntimeError("no columns")


@experiment
class CannotPredict(Made):
    name = "made-no-prediction"

    def predict(self, settings, cores):
        raise KeyError("rate")


@experiment
class SpoilsItsRows(Made):
    name = "made-spoilt"

    def finish(self, rows, references, settings):
        for row in rows:
            row.metrics = None


@experiment
class StartsOthers(Made):
    """Both cases start a process that would stay for an hour; one ends well, the other dies."""

    name = "made-parent"

    def go_wrong(self):
        os._exit(7)

    def run(self, case, settings):
        started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        for made in super().run(case, settings):
            yield Ready(made.devices, {"started": started.pid}) if isinstance(made, Ready) else made


@experiment
class EndsByItself(Made):
    """It says so in its log."""

    name = "made-end"

    def run(self, case, settings):
        atexit.register(os.write, 2, b"the end\n")
        yield from super().run(case, settings)


@experiment
class HasLabelsAlike(Made):
    name = "made-alike"

    def cases(self, settings):
        return [Case(label, settings={"bad": False}) for label in ("a + b", "a - b", "+")]

    def oracle(self, case, settings):
        os.write(2, case.label.encode())
        return super().oracle(case, settings)


@experiment
class IsWrong(Made):
    name = "made-wrong"

    def oracle(self, case, settings):
        return numbers(10, 3 if case.settings["bad"] else 0)


@experiment
class ChecksNothing(Made):
    name = "made-unchecked"

    def oracle(self, case, settings):
        return numbers(0 if case.settings["bad"] else 10, 0)


@experiment
class Prints(Made):
    name = "made-print"

    def run(self, case, settings):
        print("this is not an answer", flush=True)
        os.write(1, b"nor is this, from C\n")
        yield from super().run(case, settings)


@experiment
class InTwos(Made):
    """Each case in two processes; the slower one counts, which is now one and now the other."""

    name = "made-twos"

    def cases(self, settings):
        return [Case("together", processes=2, settings={"bad": False})]

    def oracle(self, case, settings):
        return numbers(10, 3 if case.process == settings.get("wrong_in") else 0)

    def run(self, case, settings):
        yield Ready([f"made({case.process})"], {"pid": os.getpid()})
        for number in range(1, 100):
            yield Round(2.0 + (number + case.process) % 2)


@experiment
class ShowsItsEnvironment(Made):
    name = "made-environment"

    def cases(self, settings):
        changed = {"OMP_NUM_THREADS": "3", "MXDP_TEST_GONE": None}
        return [Case("plain", settings={"bad": False}), Case("changed", settings={"bad": False}, environment=changed)]

    def run(self, case, settings):
        names = ("OMP_NUM_THREADS", "MXNET_CPU_TEMP_COPY", "MXDP_TEST_GONE")
        yield Ready(["made(0)"], {name: os.environ.get(name) for name in names})
        while True:
            yield Round(1.0)


@experiment
class Shares(Made):
    """Each case in a child of its own, which has only what it is told."""

    name = "made-shared"

    def cases(self, settings):
        return [Case(f"case {n}", settings={"bad": False, "number": n}) for n in (1, 2, 3)]

    def oracle(self, case, settings):
        if case.settings["number"] == settings.get("fails"):
            raise DataError("no data")
        return super().oracle(case, settings)

    def run(self, case, settings):
        yield Ready(["made(0)"], {"pid": os.getpid()}, {"found_by": case.settings.get("found_by", case.label)})
        while True:
            yield Round(1.0)


class Light(Made):
    """Four cases in one child. ``turns``: the labels of all rounds so far, of whatever case."""

    together = True
    presets = {name: dict(devices=[1, 2, 3, 4], seed=0, rounds=3, timeout=20.0) for name in ("quick", "full")}

    def __init__(self):
        self.turns = []

    def run(self, case, settings):
        yield Ready(["made(0)"], {"pid": os.getpid(), "process": case.process})
        for number in range(1, 100):
            if case.settings["bad"] and number == 2:
                self.go_wrong()
            self.turns.append(case.label)
            yield Round(1.0 / case.devices, {"turns": list(self.turns)})


@experiment
class LightGood(Light):
    name = "made-light-good"


@experiment
class LightMixed(Light):
    """Three environments, two of which differ in a variable's value, and one case in two processes."""

    name = "made-light-mixed"

    def cases(self, settings):
        other = {"MXDP_TEST_LIGHT": "other"}
        return [
            Case("a", settings={"bad": False}),
            Case("b", settings={"bad": False}, environment=other),
            Case("in twos", processes=2, settings={"bad": False}),
            Case("c", settings={"bad": False}),
            Case("d", settings={"bad": False}, environment=dict(other)),
            Case("e", settings={"bad": False}, environment={"MXDP_TEST_LIGHT": "third"}),
        ]

    def run(self, case, settings):
        os.write(2, f"{case.label}: {os.environ.get('MXDP_TEST_LIGHT')}\n".encode())
        yield from super().run(case, settings)


@experiment
class LightRaises(Light):
    name = "made-light-raise"
    go_wrong = Raises.go_wrong


@experiment
class LightAllRaise(Light):
    name = "made-light-all-raise"

    def oracle(self, case, settings):
        raise DataError(f"no data in {os.getpid()}" if case.devices == 3 else "no data")


@experiment
class LightExits(Light):
    name = "made-light-exit"

    def go_wrong(self):
        os._exit(7)


@experiment
class LightHangs(Light):
    name = "made-light-hang"
    presets = {name: {**preset, "timeout": 3.0} for name, preset in Light.presets.items()}
    go_wrong = Hangs.go_wrong


@experiment
class LightDiesEarly(Light):
    name = "made-light-early"

    def oracle(self, case, settings):
        if case.settings["bad"]:
            os._exit(7)
        return super().oracle(case, settings)


@experiment
class LightIsSlow(Light):
    """Each case keeps its time limit; all of them together would not."""

    name = "made-light-slow"
    presets = LightHangs.presets

    def oracle(self, case, settings):
        time.sleep(0.8)
        return super().oracle(case, settings)


@experiment
class LightIsWrong(Light):
    name = "made-light-wrong"
    oracle = IsWrong.oracle


@experiment
class LightSaysWhatJsonCannot(Light):
    """Its bad case ends in the child's answer, with ``run`` still open."""

    name = "made-light-json"

    def run(self, case, settings):
        yield Ready(["made(0)"])
        try:
            while True:
                yield Round(1.0, {"turns": list(self.turns), "bad": object() if case.settings["bad"] else None})
        finally:
            self.turns.append(f"{case.label} was closed")


@experiment
class LightFailsLate(Light):
    """The bad case leaves an operator to MXNet that will raise, and MXNet does so at the next wait of any case."""

    name = "made-light-late"
    presets = {name: {**preset, "timeout": 60.0} for name, preset in Light.presets.items()}

    def run(self, case, settings):
        from mxdp.backend import np, npx

        yield Ready(["cpu(0)"])
        while True:
            if case.settings["bad"]:
                np.random.normal(0, -1, (3, 3))
                raise RuntimeError("out of luck")
            npx.waitall()
            yield Round(1.0)


@experiment
class Claims(Made):
    """Every third process is on the wrong side, until there were more than ``settings["seed"]``."""

    name = "made-claims"
    presets = {
        name: dict(devices=[1, 2], seed=6, rounds=1, repeats=6, timeout=20.0, looks=3) for name in ("quick", "full")
    }
    claims = {"fast": Claim("At most 2.", "a test", 2.0)}

    def run(self, case, settings):
        yield Ready([f"made({i})" for i in range(case.devices)])
        for number in range(1, 100):
            yield Round(1.0, {"number": number, "process": os.getpid(), "begun": case.settings["repeat"]})

    def finish(self, rows, references, settings):
        for row in rows[1:]:
            processes = row.rounds["repeat"]
            few = len(set(processes)) <= settings["seed"]
            row.rounds["fast"] = [3.0 if n % 3 == 0 and few else 1.0 for n in processes]


@experiment
class HereAndThere(Made):
    """Of its cases one needs a module, and another one a machine that this is not."""

    name = "made-here-and-there"

    def cases(self, settings):
        one, two, three = super().cases({**settings, "devices": [1, 2, 3]})
        return [replace(one, needs={"no_such_module": "`pip install it`"}), two, three]

    def set_up(self, case, settings):
        if case.settings["bad"]:
            raise Skipped("there is no GPU")
        return super().set_up(case, settings)
