"""An all-reduce step by step, and all of them over the size of the vector, by the textbook's model."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Mapping

from mxdp.errors import UsageError
from mxdp.experiments.predict import inputs
from mxdp.experiments.show.style import number
from mxdp.live.drawn import alike, as_bytes, curves, milliseconds, table
from mxdp.live.topic import Answer, Control, Settings, Topic
from mxdp.plans.collective.algorithms import ALGORITHMS, plan
from mxdp.plans.collective.schedule import Schedule
from mxdp.plans.cost.link import Link, allreduce_seconds
from mxdp.plans.cost.machine import CPU, MIB
from mxdp.plans.show.contents import vectors_sent
from mxdp.plans.show.moving import moving

MEMORY, OWN = "memory", "own"
LINKS = {
    "nvlink": "NVLink",
    "pcie": "PCIe 3.0",
    "100gbe": "100 Gbit/s Ethernet",
    "10gbe": "10 Gbit/s Ethernet",
}
"""Those of ``predict``."""
PLACES = {MEMORY: "this reference machine's memory", **LINKS, OWN: "one of my own"}
SIZES = [1 << power for power in range(2, 31)]
STEPS = [digit * 10**power for power in range(3) for digit in (1, 2, 5)]


def link_of(s: Settings) -> Link:
    """What a message costs."""
    if s["place"] == MEMORY:
        return Link(CPU.copy.start, CPU.copy.together[-1][1])
    if s["place"] == OWN:
        return Link(1e-6 * s["alpha"], 1e-9 / s["bandwidth"])
    return inputs.machine(inside=s["place"]).cluster.inside


def made(name: str, devices: int) -> Schedule:
    """The plan of one array for each device, as ``python -m mxdp.plans`` prints it."""
    return plan(name, devices, [1] * devices)


def line(schedule: Schedule, link: Link) -> Link:
    """The time of a plan over the bytes, which is a line in this model: two evaluations give all."""
    start = allreduce_seconds(schedule, 0, link)
    return Link(start, (allreduce_seconds(schedule, SIZES[-1], link) - start) / SIZES[-1])


def answer(s: Settings) -> Answer:
    """The plan, its times and bytes, and all plans over the size."""
    name, devices, nbytes = (s[key] for key in ("algorithm", "devices", "bytes"))
    link = link_of(s)
    schedule = made(name, devices)
    if schedule.reads and s["place"] != MEMORY:
        raise UsageError(
            f"{name} reads the other devices' memory: take {PLACES[MEMORY]} as the link"
        )
    steps = [
        allreduce_seconds(replace(schedule, steps=(step,)), nbytes, link) for step in schedule.steps
    ]
    seconds = allreduce_seconds(schedule, nbytes, link)
    twice = allreduce_seconds(made(name, 2 * devices), nbytes, link)
    times = [milliseconds(step) for step in steps]
    sent = [as_bytes(vectors * nbytes) for vectors in vectors_sent(schedule)]
    # Of equally fast plans the chosen one is named.
    plans = {other: made(other, devices) for other in [name, *sorted(ALGORITHMS)]}
    possible = {
        other: each for other, each in plans.items() if not each.reads or s["place"] == MEMORY
    }
    lines = {other: line(each, link) for other, each in possible.items()}
    fastest = [
        min(lines, key=lambda other: float(f"{lines[other].seconds(size):.9g}")) for size in SIZES
    ]
    best = fastest[SIZES.index(nbytes)]
    faster = (
        "no other is faster"
        if best == name
        else f"{best} takes {milliseconds(lines[best].seconds(nbytes))}"
    )
    tables = [
        table(
            "Time of a step",
            ["step", "takes"],
            alike(times, [str(step) for step in range(1, 1 + len(steps))]),
        ),
        table(
            "Sent in all",
            ["device", "sends"],
            alike(sent, [str(device) for device in range(devices)]),
        ),
        table("The fastest", ["vector", "by"], alike(fastest, [as_bytes(size) for size in SIZES])),
    ]
    board = moving(schedule, nbytes / MIB)._repr_html_()
    return Answer(
        said=f"{name} takes {milliseconds(seconds)} for {as_bytes(nbytes)} on {devices} devices; {faster}.",
        question=f"On {2 * devices} devices instead of {devices}, {name} takes how many times as long?",
        truth=f"{number(twice / seconds)} times",
        html=f'<div class="beside">{board}<div>{"".join(tables)}</div></div>{_over_sizes(lines)}',
        idle=() if s["place"] == OWN else ("alpha", "bandwidth"),
    )


def _over_sizes(lines: Mapping[str, Link]) -> str:
    points = {name: {size: each.seconds(size) for size in SIZES} for name, each in lines.items()}
    ends = [time for times in points.values() for time in times.values()]
    least = math.floor(math.log10(min(ends)))
    most = math.ceil(math.log10(max(ends)))
    decades = {10.0**power: f"{10.0 ** (power + 3):g} ms" for power in range(least, most + 1)}
    return curves(
        "Time over the vector's size",
        points,
        {size: as_bytes(size) for size in SIZES[::7]},
        decades,
    )


TOPIC = Topic(
    "An all-reduce, step by step",
    "Each message takes alpha seconds to start and beta seconds a byte. Sums, switches and shared cores are left out.",
    [
        Control("algorithm", "All-reduce", "ring", sorted(ALGORITHMS)),
        Control("devices", "Devices", 4, range(2, 17)),
        Control("bytes", "Vector", 64 << 20, SIZES, as_bytes),
        Control("place", "Link", "pcie", list(PLACES), PLACES.__getitem__),
        Control("alpha", "Alpha, start of a message", 10, STEPS, "{} µs".format),
        Control("bandwidth", "1 / beta, bandwidth", 10, STEPS, "{} GB/s".format),
    ],
    answer,
)
