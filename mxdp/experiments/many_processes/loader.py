"""When does one loader hold up several devices, and does a loader for each process help?

The pictures are stored compressed; a loader decodes them on a processor while devices compute. If a batch takes D
seconds to load and C to compute on k devices, and there are p cores, a step takes at least max(D, C, (D + k C) / p)
with one loader, whose one thread decodes everything, and max(D / k, C, (D + k C) / p) with a loader for each of k
processes. So own loaders win only where one can't keep up: with slow decoding, or GPUs, which compute faster.
"""

import time
import zlib

import numpy as onp

from mxdp.backend import npx
from mxdp.datasets import load
from mxdp.errors import plural
from mxdp.experiments.devices import WARM_UP
from mxdp.experiments.lab import Case, Work, faster, ranks
from mxdp.experiments.many_processes.lenet_ranks import TrainingRank, compare_ranks
from mxdp.training import TrainStep, train_steps

SOURCE = "ours: does one process that loads for all devices hold them up?"
COMPARED = (
    "decoded pictures, exactly; parameters of every replica in every process after three steps"
)
NEEDS = ranks.NEEDS[ranks.MPI]
COMMON = dict(
    devices=[2],
    data="auto",
    data_dir=None,
    batch_size=64,
    lr=0.1,
    steps=16,
)
PRESETS = {
    "quick": dict(COMMON, scales=[1, 32]),
    "full": dict(COMMON, scales=[1, 8, 32]),
}
CHECKS = {"scales": (lambda scales: len(set(scales)) == len(scales), "different numbers")}
LITTLE = dict(
    data="synthetic",
    batch_size=8,
    steps=2,
    scales=[1, 2],
)
PARTS = ("input", "compute")
PICTURES = 256
"""The pictures that are stored. Batches are drawn from them again and again."""


def cases(s):
    for n in s.devices:
        for scale in s.scales:
            label = f"{plural(n, 'device')}, decode x {scale}"
            settings = dict(devices_in_all=n, scale=scale)
            yield Case(f"{label}: one loader", n, **settings)
            yield Case(f"{label}: a loader a process", 1, n, ranks.MPI, **settings)


def expect(s, cores):
    n = max(s.devices)
    ratios = [f"{expected(load, 1.0, n, cores):.2f}" for load in (0.0, n, 4.0 * n)]
    return f"""A loader for each of {n} processes, over one loader, on {plural(cores, "core")}: {ratios[0]} with nothing
        to decode; {ratios[1]} and {ratios[2]} where decoding takes {n} and {4 * n} times as long as computing."""


def stored(split, scale):
    """The pictures as bytes: each enlarged ``scale`` times in height and width, and compressed."""
    pixels = onp.rint(split.X[:, 0] * 255).astype("uint8")
    pictures = []
    for picture in pixels:
        large = picture.repeat(scale, 0).repeat(scale, 1)
        pictures.append(zlib.compress(large.tobytes(), 1))
    return pictures


def decoded(pictures, scale):
    """The same pictures again, (n, 1, 28, 28)."""
    restored = onp.empty((len(pictures), 1, 28, 28), "float32")
    for picture, place in zip(pictures, restored):
        large = onp.frombuffer(zlib.decompress(picture), "uint8")
        large.reshape(28, scale, 28, scale).mean((1, 3), out=place[0])
    return restored / onp.float32(255)


