"""A worker is lost in the middle of a training: who notices, when, and what is lost?

A worker can die (killed, out of memory), stop without dying, or be cut off with its machine: then its connections stay
open, and it says nothing. What the others do depends on the engine. ``python -m mxdp.launch`` ends the job by MPI's
``mpiexec``, and a guard beside each rank tells when it has stopped; with ``--restarts`` it starts all ranks again, and
:func:`mxdp.train` goes on from its last checkpoint. MXNet's ``dist_sync`` waits for the worker's gradients. Horovod's
launcher ends the job when a process dies. With these two somebody has to notice, and must have kept checkpoints.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path

import numpy as onp
import psutil

from mxdp.errors import MxdpError, plural
from mxdp.experiments import sources
from mxdp.experiments.lab import Case, Settings, Work, ranks
from mxdp.experiments.lab.ranks import HOROVOD, MPI, SYNC, WORDS, running
from mxdp.experiments.many_processes import victim
from mxdp.experiments.many_processes.hosts import two_hosts, written
from mxdp.experiments.many_processes.victim import CUT_OFF, KILLED, STOPPED

SOURCE = f"exercise 3 of {sources.PARAMETER_SERVERS}; {sources.LOST}"
COMPARED = "parameters of the processes of an undisturbed training, with each other, bit for bit"
TOGETHER = True
COMMON = dict(
    devices=[2],
    kind="cpu",
    data="synthetic",
    data_dir=None,
    batch_size=20,
    lr=0.3,
)
EVERY = f"{MPI},{SYNC},{HOROVOD}"
PRESETS = {
    "quick": dict(
        COMMON, timeout=600.0, samples=400, silent=2.0, wait=3.0, engines=f"{MPI},{SYNC}"
    ),
    "full": dict(
        COMMON,
        timeout=600.0,
        samples=400,
        silent=3.0,
        wait=8.0,
        engines=EVERY,
    ),
}
CHECKS = {
    "devices": (lambda counts: min(counts) > 1, "2 or more, since one process is lost"),
    "engines": (lambda engines: {*engines.split(",")} <= {*EVERY.split(",")}, f"of {EVERY}"),
}
LITTLE = dict(
    samples=100,
    silent=2.0,
    wait=0.5,
    engines=EVERY,
)
WITHIN = 30


def cases(s):
    for n in s.devices:
        for harm in (KILLED, STOPPED, CUT_OFF):
            for by in (MPI, SYNC, HOROVOD):
                if by in s.engines.split(",") and (by == MPI or harm != CUT_OFF):
                    needs = ranks.NEEDS.get(by, {})
                    label = f"{harm}: {WORDS[by]}"
                    yield Case(label, n, needs=needs, by=by, workers=n, harm=harm)


def expect(s, cores):
    return f"""A connection that closes is noticed at once, a silent one only by asking. mxdp's launcher names a killed
        worker within 2 s, and one that is stopped or cut off after its --silent-after, here {s.silent:g} s. dist_sync
        notices none."""


def oracle(case, s):
    """Compare the processes of an undisturbed training, by the launcher; by another engine, as ``machines`` does."""
    if case.by == MPI:
        (first, *others), _ = undisturbed(case.workers, json.dumps(s))
        for bits in others:
            yield onp.array(bits), onp.array(first), 0.0
    else:
        yield from compared_by(case.by, case.workers, json.dumps(s))


def set_up(case, s):
    """A round is one training of which the last process is lost in the middle. Its time is that until the engine ends
    the job or raises an error in the first process; where it did neither, how long we waited."""
    lost = lost_by_launcher if case.by == MPI else lost_by_engine
    return Work(partial(lost, case, s), ["cpu"] * case.workers)


def lost_by_engine(case, s):
    """The engine as it comes, which starts nothing again."""
    with by_engine(case.by, case.workers, s, case.harm) as pids:
        time.sleep(0.5)
        started = time.monotonic()
        os.kill(pids[-1], victim.SIGNALS[case.harm])
        first = [psutil.Process(pids[0])] if psutil.pid_exists(pids[0]) else []
        _, left = psutil.wait_procs(first, s.wait)
        noticed = not left
        seconds = time.monotonic() - started
    return seconds, {"noticed": noticed, "lost": None, "same": False}


@lru_cache(maxsize=None)
def compared_by(engine, workers, settings_words):
    """What all processes of another engine than mxdp's compare: trained once for the oracles of all its cases."""
    with by_engine(engine, workers, Settings(json.loads(settings_words)), "") as of_processes:
        return [arrays for compared in of_processes for arrays in compared]


