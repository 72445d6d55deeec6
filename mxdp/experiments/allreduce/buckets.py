"""One message for all gradients, or many: what does a bucket bring, how large should it be, and does it hide?

A network's gradients are many arrays, most of them small. One by one, each costs its calls and its waiting; in one
bucket they cost the bytes and hardly more. So the model expects much for LeNet (8 arrays, 0.5 MB) and less for
ResNet-18 (62 arrays, 45 MB), where bytes dominate and what counts is that all devices add at the same time.

Several buckets could be summed while backward still works on the rest. On CPU devices there is little to win by that:
sums and copies run on the same worker as backward does. The rows with a backward pass say how much was hidden.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Tuple

from mxdp.experiments.harness.experiment import (
    Case,
    Column,
    Experiment,
    Oracle,
    Ready,
    Result,
    Round,
    Row,
    Settings,
    Verdict,
    experiment,
)
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find, find_all, metric, plural, ratio, row_bars
from mxdp.plans.collective.algorithms import ALGORITHMS, AUTO

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STORES = {"mxnet-local": "local", "mxnet-device": "device"}
ONE_BY_ONE = "one by one"
WHOLE = 1024.0
"""MiB: a bucket that holds everything."""
CLAIMS = {"lenet": 0.75, "resnet18": 0.65}
"""Time of our best over MXNet's ``device`` store."""
BESIDE = "beside backward"
BULKS: Dict[str, Dict[str, Optional[str]]] = {
    "bulks of 15": {},
    "bulks of 1": {"MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN_BWD": "1"},
}
"""MXNet pushes backward in bulks of 15 operators, and a gradient is there when its bulk is done."""


