"""Predictions as they are today, pinned: a change of the simulator's physics must show in ``predictions.json``.

``PYTHONPATH=. python tests/plans/test_predictions.py`` writes the file anew. Say in the commit which numbers moved, and
why.
"""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from mxdp.plans.collective.algorithms import ALGORITHMS, plan
from mxdp.plans.cost.cluster import Cluster
from mxdp.plans.cost.layer_lists import NETWORKS, shared_out
from mxdp.plans.cost.link import Link
from mxdp.plans.cost.machine import CPU, GPU, INTEL
from mxdp.plans.cost.simulate import last_end, pipeline_spans, predict
from mxdp.plans.cost.step import Way, predict_step
from mxdp.plans.pipeline import PIPELINES, pipeline

PINNED = Path(__file__).with_suffix("").with_name("predictions.json")
SIZES = (4, 1 << 16, 1 << 20, 1 << 24, 1 << 26)
MACHINES = {"1 core": CPU.with_cores(1), "2 cores": CPU, "16 cores": CPU.with_cores(16), "Intel": INTEL, "GPUs": GPU}
FORWARD, BACKWARD, TRANSFER, PUSH = [0.5, 1, 0.25, 2], [1, 2, 0.75, 3], [0.1, 0.2, 0.3], 0.15
WAYS = (
    *(Way(stages=stages, micro_batches=parts) for stages in (2, 4) for parts in (1, 8)),
    *(Way(name, accumulate=3, shard_optimizer=shard) for name in ("ring", "two-level") for shard in (False, True)),
)


def predictions():
    """Microseconds of collectives, by size of the vector; seconds of pipelines, for 1, 2, 4 and 8 micro-batches;
    milliseconds of steps: in all, and what is lost; and what networks have."""
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
    network = replace(shared_out(NETWORKS["vgg16"], 3e-3), fixed=2e-4, python=1e-3, update=2e-3, spread=0.1)
    for way, nodes, cores in product(WAYS, (1, 3), (None, 2)):
        cluster = Cluster(4, nodes, Link(1e-5, 1e-10), Link(1e-4, 1e-9), overlap=True, cores=cores)
        step = predict_step(network, cluster, 16, way)
        found[f"{way!r}, {nodes} nodes, {cores} cores"] = [1e3 * each for each in (step.seconds, *step.lost.values())]
    for name, network in NETWORKS.items():
        shared = shared_out(network, 3e-4)
        rows = [(layer.forward, layer.backward, layer.parameters, layer.outputs) for layer in network.layers]
        found[name] = [*map(sum, zip(*rows)), len(rows), network.activations, shared.passes(10), network.parameters]
    return found


def test_it_predicts_what_it_did():
    pinned = json.loads(PINNED.read_text(encoding="utf-8"))
    assert predictions() == {label: pytest.approx(times, rel=1e-9) for label, times in pinned.items()}


if __name__ == "__main__":
    lines = [f" {json.dumps(label)}: {[float(f'{x:.12g}') for x in times]}" for label, times in predictions().items()]
    PINNED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
