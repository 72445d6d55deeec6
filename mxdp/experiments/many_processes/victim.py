"""A training whose last rank harms itself, once: ``victim.py FOLDER HARM STEP SETTINGS`` under a launcher."""

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
from mxdp.experiments.many_processes.lost_worker import CUT_OFF, KILLED, STOPPED
from mxdp.experiments.many_processes.work.hosts import CABLE

EPOCHS = 2
SIGNALS = {KILLED: signal.SIGKILL, STOPPED: signal.SIGSTOP}


def main() -> None:
    """Train; write how many steps this process has made, and a checksum of its parameters."""
    folder, harm, at = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    settings = json.loads(sys.argv[4])
    ranks, made = world(), 0
    count = ranks.step_done

    def step_done() -> None:
        nonlocal made
        made += 1
        count()
        if harm and ranks.rank == ranks.size - 1 and made == at and not (folder / "harmed").exists():
            (folder / "harmed").write_text(repr(time.time()))
            if harm == CUT_OFF:
                subprocess.run(["ip", "link", "set", CABLE, "down"], check=True)
            else:
                os.kill(os.getpid(), SIGNALS[harm])

    ranks.step_done = step_done
    data = load(settings["data"], settings["data_dir"], seed=settings["seed"]).take(settings["samples"], 10)
    history = train(
        1,
        settings["batch_size"],
        settings["lr"],
        EPOCHS,
        kind="cpu",
        data=data,
        seed=settings["seed"],
        report=lambda line: None,
        world=ranks,
        checkpoint=folder / "checkpoints",
        checkpoint_every=0.2,
    )
    bits = [zlib.crc32(param.asnumpy()) for param in history.device_params[0]]
    (folder / f"rank.{ranks.rank}").write_text(json.dumps({"steps": made, "bits": bits}))


if __name__ == "__main__":
    main()
