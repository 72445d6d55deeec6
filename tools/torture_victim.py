"""The training into which ``tools/torture.py`` injects faults: a few steps of LeNet, with checkpoints inside an epoch.

``python torture_victim.py ORDER`` with ORDER in JSON. It prints a SHA-256 of its parameters and history. At step ``at``
rank ``rank`` does ``harm`` to itself, once in this folder; after the last step where ``at`` is more than ``STEPS``.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

EPOCHS, SAMPLES, BATCH = 2, 100, 12
STEPS = EPOCHS * -(-SAMPLES // BATCH)
Order = Dict[str, Any]


def harm(order: Order) -> None:
    """Do to this rank what the order says."""
    if order["harm"] == "exit_with":
        sys.exit(order["status"])
    elif order["harm"] == "fail":
        raise RuntimeError("tortured")
    elif order["harm"] == "kill":  # as the system does to a process that takes too much memory
        os.kill(os.getpid(), 9)
    elif order["harm"] == "hang":
        time.sleep(1e6)
    else:  # an operator that fails on one device some time after its call, and writes a parameter there
        from mxdp.backend import mx

        param = order["replicas"][order["device"]][0]
        mx.np.random.normal(0, -1, param.shape, ctx=param.ctx).copyto(param)


def main() -> None:
    """Train, and print the hash of the result."""
    order: Order = json.loads(sys.argv[1])
    rank = int(os.environ.get("PMI_RANK", "0"))
    import numpy as onp

    import mxdp
    from mxdp.datasets import Dataset, Split
    from mxdp.training import loop

    world, made, flush = mxdp.world(), 0, os.fsync
    replicas: List[Any] = []
    get_params, count = loop.get_params, world.step_done
    order.update(replicas=replicas)
    steps = os.open(order["steps"], os.O_RDWR | os.O_CREAT)
    shared = {line.split()[5] for line in Path("/proc/self/maps").read_text().splitlines() if "/dev/shm/" in line}
    Path(f"{order['steps']}.shared.{rank}").write_text(" ".join(shared))

    def step_done() -> None:
        nonlocal made
        made += 1
        count()
        os.pwrite(steps, made.to_bytes(8, "little"), 8 * rank)
        time.sleep(order["pace"])
        harm_once()

    def harm_once() -> None:
        done = Path(order["steps"] + ".harmed")
        if made == order.get("at") and rank == order["rank"] and not done.exists():
            done.touch()
            harm(order)

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
    checkpoints = dict(world=world, checkpoint=order["folder"], checkpoint_every=0.25)
    history = mxdp.train(order["devices"], BATCH, 0.1, EPOCHS, kind="cpu", data=data, **checkpoints)
    made += 1
    harm_once()
    digest = hashlib.sha256(repr([(e.number, e.loss) for e in history.epochs]).encode())
    digest.update(repr(history.test_accuracies).encode())
    for param in history.device_params[0]:
        digest.update(param.asnumpy().tobytes())
    print("digest", digest.hexdigest(), flush=True)


if __name__ == "__main__":
    main()
