"""Would a user be better off with something else?

The same network, initial weights, batch size, learning rate, data and machine, by what a reader of the book might
pick: the book's own loop, ``gluon.Trainer``, Horovod, PyTorch, and mxdp. Each uses its own data path. All must follow
the same losses: a peer that computes something else is not compared.
"""

import json
import math
import subprocess
import sys

import numpy as onp

from mxdp.backend import devices
from mxdp.errors import plural
from mxdp.experiments.devices import WARM_UP, defaults
from mxdp.experiments.lab import Case, Work, ranks
from mxdp.experiments.many_processes.lenet_ranks import CHECKED, TrainingRank, sums_of_losses
from mxdp.experiments.many_processes.peer_ranks import BookRank, GluonRank
from mxdp.experiments.oracle import random_batch
from mxdp.scratch import get_params, init_lenet, train_batch

COMPARED = "the losses of five steps on one batch, against mxdp on one device"
COMMON = dict(
    devices=[1, 2],
    data="auto",
    data_dir=None,
    batch_size=256,
    lr=0.2,
)
WORDS = {
    "book": "the book's loop",
    "gluon": "gluon.Trainer",
    "gluon-hybrid": "gluon.Trainer, hybridised",
    "horovod": "Horovod",
    "torch": "PyTorch",
    "torch-ddp": "PyTorch's DDP",
    "mxdp": "mxdp",
    "mxdp-mpi": "mxdp by MPI",
    "ceiling": "nothing exchanged",
}
"""The peers, in the order of the rows."""
BOOK, GLUON, HYBRID, HOROVOD, TORCH, DDP, MXDP, MXDP_MPI, CEILING = WORDS
FEW = "book,gluon-hybrid,torch,mxdp,mxdp-mpi,ceiling"
ALL = ",".join(WORDS)
PRESETS = {
    "quick": dict(
        COMMON,
        devices=[2],
        timeout=600.0,
        samples=1280,
        peers=FEW,
        half=False,
    ),
    "full": dict(
        COMMON,
        timeout=1200.0,
        samples=5120,
        peers=ALL,
        half=True,
    ),
}
CHECKS = {
    "peers": (
        lambda peers: MXDP in peers.split(",") and {*peers.split(",")} <= {*WORDS},
        f"mxdp, and of {ALL}",
    )
}
LITTLE = dict(
    data="digits",
    batch_size=24,
    samples=168,
    peers=ALL,
    half=True,
)
HYBRIDS = "a hybridised gluon.Trainer"
ENGINES = {HOROVOD: ranks.HOROVOD, DDP: ranks.DDP, MXDP_MPI: ranks.MPI}
SEVERAL = (HOROVOD, DDP, MXDP_MPI, CEILING)
"""They have a process for each device; the others have one."""
BOOK_NEEDS = {
    "d2l": "`make`, or `pip install --no-deps d2l==1.0.3` and `pip install ipython matplotlib-inline pandas`"
}
STEPS = 5
"""Steps whose losses are compared."""
LR = 0.5
TOLERANCE = 1e-3
"""A share of the largest loss. Frameworks round differently, and a sum that is almost 0 is on either side of relu's
kink."""


def cases(s):
    half = s.batch_size // 2
    for n in s.devices:
        # The others are there to use several devices.
        peers = s.peers.split(",") if n > 1 else (HYBRID, TORCH, MXDP)
        for peer in peers:
            yield case_of(peer, n, s.batch_size)
        if s.half and n > 1:
            for peer in (MXDP, CEILING):
                yield case_of(peer, n, half, f", batch {half}")


def case_of(peer, n, batch_size, more=""):
    """A peer on ``n`` devices; ``more`` is added to the label."""
    engine = ENGINES.get(peer, ranks.ALONE)
    needs = ranks.NEEDS.get(engine, {})
    if peer == BOOK:
        needs = BOOK_NEEDS
    elif peer == TORCH:
        needs = ranks.NEEDS[ranks.DDP]
    return Case(
        f"{plural(n, 'device')}{more}: {WORDS[peer]}",
        devices=1 if peer in SEVERAL else n,
        processes=n if peer in SEVERAL else 1,
        engine=engine,
        environment=defaults(n) if peer == BOOK else {},
        reference=peer == CEILING,
        needs=needs,
        peer=peer,
        devices_in_all=n,
        batch_size=batch_size,
    )


def expect(s, cores):
    return """All compute the same convolutions. On two devices the book's loop takes at least twice as long as mxdp,
        since its devices wait for each other; the others should be within a fifth of mxdp."""


def rank_of(case, s):
    if case.peer in (TORCH, DDP):  # MXNet is never loaded beside PyTorch
        from mxdp.experiments.torch_ddp import TorchTraining, initial

        return TorchTraining(
            initial(s.seed, 0.01),
            s,
            case.batch_size,
            size=case.processes,
            threads=case.devices,
        )
    if case.peer in (GLUON, HYBRID):
        return GluonRank(case, s, case.peer == HYBRID)
    if case.peer == BOOK:
        return BookRank(case, s)
    return TrainingRank(case, s)


