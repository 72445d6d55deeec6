"""The training that ``tools/torture.py`` hurts: a few steps of LeNet, with checkpoints inside an epoch.

``python torture_victim.py ORDER`` with ORDER in JSON. It prints a SHA-256 of its parameters and history. At step ``at``
rank ``rank`` does ``harm`` to itself, once in this folder; after the last step where ``at`` is more than ``STEPS``.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, List

EPOCHS, SAMPLES, BATCH = 2, 100, 12
STEPS = EPOCHS * -(-SAMPLES // BATCH)
Order = Dict[str, Any]


def exit_with(order: Order) -> None:
    """End Python in one of its ways, in the middle of the training."""
    if order.get("by") == "raise":
        raise SystemExit(*([order["status"]] if "status" in order else []))
    sys.exit(*([order["status"]] if "status" in order else []))


def fail(order: Order) -> None:
    """An exception that nobody catches."""
    raise RuntimeError("tortured")


def fail_in_job(order: Order) -> None:
    """An exception in a Python function that MXNet's engine calls: the next exchange between ranks raises."""

    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("tortured")

    order["world"]._arrays = Broken()


def fail_in_operator(order: Order) -> None:
    """An operator that fails on one device some time after its call, and writes a parameter there."""
    from mxdp.backend import mx

    params = order["replicas"][order["device"]]
    mx.np.random.normal(0, -1, params[0].shape, ctx=params[0].ctx).copyto(params[0])


def kill(order: Order) -> None:
    """What the system does to a process that takes too much memory."""
    os.kill(os.getpid(), 9)


def hang(order: Order) -> None:
    """Go on for ever."""
    time.sleep(1e6)


def hold(order: Order) -> None:
    """Wait until the one who tortures says go."""
    while not Path(order["steps"] + ".go").exists():
        time.sleep(0.01)


def fork(order: Order) -> None:
    """Start a process beside the training."""
    if order["by"] == "multiprocessing":
        child = multiprocessing.get_context("fork").Process(target=print, args=("in a fork",))
        child.start()
        child.join()
    elif order["by"] == "os.fork":
        number = os.fork()
        if not number:
            os._exit(0)
        os.waitpid(number, 0)
    else:
        subprocess.run(["true"], preexec_fn=os.getpid, check=True)


def leave_child(order: Order) -> None:
    """Leave a process behind that holds this one's output."""
    subprocess.Popen(["sleep", "1000"])


def shout(order: Order) -> None:
    """Print ``lines`` lines with ``text``, whatever stdout's encoding is."""
    sys.stdout.flush()
    for _ in range(order["lines"]):
        sys.stdout.buffer.write(order["text"].encode("utf-8") + b"\n")
    sys.stdout.buffer.flush()


HARMS: Dict[str, Callable[[Order], None]] = {
    each.__name__: each
    for each in (exit_with, fail, fail_in_job, fail_in_operator, kill, hang, hold, fork, leave_child, shout)
}


def read_for_ever(folder: Path) -> None:
    """Open the folder and read it again and again, as a notebook does that looks at a training."""
    from mxdp.errors import MxdpError
    from mxdp.processes import CheckpointFolder

    while True:
        with suppress(MxdpError):  # it is another training
            CheckpointFolder(folder, report=lambda line: None).read({"training": {}, "replicas": ""})
        time.sleep(0.02)


def main() -> None:
    """Train, and say with what result."""
    order: Order = json.loads(sys.argv[1])
    if "read" in order:
        read_for_ever(Path(order["folder"]))
    rank = int(os.environ.get("PMI_RANK", "0"))
    if rank in order.get("bound", ()):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import numpy as onp

    import mxdp
    from mxdp.datasets import Dataset, Split
    from mxdp.training import loop

    world, made, flush = mxdp.world(), 0, os.fsync
    replicas: List[Any] = []
    get_params, count = loop.get_params, world.step_done
    order.update(world=world, replicas=replicas)
    steps = os.open(order["steps"], os.O_RDWR | os.O_CREAT)
    shared = {line.split()[5] for line in Path("/proc/self/maps").read_text().splitlines() if "/dev/shm/" in line}
    Path(f"{order['steps']}.shared.{rank}").write_text(" ".join(shared))

    def step_done() -> None:
        nonlocal made
        made += 1
        count()
        os.pwrite(steps, made.to_bytes(8, "little"), 8 * rank)
        time.sleep(order["pace"])
        harm()

    def harm() -> None:
        done = Path(order["steps"] + ".harmed")
        if made == order.get("at") and rank == order["rank"] and not done.exists():
            done.touch()
            HARMS[order["harm"]](order)

    def slow_disk(file: int) -> None:
        time.sleep(order["disk"])
        flush(file)

    def kept(*arguments: Any) -> Any:
        replicas.append(get_params(*arguments))
        return replicas[-1]

    world.step_done, loop.get_params, os.fsync = step_done, kept, slow_disk  # type: ignore[method-assign]
    random = onp.random.RandomState(0)
    X, y = random.uniform(size=(SAMPLES, 1, 28, 28)).astype("float32"), random.randint(0, 10, SAMPLES).astype("int32")
    split = Split(X, y)
    data = Dataset("torture", split, split.take(24), tuple("0123456789"), "random")
    history = mxdp.train(
        order["devices"], BATCH, 0.1, EPOCHS, kind="cpu", data=data, world=world, checkpoint=order["folder"],
        checkpoint_every=0.25,
    )  # fmt: skip
    made += 1
    harm()
    digest = hashlib.sha256(repr([(e.number, e.loss) for e in history.epochs]).encode())
    digest.update(repr(history.test_accuracies).encode())
    for param in history.device_params[0]:
        digest.update(param.asnumpy().tobytes())
    print("digest", digest.hexdigest(), flush=True)


if __name__ == "__main__":
    main()
