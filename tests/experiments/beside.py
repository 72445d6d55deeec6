"""The processes that a question starts, stood in for by this one: who trains elsewhere gives known answers."""

import json
import os
import pickle
import runpy
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as onp

from mxdp.collectives import tuning
from mxdp.experiments import memory_use
from mxdp.experiments.data_parallel import (
    batch_scaling,
    epochs,
    lenet_steps,
    normed_lenet,
    parallel_evaluation,
    silent_bugs,
    uneven,
)
from mxdp.experiments.lab import child, result, run
from mxdp.experiments.many_processes import hosts, less_traffic, lost_worker
from mxdp.experiments.timelines import timeline_shares
from mxdp.parallel import layer_costs
from mxdp.plans.cost.machine import CPU
from mxdp.processes import World
from mxdp.scratch import evaluate
from mxdp.tracing import Event, Timeline
from mxdp.tracing.where import TimeSplit

NO_CABLE = dict(rate=10_000, delay=0.0)
WORK = Timeline(8.0, (Event("cpu(0)", "dot", "compute", 0.0, 8.0),))
EVALUATING = (batch_scaling, epochs, less_traffic, normed_lenet)
STEPS = 10
"""Of a training that loses a worker after half of them, and makes three of these once more."""


LIKE_ANY = onp.random.RandomState(1)
"""Draws what goes through layers whose time is measured: it may be the same in each run."""


class Beside(World):
    """Rank 0. The others have the same, but take twice as long. A byte takes ``8 / rate`` seconds of the clock: they
    stand for microseconds."""

    def __init__(self, size, clock, cable):
        super().__init__()
        self.size, self.clock, self.cable = size, clock, cable

    def carry(self, nbytes):
        self.clock.seconds += 8 * nbytes / self.cable["rate"] + 1e6 * self.cable["delay"]

    def sum(self, arrays, note=None):
        self.carry(sum(4 * array.size for array in arrays))

    def gather(self, value):
        if isinstance(value, list):
            self.carry(len(pickle.dumps(value, 4)))
        return [value, *[2 * value if isinstance(value, float) else value] * (self.size - 1)]


@contextmanager
def two_hosts(_):
    yield SimpleNamespace(inside=[], options=[], environ={}, names=[], cable=lambda state: None)


