"""Calibration on a device with known speeds, and on a real one."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

import mxdp
from mxdp import engine, process, timing
from mxdp.backend import mx
from mxdp.collectives import calibration, program
from mxdp.collectives.calibration import calibrate, push_seconds, start_seconds
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.cost.simulate import predict

SMALL = (1 << 16, 1 << 18)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """16 and 4 repeats of the small footprints."""
    monkeypatch.setattr(calibration, "ENOUGH", 1 << 20)


class KnownDevice:
    """A clock that operators advance by a known time for each byte, in the background until the next fence."""

    def __init__(self):
        self.push, self.start = 0.25, 0.5
        self.rates = {"_copyto": 2.0, "broadcast_add": 3.0, "add_n": 7.5}
        self.now = self.queued = 0.0
        self.delays = iter(())
        self.pushed = []
        self.prepared = []

    def perf_counter(self):
        if self.queued:
            self.pushed.append(self.now)
        return self.now

    def waitall(self):
        self.now += self.queued
        self.queued = 0.0

    def prepare(self, operator, inputs, out, **attributes):
        self.prepared.append((list(inputs), out))

        def call():
            self.now += self.push
            self.queued += self.start + self.rates[operator] * out.size * 4 + next(self.delays, 0.0)

        return call


@pytest.fixture
def known(monkeypatch):
    device = KnownDevice()
    for module in (timing, calibration):
        monkeypatch.setattr(module, "time", device)
        monkeypatch.setattr(module, "npx", device)
    for module in (calibration, engine, program):
        monkeypatch.setattr(module, "prepare", device.prepare)
    return device


def test_copies_and_sums_are_told_apart(known, monkeypatch):
    monkeypatch.setattr(process, "cores", lambda: 2)
    known.push = known.start = 0.0
    machine = calibrate([mx.cpu(0), mx.cpu(1)], SMALL)
    for rate, seconds in ((machine.copy, 2.0), (machine.add, 3.0)):
        assert rate.start == 8.0  # a copy of four bytes
        assert [size for size, _ in rate.alone] == list(SMALL)
        near = dict(rel=1e-3)  # a start holds four bytes
        assert [cost for _, cost in rate.alone] == pytest.approx([seconds] * 2, **near)
        # One clock for both devices:
        assert [cost for _, cost in rate.together] == pytest.approx([2 * seconds] * 2, **near)
    assert machine.add_more == pytest.approx((7.5 / 3 - 1) / 2)
    assert machine.push == 0.0


@pytest.mark.parametrize("work", ["_copies", "_sums_of_two", "_sums_of_four"])
def test_each_call_works_on_what_the_other_device_has_just_written(known, work):
    getattr(calibration, work)(mx.cpu(0), mx.cpu(1), 8)
    (sources, target), (back_sources, back_target) = known.prepared
    assert any(source is target for source in back_sources)
    assert any(source is back_target for source in sources)
    # A copy runs on the device of its source, a sum on that of its first part: so these are two devices.
    assert {sources[0].ctx, back_sources[0].ctx} == {mx.cpu(0), mx.cpu(1)}


@pytest.mark.parametrize("active", [1, 2])
def test_pairs_take_turns_and_all_fit_into_the_footprint(known, active):
    known.push = known.start = 0.0
    devices, footprint = [mx.cpu(0), mx.cpu(1)], 1 << 16
    seconds = calibration.call_seconds(calibration._copies, devices, active, footprint)
    assert seconds == 2.0 * footprint / 2  # of all pairs: there is one clock for both devices
    arrays = {id(array): array for sources, target in known.prepared for array in (*sources, target)}.values()
    assert sum(4 * array.size for array in arrays) == footprint


def test_a_call_that_takes_no_longer_than_its_start_has_a_rate_above_zero(known, monkeypatch):
    monkeypatch.setattr(process, "cores", lambda: 2)
    known.rates = dict.fromkeys(known.rates, 0.0)
    machine = calibrate([mx.cpu(0), mx.cpu(1)], SMALL)
    assert {cost for rate in (machine.copy, machine.add) for _, cost in rate.alone} == {calibration.LEAST}


def test_it_is_the_median_of_the_rounds_behind_a_warm_up_with_a_fence_at_both_ends(known):
    known.queued = 100.0
    known.delays = iter([1000.0, 5.0, 0.0, 3.0, 90.0, 1.0])
    call = known.prepare("_copyto", [], mx.nd.zeros((1,)))
    assert calibration._median_seconds([call], 5) == 0.25 + 0.5 + 8.0 + 3.0
    known.queued = 100.0
    assert start_seconds(mx.cpu(0), mx.cpu(1), hops=20) == 0.25 + 0.5 + 8.0
    assert not known.pushed, "the clock was read before a fence"


def test_a_push_is_pythons_time_alone(known):
    known.queued = 100.0
    known.delays = iter([1000.0])
    assert push_seconds([mx.cpu(rank) for rank in range(3)]) == pytest.approx(0.25)
    assert len(known.pushed) == 1 + calibration.SHORT_ROUNDS
    assert not known.queued


@pytest.mark.parametrize(("devices", "cores", "together"), [(4, 2, 2), (2, 4, 2), (3, 3, 3), (2, 1, 1)])
def test_the_second_fastest_turn_counts_and_as_many_pairs_run_as_there_are_cores(monkeypatch, devices, cores, together):
    asked = defaultdict(list)
    starts = iter([0.0, 0.5, *[9.0] * 5])

    def seconds(work, devices, active, size):
        asked[work, active, size].append(1.5 if asked[work, active, size] else 0.001)  # the first turn is the outlier
        return asked[work, active, size][-1]

    monkeypatch.setattr(calibration, "call_seconds", seconds)
    monkeypatch.setattr(calibration, "push_seconds", lambda devices: 0.0)
    monkeypatch.setattr(calibration, "start_seconds", lambda *devices: next(starts))
    monkeypatch.setattr(calibration, "LARGE", SMALL[0])
    monkeypatch.setattr(process, "cores", lambda: cores)
    machine = calibrate([mx.cpu(rank) for rank in range(devices)], SMALL)
    assert {active for _, active, _ in asked} == {1, together}
    assert len(asked[calibration._copies, 1, SMALL[1]]) == 3, "of seven turns"
    assert machine.copy.start == machine.add.start == 0.5
    for rate in (machine.copy, machine.add):
        assert [nbytes * rest for nbytes, rest in rate.alone] == pytest.approx([2.0, 2.0])
        assert [nbytes * rest for nbytes, rest in rate.together] == pytest.approx([2.0 * together] * 2, rel=1e-3)


def test_real_devices_can_be_measured(monkeypatch):
    """What is measured is asserted with stubbed clocks."""
    monkeypatch.setattr(calibration, "TURNS", 2)
    machine = calibrate([mx.cpu(0), mx.cpu(1)], SMALL)
    assert predict(plan("ring", 2), 1 << 20, machine) > predict(plan("ring", 2), 0, machine)


def test_one_device_has_no_link():
    with pytest.raises(ValueError, match="a link needs two devices, not 1"):
        calibrate([mx.cpu(0)])


def test_only_who_calibrates_imports_it():
    """Results count the modules that were imported as the code that they measured."""
    package = Path(mxdp.__file__).parent
    imports = re.compile(r"^\s*(from|import) .*calibrat", re.MULTILINE)
    users = [path for path in package.rglob("*.py") if imports.search(path.read_text(encoding="utf-8"))]
    assert {path.relative_to(package).parts[0] for path in users} == {"experiments"}
