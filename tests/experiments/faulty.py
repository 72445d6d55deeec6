"""Experiments that end in every way they can. They need no MXNet; ``MXDP_EXPERIMENTS=faulty`` registers them."""

from __future__ import annotations

import os
import signal
import time

from mxdp.errors import DataError
from mxdp.experiments.compare import metric, ratio
from mxdp.experiments.registry import Case, Column, Experiment, Oracle, Ready, Round, Verdict, experiment


class Made(Experiment):
    question = "How does it end?"
    source = "a test"
    how_to_read = "It is made up."
    presets = {name: dict(devices=[1, 2], seed=0, rounds=3, timeout=20.0) for name in ("quick", "full")}

    def cases(self, settings):
        return [Case(f"case {n}", n, settings={"bad": n == 2}) for n in settings["devices"]]

    def predict(self, settings, cores):
        return f"Nothing, on {cores} cores."

    def oracle(self, case, settings):
        return Oracle(10, 0, "ten numbers")

    def run(self, case, settings):
        yield Ready([f"made({i})" for i in range(case.devices)])
        for number in range(1, 100):
            if case.settings["bad"] and number == 2:
                self.go_wrong()
            yield Round(1.0 / case.devices + number / 64, {"number": number})

    def go_wrong(self):
        """Only in those that do."""

    def finish(self, rows, references, settings):
        for row in rows:
            row["metrics"]["speedup"] = ratio(rows[0], row)

    def verdict(self, rows, references, settings):
        return Verdict(True, "It ended well.")

    def columns(self):
        return [metric("speedup", "speed-up"), Column("devices", lambda row: ", ".join(row["case"]["devices"]))]

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
        while True:
            time.sleep(1)


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
class IsWrong(Made):
    name = "made-wrong"

    def oracle(self, case, settings):
        return Oracle(10, 3 if case.settings["bad"] else 0, "ten numbers")


@experiment
class ChecksNothing(Made):
    name = "made-unchecked"

    def oracle(self, case, settings):
        return Oracle(0 if case.settings["bad"] else 10, 0)


@experiment
class Prints(Made):
    name = "made-print"

    def run(self, case, settings):
        print("this is not an answer", flush=True)
        os.write(1, b"nor is this, from C\n")
        yield from super().run(case, settings)


@experiment
class InTwos(Made):
    """Each case in two processes; the slower one counts."""

    name = "made-twos"

    def cases(self, settings):
        return [Case("together", processes=2, settings={"bad": False})]

    def run(self, case, settings):
        yield Ready([f"made({case.process})"], {"pid": os.getpid()})
        while True:
            yield Round(2.0)


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
