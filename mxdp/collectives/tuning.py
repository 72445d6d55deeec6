"""Chooses an all-reduce: by name, or for ``"auto"`` the one that the cost model expects to be the fastest."""

from __future__ import annotations

from functools import lru_cache
from typing import Optional, Sequence, Tuple

from mxdp import process
from mxdp.backend import Device
from mxdp.plans.collective.algorithms import ALGORITHMS, AUTO, check_algorithm, plan
from mxdp.plans.collective.one_hop import loads
from mxdp.plans.collective.schedule import Schedule
from mxdp.plans.cost.machine import CPU, GPU, INTEL, Machine
from mxdp.plans.cost.simulate import collective_jobs, predict
from mxdp.processor import cpuinfo

EQUAL = 1.05
"""Plans whose predicted times are less than 5 % apart count as equal."""
BY_MAKER = {"GenuineIntel": INTEL}
"""For processors of other makers the speeds of an AMD EPYC are used. By these, LeNet's gradients on 4 devices of a Xeon
were summed by ``naive``, which took 1.3 times as long as ``shared-memory``; on the EPYC it takes 0.9 times as long."""


def plan_for(
    algorithm: str,
    devices: Sequence[Device],
    sizes: Sequence[int],
    itemsize: int,
    machine: Optional[Machine] = None,
) -> Tuple[str, Schedule]:
    """The algorithm's name (no longer ``"auto"``) and its plan for arrays of ``sizes`` elements, or a ValueError."""
    check_algorithm(algorithm, also=[AUTO])
    if algorithm == AUTO:
        algorithm = choose(devices, sizes, itemsize, machine)
    return algorithm, plan(algorithm, len(devices), sizes)


def choose(
    devices: Sequence[Device],
    sizes: Sequence[int],
    itemsize: int,
    machine: Optional[Machine] = None,
) -> str:
    """The all-reduce with the least predicted time for arrays of ``sizes`` elements of ``itemsize`` bytes. Of equal
    ones it has the fewest operations; then the fewest that wait for another device, whose worker may sleep.
    ``machine``: speeds as :func:`mxdp.calibrate` measures them; by default those of :func:`usual_machine`."""
    on_cpu = all(device.device_type.startswith("cpu") for device in devices)
    if machine is None:
        machine = usual_machine(on_cpu)
    return _choose(len(devices), tuple(sizes), itemsize, on_cpu, machine)


def usual_machine(
    on_cpu: bool, cores: Optional[int] = None, made_by: Optional[str] = None
) -> Machine:
    """Speeds measured elsewhere, on a CPU by the same maker if possible; by default for this machine's maker, cores."""
    if not on_cpu:
        return GPU
    if made_by is None:
        made_by = maker()
    measured = BY_MAKER.get(made_by, CPU)
    return measured.with_cores(cores or process.cores())


@lru_cache(maxsize=None)
def maker() -> str:
    """Who made this machine's processor, in the words of ``/proc/cpuinfo``; empty if it doesn't say."""
    return cpuinfo("vendor_id")


@lru_cache(maxsize=1024)
def _choose(
    devices: int, sizes: Tuple[int, ...], itemsize: int, on_cpu: bool, machine: Machine
) -> str:
    # Arrays that one device sums travel together (:class:`mxdp.GradientSync`).
    plans = {name: plan(name, devices, loads(devices, sizes)) for name in sorted(ALGORITHMS)}
    nbytes = sum(sizes) * itemsize
    expected = {
        name: predict(schedule, nbytes, machine, itemsize)
        for name, schedule in plans.items()
        if on_cpu or not schedule.reads
    }
    least = min(expected.values())

    def effort(name: str) -> Tuple[int, int]:
        jobs = collective_jobs(plans[name], nbytes, machine, itemsize)
        lanes = {job.name: job.lane for job in jobs}
        waits = sum(lanes[need] != job.lane for job in jobs for need in job.needs)
        return len(jobs), waits

    equal = [name for name, seconds in expected.items() if seconds <= EQUAL * least]
    return min(equal, key=effort)
