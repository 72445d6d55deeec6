"""Predictions as they are today, pinned: a change of the simulator's physics must show in ``predictions.json``.

``PYTHONPATH=. python tests/plans/test_predictions.py`` writes the file anew. Say in the commit which numbers moved, and
why.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest

from mxdp.experiments.automatic_parallelism import graph, mixed_devices
from mxdp.experiments.automatic_parallelism.task_graph import length
from mxdp.plans.collective.algorithms import ALGORITHMS, plan
from mxdp.plans.cost.machine import CPU
from mxdp.plans.cost.simulate import last_end, pipeline_spans, predict
from mxdp.plans.pipeline import PIPELINES, pipeline

PINNED = Path(__file__).with_suffix("").with_name("predictions.json")
SIZES = (4, 1 << 16, 1 << 20, 1 << 24, 1 << 26)
STAGES = {"even": ([0.5] * 4, [1.0] * 4, (), 0.0), "uneven": ([0.5, 1, 0.25, 2], [1, 2, 0.75, 3], [0.1, 0.2, 0.3], 0.0)}
STAGES["pushed"] = (*STAGES["uneven"][:3], 0.15)


def collective(name, devices, cores):
    """Microseconds, by size of the vector."""
    machine = CPU.with_cores(cores)
    return [predict(plan(name, devices, [size // 4]), size, machine) * 1e6 for size in SIZES]


def piped(schedule, stages, cores, variant):
    """For 1, 2, 4 and 8 micro-batches."""
    forward, backward, transfer, push = STAGES[variant]
    times = forward[:stages], backward[:stages], transfer[: stages - 1]
    return [last_end(pipeline_spans(pipeline(schedule, stages, m), *times, cores, push)) for m in (1, 2, 4, 8)]


def nets(cores, workers):
    """The net with branches in each order, then training steps with 0 to 3 workers, with and without waits."""
    steps = [mixed_devices.step_tasks(count, 3) for count in range(4)]
    waits = [[[task] for task in tasks] for tasks in steps]
    groups = [*(groups for _, groups in graph.WAYS.values()), *([tasks] for tasks in steps), *waits]
    return [length(group, cores, workers) for group in groups]


def predictions():
    """Each with a function that computes it."""
    for case in product(sorted(ALGORITHMS), (2, 3, 4, 8), (1, 2, 16)):
        yield "{} on {} devices, {} cores".format(*case), collective, case
    for case in product(sorted(PIPELINES), (2, 4), (1, 2, 4), STAGES):
        yield "{}, {} stages, {} cores, {}".format(*case), piped, case
    for case in product((1, 2, 4), (1, 2)):
        yield "nets, {} cores, {} workers".format(*case), nets, case


@pytest.mark.parametrize(
    ("label", "computed", "case"), list(predictions()), ids=[label for label, _, _ in predictions()]
)
def test_it_predicts_what_it_did(label, computed, case):
    assert computed(*case) == pytest.approx(json.loads(PINNED.read_text(encoding="utf-8"))[label], rel=1e-5)


def test_nothing_else_is_pinned():
    assert set(json.loads(PINNED.read_text(encoding="utf-8"))) == {label for label, _, _ in predictions()}


if __name__ == "__main__":
    lines = [
        f" {json.dumps(label)}: {[float(f'{x:.7g}') for x in computed(*case)]}"
        for label, computed, case in predictions()
    ]
    PINNED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
