"""Trains LeNet with the book's loop or with mxdp's; a few batches warm up. Each process goes on with the training of
the one before it."""

from __future__ import annotations

import math
from typing import Any, Iterator, Tuple

import numpy as onp

from mxdp.datasets import load
from mxdp.experiments.data_parallel.work.continued import ContinuedTraining
from mxdp.experiments.data_parallel.work.serial_run import check_step, synced_step
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure import book_loop
from mxdp.experiments.measure.devices import WARM_UP, devices_of
from mxdp.scratch import evaluate, get_params, init_lenet, lenet
from mxdp.timing import Timer
from mxdp.training import BoundNet, train_epochs


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """An even batch: the book's loop can't split another."""
    devices, seed = devices_of(case, settings), settings["seed"]
    if case.settings["loop"] == "book":
        return check_step(devices, 60, seed, step=book_loop.train_batch, layout=book_loop.book_layout)
    return check_step(devices, 60, seed, step=synced_step())


def set_up(case: Case, settings: Settings) -> Work:
    """A round is an epoch of ``samples`` samples, and then the test set, outside the clock."""
    devices, batch_size, lr = devices_of(case, settings), settings["batch_size"], settings["lr"]
    data = load(settings["data"], settings["data_dir"], seed=settings["seed"])
    if settings["samples"]:
        data = data.take(settings["samples"])
    data = book_loop.splittable(data, math.prod(settings["devices"]))
    few = book_loop.splittable(data.take(WARM_UP * batch_size), math.prod(settings["devices"]))
    params, seed = init_lenet(settings["seed"]), settings["seed"]
    if case.settings["loop"] == "book":
        training = ContinuedTraining(case, book_loop.book_layout(params))
        warm_up, replicas = ([get_params(training.params, device) for device in devices] for _ in range(2))
        book_loop.train_epoch(book_loop.data_loader(few.train, few.test, batch_size), warm_up, devices, lr)
        batches = book_loop.data_loader(data.train, data.test, batch_size)
        onp.random.seed(seed + training.rounds)  # by which gluon's loader shuffles
        net, timer = book_loop.lenet, Timer()

        def epoch() -> float:
            with timer:
                book_loop.train_epoch(batches, replicas, devices, lr)
            return timer.times[-1]

    else:
        training = ContinuedTraining(case, params)
        warm_up, replicas = ([get_params(training.params, device) for device in devices] for _ in range(2))
        next(train_epochs(few.train, warm_up, devices, batch_size, lr))
        start = (training.rounds, 0)
        epochs = train_epochs(data.train, replicas, devices, batch_size, lr, seed=seed, start=start)
        net = BoundNet(lenet)

        def epoch() -> float:
            return next(epochs).seconds

    def one_round() -> Round:
        seconds = epoch()
        training.keep(replicas[0])
        return Round(seconds, last={"test_accuracy": evaluate(data.test, replicas, net=net)})

    return Work(devices, one_round, case={"data": data.name, "epoch_samples": len(data.train.y)})