@contextmanager
def by_engine(engine, workers, s, harm):
    """Processes of an engine other than mxdp's, which train until the block's end, and what each has written first."""
    with tempfile.TemporaryDirectory(prefix="mxdp-lost-") as name:
        folder = Path(name)
        command = _command(workers, engine, s, folder, harm, 0)
        started, servers = ranks.commands(engine, workers, command, os.environ)
        with running([*started, *servers], 2) as every:
            while len(list(folder.glob("rank.*"))) < workers:
                for process in every:
                    status = process.poll()
                    if status is not None:
                        raise MxdpError(f"a process of {WORDS[engine]} ended with status {status}")
                time.sleep(0.02)
            yield written(folder, workers)


@lru_cache(maxsize=None)
def undisturbed(workers, settings_words):
    """The bits of each process, and the number of steps: trained once for the oracles and rounds of all cases."""
    with tempfile.TemporaryDirectory(prefix="mxdp-lost-") as folder:
        _, found = launch(workers, Settings(json.loads(settings_words)), Path(folder), "", 0)
    return [rank["bits"] for rank in found], found[0]["steps"]


def lost_by_launcher(case, s):
    """``mxdp.launch`` with one restart, and :func:`mxdp.train` with checkpoints."""
    expected, steps = undisturbed(case.workers, json.dumps(s))  # known since the oracle
    with tempfile.TemporaryDirectory(prefix="mxdp-lost-") as name:
        folder = Path(name)
        at = steps // 2
        noticed, found = launch(case.workers, s, folder, case.harm, at)
        seconds = noticed - float((folder / "harmed").read_text())
    lost = at - (steps - found[-1]["steps"])
    same = [rank["bits"] for rank in found] == expected
    return seconds, {"noticed": True, "lost": lost, "same": same}


def launch(workers, s, folder, harm, at):
    """Train by the launcher, to the end. Returns when it said that a rank is lost (``time.time``), and what each rank
    wrote."""
    options = ["-n", str(workers), "--restarts", "1", "--silent-after", str(s.silent)]
    command = [sys.executable, "-m", "mxdp.launch", *options]
    training = ["--", *_command(workers, MPI, s, folder, harm, at)]
    if harm == CUT_OFF:
        with two_hosts(folder) as hosts:
            command = [*hosts.inside, *command, *hosts.options, *training]
            noticed = heard(command, hosts.environ, lambda: hosts.cable("up"))
    else:
        noticed = heard([*command, *training], os.environ, lambda: None)
    return noticed, written(folder, workers)


def _command(workers, by, s, folder, harm, at):
    order = dict(s, by=by, workers=workers, harm=harm, at=at)
    return [sys.executable, "-m", victim.__name__, str(folder), json.dumps(order)]


def heard(command, environ, then):
    """Run a launcher to its end, and do ``then`` when it says that a rank is lost. Returns when that was."""
    noticed = 0.0
    lines = []
    with subprocess.Popen(
        command,
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as launcher:
        for line in launcher.stderr or ():
            lines.append(line)
            if line.startswith("mxdp.launch: rank "):
                noticed = time.time()
                then()
    if launcher.returncode:
        raise MxdpError(
            f"the training ended with status {launcher.returncode}: {''.join(lines[-5:])}"
        )
    return noticed


def tell(t, s):
    ours = t.find(by=MPI)
    words = (
        f"mxdp's launcher notices a worker that is killed, stopped or cut off within {WITHIN} s."
    )
    t.claim(words, *(row.seconds for row in ours), at_most=WITHIN)
    words = "Started again by the launcher, the training ends with the bits of an undisturbed one."
    t.claim(words, *(row.same for row in ours), at_least=1, exact=True)
    for row in t.rows:
        row.noticed = all(row.noticed.values)
        row.same = all(row.same.values)
    t.column(
        "seconds",
        form=".1f",
        spread=True,
        about="until the engine ends the job or raises an error elsewhere",
    )
    t.column("noticed", about="no: it did neither, and the seconds are how long we waited")
    t.column("lost", form=".0f", about="steps that are done again")
    t.column(
        "same", about="the training ended with the parameters of an undisturbed one, bit for bit"
    )
    t.note("""In the middle of a training the last process is killed (SIGKILL), stopped (SIGSTOP) or cut off: the cable
        between two network namespaces, which stand for hosts, goes down until the launcher has noticed.""")
    deaf = [row.label for row in t.rows if not row.noticed]
    if deaf:
        t.explain(f"Not noticed within {s.wait:g} s: {'; '.join(deaf)}.")
    t.bars(title="Until it is noticed, or until we waited no longer", colour="noticed")
    if not ours:
        return t.answer("Without MPI, nothing was measured of mxdp's launcher.")
    killed = t.find(by=MPI, harm=KILLED)[-1]
    slowest = max(ours, key=lambda row: row.seconds.median)
    lost = [steps for row in ours for steps in row.lost.different]
    steps = plural(round(max(lost)), "step")
    if min(lost) < max(lost):
        steps = f"{min(lost):.0f} to {steps}"
    t.answer(f"""mxdp's launcher notices a killed worker after {killed.seconds:.2f} s and one that falls silent after
        {slowest.seconds:.1f} s; the training then repeats {steps}.""")
