"""Which data-parallel bugs go unnoticed?

A bug that raises an error is found. These raise none: the loss falls, and the accuracy rises. Each is a change of a few
lines of the front door, ``mxdp/scratch.py`` (``bugs.py``), trained beside the right version. What would find it: a look
at the accuracy, at replicas that are no longer equal, or a comparison of two steps with the serial run?
"""

import contextlib
import io
import subprocess
import sys
import time
from types import ModuleType
from typing import Any, Dict, List

from mxdp import backend
from mxdp.backend import npx
from mxdp.errors import MxdpError
from mxdp.experiments import sources
from mxdp.experiments.data_parallel.bugs import ADAM, BUGS, BY_NAME, SGD, source
from mxdp.experiments.data_parallel.lenet_steps import pictures
from mxdp.experiments.lab import Case, Settings, Work, ranks
from mxdp.experiments.lab.told import DEFECT
from mxdp.experiments.oracle import count
from mxdp.scratch import in_sync

SOURCE = "ours, from issues of d2l, PyTorch, BytePS, build-nanogpt and MXNet: docs/silent-bugs.md names each bug's"
COMPARED = (
    "parameters and gradients after two steps: right versions equal the serial run, and no bug does"
)
TOGETHER = True
COMMON = dict(devices=[2], data="auto", data_dir=None, lr=0.1, batch_size=32)
# A process takes minutes.
PRESETS = {
    "quick": dict(COMMON, samples=320),
    "full": dict(COMMON, timeout=600.0, samples=960, processes=6),
}
LITTLE = dict(data="synthetic", samples=64)
CLOSE = 0.05
"""An accuracy that is at most so much below the right one's says nothing to somebody who does not know it."""
PARTS = 4
"""Evaluations of a training."""
TOLERANCE = 1e-3
GRADIENTS_TOLERANCE = 2e-2
"""After two steps a parameter, and its gradient, may be off by these shares of the largest value. They are ten times
what a relu at its kink can do."""
WRONG: Dict[str, int] = {}
"""How many numbers are wrong, by the case's label, in the process that has run its oracle."""
LAST_BATCH = "last-batch"
LIMIT = 120.0
"""Seconds in which the launcher must have ended the job."""
LAST = """
from mxdp.backend import np
import mxdp
ranks = mxdp.world()
for step in range(20 - ranks.rank):  # the last rank has one batch less
    ranks.sum([np.ones((4,))])
    ranks.step_done()
print(ranks.rank, "is done")
mxdp.backend.npx.waitall()
"""


def cases(s):
    n = max(s.devices)
    rights: Dict[str, str] = {}  # each right version, and the first bug that is compared with it
    for bug in BUGS:
        rights.setdefault(bug.right, bug.name)
    for optimizer in (SGD, ADAM):
        for right, name in rights.items():
            label = f"{right}, {optimizer}"
            yield Case(label, n, reference=True, bug=name, right=True, optimizer=optimizer)
        for bug in BUGS:
            label = f"{bug.name}, {optimizer}"
            yield Case(label, n, bug=bug.name, right=False, optimizer=optimizer)
    # It trains nothing, so it is no row beside the others.
    label = "a rank drops its last batch"
    yield Case(
        label,
        n,
        reference=True,
        needs=ranks.NEEDS[ranks.MPI],
        bug=LAST_BATCH,
        right=False,
        optimizer="",
    )


def expect(s, cores):
    return """Two steps compared with the serial run find every bug; the accuracy hides a wrong scale with Adam, and
        devices that learn alone from their half of the data."""


def train_version(case, data, s, devices, epochs, seed, right):
    """The replicas, the accuracy after each epoch, and the module, which has the training's global names."""
    bug = BY_NAME[case.bug]
    module: Any = ModuleType(f"scratch, {bug.name}")
    accuracies: List[float] = []
    exec(compile(source(bug, case.optimizer, right), module.__name__, "exec"), vars(module))
    module.SEED = seed
    allreduce = getattr(module, bug.allreduce)
    with contextlib.redirect_stdout(io.StringIO()):
        replicas = module.train(
            devices,
            s.batch_size,
            s.lr,
            epochs,
            data,
            allreduce,
            lambda _, known: accuracies.append(known[-1]),
        )
    return replicas, accuracies, module


def compare(case, s, right):
    """After two steps, (numbers compared, numbers wrong) of each replica: parameters, and gradients as they are summed,
    against those of the serial run; and the running means, if there are any."""
    n = case.devices
    # Devices that together have k times the batch make half as many steps of an epoch.
    times = n if "k times" in BY_NAME[case.bug].right else 1
    small = pictures(s).take(2 * times * 30, 10)
    replicas, _, module = train_version(
        case, small, Settings(s, batch_size=30), n, 1, s.seed, right
    )
    serial = Settings(s, batch_size=times * 30, lr=times * s.lr)
    (expected,), _, true = train_version(case, small, serial, 1, 1, s.seed, True)
    npx.waitall()
    for replica, device in zip(replicas, backend.devices(n)):
        compared = []
        for one, other in zip(replica, expected):
            compared.append((one.asnumpy(), other.asnumpy(), TOLERANCE))
            compared.append((one.grad.asnumpy(), other.grad.asnumpy(), GRADIENTS_TOLERANCE))
        for mean in getattr(true, "MEANS", {}).values():
            compared.append((module.MEANS[device], mean, 1e-5))
        yield count(compared)


