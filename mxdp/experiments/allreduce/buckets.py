"""Gradients one by one, or in buckets? How large should a bucket be, and does its sum hide behind backward?

A network's gradients are many arrays, most of them small. Summed one by one, each costs its calls and a wait. In one
bucket they cost little more than their bytes. So the model expects much for LeNet (8 arrays, 0.5 MB) and less for
ResNet-18 (62 arrays, 45 MB), where bytes dominate and it matters that all devices add at the same time.

Several buckets could be summed while backward still works on the rest. On CPU devices that gains little: sums and
copies run on the same worker as backward. The rows with a backward pass show how much was hidden.
"""

from __future__ import annotations

import itertools
from typing import List, Optional, Tuple

from mxdp.errors import plural
from mxdp.experiments.allreduce.common import STORES, draw_times, keep_fastest, keep_over_fastest, keep_worst, merge
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, fastest, find, find_all
from mxdp.experiments.report import style
from mxdp.plans.collective.algorithms import ALGORITHMS, AUTO

NETS = {"lenet": ("LeNet", 0.9), "resnet18": ("ResNet-18", 0.75)}
"""Each network's title, and the claim: the time of our best over that of MXNet's ``device`` store."""
JUDGED = (2, 4)
"""Numbers of devices that the claims about the fastest are about."""
DEFAULT_MB = 25.0
"""MiB of a bucket of ``GradientSync``, if its user chooses nothing."""
BESIDE = "beside backward"