def start_here(monkeypatch, clock):
    """From now on nothing is started. What ``hosts.launched`` starts runs here, as rank 0. A launcher notices a silent
    worker after its ``--silent-after``. A bug learns an eighth in each epoch. What is recorded took 8 s. Accuracy is
    a thousandth of the test samples."""
    cable = dict(NO_CABLE)

    def passes(seconds):
        clock.seconds += seconds

    @contextmanager
    def slow_cable(_, rate, delay):
        cable.update(rate=rate, delay=delay)
        yield
        cable.update(NO_CABLE)

    def start(command, **_):
        size = int(command[command.index("-n") + 1])
        *_, module, folder = command
        monkeypatch.setattr(hosts, "world", lambda: Beside(size, clock, cable))
        monkeypatch.setattr(sys, "argv", [module, folder])
        sys.modules.pop(module, None)
        runpy.run_module(module, run_name="__main__")
        for rank in range(1, size):
            shutil.copy(f"{folder}/rank.0", f"{folder}/rank.{rank}")
        return subprocess.CompletedProcess(command, 0)

    def heard(command, environ, then):
        *_, folder, order = command
        s = json.loads(order)
        if s["harm"]:
            Path(folder, "harmed").write_text("100.0")
        for rank in range(s["workers"]):
            made = STEPS - s["at"] + 3 if s["harm"] else STEPS
            hosts.write(Path(folder), rank, {"steps": made, "bits": [rank and s["harm"] == "stopped"]})
        silent = s["harm"] in ("stopped", "cut off")
        return 100.25 + float(command[command.index("--silent-after") + 1]) * silent

    @contextmanager
    def by_engine(engine, workers, s, harm):
        yield list(range(workers))

    def train_version(case, data, s, devices, epochs, seed, right):
        from mxdp.backend import devices as numbered
        from mxdp.backend import np

        onp.random.RandomState(seed)
        passes(len(data.train))
        replicas = [[np.ones(2, ctx=device)] for device in numbered(devices)]
        return replicas, [(1 + part) / 8 for part in range(epochs)], None

    def split(step, steps, devices):
        for _ in range(steps):
            step()
        return TimeSplit(0.5, 0.25, 0.125, wall_clock=8.0 / steps, timeline=WORK, on_processor=0.75)

    def waited(first, seconds):
        passes(seconds)
        return [], first

    for module, name, stand_in in (
        (hosts, "two_hosts", two_hosts),
        (hosts, "slow_cable", slow_cable),
        (hosts, "subprocess", SimpleNamespace(run=start, PIPE=subprocess.PIPE)),
        (lost_worker, "heard", heard),
        (lost_worker, "two_hosts", two_hosts),
        (lost_worker, "by_engine", by_engine),
        (lost_worker, "os", SimpleNamespace(kill=lambda pid, signal: passes(pid), environ=os.environ)),
        (lost_worker, "time", SimpleNamespace(sleep=passes, monotonic=lambda: clock.seconds)),
        (lost_worker, "psutil", SimpleNamespace(pid_exists=bool, Process=int, wait_procs=waited)),
        (silent_bugs, "train_version", train_version),
        (silent_bugs, "WRONG", {}),  # what oracles found before
        (silent_bugs, "subprocess", SimpleNamespace(run=lambda *_, **__: passes(7) or SimpleNamespace(returncode=1))),
        (uneven, "_thread_of", lambda *_: 1),
        (uneven, "atexit", SimpleNamespace(register=lambda _: None)),
        (uneven, "subprocess", SimpleNamespace(Popen=lambda _: SimpleNamespace(pid=1, wait=None, kill=None))),
        *((module, "evaluate", lambda data, *_, **__: len(data) / 1e3) for module in EVALUATING),
        (parallel_evaluation, "evaluate", lambda data, *given: evaluate(data, *given) and len(data) / 1e3),
        (tuning, "BY_MAKER", {}),  # "auto" chooses as on a processor of no known maker
        (memory_use, "gc", SimpleNamespace(collect=int)),  # what a test's process has takes long to collect
        (layer_costs, "onp", SimpleNamespace(random=SimpleNamespace(RandomState=lambda _: LIKE_ANY))),
        (os, "sched_getaffinity", lambda _: {0, 1, 2, 3}),
        (os, "sched_setaffinity", lambda *_: None),
        (lenet_steps, "where_the_time_went", split),
    ):
        monkeypatch.setattr(module, name, stand_in, raising=False)
    for name, module in list(sys.modules.items()):
        if name.startswith("mxdp.experiments.") and hasattr(module, "WARM_UP"):
            monkeypatch.setattr(module, "WARM_UP", 2)


def rounds_of(question, settings, folder, monkeypatch, clock):
    """What two rounds of each case of one process give, of its second process in a run of draw 3. Before them stand the
    facts, devices, environment, and of what is recorded the calls and their time by the clock, with a last wait."""
    from mxdp.backend import mx

    found = {}

    def answer(process, case, **line):
        line = json.loads(json.dumps(result.plain(line)))
        assert "failed" not in line
        if "ready" in line:
            found[process.cases[case].label] = [{**line["ready"]["facts"], "on": line["ready"]["devices"]}]
        if "round" in line:
            known = found[process.cases[case].label]
            known.append(line["round"])
            work = process.works[case]
            if len(known) == 3 and work.record:
                work.prepare()
                child.wait()
                before = clock.calls, clock.seconds
                work.record()
                child.wait()
                known[0]["recorded"] = [clock.calls - before[0], clock.seconds - before[1]]

    monkeypatch.setattr(child.Child, "_answer", answer)
    for part, stand_in in {
        "calibrate": lambda *_: CPU,
        "calibrated": lambda *_: CPU,
        "begin_anywhere": lambda *_: None,
        "recorded": lambda action, devices: action() or timeline_shares(WORK),
    }.items():  # they have tests of their own
        if hasattr(question.module, part):
            monkeypatch.setattr(question.module, part, stand_in)
    start_here(monkeypatch, clock)
    whole = run.Run(question, "quick", settings, folder)
    whole.draw = 3
    whole.begin()
    # MXNet's store shares its sums out in the order of the parameters' names, in which Gluon counts.
    with mx.name.NameManager():
        for group in whole.groups():
            if group[0].processes == 1:
                child.Child(whole.order(1, group, folder), folder / "order").measure()
                for case in group:
                    found[case.label][0]["environment"] = case.environment
    return found