def oracle(case, s):
    """Losses, summed over the processes. Where these exchange nothing, only those before the first step."""
    if case.peer in (TORCH, DDP):  # the serial run, by MXNet, in a process of its own
        from mxdp.experiments.torch_ddp import initial

        code = f"from {__name__} import *; print(serial_losses({s.seed}, {s.kind!r}))"
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
        params = initial(s.seed, 0.1)
        serial = json.loads(done.stdout)
    else:
        params = init_lenet(s.seed, scale=0.1)
        serial = serial_losses(s.seed, s.kind)
    X, y = random_batch(CHECKED, s.seed)
    own = rank_of(case, s).losses(X, y, params, LR, STEPS)
    losses = onp.sum(case.share(own), axis=0)
    steps = 1 if case.peer == CEILING else STEPS
    yield losses[:steps], onp.array(serial[:steps]), TOLERANCE


def serial_losses(seed, kind):
    """The sum of the losses before each step, by the plain loop on one device."""
    X, y = random_batch(CHECKED, seed)
    (device,) = devices(1, kind)
    replicas = [get_params(init_lenet(seed, scale=0.1), device)]
    return sums_of_losses(lambda: train_batch(X, y, replicas, [device], LR), STEPS)


def set_up(case, s):
    rank = rank_of(case, s)
    steps = math.ceil(s.samples / case.batch_size)
    rank.train(min(steps, WARM_UP // 2))
    return Work(lambda: rank.train(steps), rank.devices, data=rank.dataset.name, steps=steps)


def tell(t, s):
    for row in t:
        of = dict(devices_in_all=row.devices_in_all, batch_size=row.batch_size)
        row.step_seconds = row.seconds / row.steps
        row.of_mxdp = row.seconds / t.one(peer=MXDP, **of).seconds
        by_mpi = t.maybe(peer=MXDP_MPI, **of)
        row.of_mpi = row.seconds / by_mpi.seconds if by_mpi else None
    sentence = f"On two devices mxdp is no slower than {HYBRIDS}: at most 1.00 of its time."
    hybrids = [row for row in t.find(peer=HYBRID) if row.devices_in_all > 1]
    t.claim(sentence, *(1 / row.of_mxdp for row in hybrids), at_most=1.0)
    t.column("step_seconds", "ms/step", ".1f", 1e3)
    t.column(
        "of_mxdp",
        form=".2f",
        spread=True,
        about="over mxdp's time in one process on as many devices",
    )
    t.note("""A round is the same number of samples for all, each with its own data path. The book's loop is d2l's
        loader and helpers in MXNet's default environment. PyTorch has a thread for each device, and mxdp's settings of
        the allocator. DDP, Horovod and mxdp by MPI have a process for each device. Processes that exchange nothing do
        not wait for the slowest in each step. Two rows have half of the batch: there Python and the exchange weigh
        more. On a processor without AVX-512 (an AMD EPYC of family 25, model 1) PyTorch's kernel for one convolution,
        of 20 to 50 channels, is faster than MXNet's: one device of mxdp took 1.12 to 1.19 times PyTorch's time there,
        two took 1.05 to 1.09 times.""")
    t.bars("step_seconds", "ms/step", 1e3)
    n = max(s.devices)
    peers = {row.peer: row for row in t.find(devices_in_all=n, batch_size=s.batch_size)}
    times = []
    for peer, words in ((HYBRID, HYBRIDS), (TORCH, "PyTorch")):
        if peer in peers:
            times.append(f"{peers[peer].of_mxdp:.2f} times as long by {words}")
    _tell_sizes(t, s)
    t.answer(f"Compared with mxdp on {plural(n, 'device')}, training takes {' and '.join(times)}.")


def _tell_sizes(t, s):
    """What the exchange costs, beside processes that exchange nothing; and what other peers take."""
    n = max(s.devices)
    for row in t:
        if row.peer == CEILING and row.devices_in_all == n:
            t.explain(f"""Beside processes that exchange nothing, with batches of {row.batch_size}, mxdp takes
                {1 / row.of_mxdp:.2f} times as long.""")
            if row.of_mpi:
                t.explain(f"By MPI it takes {1 / row.of_mpi:.2f} times as long.")
    for peer, of, beside in ((BOOK, "of_mxdp", "mxdp"), (DDP, "of_mpi", "mxdp by MPI")):
        row = t.maybe(peer=peer, devices_in_all=n, batch_size=s.batch_size)
        if row and row.get(of):
            t.explain(
                f"Compared with {beside}, training takes {row.get(of):.2f} times as long by {WORDS[peer]}."
            )
