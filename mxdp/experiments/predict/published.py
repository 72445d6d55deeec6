"""What others measured, beside what the model says: :data:`published.toml`, and the table of both."""

from __future__ import annotations

import statistics
from functools import lru_cache
from pathlib import Path
from typing import Any, List, Mapping, NamedTuple, Tuple

from mxdp.experiments.predict import inputs
from mxdp.experiments.show import style
from mxdp.plans.cost.link import bus_bandwidth
from mxdp.plans.cost.step import Way, predict_step

HEADINGS = ("figure", "published", "predicted", "off")


class Figure(NamedTuple):
    """A figure that was published, in ``unit`` (a speed-up, or GB/s), and the one that is predicted."""

    what: str
    unit: str
    published: float
    predicted: float
    source: str

    @property
    def off(self) -> float:
        """How much the prediction is higher, as a share."""
        return self.predicted / self.published - 1

    def cells(self) -> List[str]:
        """Under ``HEADINGS``."""
        values = [f"{style.number(value)} {self.unit}" for value in (self.published, self.predicted)]
        return [self.what, *values, f"{self.off:+.0%}"]


@lru_cache(maxsize=1)
def figures() -> Tuple[Figure, ...]:
    """All of them, predicted; in some 3 s, of which long pipelines take most."""
    return tuple(_figure(table) for table in inputs.read_toml(Path(__file__).with_name("published.toml"))["figure"])


def _figure(table: Mapping[str, Any]) -> Figure:
    machine, devices = inputs.machine(table["machine"]), table["devices"]
    if "busbw" in table:
        seconds = machine.cluster.of(devices).exchange(table["allreduce"], table["nbytes"]).seconds
        predicted = bus_bandwidth(table["nbytes"], seconds, devices) / 1e9
        return Figure(table["what"], "GB/s", table["busbw"], predicted, table["source"])
    rates = table.get("rates")
    network, _ = inputs.known_network(
        table["network"], rates[1] if rates else machine.samples_per_second[table["network"]]
    )
    way = Way(**{key: table[key] for key in ("allreduce", "stages", "micro_batches") if key in table})
    many, few = (
        count * predict_step(network, machine.cluster.of(count), table["batch"], way if count > 1 else Way()).efficiency
        for count in (devices, table.get("over", 1))
    )
    speedup = rates[0] / rates[1] if rates else table["speedup"]
    return Figure(table["what"], "x", speedup, many / few, table["source"])


def how_far_off() -> str:
    """How far they are off, in a sentence."""
    off = sorted(figure.off for figure in figures())
    high = sum(share > 0.005 for share in off)
    return (
        f"Of {len(off)} predictions {high} are higher than what was measured, by up to {off[-1]:.0%}; the median is "
        f"{statistics.median(off):+.0%}, the lowest {off[0]:+.0%}."
    )
