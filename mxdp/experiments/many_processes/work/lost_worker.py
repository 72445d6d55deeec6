"""Runs trainings, loses a worker of each, and waits to see who notices."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import numpy as onp

from mxdp.experiments.harness.exchanges import MPI
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.many_processes.lost_worker import CUT_OFF
from mxdp.experiments.many_processes.work import machines, victim
from mxdp.experiments.many_processes.work.hosts import two_hosts
from mxdp.launch import __main__ as launcher

ENDLESS = 10**6
"""Steps of a training that does not end by itself."""


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """By the launcher: the processes of an undisturbed training. By another engine: as ``machines``."""
    if case.settings["engine"] != MPI:
        yield from machines.oracle(case, settings)
        return
    (first, *others), _ = undisturbed(case.settings["processes"], json.dumps(settings))
    for bits in others:
        yield onp.array(bits), onp.array(first), 0.0


def set_up(case: Case, settings: Settings) -> Work:
    """A round is one training that loses a worker in the middle."""
    names = ["cpu"] * case.settings["processes"]
    if case.settings["engine"] != MPI:
        return Work(names, lambda: by_engine(case, settings))
    expected, steps = undisturbed(case.settings["processes"], json.dumps(settings))
    return Work(names, lambda: by_launcher(case, settings, expected, steps))


def by_engine(case: Case, settings: Settings) -> Round:
    """The engine as it comes, which starts nothing again."""
    with machines.crew(case, settings) as ranks:
        ranks.ask("train", 5)
        ranks.begin("train", ENDLESS)
        time.sleep(0.5)
        started = time.monotonic()
        os.kill(ranks.pids[-1], victim.SIGNALS[case.settings["harm"]])
        noticed = ranks.ranks[0].poll(settings["wait"])
        seconds = time.monotonic() - started
        ranks.kill()
    return Round(seconds, {"noticed": noticed, "lost": None, "same": False})


@functools.lru_cache(maxsize=None)
def undisturbed(processes: int, settings_words: str) -> Tuple[List[List[int]], int]:
    """The bits of each process, and the number of steps: trained once for the oracles and rounds of all cases."""
    case, settings = Case("", settings={"processes": processes, "harm": ""}), json.loads(settings_words)
    with tempfile.TemporaryDirectory(prefix="mxdp-lost-") as name:
        launch(case, settings, Path(name), "", 0)
        found = results(Path(name), case)
    return [each["bits"] for each in found], found[0]["steps"]


def by_launcher(case: Case, settings: Settings, expected: List[List[int]], steps: int) -> Round:
    """``mxdp.launch`` with one restart, and :func:`mxdp.train` with checkpoints."""
    with tempfile.TemporaryDirectory(prefix="mxdp-lost-") as name:
        folder, at = Path(name), steps // 2
        noticed = launch(case, settings, folder, case.settings["harm"], at)
        found = results(folder, case)
        seconds = noticed - float((folder / "harmed").read_text())
    lost = at - (steps - found[-1]["steps"])
    return Round(seconds, {"noticed": True, "lost": lost, "same": [each["bits"] for each in found] == expected})


def launch(case: Case, settings: Settings, folder: Path, harm: str, at: int) -> float:
    """Train by the launcher, to the end; when it said that a rank is lost (``time.time``)."""
    n, options = str(case.settings["processes"]), ["--restarts", "1", "--silent-after", str(settings["silent"])]
    training = [sys.executable, "-m", victim.__name__, str(folder), harm, str(at), json.dumps(settings)]
    command = [sys.executable, "-m", f"{launcher.__package__}", "-n", n, *options]
    if case.settings["harm"] != CUT_OFF:
        return heard([*command, "--", *training], dict(os.environ), lambda: None)
    with two_hosts(folder) as hosts:
        command = [*hosts.inside, *command, *hosts.options, "--", *training]
        return heard(command, hosts.environ, lambda: hosts.cable("up"))


def heard(command: List[str], environ: Dict[str, str], then: Callable[[], Any]) -> float:
    """Run a launcher to its end, and do ``then`` when it says that a rank is lost; when that was."""
    noticed, said = 0.0, []
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stderr is not None
        for line in launcher.stderr:
            said.append(line)
            if line.startswith("mxdp.launch: rank "):
                noticed = time.time()
                then()
    if launcher.returncode:
        raise RuntimeError(f"the training ended with status {launcher.returncode}: {''.join(said[-5:])}")
    return noticed


def results(folder: Path, case: Case) -> List[Dict[str, Any]]:
    """What each rank has written."""
    return [json.loads((folder / f"rank.{rank}").read_text()) for rank in range(case.settings["processes"])]
