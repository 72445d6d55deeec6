"""Evaluates LeNet, after a few steps of training, on all devices."""

from __future__ import annotations

from typing import Any, Iterator, Tuple

from mxdp.backend import np
from mxdp.datasets import Split, load, minibatches
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.devices import devices_of
from mxdp.scratch import evaluate, get_params, init_lenet, lenet
from mxdp.timing import Timer
from mxdp.training import BoundNet, TrainStep


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """Batches that leave the devices shards of other lengths, and a last one with fewer samples than devices."""
    devices, data = devices_of(case, settings), load("synthetic", seed=settings["seed"]).test
    params = init_lenet(settings["seed"], scale=0.1)
    replicas = [get_params(params, device) for device in devices]
    for samples, batch_size in ((1, 1), (61, 7), (61, 61)):
        few = Split(data.X[:samples], data.y[:samples])
        right = (lenet(np.array(few.X), params).asnumpy().argmax(axis=1) == few.y).sum()
        yield evaluate(few, replicas, batch_size, BoundNet(lenet)) * samples, right, 1e-9


def set_up(case: Case, settings: Settings) -> Work:
    """The network is trained on one device, so that all cases evaluate the same parameters, bit for bit."""
    devices = devices_of(case, settings)
    data = load(settings["data"], settings["data_dir"], seed=settings["seed"])
    # Larger weights than the book's, which learn nothing in so few steps.
    params = get_params(init_lenet(settings["seed"], scale=0.1), devices[0])
    step, batches = TrainStep([params], devices[:1], 0.1), minibatches(data.train, 32, settings["seed"], epoch=0)
    for _, (X, y) in zip(range(settings["steps"]), batches):
        step(X, y)
    replicas, net, timer = [get_params(params, device) for device in devices], BoundNet(lenet), Timer()

    def one_round() -> Round:
        with timer:
            accuracy = evaluate(data.test, replicas, settings["batch_size"], net)
        right = round(accuracy * len(data.test))
        return Round(timer.times[-1], {"samples": len(data.test), "right": right}, {"test_accuracy": accuracy})

    one_round()
    return Work(devices, one_round, case={"data": data.name})
