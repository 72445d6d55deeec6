from __future__ import annotations

import math
from dataclasses import replace

import pytest

from mxdp import process
from mxdp.backend import mx
from mxdp.collectives import tuning as choice
from mxdp.collectives.tuning import EQUAL, choose, maker, plan_for, usual_machine
from mxdp.plans.collective.algorithms import ALGORITHMS, plan
from mxdp.plans.collective.one_hop import loads
from mxdp.plans.cost.machine import CPU, GPU, INTEL, Machine, Rate
from mxdp.plans.cost.simulate import predict
from mxdp.scratch import SHAPES

LENET = [math.prod(shape) for shape in SHAPES]
CPUS = [mx.cpu(rank) for rank in range(4)]
GPUS = [mx.gpu(rank) for rank in range(4)]


def machine(start, byte):
    rate = Rate(start, ((1.0, byte),), ((1.0, byte),))
    return Machine(push=0.0, copy=rate, add=rate, add_more=0.0, cores=4)


@pytest.mark.parametrize("devices", [CPUS[:2], CPUS])
@pytest.mark.parametrize("sizes", [[1], [1 << 24], [1000] * 8])
@pytest.mark.parametrize("made_of", [machine(1.0, 1e-12), machine(1e-12, 1.0)])
def test_it_is_the_least_of_all_predictions(devices, sizes, made_of):
    loaded = loads(len(devices), sizes)
    predicted = {name: predict(plan(name, len(devices), loaded), 4 * sum(sizes), made_of) for name in ALGORITHMS}
    assert predicted[choose(devices, sizes, 4, made_of)] <= EQUAL * min(predicted.values())
    assert choice._choose.cache_info().maxsize, "no more are kept than a bound"


@pytest.mark.parametrize(
    ("devices", "sizes", "on_amd", "on_intel"),
    [
        (2, [1], "shared-memory", "shared-memory"),  # no device waits for another before it
        (8, [1], "shared-memory", "shared-memory"),
        (2, [256], "naive", "naive"),  # a few kB cost operations alone
        (4, [65536], "naive", "naive"),
        (4, [1 << 17], "naive", "shared-memory"),  # an Intel copies slower
        (4, LENET, "naive", "shared-memory"),
        (8, LENET, "naive", "naive"),
        (4, [1 << 20], "shared-memory", "shared-memory"),
    ],
)
def test_arrays_are_summed_by_the_plan_that_was_measured_to_be_the_fastest(devices, sizes, on_amd, on_intel):
    """On two cores: ``allreduce`` and ``buckets`` in full."""
    for made_by, chosen in (("AuthenticAMD", on_amd), ("", on_amd), ("GenuineIntel", on_intel)):
        machine = usual_machine(on_cpu=True, cores=2, made_by=made_by)
        assert choose([mx.cpu(rank) for rank in range(devices)], sizes, 4, machine) == chosen


def test_arrays_that_can_be_shared_out_are_sharded():
    assert choose(GPUS, [1000] * 8, 4, machine(1e-12, 1.0)) == "sharded"


def test_gpus_are_never_asked_to_read_each_others_memory():
    mixed = [[CPUS[0], GPUS[0]], [GPUS[0], CPUS[0]]]
    chosen = {choose(devices, [1 << 20], 4, machine(0.0, 1.0)) for devices in (GPUS, GPUS[:2], *mixed)}
    assert "shared-memory" not in chosen
    assert choose(CPUS, [1 << 20], 4, machine(0.0, 1.0)) == "shared-memory"


@pytest.mark.parametrize(
    ("cpuinfo", "speeds"),
    [
        ("processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\n", INTEL),
        ("processor\t: 0\nCPU implementer\t: 0x41\n", CPU),
        (None, CPU),
    ],
)
def test_the_usual_machine_is_of_the_same_maker_and_has_the_cores_of_this_one(cpuinfo, speeds, monkeypatch, tmp_path):
    monkeypatch.setattr(process, "cores", lambda: CPU.cores + 5)
    monkeypatch.setattr(choice, "Path", lambda name: tmp_path / name.rsplit("/")[-1])
    if cpuinfo is not None:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
    maker.cache_clear()
    try:
        assert usual_machine(on_cpu=True) == replace(speeds, cores=CPU.cores + 5)
        assert usual_machine(on_cpu=False) == GPU
    finally:
        maker.cache_clear()


def test_a_name_stays_and_auto_becomes_one():
    name, schedule = plan_for("ring", CPUS, [10], 4)
    assert (name, schedule.name, schedule.devices) == ("ring", "ring", 4)
    name, schedule = plan_for("auto", CPUS, [10], 4)
    assert name == schedule.name
    with pytest.raises(ValueError, match="'autp'; did you mean 'auto'"):
        plan_for("autp", CPUS, [10], 4)
