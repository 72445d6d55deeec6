"""What a prediction itself costs: ``python tools/predict_cost.py`` draws docs/predict-cost.svg (half a minute)."""

from __future__ import annotations

import math
import statistics
import time
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Dict, List

from mxdp.experiments.show import style
from mxdp.experiments.show.pictures import saved
from mxdp.plans.cost.cluster import STEPS, patterns

FILE = Path(__file__).resolve().parents[1] / "docs" / "predict-cost.svg"
DEVICES = 8
"""Of a node."""
COUNTS = [2**power for power in range(4, 17)]


def seconds(algorithm: str, count: int) -> float:
    """Of processor time, for the busiest links of that plan: the median of three."""
    found = []
    for _ in range(3):
        patterns.cache_clear()
        started = time.process_time()
        patterns(algorithm, DEVICES, count // DEVICES)
        found.append(time.process_time() - started)
    return statistics.median(found)


def draw(times: Dict[str, List[float]], figure: style.Figure) -> None:
    """Seconds over devices, beside n log n."""
    axes = figure.subplots()
    for (name, own), colour in zip(times.items(), style.COLOURS):
        axes.plot(COUNTS, own, "o-", color=colour, label=name)
    unit = times["doubling"][-1] / (COUNTS[-1] * math.log2(COUNTS[-1]))
    axes.plot(COUNTS, [unit * n * math.log2(n) for n in COUNTS], "--", color=style.INK, label="n log n")
    axes.set(xscale="log", yscale="log", xlabel="devices", ylabel="processor time, s")
    axes.set_xticks(COUNTS[::3], [f"{count:,}" for count in COUNTS[::3]])
    axes.minorticks_off()
    axes.legend(loc="upper left")


if __name__ == "__main__":
    times = {name: [seconds(name, count) for count in COUNTS] for name in STEPS}
    tracemalloc.start()
    for name in STEPS:
        patterns(name, DEVICES, COUNTS[-1] // DEVICES)
    most = tracemalloc.get_traced_memory()[1]
    FILE.write_bytes(saved(partial(draw, times), "predict-cost", "svg"))
    at = COUNTS.index(4096)
    print(f"4,096 devices: {sum(own[at] for own in times.values()):.2f} s for all plans")
    print(f"{COUNTS[-1]:,} devices: {sum(own[-1] for own in times.values()):.1f} s, {most / 1e6:.0f} MB")