def oracle(case, s):
    if case.bug == LAST_BATCH:
        yield [last_batch(case.devices) < LIMIT], [True], 0.0
        return
    wrong = max(wrong for _, wrong in compare(case, s, case.right))
    WRONG[case.label] = wrong
    yield [wrong > 0], [not case.right], 0.0


def set_up(case, s):
    """A round is a whole training from a seed of its own, which is the same in all rows."""
    if case.bug == LAST_BATCH:
        return Work(lambda: last_batch(case.devices), ["cpu"] * case.devices)
    data = pictures(s)
    seeds = case.seeds(s.seed)
    part = data.take(s.samples, s.samples)

    def one_round():
        seed = next(seeds)
        started = time.perf_counter()
        replicas, accuracies, _ = train_version(
            case, part, s, case.devices, PARTS, seed, case.right
        )
        after = {f"accuracy_{number}": accuracy for number, accuracy in enumerate(accuracies)}
        after.update(
            test_accuracy=accuracies[-1],
            in_sync=in_sync(replicas),
            wrong=WRONG.get(case.label),
            seed=seed,
        )
        return time.perf_counter() - started, after

    steps = -(-s.samples // s.batch_size)
    return Work(one_round, data=data.name, steps=steps)


def last_batch(count_of):
    """Seconds until the job has ended in which one of several ranks ends a step before the others, who wait for it."""
    python = sys.executable
    command = [python, "-m", "mxdp.launch", "-n", str(count_of), "--", python, "-c", LAST]
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    if not done.returncode:
        raise MxdpError("ranks with different numbers of batches ended as if all were well")
    return time.perf_counter() - started


def tell(t, s):
    rights = {(BY_NAME[row.bug].right, row.optimizer): row for row in t.references if row.right}
    for row in [*t.rows, *rights.values()]:
        row.in_sync = all(row.in_sync.values)
    for row in t.rows:
        right = rights[BY_NAME[row.bug].right, row.optimizer]
        behind = [
            right.get(f"accuracy_{part}") - row.get(f"accuracy_{part}") for part in range(PARTS)
        ]
        row.behind = behind[-1]
        near = [number.median <= CLOSE for number in behind]
        shown = [part for part in range(PARTS) if not any(near[part:])]
        row.shown_after = (shown[0] + 1) * row.steps if shown else None
    _tell_claims(t)
    t.column(
        "wrong",
        form=",.0f",
        about="parameters and gradients that differ after two steps, on the worst replica",
    )
    t.column("in_sync", about="whether the replicas are equal bit for bit in the end")
    t.column("test_accuracy", "accuracy", ".3f", about="after the last step")
    t.column(
        "behind",
        form="+.3f",
        spread=True,
        about="the right version's accuracy less this one's, seed by seed",
    )
    t.column(
        "shown_after",
        form=".0f",
        unit=" steps",
        about=f"the first evaluation (of {PARTS}) from which on the median is more than {CLOSE} behind",
    )
    hidden = [row for row in t.rows if row.behind.median <= CLOSE]
    optimizers = [row.optimizer for row in hidden]
    by_sgd = optimizers.count(SGD)
    by_adam = optimizers.count(ADAM)
    t.answer(f"""Of {len(BUGS)} bugs, {by_sgd} with SGD and {by_adam} with Adam end at most {CLOSE} behind the right
        accuracy, in the median of all seeds; two steps compared with the serial run find all.""")
    always = [row for row in hidden if max(row.behind.different) <= CLOSE]
    t.explain(f"""Not seen in the accuracy: {", ".join(sorted({row.bug for row in hidden})) or "none"}.
        {len(always)} of these {len(hidden)} trainings end that close with every seed.
        {sum(row.in_sync for row in hidden)} keep the replicas equal, so a comparison of the replicas does not find them
        either.""")
    twice = t.one(bug="averaged-twice", right=False, optimizer=ADAM)
    undivided = t.one(bug="not-divided", right=False, optimizer=ADAM)
    t.explain(f"""Adam's step does not change if gradients are scaled (Kingma and Ba 2015): averaged twice it ends
        {twice.behind:+.3f} behind, not divided {undivided.behind:+.3f}.""")
    for optimizer in (SGD, ADAM):
        trained = [row for row in t if row.optimizer == optimizer]
        t.bars("test_accuracy", "", title=f"Accuracy with {optimizer}", rows=trained)


def _tell_claims(t):
    sentence = "Compared with the serial run, two steps give every bug away: at least 1 parameter or gradient is wrong."
    t.claim(sentence, *(row.wrong for row in t.rows), at_least=1, exact=True)
    sentence = "A rank that drops its last batch hangs others; mxdp ends the job, within 60 s."
    source = f"{DEFECT}. Elsewhere it may wait for ever: {sources.UNEVEN_RANKS}"
    ended = [row.seconds for row in t if row.bug == LAST_BATCH]
    t.claim(sentence, *ended, at_most=60.0, source=source)
