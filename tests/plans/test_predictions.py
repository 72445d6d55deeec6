"""Predictions as they are today, pinned: a change of the simulator's physics must show in ``predictions.json``.

``PYTHONPATH=. python tests/plans/test_predictions.py`` writes the file anew. Say in the commit which numbers moved, and
why.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from mxdp.plans.collective.algorithms import ALGORITHMS, plan
from mxdp.plans.cost.machine import CPU, GPU, INTEL
from mxdp.plans.cost.simulate import last_end, pipeline_spans, predict
from mxdp.plans.pipeline import PIPELINES, pipeline

PINNED = Path(__file__).with_suffix("").with_name("predictions.json")
SIZES = (4, 1 << 16, 1 << 20, 1 << 24, 1 << 26)
MACHINES = {"1 core": CPU.with_cores(1), "2 cores": CPU, "16 cores": CPU.with_cores(16), "Intel": INTEL, "GPUs": GPU}
FORWARD, BACKWARD, TRANSFER, PUSH = [0.5, 1, 0.25, 2], [1, 2, 0.75, 3], [0.1, 0.2, 0.3], 0.15


def predictions():
    """Microseconds of collectives, by size of the vector; seconds of pipelines, for 1, 2, 4 and 8 micro-batches."""
    found = {}
    for name, devices, (label, machine) in product(sorted(ALGORITHMS), (3, 8), MACHINES.items()):
        times = [predict(plan(name, devices, [size // 4]), size, machine) * 1e6 for size in SIZES]
        found[f"{name} on {devices} devices, {label}"] = times
    for name, stages, cores in product(sorted(PIPELINES), (2, 4), (1, 2, 4)):
        times = FORWARD[:stages], BACKWARD[:stages], TRANSFER[: stages - 1]
        plans = [pipeline(name, stages, micro_batches) for micro_batches in (1, 2, 4, 8)]
        found[f"{name}, {stages} stages, {cores} cores"] = [
            last_end(pipeline_spans(each, *times, cores, PUSH)) for each in plans
        ]
    return found


def test_it_predicts_what_it_did():
    pinned = json.loads(PINNED.read_text(encoding="utf-8"))
    assert predictions() == {label: pytest.approx(times, rel=1e-5) for label, times in pinned.items()}


if __name__ == "__main__":
    lines = [f" {json.dumps(label)}: {[float(f'{x:.7g}') for x in times]}" for label, times in predictions().items()]
    PINNED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