class LoadingRank(TrainingRank):
    """One process that decodes what its own devices need."""

    def __init__(self, case, s):
        super().__init__(case, s)
        split = self.dataset.take(PICTURES, 1).train
        self._pictures = stored(split, case.scale)
        self._labels = split.y
        self._scale = case.scale
        self._random = onp.random.RandomState(s.seed)  # draws the same batches in each rank
        (self._batch,) = self._batches(1)
        self.computing = TrainStep(self._replicas, self.devices, s.lr, lambda: None)

    def _batches(self, steps):
        for _ in range(steps):
            order = self._random.permutation(len(self._labels))
            own = order[self.ranks.shard(self.batch_size)]
            pictures = [self._pictures[number] for number in own]
            yield decoded(pictures, self._scale), self._labels[own]

    def _train_own(self, batches, step, samples):
        """Train on batches of which this rank has loaded its own part alone, of ``samples`` in all ranks together."""
        train_steps(batches, lambda X, y, _: step(X, y, samples))

    def steps(self, batches, step):
        """Train on whole batches, of which this rank takes its part before it trains."""
        for X, y in batches:
            part = self.ranks.shard(len(X))
            self._train_own([(X[part], y[part])], step, len(X))

    def run(self, part, steps):
        """Do all of ``steps`` steps, to their end, or one part of them; computing is on one batch."""
        if part == "input":
            for _ in self._batches(steps):
                pass
        elif part == "compute":
            self._train_own([self._batch] * steps, self.computing, self.batch_size)
        else:
            self._train_own(self._batches(steps), self.step, self.batch_size)
        npx.waitall()


def oracle(case, s):
    split = load(s.data, s.data_dir, seed=s.seed).take(20, 1).train
    found = decoded(stored(split, case.scale), case.scale)
    yield found, onp.rint(split.X * 255) / 255, 1e-6
    yield from compare_ranks(case, s, LoadingRank(case, s))


def set_up(case, s):
    """A round is some steps, and then as many of each part alone. (Replicas then differ, which no time depends on.)"""
    rank = LoadingRank(case, s)

    def slowest(part, steps):
        case.share()
        started = time.perf_counter()
        rank.run(part, steps)
        return max(case.share(time.perf_counter() - started))

    for part in ("all", *PARTS):
        slowest(part, WARM_UP)

    def measure():
        seconds = slowest("all", s.steps)
        parts = {f"{part}_ms": slowest(part, s.steps) / s.steps * 1e3 for part in PARTS}
        return seconds, parts

    return Work(measure, rank.devices, data=rank.dataset.name)


def tell(t, s):
    for row in t.rows:
        one = t.one(engine="", scale=row.scale, devices_in_all=row.devices_in_all)
        row.step_ms = row.seconds * (1e3 / s.steps)
        if row.engine == ranks.MPI:
            row.of_one = row.seconds / one.seconds
            load_ms = one.input_ms.median
            compute_ms = one.compute_ms.median
            row.expected = expected(load_ms, compute_ms, row.devices_in_all, row.cores)
    t.column("step_ms", "ms/step", ".1f")
    t.column("input_ms", "input", ".1f", about="read and decode the batch, alone")
    t.column(
        "compute_ms", "compute", ".1f", about="forward, backward and update of all devices, alone"
    )
    t.column(
        "of_one",
        "of one loader",
        ".2f",
        spread=True,
        about="over the time of one process with one loader",
    )
    t.column("expected", "exp.", ".2f", about="what the parts would give if nothing else counted")
    t.note("'Decode x 8': a picture is stored 8 times as high and wide, compressed by zlib.")
    cheap = t.find(engine=ranks.MPI, scale=min(s.scales))[-1]
    dear = t.find(engine=ranks.MPI, scale=max(s.scales))[-1]
    parts = t.find(engine="", scale=dear.scale)[-1]
    more = "" if cheap is dear else f"; with the cheapest decoding it {faster(1 / cheap.of_one)}"
    t.answer(f"""Where decoding takes {parts.input_ms.median / parts.compute_ms.median:.1f} times as long as computing,
        a loader a process {faster(1 / dear.of_one)} as one loader{more}.""")
    t.bars("step_ms", "ms/step", colour="engine")


def expected(load, compute, n, cores):
    """A step's time by ``n`` loaders over that by one, which loads a batch in ``load``; ``n`` devices take ``compute``.

    >>> expected(4.0, 1.0, 2, 2), expected(0.0, 1.0, 2, 2)
    (0.75, 1.0)
    """
    on_cores = (load + n * compute) / cores
    several = max(load / n, compute, on_cores)
    one = max(load, compute, on_cores)
    return several / one
