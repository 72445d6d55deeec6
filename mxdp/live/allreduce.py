"""An all-reduce step by step, and all of them over the size of the vector, by the textbook's model."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Dict

from mxdp.errors import UsageError, either
from mxdp.experiments.predict import inputs
from mxdp.experiments.show.style import number
from mxdp.live.drawn import alike, as_bytes, beside, curves, milliseconds, table
from mxdp.live.topic import Answer, Control, Settings, Topic
from mxdp.plans.collective.algorithms import ALGORITHMS, plan
from mxdp.plans.collective.schedule import Schedule
from mxdp.plans.cost.link import Link, allreduce_seconds
from mxdp.plans.cost.machine import CPU, MIB
from mxdp.plans.show.contents import vectors_sent
from mxdp.plans.show.moving import moving

MEMORY = "memory"
OWN = "own"
LINKS = {
    "nvlink": "NVLink",
    "pcie": "PCIe 3.0",
    "100gbe": "100 Gbit/s Ethernet",
    "10gbe": "10 Gbit/s Ethernet",
}
"""Those of ``predict``."""
PLACES = {MEMORY: "this reference machine's memory", **LINKS, OWN: "one of my own"}
SIZES = [1 << power for power in range(2, 31)]
STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500]


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
    most = allreduce_seconds(schedule, SIZES[-1], link)
    return Link(start, (most - start) / SIZES[-1])


def rounded(lines: Dict[str, Link], nbytes: int) -> Dict[str, float]:
    """The seconds that each plan takes, to three digits. What differs less is a tie."""
    return {name: float(f"{each.seconds(nbytes):.3g}") for name, each in lines.items()}


def answer(s: Settings) -> Answer:
    """The plan, its times and bytes, and all plans over the size."""
    name = s["algorithm"]
    devices = s["devices"]
    nbytes = s["bytes"]
    link = link_of(s)
    schedule = made(name, devices)
    if schedule.reads and s["place"] != MEMORY:
        raise UsageError(
            f"{name} reads the other devices' memory: take {PLACES[MEMORY]} as the link"
        )
    lines = {}
    for other in [name, *ALGORITHMS]:  # the chosen one first
        each = made(other, devices)
        if not each.reads or s["place"] == MEMORY:
            lines[other] = line(each, link)
    seconds = allreduce_seconds(schedule, nbytes, link)
    said = f"{name} takes {milliseconds(seconds)} for {as_bytes(nbytes)} on {devices} devices"
    times = rounded(lines, nbytes)
    equal = [other for other in times if other != name and times[other] == times[name]]
    if equal:
        said += f", as long as {either(equal)}"
    best = min(times, key=times.__getitem__)
    if best == name:
        said += "; no other is faster."
    else:
        said += f"; {best} takes {milliseconds(lines[best].seconds(nbytes))}."
    steps = {}
    for at, step in enumerate(schedule.steps, 1):
        alone = replace(schedule, steps=(step,))
        steps[at] = milliseconds(allreduce_seconds(alone, nbytes, link))
    sent = {at: as_bytes(vectors * nbytes) for at, vectors in enumerate(vectors_sent(schedule))}
    fastest = {}
    for size in SIZES:
        times = rounded(lines, size)
        fastest[as_bytes(size)] = min(times, key=times.__getitem__)
    tables = (
        table("Time of a step", ["step", "takes"], alike(steps)),
        table("Sent in all", ["device", "sends"], alike(sent)),
        table("The fastest", ["vector", "by"], alike(fastest)),
    )
    board = moving(schedule, nbytes / MIB)._repr_html_()
    twice = allreduce_seconds(made(name, 2 * devices), nbytes, link)
    return Answer(
        said=said,
        question=f"On {2 * devices} devices instead of {devices}, {name} takes how many times as long?",
        truth=f"{number(twice / seconds)} times",
        html=beside(board, "".join(tables)) + _over_sizes(lines),
        idle=() if s["place"] == OWN else ("alpha", "bandwidth"),
    )


def _over_sizes(lines: Dict[str, Link]) -> str:
    points = {}
    for name, each in lines.items():
        points[name] = {size: each.seconds(size) for size in SIZES}
    least = min(each.seconds(SIZES[0]) for each in lines.values())
    most = max(each.seconds(SIZES[-1]) for each in lines.values())
    first = math.floor(math.log10(least))
    last = math.ceil(math.log10(most))
    decades = {}
    for power in range(first, last + 1):
        decades[10.0**power] = f"{10.0 ** (power + 3):g} ms"
    sizes = {size: as_bytes(size) for size in SIZES[::7]}
    return curves("Time over the vector's size", points, sizes, decades)


TOPIC = Topic(
    "An all-reduce, step by step",
    "Each message takes alpha seconds to start and beta seconds a byte. Sums, switches and shared cores are left out.",
    [
        Control("algorithm", "All-reduce", "ring", list(ALGORITHMS)),
        Control("devices", "Devices", 4, range(2, 17)),
        Control("bytes", "Vector", 64 << 20, SIZES, as_bytes),
        Control("place", "Link", "pcie", list(PLACES), PLACES.__getitem__),
        Control("alpha", "Alpha, start of a message", 10, STEPS, "{} µs".format),
        Control("bandwidth", "1 / beta, bandwidth", 10, STEPS, "{} GB/s".format),
    ],
    answer,
)
