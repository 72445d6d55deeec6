"""Bugs of data-parallel training that raise no error, each as a change of a few lines of ``mxdp/scratch.py``.

A change gives new text for old. Applied to the file's own text, it gives a module that trains wrongly, and a diff to
read. Some bugs need something that ``scratch.py`` does not have, such as dropout: their ``base`` adds it to the right
version, too. Pure Python.
"""

import difflib
from typing import Dict, NamedTuple

from mxdp.experiments.lab.provenance import ROOT

Change = Dict[str, str]
NOTHING: Change = {}
SGD = "SGD"
ADAM = "Adam"

IMPORTS = "import numpy as onp\n"
GLOBALS = "Arrays = List"
SPLIT = "    X_shards, y_shards = split_batch(X, y, devices)\n"
UPDATE = "        param -= lr / batch_size * param.grad\n"
ADAMS = """        m, v, t = MOMENTS.get(id(param), (0, 0, 0))
        g, t = param.grad / batch_size, t + 1
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        param -= 0.01 * lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        MOMENTS[id(param)] = m, v, t
"""
CALL = "            train_batch(X, y, device_params, devices, lr, allreduce)\n"
SCALED = CALL.replace(", lr,", ", len(devices) * lr,")
BACK = "    for x in others:\n        total.copyto(x)\n"
BACKWARD = "    backend.backward(losses, device_params, y_shards)"

COMMON = {SGD: NOTHING, ADAM: {UPDATE: ADAMS, GLOBALS: f"MOMENTS: Any = {{}}\n{GLOBALS}"}}
"""What every version changes, by optimiser: an Adam (Kingma and Ba 2015) takes the place of SGD."""


class Bug(NamedTuple):
    """``change``: makes the right version wrong. ``base``: is made in both versions. ``right``: the right version's
    name. ``under_adam``: replaces ``change`` where Adam trains. ``allreduce``: the all-reduce that both train with."""

    name: str
    title: str
    source: str
    change: Change
    base: Change = NOTHING
    right: str = "right"
    under_adam: Change = NOTHING
    allreduce: str = "naive_allreduce"


STEPS = {
    IMPORTS: f"{IMPORTS}\nfrom itertools import count\n",
    GLOBALS: f"STEPS = count()\n{GLOBALS}",
}
MASKS = "np.array_split(kept, len(devices))"
DROPOUT = {
    **STEPS,
    SPLIT: f"""{SPLIT}    kept = np.array(onp.random.RandomState(next(STEPS)).rand(*X.shape) < 0.5, dtype="float32")
    X_shards = [x * mask.copyto(x.ctx) for x, mask in zip(X_shards, {MASKS})]
""",
}
BATCH_MEANS = """    for device in devices:
        MEANS[device] = 0.9 * MEANS.get(device, 0.0) + 0.1 * float(X.mean())
"""
SHARD_MEANS = """    for own, device in zip(onp.array_split(X, len(devices)), devices):
        MEANS[device] = 0.9 * MEANS.get(device, 0.0) + 0.1 * float(own.mean())
"""
RUNNING = {
    GLOBALS: f"MEANS: Any = {{}}\n{GLOBALS}",
    SPLIT: f"{BATCH_MEANS}    X = X - X.mean()\n{SPLIT}",
    "        answers = [(net(X, params)": "        answers = [(net(X - MEANS[X.ctx], params)",
}