@experiment
class Buckets(Experiment):
    """The gradients of two networks, by store, algorithm and bucket size; and beside backward."""

    name = "buckets"
    question = "Gradients one by one, or in buckets?"
    source = "Dive into Deep Learning, 'Training on Multiple GPUs'; buckets as in PyTorch DDP and Horovod"
    how_to_read = (
        "All gradients of all replicas summed in place; every call is waited for. '/device' is the time over that of "
        "MXNet's device store, the median over the rounds, which take turns. Rows named after an algorithm have one "
        "bucket. The last rows: what the sum adds to ResNet-18's backward pass, waited for ('after') or not ('beside')."
    )
    together = True
    presets = {
        "quick": dict(
            devices=[2, 4], kind="auto", seed=0, rounds=5, timeout=120.0, bucket_mb=[1.0, 4.0, 25.0], images=4
        ),
        "full": dict(
            devices=[2, 4, 8], kind="auto", seed=0, rounds=11, timeout=900.0,
            bucket_mb=[0.25, 1.0, 4.0, 25.0, 100.0], images=16,
        ),
    }  # fmt: skip

    def __init__(self) -> None:
        self._shapes: Dict[str, List[Tuple[int, ...]]] = {}
        self._network: Any = None

    def cases(self, settings: Settings) -> List[Case]:
        cases = []
        for net in CLAIMS:
            for n in settings["devices"]:
                ways: List[Tuple[str, str, Optional[float]]] = [(name, name, None) for name in (*STORES, ONE_BY_ONE)]
                ways += [(f"auto, {_mb(size)}", AUTO, size) for size in settings["bucket_mb"]]
                ways += [(name, name, WHOLE) for name in sorted(ALGORITHMS)]
                cases += [_case(net, n, way, {"algorithm": name, "bucket_mb": size}) for way, name, size in ways]
        n = settings["devices"][0]
        for size in settings["bucket_mb"]:
            for bulk, environment in BULKS.items():
                settled = {"run": BESIDE, "algorithm": AUTO, "bucket_mb": size, "bulk": bulk}
                case = _case("resnet18", n, f"{BESIDE}, {_mb(size)}, {bulk}", settled)
                cases.append(replace(case, environment=environment))
        return cases

    def predict(self, settings: Settings, cores: int) -> str:
        return (
            f"On {plural(cores, 'core')}: LeNet in one bucket costs an eighth of the calls; for ResNet-18 bytes "
            "decide, and the fewest are those of sharded, direct and (CPU) shared-memory. Beside backward, CPU "
            "devices can hide next to nothing: both run on the same worker."
        )

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        from mxdp.backend import upload
        from mxdp.experiments.allreduce.work.arrays import count_wrong_sums, numbers
        from mxdp.experiments.measure.devices import devices_of

        devices = devices_of(case, settings)
        gradients, sync = _gradients(case, self._replicas(case, devices))
        for rank, own in enumerate(gradients):
            for gradient in own:
                upload(numbers(gradient.shape, rank, settings["seed"]), devices[rank]).copyto(gradient)
        sync()
        checked, wrong = count_wrong_sums(gradients, settings["seed"])
        return Oracle(checked, wrong, "every gradient of every replica, against the exact sum")

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        from mxdp.experiments.allreduce.work.arrays import seconds_a_call
        from mxdp.experiments.measure.devices import devices_of

        devices = devices_of(case, settings)
        yield Ready([str(device) for device in devices])
        times: Dict[str, List[float]] = {"alone": [], "after": [], "beside": []}
        while True:
            if "run" not in case.settings:
                action = _gradients(case, self._replicas(case, devices))[1]
                seconds = seconds_a_call(action)
                del action  # the cases share one process, so none may hold memory while another is measured
                yield Round(seconds)
                continue
            for name, action in self._beside_backward(case, devices, settings).items():
                times[name].append(seconds_a_call(action))
            del action
            medians = {f"{name}_ms": statistics.median(each) * 1e3 for name, each in times.items()}
            yield Round(times["beside"][-1], medians)

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            case, metrics = row["case"], row["metrics"]
            metrics["ms"] = row["seconds"]["median"] * 1e3
            if "run" in case:
                metrics["adds_ms"] = metrics["beside_ms"] - metrics["alone_ms"]
                metrics["after_adds_ms"] = metrics["after_ms"] - metrics["alone_ms"]
            else:
                store = find(rows, net=case["net"], devices=case["devices"], algorithm="mxnet-device")
                metrics["of_device_store"] = ratio(row, store) if store else None

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        said, holds = [], True
        for net, claim in CLAIMS.items():
            for devices in _device_lists(rows):
                ours = [
                    row
                    for row in find_all(rows, net=net, devices=devices)
                    if row["case"]["bucket_mb"] and "run" not in row["case"]
                ]
                best = min(ours, key=lambda row: row["metrics"]["of_device_store"])
                share = best["metrics"]["of_device_store"]
                holds = holds and (share <= claim or len(devices) not in (2, 4))
                said.append(f"{_title(net)} on {len(devices)}: {_way(best)}, {share:.2f}")
        text = (
            f"The best over MXNet's device store. {'; '.join(said)}. Asked for: at most {CLAIMS['lenet']} (LeNet) and "
            f"{CLAIMS['resnet18']} (ResNet-18) on 2 and on 4 devices. {_hidden(rows)}"
        )
        return Verdict(holds, text)

    def columns(self) -> List[Column]:
        return [
            Column("ms", lambda row: style.number(row["metrics"]["ms"])),
            metric("of_device_store", "/device"),
            metric("after_adds_ms", "after: ms", "{:+.1f}"),
            metric("adds_ms", "beside: ms", "{:+.1f}"),
        ]

    def draw(self, result: Result, figure: Figure) -> None:
        few = min(len(row["case"]["devices"]) for row in result["rows"])
        panels = figure.subplots(1, len(CLAIMS))
        figure.set_figwidth(1.5 * style.WIDTH)
        for axes, net in zip(panels, CLAIMS):
            rows = [row for row in find_all(result["rows"], net=net, run=None) if len(row["case"]["devices"]) == few]
            colours = [style.COLOURS[0] if row["case"]["bucket_mb"] else style.GREY for row in rows]
            row_bars(figure, rows, "ms", colours, [1e3] * len(rows), axes, [_way(row) for row in rows])
            axes.set_title(f"{_title(net)} on {plural(few, 'device')}")

    def _replicas(self, case: Case, devices: Any) -> List[List[Any]]:
        """The parameters that are trained, on each device: their values don't matter here."""
        from mxdp import get_params
        from mxdp.backend import np
        from mxdp.scratch import SHAPES

        net = case.settings["net"]
        if net not in self._shapes:
            network = _resnet18(devices[:1]) if net == "resnet18" else None
            self._shapes[net] = [param.shape for param in _trained(network)] if network else list(SHAPES)
        params = [np.zeros(shape) for shape in self._shapes[net]]
        return [get_params(params, device) for device in devices]

    def _beside_backward(self, case: Case, devices: Any, settings: Settings) -> Dict[str, Callable[[], None]]:
        """A forward and backward pass of ResNet-18 on each device: alone, waited for and summed, or just summed."""
        from mxdp.backend import autograd, np, npx

        if self._network is None:
            self._network = _resnet18(devices)
        network = self._network
        replicas = [[param.data(device) for param in _trained(network)] for device in devices]
        sync = _gradients(case, replicas)[1]
        images = [np.ones((settings["images"], 3, 32, 32), ctx=device) for device in devices]

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


