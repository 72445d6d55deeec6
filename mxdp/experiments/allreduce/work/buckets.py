"""Sums all gradients of a network, alone or after a backward pass."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

from mxdp.backend import Device, NDArray, autograd, gluon, mx, np, npx, upload
from mxdp.collectives import AllReduce, GradientSync
from mxdp.experiments.allreduce.common import STORES
from mxdp.experiments.allreduce.work.arrays import Shape, Sync, exact_sums, numbers, seconds_a_call, store_sync
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.devices import devices_of
from mxdp.scratch import SHAPES, get_params

Arrays = List[List[NDArray]]


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """One sum of whole numbers."""
    devices = devices_of(case, settings)
    gradients, sync = _sync(case, _replicas(case, devices))
    for rank, own in enumerate(gradients):
        for gradient in own:
            upload(numbers(gradient.shape, rank, settings["seed"]), devices[rank]).copyto(gradient)
    sync()
    npx.waitall()  # a store of MXNet's is freed with ``sync``, and its jobs would still use it
    return exact_sums(gradients, settings["seed"])


def set_up(case: Case, settings: Settings) -> Work:
    """A round makes its own arrays: the cases share a process, and none may hold memory while another is measured."""
    devices = devices_of(case, settings)

    def one_round() -> Round:
        if "run" not in case.settings:
            sync = _sync(case, _replicas(case, devices))[1]
            buckets = [(each.nbytes, each.algorithm) for each in getattr(sync, "buckets", ())]
            return Round(seconds_a_call(sync), last={"buckets": buckets} if buckets else {})
        actions = _beside_backward(case, devices, settings["images"])
        times = {name: seconds_a_call(action) for name, action in actions.items()}
        return Round(times["beside"], {f"{name}_ms": seconds * 1e3 for name, seconds in times.items()})

    return Work(devices, one_round)


def _replicas(case: Case, devices: Sequence[Device]) -> Arrays:
    """The trained parameters, on each device. Their values don't matter here."""
    params = [np.zeros(shape) for shape in _shapes(case.settings["net"])]
    return [get_params(params, device) for device in devices]


@lru_cache(maxsize=None)
def _shapes(net: str) -> List[Shape]:
    return list(SHAPES) if net == "lenet" else [param.shape for param in _trained(_resnet18([mx.cpu()]))]


def _resnet18(devices: Sequence[Device]) -> Any:
    """Gluon's ResNet-18, initialised on each device."""
    network = gluon.model_zoo.vision.resnet18_v1(classes=10)
    mx.random.seed(0)
    network.initialize(ctx=list(devices))
    for device in devices:
        network(np.zeros((1, 3, 32, 32), ctx=device))
    return network


_one_resnet18 = lru_cache(maxsize=None)(_resnet18)
"""The same for all cases, which are measured one after the other."""


def _trained(network: Any) -> List[Any]:
    return [param for param in network.collect_params().values() if param.grad_req != "null"]


def _sync(case: Case, replicas: Arrays) -> Tuple[Arrays, Sync]:
    """The gradients of each replica, where this case's sum finds them, and the sum."""
    name = case.settings["algorithm"]
    if case.settings["bucket_mb"]:
        sync = GradientSync(replicas, name, case.settings["bucket_mb"])
        return [[own[number] for number in range(len(own))] for own in sync.gradients], sync
    gradients = [[param.grad for param in params] for params in replicas]
    if name in STORES:
        return gradients, store_sync(name, gradients)
    each = [AllReduce(same, "naive") for same in zip(*gradients)]

    def one_by_one() -> None:
        for allreduce in each:
            allreduce()

    return gradients, one_by_one


def _beside_backward(case: Case, devices: Sequence[Device], samples: int) -> Dict[str, Callable[[], None]]:
    """A forward and backward pass of ResNet-18 on each device: alone, waited for and then summed, or summed at once."""
    network = _one_resnet18(tuple(devices))
    sync = _sync(case, [[param.data(device) for param in _trained(network)] for device in devices])[1]
    images = [np.ones((samples, 3, 32, 32), ctx=device) for device in devices]

    def alone() -> None:
        with autograd.record():
            losses = [network(X).sum() for X in images]
        autograd.backward(losses)

    def after() -> None:
        alone()
        npx.waitall()
        sync()

    def beside() -> None:
        alone()
        sync()

    return {"alone": alone, "after": after, "beside": beside}
