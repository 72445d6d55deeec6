"""Trains LeNet with :func:`mxdp.training.train_epochs`; the first batches warm up."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Tuple

from mxdp.datasets import load
from mxdp.experiments.data_parallel.work.continued import ContinuedTraining
from mxdp.experiments.data_parallel.work.recorded_steps import recorder
from mxdp.experiments.data_parallel.work.serial_run import check_step, synced_step
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.devices import WARM_UP, devices_of
from mxdp.scratch import evaluate, get_params, in_sync, init_lenet, lenet
from mxdp.tracing.recording import can_record
from mxdp.training import BoundNet, TrainStep, train_epochs

RECORDED_STEPS = 6
"""After each round, outside the clock, to see what the time goes for."""


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """An uneven batch."""
    return check_step(devices_of(case, settings), 61, settings["seed"], step=synced_step())


def set_up(case: Case, settings: Settings) -> Work:
    """A round is an epoch, or ``samples`` of one, and then a few steps more, recorded. The processes of a ceiling share
    the batch and the samples. A process that is started anew goes on with the training of the one before it."""
    processes, devices = case.processes, devices_of(case, settings)
    data = load(settings["data"], settings["data_dir"], seed=settings["seed"])
    batch_size, lr = max(1, settings["batch_size"] // processes), settings["lr"]
    samples, seed = (settings["samples"] or len(data.train.y)) // processes, settings["seed"]
    training = ContinuedTraining(case, init_lenet(seed))

    warm_up, replicas = ([get_params(training.params, device) for device in devices] for _ in range(2))
    next(train_epochs(data.train, warm_up, devices, batch_size, lr, samples=WARM_UP * batch_size))
    start = divmod(training.rounds * samples, len(data.train.y))
    epochs = train_epochs(data.train, replicas, devices, batch_size, lr, samples, seed, start=start)

    # On the replicas of the warm-up, since a recorded step is a step of training.
    record = recorder(data.train, batch_size, seed, TrainStep(warm_up, devices, lr), devices)
    net = BoundNet(lenet)

    def one_round() -> Round:
        epoch = next(epochs)
        metrics: Dict[str, Any] = {"round_samples": processes * epoch.samples}
        if len(replicas) > 1:
            metrics["in_sync"] = in_sync(replicas)
        if can_record(devices):
            metrics.update(record(RECORDED_STEPS).shares())
        last = {"loss": epoch.loss}
        if not case.reference:
            last["test_accuracy"] = evaluate(data.test, replicas, net=net)
        training.keep(replicas[0])
        return Round(epoch.seconds, metrics, last)

    return Work(devices, one_round, case={"data": data.name, "epoch_samples": len(data.train.y)})
