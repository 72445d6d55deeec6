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


def main() -> None:
    folder, order = Path(sys.argv[1]), json.loads(sys.argv[2])
    s = Settings(order.pop("settings"))
    if order["by"] == ranks.MPI:
        under_launcher(folder, s, order["harm"], order["at"])
    else:
        under_engine(folder, s, order["by"], order["workers"], order["harm"])


def under_launcher(folder: Path, s: Settings, harm: str, at: int) -> None:
    """Train; the last rank harms itself in step ``at``, once. Write the steps made, and the parameters' checksum."""
    here, made = world(), 0
    count = here.step_done

    def step_done() -> None:
        nonlocal made
        made += 1
        count()
        if harm and here.rank == here.size - 1 and made == at and not (folder / "harmed").exists():
            (folder / "harmed").write_text(repr(time.time()))
            if harm == CUT_OFF:
                subprocess.run(["ip", "link", "set", CABLE, "down"], check=True)
            else:
                os.kill(os.getpid(), SIGNALS[harm])

    here.step_done = step_done
    data = load(s.data, s.data_dir, seed=s.seed).take(s.samples, 10)
    options: Dict[str, Any] = dict(kind="cpu", data=data, seed=s.seed, report=lambda line: None, world=here)
    kept = dict(checkpoint=folder / "checkpoints", checkpoint_every=0.2)
    history = train(1, s.batch_size, s.lr, EPOCHS, **options, **kept)
    bits = [zlib.crc32(param.asnumpy()) for param in history.device_params[0]]
    (folder / f"rank.{here.rank}").write_text(json.dumps({"steps": made, "bits": bits}))


def under_engine(folder: Path, s: Settings, engine: str, workers: int, harm: str) -> None:
    """Train a little, write this process's number, train until ended. Without ``harm``: write what is compared."""
    case = Case("", 1, workers, engine)
    case.process = ranks.rank(engine)
    case.share = ranks.sharing(folder / "shared", case.process, workers)
    rank, part = TrainingRank(case, s), folder / f"{case.process}.part"
    if harm:
        rank.train(5)
        part.write_bytes(pickle.dumps(os.getpid()))
    else:
        part.write_bytes(pickle.dumps(list(compare_ranks(case, s, rank))))
    part.rename(folder / f"rank.{case.process}")
    rank.train(ENDLESS)


if __name__ == "__main__":
    main()
