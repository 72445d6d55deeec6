"""What others measured, beside what the model says: :data:`published.toml`, and the table of both."""

from __future__ import annotations

import statistics
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

from mxdp.experiments.predict import inputs
from mxdp.experiments.predict.checked import read
from mxdp.experiments.show import style
from mxdp.plans.cost.link import bus_bandwidth
from mxdp.plans.cost.step import Way, predict_step
from mxdp.plans.cost.training_memory import held

HEADINGS = ("figure", "published", "predicted", "off")
MEMORY = "GB"
SPEEDUP = "x"


class Figure(NamedTuple):
    """A figure that was published, in ``unit`` (a speed-up, GB/s, or GB on each device), and the predicted one."""

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
        """Under ``HEADINGS``. Of memory few digits were published, and ours are close."""
        published = style.number(self.published)
        off = f"{self.off:+.0%}"
        if self.unit == MEMORY:
            published = f"{self.published:g}"
            off = f"{self.off:+.1%}"
        predicted = style.number(self.predicted)
        return [self.what, f"{published} {self.unit}", f"{predicted} {self.unit}", off]

    def as_json(self) -> Dict[str, Any]:
        """All of it. The prediction of memory is called ``ours``."""
        record = {**self._asdict(), "off": self.off}
        if self.unit == MEMORY:
            record["ours"] = record.pop("predicted")
        return record


@lru_cache(maxsize=None)
def figures(kind: str) -> Tuple[Figure, ...]:
    """All of a kind: ``"memory"``, or ``"figure"``, in some 3 s, of which long pipelines take most."""
    tables = read(Path(__file__).with_name("published.toml"))[kind]
    return tuple(Figure(table["what"], *_compared(table), table["source"]) for table in tables)


def _compared(table: Mapping[str, Any]) -> Tuple[str, float, float]:
    """The unit, what was published, and what is predicted."""
    if "gigabytes" in table:
        asked = (table[key] for key in ("parameters", "devices", "stage", "optimizer", "dtype"))
        return MEMORY, table["gigabytes"], sum(held(*asked).values()) / 1e9
    machine = inputs.machine(table["machine"])
    devices = table["devices"]
    if "busbw" in table:
        seconds = machine.cluster.of(devices).exchange(table["allreduce"], table["nbytes"]).seconds
        return "GB/s", table["busbw"], bus_bandwidth(table["nbytes"], seconds, devices) / 1e9
    if "rates" in table:
        together, alone = table["rates"]
        speedup = together / alone
    else:
        alone = machine.samples_per_second[table["network"]]
        speedup = table["speedup"]
    network, _ = inputs.known_network(table["network"], alone)
    given = {key: table[key] for key in ("allreduce", "stages", "micro_batches") if key in table}

    def speed(count: int) -> float:
        """The speed of so many devices, over that of one that loses nothing."""
        way = Way(**given) if count > 1 else Way()
        step = predict_step(network, machine.cluster.of(count), table["batch"], way)
        return count * step.efficiency

    return SPEEDUP, speedup, speed(devices) / speed(table.get("over", 1))


def reached() -> Tuple[float, float]:
    """The least and the largest share of a predicted speed-up that a published system reached."""
    speedups = [figure for figure in figures("figure") if figure.unit == SPEEDUP]
    shares = [figure.published / figure.predicted for figure in speedups]
    return min(shares), max(shares)


def how_far_off() -> str:
    """How far the figures are off, in a sentence."""
    off = sorted(figure.off for figure in figures("figure"))
    high = sum(share > 0.005 for share in off)
    return (
        f"Of {len(off)} predictions {high} are higher than what was measured, by up to {off[-1]:.0%}; the median is "
        f"{statistics.median(off):+.0%}, the lowest {off[0]:+.0%}."
    )
