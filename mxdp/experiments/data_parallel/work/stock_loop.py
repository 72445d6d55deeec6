"""Trains LeNet with the book's loop or with mxdp's; the first epoch warms up."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Iterator, Optional, Tuple

from mxdp.datasets import load
from mxdp.experiments.data_parallel.work.serial_run import check_step, synced_step
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure import book_loop
from mxdp.experiments.measure.devices import devices_of
from mxdp.scratch import get_params, init_lenet
from mxdp.training import train_epochs


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """An even batch: the book's loop can't split another."""
    devices, seed = devices_of(case, settings), settings["seed"]
    if case.settings["loop"] == "book":
        return check_step(devices, 60, seed, step=book_loop.train_batch, layout=book_loop.book_layout)
    return check_step(devices, 60, seed, step=synced_step())


def set_up(case: Case, settings: Settings) -> Work:
    """A round is an epoch of ``samples`` samples."""
    devices, seed, batch_size, lr = devices_of(case, settings), settings["seed"], settings["batch_size"], settings["lr"]
    data = load(settings["data"], settings["data_dir"], seed=seed)
    if settings["samples"]:
        data = data.take(settings["samples"])
    params = init_lenet(seed)
    one_round: Callable[[], Optional[Round]]
    if case.settings["loop"] == "book":
        replicas = [get_params(book_loop.book_layout(params), device) for device in devices]
        batches = book_loop.data_loader(data.train, data.test, batch_size)
        one_round = partial(book_loop.train_epoch, batches, replicas, devices, lr)
    else:
        replicas = [get_params(params, device) for device in devices]
        epochs = train_epochs(data.train, replicas, devices, batch_size, lr, seed=seed)
        one_round = partial(next, (Round(epoch.seconds) for epoch in epochs))
    one_round()
    return Work(devices, one_round, case={"data": data.name, "epoch_samples": len(data.train.y)})