BUGS = [
    Bug(
        "rebinds",
        "the all-reduce makes a new array instead of writing into device 0's",
        "d2l-zh 955 and 1021: the book's PyTorch version once did",
        {"total += x": "total = total + x"},
    ),
    Bug(
        "averaged-twice",
        "the all-reduce averages, and the update divides by the whole batch",
        "a mean in two places",
        {BACK: f"    total /= len(data)\n{BACK}"},
    ),
    Bug(
        "not-divided",
        "the summed gradient is not divided by the batch",
        "a mean in no place",
        {UPDATE: "        param -= lr * param.grad\n"},
        under_adam={"g, t = param.grad / batch_size, t + 1": "g, t = param.grad, t + 1"},
    ),
    Bug(
        "mean-of-means",
        "each device takes the mean over its shard, and these are averaged, though shards are uneven",
        "PyTorch 37359",
        {
            "loss(*pair) for": "loss(*pair) / len(pair[1]) for",
            "        sgd(params, lr, len(X))\n": "        sgd(params, lr, len(devices))\n",
        },
        base={
            SPLIT: "    X_shards, y_shards = split_batch(X, y, devices, range(1, 2 * len(devices), 2))\n"
        },
        right="right, uneven shards",
    ),
    Bug(
        "other-start",
        "each device initialises its own replica",
        "BytePS 22",
        {"init_lenet(SEED, 0.1), device)": "init_lenet(SEED + device.device_id, 0.1), device)"},
    ),
    Bug(
        "too-early",
        "the last parameter's gradients are summed before backward has written them",
        "an overlap without a wait",
        {
            BACKWARD: f"    allreduce([params[-1].grad for params in device_params])\n{BACKWARD}",
            "in zip(*device_params):\n": "in list(zip(*device_params))[:-1]:\n",
        },
    ),
    Bug(
        "chunk-off-by-one",
        "in the ring's all-gather each device passes the wrong chunk on",
        "the index that everybody gets wrong first",
        {"number = (device - step) % n\n": "number = (device + 1 - step) % n\n"},
        allreduce="ring_allreduce",
    ),
    Bug(
        "half-synced",
        "every second step sums nothing, as `no_sync` in the wrong place does",
        "build-nanogpt 30",
        {**STEPS, "if len(devices) > 1": "if len(devices) > 1 and next(STEPS) % 2 == 0"},
    ),
    Bug(
        "same-dropout",
        "all devices draw the same dropout mask",
        "the same seed on every device",
        {MASKS: "[kept[: len(own)] for own in X_shards]"},
        base=DROPOUT,
        right="right, with dropout",
    ),
    Bug(
        "running-statistics",
        "each device keeps running statistics of its own shards",
        "MXNet 8458 and 5888; batch normalisation's running mean",
        {BATCH_MEANS: SHARD_MEANS},
        base=RUNNING,
        right="right, with running statistics",
    ),
    Bug(
        "same-shard",
        "every device reads the first shard",
        "a sampler that does not know the rank",
        {
            SPLIT: SPLIT
            + "    X_shards, y_shards = ([x[0].copyto(d) for d in devices] for x in (X_shards, y_shards))\n"
        },
    ),
    Bug(
        "learning-rate",
        "k devices take k times the batch, and the learning rate stays",
        "Goyal et al. 2017: multiply it by k",
        {SCALED: CALL},
        base={", batch_size, seed=SEED": ", len(devices) * batch_size, seed=SEED", CALL: SCALED},
        right="right, k times the batch",
    ),
]
"""Each is caught by the oracle: parameters and gradients after two steps, compared with the serial run's."""
BY_NAME = {bug.name: bug for bug in BUGS}


def source(bug: Bug, optimizer: str = SGD, right: bool = False) -> str:
    """The text of ``scratch.py`` with the bug, or of the right version that it is compared with. Raises a ValueError if
    a text that is to be replaced does not stand there once."""
    text = (ROOT / "mxdp" / "scratch.py").read_text(encoding="utf-8")
    # Weights from which LeNet learns in a hundred steps, and a seed for each training.
    common = {
        "init_lenet(0, scale), device) for": "init_lenet(SEED, 0.1), device) for",
        ", batch_size, seed=0": ", batch_size, seed=SEED",
        GLOBALS: f"SEED = 0\n{GLOBALS}",
    }
    changes = [common, COMMON[optimizer], bug.base]
    if not right:
        changes.append(bug.under_adam if optimizer == ADAM and bug.under_adam else bug.change)
    for change in changes:
        for old, new in change.items():
            if text.count(old) != 1:
                raise ValueError(
                    f"{bug.name}: scratch.py has {text.count(old)} times, not once: {old!r}"
                )
            text = text.replace(old, new)
    return text


def diff(bug: Bug) -> str:
    """What differs between right and wrong, as a unified diff of a few lines, without its header."""
    right = source(bug, right=True).splitlines()
    wrong = source(bug).splitlines()
    lines = list(difflib.unified_diff(right, wrong, lineterm="", n=1))[2:]
    return "\n".join(line for line in lines if not line.startswith("@@"))
