"""What do mxdp's settings and data path bring over the book's loop as it stands?

Both train the same network on the same data, with equal batches, learning rate and start. The book's loop
(:mod:`mxdp.experiments.book_loop`): a data loader with four worker processes and a Python call for each sample, the
book's operators, a ``waitall`` after each step, and MXNet's default environment, in which the devices wait for each
other (see ``two-jobs``): two take as long as one. mxdp's: the data in memory, oneDNN's operators, and a process whose
CPU contexts share nothing: two take half.
"""

import math
from typing import Any

import numpy as onp

from mxdp.datasets.minibatches import Stream
from mxdp.errors import plural
from mxdp.experiments import book_loop, sources
from mxdp.experiments.data_parallel.lenet_steps import (
    check_step,
    expect_speedups,
    pictures,
    synced_step,
)
from mxdp.experiments.devices import WARM_UP, defaults, devices_of, timed
from mxdp.experiments.lab import Case, Work, faster
from mxdp.experiments.networks import set_params
from mxdp.scratch import get_params, init_lenet
from mxdp.training import TrainStep, train_steps

SOURCE = f"{sources.MULTIPLE_GPUS}, in MXNet's default environment"
COMPARED = "gradients and parameters of every replica, against mxdp on one device"
NEEDS = book_loop.NEEDS
COMMON = dict(devices=[1, 2], data="auto", data_dir=None, batch_size=256, lr=0.2)
PRESETS = {
    "quick": dict(COMMON, samples=4352),
    "full": dict(COMMON, devices=[2], samples=7680),
}
LITTLE = dict(devices=[2], samples=80, batch_size=40)


def cases(s):
    for n in s.devices:
        for loop, environment in (("mxdp", {}), ("book", defaults(n))):
            yield Case(f"{loop}, {plural(n, 'device')}", n, environment=environment, loop=loop)


def expect(s, cores):
    return f"Speed-up over the book's loop: at least {expect_speedups(s, cores)}, and more by what its loader takes."


def oracle(case, s):
    """An even batch: the book's loop can't split another."""
    options: dict = dict(step=synced_step())
    if case.loop == "book":
        options = dict(step=book_loop.train_batch, layout=book_loop.book_layout)
    return check_step(devices_of(case, s), 60, s.seed, **options)


def set_up(case, s):
    """A round is an epoch of ``samples`` samples, data path included; some batches and a short last one warm up."""
    devices = devices_of(case, s)
    book = case.loop == "book"
    parts = math.prod(s.devices)
    data = book_loop.splittable(pictures(s).take(s.samples), parts)
    warm_up = WARM_UP * s.batch_size + s.samples % s.batch_size
    few = book_loop.splittable(pictures(s).take(warm_up), parts)
    params = init_lenet(s.seed)
    if book:
        params = book_loop.book_layout(params)
    replicas = [get_params(params, device) for device in devices]
    step: Any = None if book else TrainStep(replicas, devices, s.lr)

    def epoch(data):
        set_params(replicas, params)
        if book:
            batches = book_loop.data_loader(data.train, data.test, s.batch_size)
            return timed(lambda: book_loop.train_epoch(batches, replicas, devices, s.lr))
        stream = Stream(data.train, s.batch_size, s.seed)
        return timed(lambda: train_steps(stream.take(len(data.train)), step))

    onp.random.seed(s.seed)  # by which gluon's loader shuffles
    epoch(few)
    return Work(lambda: epoch(data), data=data.name)


def tell(t, s):
    for row in t.rows:
        row.of_book = row.seconds / t.one(loop="book", devices=row.devices).seconds
    ours = t.find(loop="mxdp")
    t.column(
        "seconds",
        "s/epoch",
        ".2f",
        spread=True,
        about="an epoch of 'samples' samples, data path included",
    )
    t.column(
        "of_book",
        "of the book's",
        ".2f",
        spread=True,
        about="the time over the book's loop's on as many devices",
    )
    t.note("""The two loops shuffle differently. With MXNet's default threads the book's loop hangs on several devices
        where there are four cores or more; there it gets OMP_NUM_THREADS=1.""")
    times = []
    for row in reversed(ours[-2:]):
        times.append(f"{faster(1 / row.of_book)} on {plural(row.devices, 'device')}")
    t.answer(f"Compared with the book's loop, an epoch by mxdp {' and '.join(times)}.")
    t.explain("""mxdp's devices share no temporary space, so they work at the same time, and no loader hands over each
        sample.""")
    t.bars(unit="s/epoch", colour="loop")
