"""How far a network scales: what ``python -m mxdp.experiments predict`` says, and the parts of a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Dict

from mxdp.errors import plural
from mxdp.experiments.predict import inputs, ways
from mxdp.live.allreduce import LINKS
from mxdp.live.drawn import bars, curves, table
from mxdp.live.topic import Answer, Control, Settings, Topic
from mxdp.plans.cost import step as steps
from mxdp.plans.cost.machine import MIB
from mxdp.plans.cost.networks import NETWORKS

USUAL = 0
"""Stands for the speed that is known of the network, and for the best size of buckets."""
LENET = 5216.0
"""Samples a second on one device: the table of ``epochs`` in README."""
RATES = [USUAL, *(digit * 10**power for power in range(1, 5) for digit in (1, 2, 5))]
POWERS = [1 << power for power in range(11)]
PERCENT = {0: "0 %", 25: "25 %", 50: "50 %", 75: "75 %", 100: "100 %"}
WORDS = {"weak": "weak: a batch on each device", "strong": "strong: all share the batch of a node"}


def published() -> Dict[str, float]:
    """Samples a second of one device, by network: the fastest that a machine's file knows."""
    known = {"lenet": LENET}
    for file in inputs.MACHINES.glob("*.toml"):
        for name, rate in inputs.machine(file.stem).samples_per_second.items():
            known[name] = max(rate, known.get(name, 0.0))
    return known


SPEEDS = published()


def parts(step: steps.Prediction) -> Dict[str, float]:
    """The ms of a step: compute beside which no link works, the all-reduce beside compute, and the all-reduce alone."""
    links = sum(span.stop - span.start for span in step.spans if span.lane == steps.LINKS)
    exposed = sum(step.lost[name] for name in ("latency", "bandwidth", "sums"))
    seconds = {"compute": step.seconds - links, "hidden": links - exposed, "exposed": exposed}
    return {name: max(0.0, 1e3 * value) for name, value in seconds.items()}


def answer(s: Settings) -> Answer:
    """The step with each all-reduce, and the efficiency over the devices."""
    machine = inputs.machine(**{key: s[key] for key in ("devices", "nodes", "inside", "between")})
    rate = float(s["speed"] or SPEEDS[s["model"]])
    network, _ = inputs.known_network(s["model"], rate)
    asked = (network, machine.cluster, s["batch"])
    rows = ways.allreduces(*asked)
    predicted = ways.Predicted(*asked, rows, ways.scaling(*asked), [])
    chosen = [row.way for row in rows]
    if s["bucket"]:
        chosen = [replace(way, bucket=s["bucket"] * MIB) for way in chosen]
    more = steps.predict_step(network, machine.cluster, 2 * s["batch"], rows[-1].way)
    idle = {
        "inside": s["devices"] == 1,
        "between": s["nodes"] == 1,
        "bucket": machine.cluster.count == 1,
    }
    drawn = {}
    for way in chosen:
        step = steps.predict_step(*asked, way)
        buckets = sum(span.lane == steps.LINKS for span in step.spans)
        drawn[f"{way.allreduce}, {plural(buckets, 'bucket')} of {way.bucket / MIB:g} MiB"] = parts(
            step
        )
    return Answer(
        said=f"One device trains {rate:,.5g} samples a second. {predicted.answer}",
        question=f"With a batch of {2 * s['batch']}, what percentage of linear does {rows[-1].way.allreduce} reach?",
        truth=f"{100 * more.efficiency:.3g} %",
        html=bars("A step and its all-reduce, ms", "by", drawn) + _over_devices(predicted.curves),
        idle=[key for key, without_effect in idle.items() if without_effect],
    )


def _over_devices(known: ways.Curves) -> str:
    lines = {
        WORDS[kind]: {n: 100 * gain / n for n, gain in points} for kind, points in known.items()
    }
    weak, strong = lines.values()
    if len(weak) == 1:
        return ""
    ticks = {n: f"{n:,}" for n in weak}
    rows = [
        [text, f"{weak[n]:.3g} %", f"{strong[n]:.3g} %" if n in strong else "–"]
        for n, text in ticks.items()
    ]
    numbers = table("Of linear scaling", ["devices", "weak", "strong"], rows)
    picture = curves(
        "Efficiency over devices, with the best buckets", lines, ticks, PERCENT, log=False
    )
    return f'<div class="beside">{picture}<div>{numbers}</div></div>'


TOPIC = Topic(
    "How far does it scale?",
    "The model leaves out input, switches, and kernels that slow down beside sums: its predictions are too good.",
    [
        Control("model", "Network", "resnet50", list(NETWORKS), lambda name: NETWORKS[name].name),
        Control(
            "speed",
            "One device, samples/s",
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
            "bucket",
            "Buckets",
            USUAL,
            [USUAL, 0.1, 1, 4, 25, 100, 1024],
            lambda mib: f"{mib} MiB" if mib else "the best",
        ),
    ],
    answer,
)
