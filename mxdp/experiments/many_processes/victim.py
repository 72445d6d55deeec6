"""A process of a training that loses a worker: ``python -m mxdp.experiments.many_processes.victim FOLDER ORDER``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

from mxdp import load, train, world
from mxdp.experiments.lab import Case, Settings, ranks
from mxdp.experiments.many_processes.hosts import CABLE, write
from mxdp.experiments.many_processes.lenet_ranks import TrainingRank, compare_ranks

KILLED = "killed"
STOPPED = "stopped"
CUT_OFF = "cut off"
SIGNALS = {KILLED: signal.SIGKILL, STOPPED: signal.SIGSTOP}
EPOCHS = 2
ENDLESS = 10**6
"""Steps of a training that does not end by itself."""


def under_launcher(folder: Path, s: Settings) -> None:
    """Train; the last rank harms itself in step ``s.at``, once. Write the steps made, and the parameters' checksum."""
    here = world()
    harmed = folder / "harmed"
    made = 0
    count = here.step_done

    def step_done() -> None:
        nonlocal made
        made += 1
        count()
        last = here.rank == here.size - 1
        if s.harm and last and made == s.at and not harmed.exists():
            harmed.write_text(repr(time.time()))
            if s.harm == CUT_OFF:
                subprocess.run(["ip", "link", "set", CABLE, "down"], check=True)
            else:
                os.kill(os.getpid(), SIGNALS[s.harm])

    here.step_done = step_done
    data = load(s.data, s.data_dir, seed=s.seed).take(s.samples, 10)
    history = train(
        1,
        s.batch_size,
        s.lr,
        EPOCHS,
        kind="cpu",
        data=data,
        seed=s.seed,
        report=lambda line: None,
        world=here,
        checkpoint=folder / "checkpoints",
        checkpoint_every=0.2,
    )
    bits = [zlib.crc32(param.asnumpy()) for param in history.device_params[0]]
    write(folder, here.rank, {"steps": made, "bits": bits})


def under_engine(folder: Path, s: Settings) -> None:
    """Train a little, write this process's number, train until ended. Without ``s.harm``: write what is compared."""
    case = Case("", 1, s.workers, s.by)
    case.process = ranks.rank(s.by)
    case.share = ranks.sharing(folder / "shared", case.process, s.workers)
    rank = TrainingRank(case, s)
    if s.harm:
        rank.train(5)
        write(folder, case.process, os.getpid())
    else:
        write(folder, case.process, list(compare_ranks(case, s, rank)))
    rank.train(ENDLESS)


if __name__ == "__main__":
    order = Settings(json.loads(sys.argv[2]))  # the settings; by, workers, harm and at
    if order.by == ranks.MPI:
        under_launcher(Path(sys.argv[1]), order)
    else:
        under_engine(Path(sys.argv[1]), order)
