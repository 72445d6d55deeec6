"""A process of a training that loses a worker: ``python -m mxdp.experiments.many_processes.victim FOLDER ORDER``."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any, Dict

from mxdp import load, train, world
from mxdp.experiments.lab import Case, Settings, ranks
from mxdp.experiments.many_processes.hosts import CABLE
from mxdp.experiments.many_processes.training import TrainingRank, compare_ranks

KILLED, STOPPED, CUT_OFF = "killed", "stopped", "cut off"
SIGNALS = {KILLED: signal.SIGKILL, STOPPED: signal.SIGSTOP}
EPOCHS = 2
ENDLESS = 10**6
"""Steps of a training that does not end by itself."""


def under_launcher(folder: Path, s: Settings) -> None:
    """Train; the last rank harms itself in step ``s.at``, once. Write the steps made, and the parameters' checksum."""
    here, made = world(), 0
    count = here.step_done

    def step_done() -> None:
        nonlocal made
        made += 1
        count()
        if (
            s.harm
            and here.rank == here.size - 1
            and made == s.at
            and not (folder / "harmed").exists()
        ):
            (folder / "harmed").write_text(repr(time.time()))
            if s.harm == CUT_OFF:
                subprocess.run(["ip", "link", "set", CABLE, "down"], check=True)
            else:
                os.kill(os.getpid(), SIGNALS[s.harm])

    here.step_done = step_done
    data = load(s.data, s.data_dir, seed=s.seed).take(s.samples, 10)
    options: Dict[str, Any] = dict(
        kind="cpu", data=data, seed=s.seed, report=lambda line: None, world=here
    )
    kept = dict(checkpoint=folder / "checkpoints", checkpoint_every=0.2)
    history = train(1, s.batch_size, s.lr, EPOCHS, **options, **kept)
    bits = [zlib.crc32(param.asnumpy()) for param in history.device_params[0]]
    (folder / f"rank.{here.rank}").write_text(json.dumps({"steps": made, "bits": bits}))


def under_engine(folder: Path, s: Settings) -> None:
    """Train a little, write this process's number, train until ended. Without ``s.harm``: write what is compared."""
    case = Case("", 1, s.workers, s.by)
    case.process = ranks.rank(s.by)
    case.share = ranks.sharing(folder / "shared", case.process, s.workers)
    rank, part = TrainingRank(case, s), folder / f"{case.process}.part"
    if s.harm:
        rank.train(5)
    part.write_bytes(pickle.dumps(os.getpid() if s.harm else list(compare_ranks(case, s, rank))))
    part.rename(folder / f"rank.{case.process}")
    rank.train(ENDLESS)


if __name__ == "__main__":
    order = Settings(json.loads(sys.argv[2]))  # the settings; by, workers, harm and at
    (under_launcher if order.by == ranks.MPI else under_engine)(Path(sys.argv[1]), order)