@experiment
class Buckets(Experiment):
    """The gradients of two networks, by store, algorithm and bucket size, alone and beside backward."""

    name = "buckets"
    question = "Gradients one by one, or in buckets?"
    source = "Dive into Deep Learning, 'Training on Multiple GPUs'; buckets as in PyTorch DDP and Horovod"
    how_to_read = (
        "All gradients of all replicas, summed in place; every call is waited for. '/device' is the time over that of "
        "MXNet's device store, which sums array by array: the median over the rounds, which take turns. Rows named "
        "after an algorithm have one bucket. The fastest is chosen on odd rounds (or processes) and timed on the "
        "others; for auto, the other way round as well. Rows of ours with the same buckets and algorithms do the same: "
        "for auto, their median counts. The last rows: what the sum adds to ResNet-18's backward pass, waited for "
        "('after') or not ('beside')."
    )
    claims = {
        f"{net}_best": Claim(
            f"On 2 and on 4 devices, the fastest of ours sums {title}'s gradients in at most {bound} of the time of "
            "MXNet's device store.",
            "ours",
            bound,
        )
        for net, (title, bound) in NETS.items()
    }
    claims["auto_worst"] = Claim(
        f"With buckets of {DEFAULT_MB:g} MiB, the default, 'auto' takes at most 1.1 times as long as the fastest of "
        "ours: of both networks and all numbers of devices, where it is worst.",
        "ours: who chooses nothing should not pay for that",
        1.1,
    )
    compared = "every gradient of every replica, against the exact sum"
    together = True
    full = dict(
        # The fastest is chosen in half of the processes and reported in the other half. Six there give an interval,
        # and fifteen one that shows 10 %.
        devices=[2, 4, 8], kind="auto", seed=0, rounds=1, repeats=30, timeout=900.0,
        bucket_mb=[0.25, 4.0, 25.0], images=4,
    )  # fmt: skip
    presets = {
        "quick": dict(full, devices=[2, 4], repeats=12, timeout=120.0, bucket_mb=[4.0, 25.0], images=4),
        "full": full,
    }
    little = dict(devices=[2], bucket_mb=[1.0], images=1)

    def cases(self, settings: Settings) -> List[Case]:
        cases = []
        ways: List[Tuple[str, str, Optional[float]]] = [(name, name, None) for name in (*STORES, "one by one")]
        ways += [(f"auto, {mib:g} MiB", AUTO, mib) for mib in settings["bucket_mb"]]
        ways += [(name, name, 1024.0) for name in sorted(ALGORITHMS)]  # a bucket that holds everything
        for net, n, (way, name, mib) in itertools.product(NETS, settings["devices"], ways):
            case = {"net": net, "algorithm": name, "bucket_mb": mib}
            cases.append(Case(f"{net} x {n}: {way}", n, settings=case))
        n = settings["devices"][0]
        # MXNet pushes backward in bulks of 15 operators, and a gradient is ready when its bulk is done.
        bulks = {"bulks of 15": {}, "bulks of 1": {"MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN_BWD": "1"}}
        for mib in settings["bucket_mb"]:
            for bulk, environment in bulks.items():
                label = f"resnet18 x {n}: {BESIDE}, {mib:g} MiB, {bulk}"
                case = {"net": "resnet18", "run": BESIDE, "algorithm": AUTO, "bucket_mb": mib, "bulk": bulk}
                cases.append(Case(label, n, settings=case, environment=environment))
        return cases

    def predict(self, settings: Settings, cores: int) -> str:
        return (
            f"On {plural(cores, 'core')}: LeNet in one bucket costs an eighth of the calls. For ResNet-18 bytes "
            "decide, and sharded, direct and (CPU) shared-memory send the fewest. Beside backward, CPU devices can "
            "hide next to nothing: both run on the same worker."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            case, metrics = row.case, row.metrics
            metrics["ms"] = row.median * 1e3
            if "run" in case:
                alone, *both = (row.rounds[f"{name}_ms"] for name in ("alone", "beside", "after"))
                for name, times in zip(("adds_ms", "after_adds_ms"), both):
                    row.keep(name, [time - least for time, least in zip(times, alone)])
            else:
                store = find(rows, net=case["net"], devices=case["devices"], algorithm="mxnet-device", run=None)
                row.keep_ratios("of_device_store", store)
        found = []
        for net, n in itertools.product(NETS, settings["devices"]):
            ours = [row for row in _summed(rows, net, n) if row.case["bucket_mb"]]
            if ours:
                keep_fastest(ours, *[f"{net}_best"] * (n in JUDGED))
                does = {row: str(row.metrics.get("buckets", row.label)) for row in ours}
                merged = merge({row: [own] * len(row.samples) for row, own in does.items()})
                for auto in find_all(ours, algorithm=AUTO, bucket_mb=DEFAULT_MB):
                    keep_over_fastest("over_fastest", auto, merged[does[auto]].samples, list(merged.values()))
                    found.append(auto)
        keep_worst("auto_worst", "over_fastest", found)

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        best = [row for row in rows if "best_of_device_store" in row.rounds]
        lenet, resnet = (row.estimate("best_of_device_store") for row in best if row.devices == best[0].devices)
        return (
            "Compared with MXNet's device store, which sums gradients one by one, buckets on "
            f"{plural(len(best[0].devices), 'device')} take {lenet:.2f} of the time for LeNet and {resnet:.2f} for "
            "ResNet-18."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        beside, _ = fastest(find_all(rows, run=BESIDE))
        return (
            "One by one, each array costs its calls and a wait; in a bucket, an array costs little more than its "
            f"bytes. Beside ResNet-18's backward pass ({beside.metrics['alone_ms']:.0f} ms), buckets of "
            f"{beside.case['bucket_mb']:g} MiB are the fastest: the sum adds {beside.estimate('adds_ms'):.1f} ms, and "
            f"{beside.estimate('after_adds_ms'):.1f} ms if it starts after the pass."
        )

    def columns(self) -> List[Column]:
        return [
            Column("ms", "ms"),
            Column("of_device_store", "/device", ".2f"),
            Column("after_adds_ms", "after: ms", "+.1f"),
            Column("adds_ms", "beside: ms", "+.1f"),
        ]

    def answering(self, rows: List[Row]) -> List[Row]:
        """For each network and number of devices MXNet's device store, one by one, and the fastest of ours; then the
        fastest beside backward."""
        shown = [fastest(find_all(rows, run=BESIDE))[0], *find_all(rows, algorithm="mxnet-device")]
        shown += find_all(rows, algorithm="one by one")
        return [row for row in rows if row in shown or "best_of_device_store" in row.rounds]

    def draw(self, result: Result, figure: style.Figure) -> None:
        few = min(len(row.devices) for row in result["rows"])
        figure.set_figwidth(1.5 * style.WIDTH)
        for axes, (net, (title, _)) in zip(figure.subplots(1, len(NETS)), NETS.items()):
            rows = _summed(result["rows"], net, few)
            draw_times(axes, rows, [row.label.partition(": ")[2] for row in rows])
            axes.set_title(f"{title} on {plural(few, 'device')}")


def _summed(rows: List[Row], net: str, devices: int) -> List[Row]:
    """The rows without a backward pass, for that network and number of devices."""
    return [row for row in find_all(rows, net=net, run=None) if len(row.devices) == devices]
