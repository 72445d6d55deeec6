"""How far a network scales: what ``python -m mxdp.experiments predict`` says, and the parts of a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict

from mxdp.errors import plural
from mxdp.experiments.predict import inputs, ways
from mxdp.live.allreduce import LINKS
from mxdp.live.drawn import bars, beside, curves, table
from mxdp.live.memory import POWERS
from mxdp.live.topic import Answer, Control, Settings, Topic
from mxdp.plans.cost import step as steps
from mxdp.plans.cost.layer_lists import NETWORKS
from mxdp.plans.cost.machine import MIB

USUAL = 0
"""Stands for the speed that is known of the network, and for the best size of buckets."""
SPEEDS = {"lenet": 5000.0}
"""Samples a second of one device, by network. That of LeNet is an assumption, and a reader may change each of them."""
for name in ("d2l-2-gpus", "horovod-2017", "dlperf-v100"):
    SPEEDS.update(inputs.machine(name).samples_per_second)
RATES = [USUAL, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000]
BUCKETS = [USUAL, 0.1, 1, 4, 25, 100, 1024]
PERCENT = {0: "0 %", 25: "25 %", 50: "50 %", 75: "75 %", 100: "100 %"}
WORDS = {"weak": "weak: a batch on each device", "strong": "strong: all share the batch of a node"}


def parts(step: steps.Prediction) -> Dict[str, float]:
    """The ms of a step: compute beside which no link works, the all-reduce beside compute, and the all-reduce alone."""
    links = sum(span.stop - span.start for span in step.spans if span.lane == steps.LINKS)
    exposed = sum(step.lost[name] for name in ("latency", "bandwidth", "sums"))
    seconds = {"compute": step.seconds - links, "hidden": links - exposed, "exposed": exposed}
    return {name: max(0.0, 1e3 * value) for name, value in seconds.items()}


def answer(s: Settings) -> Answer:
    """The step with each all-reduce, and the efficiency over the devices."""
    idle = []
    if s["devices"] == 1:
        idle.append("inside")
    if s["nodes"] == 1:
        idle.append("between")
    if s["devices"] * s["nodes"] == 1:
        idle.append("bucket")
    keys = ("devices", "nodes", "inside", "between")
    cluster = inputs.machine(**{key: s[key] for key in keys if key not in idle}).cluster
    rate = float(s["speed"] or SPEEDS[s["model"]])
    network, _ = inputs.known_network(s["model"], rate)
    asked = (network, cluster, s["batch"])
    rows = ways.allreduces(*asked)
    predicted = ways.Predicted(*asked, rows, ways.scaling(*asked), [])
    drawn = {}
    for row in rows:
        way = replace(row.way, bucket=s["bucket"] * MIB) if s["bucket"] else row.way
        step = steps.predict_step(*asked, way)
        buckets = plural(sum(span.lane == steps.LINKS for span in step.spans), "bucket")
        drawn[f"{way.allreduce}, {buckets} of {way.bucket / MIB:g} MiB"] = parts(step)
    last = rows[-1].way
    more = steps.predict_step(network, cluster, 2 * s["batch"], last)
    return Answer(
        said=f"One device trains {rate:,.5g} samples a second. {predicted.answer}",
        question=f"With a batch of {2 * s['batch']}, what percentage of linear does {last.allreduce} reach?",
        truth=f"{100 * more.efficiency:.3g} %",
        html=bars("A step and its all-reduce, ms", "by", drawn) + _over_devices(predicted.curves),
        idle=idle,
    )


def _over_devices(known: ways.Curves) -> str:
    lines = {}
    for kind, points in known.items():
        lines[WORDS[kind]] = {count: 100 * gain / count for count, gain in points}
    weak, strong = lines.values()
    if len(weak) == 1:
        return ""
    ticks = {count: f"{count:,}" for count in weak}
    rows = []
    for count, text in ticks.items():
        share = f"{strong[count]:.3g} %" if count in strong else "–"
        rows.append([text, f"{weak[count]:.3g} %", share])
    title = "Efficiency over devices, with the best buckets"
    numbers = table("Of linear scaling", ["devices", "weak", "strong"], rows)
    return beside(curves(title, lines, ticks, PERCENT, log=False), numbers)


TOPIC = Topic(
    "How far does it scale?",
    "The model leaves out input, switches, and kernels that slow down beside sums: its predictions are too good.",
    [
        Control("model", "Network", "resnet50", list(NETWORKS), lambda name: NETWORKS[name].name),
        Control(
            "speed",
            "One device, samples/s: change it to yours",
            USUAL,
            RATES,
            lambda rate: f"{rate:,}" if rate else "as known",
        ),
        Control("batch", "Batch of a device", 32, POWERS),
        Control("devices", "Devices in a node", 8, range(1, 17)),
        Control("nodes", "Nodes", 4, POWERS[:8]),
        Control("inside", "Link in a node", "nvlink", list(LINKS), LINKS.__getitem__),
        Control("between", "Link between nodes", "10gbe", list(LINKS), LINKS.__getitem__),
        Control(
            "bucket", "Buckets", USUAL, BUCKETS, lambda mib: f"{mib} MiB" if mib else "the best"
        ),
    ],
    answer,
)