def _case(net: str, devices: int, way: str, settings: Any) -> Case:
    return Case(f"{net} x {devices}: {way}", devices, settings={"net": net, **settings})


def _mb(size: float) -> str:
    return f"{size:g} MiB"


def _title(net: str) -> str:
    return {"lenet": "LeNet", "resnet18": "ResNet-18"}[net]


def _device_lists(rows: List[Row]) -> List[List[str]]:
    lists: List[List[str]] = []
    for row in rows:
        if row["case"]["devices"] not in lists:
            lists.append(row["case"]["devices"])
    return lists


def _way(row: Row) -> str:
    return str(row["label"].partition(": ")[2])


def _hidden(rows: List[Row]) -> str:
    """What the sum costs beside backward, with the bucket size for which that is least."""
    beside = [row for row in rows if "run" in row["case"]]
    best = min(beside, key=lambda row: row["metrics"]["adds_ms"])
    metrics = best["metrics"]
    return (
        f"Beside ResNet-18's backward pass ({metrics['alone_ms']:.0f} ms) the sum adds {metrics['adds_ms']:.1f} ms "
        f"with buckets of {_mb(best['case']['bucket_mb'])} and {best['case']['bulk']}, "
        f"after it {metrics['after_adds_ms']:.1f} ms."
    )


def _resnet18(devices: Any) -> Any:
    """Gluon's ResNet-18, initialised on each device."""
    from mxdp.backend import gluon, mx, np

    network = gluon.model_zoo.vision.resnet18_v1(classes=10)
    mx.random.seed(0)
    network.initialize(ctx=devices)
    for device in devices:
        network(np.zeros((1, 3, 32, 32), ctx=device))
    return network


def _trained(network: Any) -> List[Any]:
    return [param for param in network.collect_params().values() if param.grad_req != "null"]


def _gradients(case: Case, replicas: List[List[Any]]) -> Tuple[List[List[Any]], Callable[[], Any]]:
    """The gradients of each replica, where this way of summing wants them, and the sum."""
    from mxdp.collectives import AllReduce, GradientSync
    from mxdp.experiments.allreduce.work.arrays import store_sync

    name = case.settings["algorithm"]
    if case.settings["bucket_mb"]:
        sync = GradientSync(replicas, name, case.settings["bucket_mb"])
        return [[own[number] for number in range(len(own))] for own in sync.gradients], sync
    gradients = [[param.grad for param in params] for params in replicas]
    if name in STORES:
        return gradients, store_sync(STORES[name], gradients)
    each = [AllReduce(same, "naive") for same in zip(*gradients)]

    def one_by_one() -> None:
        for allreduce in each:
            allreduce()

    return gradients, one_by_one
