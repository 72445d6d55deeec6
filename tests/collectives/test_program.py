"""The choice of a plan, and the plan bound to arrays."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from mxdp import process, processor
from mxdp.backend import mx
from mxdp.collectives import AllReduce, all_gather, allreduce, broadcast, reduce_scatter
from mxdp.collectives.program import Program, chunk_views
from mxdp.collectives.tuning import choose, maker, plan_for, usual_machine
from mxdp.plans.collective.one_hop import direct, naive, shared_memory
from mxdp.plans.collective.rings import ring
from mxdp.plans.cost.machine import CPU, GPU, INTEL, Machine, Rate
from mxdp.scratch import SHAPES


def vectors(n, size):
    return [mx.nd.ones((size,), ctx=mx.cpu(rank)) for rank in range(n)]


def program(schedule, size, again=False):
    return Program(schedule, [chunk_views(schedule, vector) for vector in vectors(schedule.devices, size)], again)


@pytest.mark.parametrize(
    ("schedule", "size", "calls"),
    [
        (direct(3), 24, 6 + 3 + 6),
        (shared_memory(3), 24, 3 + 6 + 3),
        (ring(3), 24, 6 + 6 + 6 + 3),  # the last three put in place what was forwarded from a staging buffer
        (naive(8), 24, 7 + 3 + 7),  # eight parts are added in three sums, of at most four each
        (direct(3), 1, 2 + 1 + 2),  # empty chunks are left out
        (shared_memory(3), 1, 1 + 2),  # in its place
    ],
)
def test_calls(schedule, size, calls):
    assert len(program(schedule, size).calls) == calls


def test_staging_buffers_hold_what_the_docstrings_say():
    """Naive: all other devices' vectors on the first device. Direct: the others' chunks. Shared memory: the sums."""
    for schedule, elements in ((naive(4), 3 * 100), (direct(4), 4 * 3 * 25), (shared_memory(4), 4 * 25)):
        assert sum(buffer.size for buffer in program(schedule, 100).buffers.values()) == elements


def test_large_vectors_are_summed_in_place_if_the_program_is_kept():
    """From 2 MiB a vector, however many chunks it has; then there are no staging buffers."""
    schedule, large = shared_memory(2), (2 << 20) // 4
    for size, again, staged in [(large, True, 0), (large - 1, True, 1), (large, False, 1)]:
        assert bool(program(schedule, size, again).buffers) == staged


@pytest.mark.parametrize("devices", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_a_frugal_program_sums_small_vectors_without_staging_buffers(devices, size):
    schedule = shared_memory(devices)
    half = replace(schedule, steps=schedule.steps[:1])
    data = vectors(devices, size)
    summed = Program(half, [chunk_views(half, vector) for vector in data], again=True, frugal=True)
    assert not summed.buffers
    for turn in (1, 2):
        for rank, vector in enumerate(data):
            vector[:] = mx.nd.arange(size, ctx=vector.ctx) * turn + 10**rank
        expected = sum(vector.asnumpy() for vector in data)
        summed()
        for vector, (start, stop) in zip(data, half.borders(size)):
            assert (vector[start:stop].asnumpy() == expected[start:stop]).all()


@pytest.mark.parametrize("kinds", [(mx.cpu, mx.gpu), (mx.gpu, mx.cpu)])
def test_only_cpu_devices_share_memory(kinds):
    devices = [kind(rank) for rank, kind in enumerate(kinds)]
    chunks = [[SimpleNamespace(ctx=device, size=1)] * 2 for device in devices]
    with pytest.raises(
        ValueError, match=r"shared-memory reads .* which only CPU devices can do, not .*: use 'direct'"
    ) as caught:
        Program(shared_memory(2), chunks)
    assert ", ".join(map(str, devices)) in str(caught.value)


def convolved(rank, dimensions):
    """An array in a layout of oneDNN, and its numbers."""
    mx.random.seed(rank)
    x = mx.np.random.uniform(size=(2, 16, *[6] * dimensions), ctx=mx.cpu(rank))
    weight = mx.np.random.uniform(size=(32, 16, *[3] * dimensions), ctx=mx.cpu(rank))
    both = [mx.npx.convolution(x, weight, kernel=(3,) * dimensions, num_filter=32, no_bias=True) for _ in range(2)]
    return both[0], (both[1] * 1).asnumpy()


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("algorithm", ["naive", "ring", "shared-memory"])
@pytest.mark.parametrize("again", [False, True])
def test_arrays_in_onednns_layout(monkeypatch, algorithm, dimensions, again):
    monkeypatch.setattr("mxdp.plans.collective.operations.IN_PLACE_BYTES", 1)
    xs, known = zip(*[convolved(rank, dimensions) for rank in range(2)])
    if again:
        AllReduce(xs, algorithm)()
    else:
        allreduce(xs, algorithm)
    for x in xs:
        assert x.asnumpy().tolist() == (known[0] + known[1]).tolist()


def test_the_other_collectives_take_onednns_layout_too():
    (first, second), (known, _) = zip(*[convolved(rank, 2) for rank in range(2)])
    broadcast([first, second])
    assert second.asnumpy().tolist() == known.tolist()
    (first, second), known = zip(*[convolved(rank, 2) for rank in range(2)])
    for whole in all_gather([first, second]):
        assert whole.asnumpy().tolist() == [*known[0].ravel(), *known[1].ravel()]
    parts = [part.asnumpy() for part in reduce_scatter([first, second])]
    assert [*parts[0], *parts[1]] == (known[0] + known[1]).ravel().tolist()


def test_weights_whose_layout_inference_changes_between_two_sums():
    weights = [mx.np.ones((32, 16, 3, 3), ctx=mx.cpu(rank)) for rank in range(2)]
    run = AllReduce(weights, "ring")
    for expected in (2, 4, 8):
        run()
        for weight in weights:
            x = mx.np.ones((2, 16, 8, 8), ctx=weight.ctx)
            mx.npx.convolution(x, weight, kernel=(3, 3), num_filter=32, no_bias=True).wait_to_read()
            assert (weight.asnumpy() == expected).all()


LENET = [math.prod(shape) for shape in SHAPES]
CPUS = [mx.cpu(rank) for rank in range(4)]
GPUS = [mx.gpu(rank) for rank in range(4)]


def machine(start, byte):
    rate = Rate(start, ((1.0, byte),), ((1.0, byte),))
    return Machine(push=0.0, copy=rate, add=rate, add_more=0.0, cores=4)


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
    monkeypatch.setattr(processor, "CPUINFO", tmp_path / "cpuinfo")
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
