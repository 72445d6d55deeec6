"""Gradients one by one, or in buckets? How large should a bucket be, and does its sum hide behind backward?

A network's gradients are many arrays, most of them small. Summed one by one, each costs its calls and a wait. In one
bucket they cost little more than their bytes. So the model expects much for LeNet (8 arrays, 0.5 MB) and less for
ResNet-18 (62 arrays, 45 MB), where bytes dominate and it matters that all devices add at the same time.

Several buckets could be summed while backward still works on the rest. On CPU devices that gains little: sums and
copies run on the same worker as backward. The rows with a backward pass show how much was hidden.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from mxdp.errors import plural
from mxdp.experiments.allreduce.sizes import STORES
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Row, Settings, Verdict, experiment
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find_all, over, row_bars
from mxdp.plans.collective.algorithms import ALGORITHMS, AUTO

ONE_BY_ONE = "one by one"
WHOLE = 1024.0
"""MiB: a bucket that holds everything."""
CLAIMS = {"lenet": 0.75, "resnet18": 0.65}
"""Time of our best over MXNet's ``device`` store."""
TITLES = {"lenet": "LeNet", "resnet18": "ResNet-18"}
BESIDE = "beside backward"
Environment = Dict[str, Optional[str]]
BULKS: Dict[str, Environment] = {
    "bulks of 15": {},
    "bulks of 1": {"MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN_BWD": "1"},
}
"""MXNet pushes backward in bulks of 15 operators, and a gradient is ready when its bulk is done."""


@experiment
class Buckets(Experiment):
    """The gradients of two networks, by store, algorithm and bucket size, alone and beside backward."""

    name = "buckets"
    question = "Gradients one by one, or in buckets?"
    source = "Dive into Deep Learning, 'Training on Multiple GPUs'; buckets as in PyTorch DDP and Horovod"
    how_to_read = (
        "All gradients of all replicas summed in place; every call is waited for. '/device' is the time over that of "
        "MXNet's device store, the median over the rounds, which take turns. Rows named after an algorithm have one "
        "bucket. The last rows: what the sum adds to ResNet-18's backward pass, waited for ('after') or not ('beside')."
    )
    compared = "every gradient of every replica, against the exact sum"
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
    little = dict(bucket_mb=[1.0], images=1)

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
                cases.append(_case("resnet18", n, f"{BESIDE}, {_mb(size)}, {bulk}", settled, environment))
        return cases

    def predict(self, settings: Settings, cores: int) -> str:
        return (
            f"On {plural(cores, 'core')}: LeNet in one bucket costs an eighth of the calls. For ResNet-18 bytes "
            "decide, and sharded, direct and (CPU) shared-memory send the fewest. Beside backward, CPU devices can "
            "hide next to nothing: both run on the same worker."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            case, metrics = row["case"], row["metrics"]
            metrics["ms"] = row["seconds"]["median"] * 1e3
            if "run" in case:
                metrics["adds_ms"] = metrics["beside_ms"] - metrics["alone_ms"]
                metrics["after_adds_ms"] = metrics["after_ms"] - metrics["alone_ms"]
            else:
                metrics["of_device_store"] = over(rows, row, "net", "devices", algorithm="mxnet-device")

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        said, holds = [], True
        for net, claim in CLAIMS.items():
            for n in settings["devices"]:
                ours = [row for row in _summed(rows, net, n) if row["case"]["bucket_mb"]]
                best = min(ours, key=lambda row: row["metrics"]["of_device_store"])
                share = best["metrics"]["of_device_store"]
                holds = holds and (share <= claim or n not in (2, 4))
                said.append(f"{TITLES[net]} on {n}: {share:.2f} ({_way(best)})")
        text = (
            f"The best time over that of MXNet's device store: {'; '.join(said)}. Asked for: at most "
            f"{CLAIMS['lenet']} (LeNet) and {CLAIMS['resnet18']} (ResNet-18) on 2 and on 4 devices. {_hidden(rows)}"
        )
        return Verdict(holds, text)

    def columns(self) -> List[Column]:
        return [
            Column("ms", "ms"),
            Column("of_device_store", "/device", ".2f"),
            Column("after_adds_ms", "after: ms", "+.1f"),
            Column("adds_ms", "beside: ms", "+.1f"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        few = min(len(row["case"]["devices"]) for row in result["rows"])
        panels = figure.subplots(1, len(CLAIMS))
        figure.set_figwidth(1.5 * style.WIDTH)
        for axes, net in zip(panels, CLAIMS):
            rows = _summed(result["rows"], net, few)
            colours = [style.COLOURS[0] if row["case"]["bucket_mb"] else style.GREY for row in rows]
            row_bars(figure, rows, "ms", colours, [1e3] * len(rows), axes, [_way(row) for row in rows])
            axes.set_title(f"{TITLES[net]} on {plural(few, 'device')}")


def _case(
    net: str, devices: int, way: str, settings: Settings, environment: Environment = BULKS["bulks of 15"]
) -> Case:
    return Case(f"{net} x {devices}: {way}", devices, 1, {"net": net, **settings}, environment)


def _mb(size: float) -> str:
    return f"{size:g} MiB"


def _summed(rows: List[Row], net: str, devices: int) -> List[Row]:
    """The rows without a backward pass, for that network and number of devices."""
    return [row for row in find_all(rows, net=net, run=None) if len(row["case"]["devices"]) == devices]


def _way(row: Row) -> str:
    return str(row["label"].partition(": ")[2])


def _hidden(rows: List[Row]) -> str:
    """What the sum adds beside backward, with the bucket size for which that is least."""
    best = min(find_all(rows, run=BESIDE), key=lambda row: row["metrics"]["adds_ms"])
    metrics = best["metrics"]
    return (
        f"Beside ResNet-18's backward pass ({metrics['alone_ms']:.0f} ms) the sum adds {metrics['adds_ms']:.1f} ms "
        f"with buckets of {_mb(best['case']['bucket_mb'])} and {best['case']['bulk']}, "
        f"after it {metrics['after_adds_ms']:.1f} ms."
    )
