from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from mxdp.backend import mx
from mxdp.engine import prepare
from mxdp.errors import UsageError
from mxdp.experiments.allreduce.links import Links, describe
from mxdp.experiments.allreduce.work import links as work
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.harness.settings import resolve
from mxdp.experiments.measure import links as copies
from mxdp.experiments.measure.child import one_round
from mxdp.experiments.measure.links import Copies, measured_link
from mxdp.experiments.measure.oracle import count
from mxdp.plans.cost.link import Link
from mxdp.plans.cost.machine import CPU

SETTINGS = dict(devices=[3], kind="cpu", seed=0, rounds=2, timeout=60.0, sizes=[4, 12, 4000])
CASES = {case.label: case for case in Links().cases(SETTINGS)}


def copy_nothing(operator, inputs, out):
    return lambda: None


def copy_half(operator, inputs, out):
    half = max(1, out.size // 2)
    return prepare(operator, [inputs[0][:half]], out[:half])


def copy_shifted(operator, inputs, out):
    return prepare(operator, [inputs[0][1:]], out[:-1]) if out.size > 1 else prepare(operator, inputs, out)


def row(label, speed, devices=("cpu(0)", "cpu(1)"), pairs=((0, 1),)):
    seconds = 1e-3 / speed
    case = {"devices": list(devices), "pairs": [list(pair) for pair in pairs]}
    return Row(label, case, [seconds] * 6, {"seconds_by_bytes": {"4": 5e-6, "1000000": seconds}})


def test_every_ordered_pair_has_a_case_and_so_has_every_number_of_devices_at_once():
    cases = Links().cases({**SETTINGS, "devices": [1, 2, 3]})
    pairs = [case.settings["pairs"] for case in cases]
    assert pairs[:9] == [[[i, j]] for i in range(3) for j in range(3)]
    assert pairs[9:] == [[[0, 1], [1, 0]], [[0, 1], [1, 2], [2, 0]]]
    assert [case.label for case in cases[9:]] == ["all 2 at once", "all 3 at once"]
    assert cases[0].label == "0 to itself"


@pytest.mark.parametrize(("label", "pairs"), [("0 to itself", 1), ("2 to 1", 1), ("all 3 at once", 3)])
def test_the_oracle_compares_every_element_of_every_size(label, pairs):
    assert count(work.oracle(CASES[label], SETTINGS)) == (pairs * (1 + 3 + 1000), 0)


@pytest.mark.parametrize("broken", [copy_nothing, copy_half, copy_shifted])
@pytest.mark.parametrize("label", ["0 to 1", "all 3 at once"])
def test_the_oracle_catches_a_broken_copy(monkeypatch, broken, label):
    monkeypatch.setattr(copies, "prepare", broken)
    checked, wrong = count(work.oracle(CASES[label], SETTINGS))
    assert 0 < wrong <= checked


def test_the_oracle_catches_copies_of_another_device(monkeypatch):
    made = []

    def copy_of_the_first(operator, inputs, out):
        made.append(inputs)
        return prepare(operator, made[-1 - (len(made) - 1) % 3], out)

    monkeypatch.setattr(copies, "prepare", copy_of_the_first)
    # What device 0 sends is right; the other two devices' copies are not (but for equal numbers here and there).
    assert 2000 < count(work.oracle(CASES["all 3 at once"], SETTINGS))[1] <= 2 * 1004


def test_copies_go_where_they_should():
    both = Copies([(mx.cpu(1), mx.cpu(2)), (mx.cpu(2), mx.cpu(0))], 40, seed=3)
    assert count(both.compare()) == (20, 0)
    assert [target.ctx for target in both._targets] == [mx.cpu(2), mx.cpu(0)]
    assert both.seconds() > 0


@pytest.mark.parametrize("nbytes", [-4, 0, 2, 6])
def test_a_size_is_of_whole_float32_numbers(nbytes):
    with pytest.raises(ValueError, match=f"a size is 4, 8, 12 ... bytes, not {nbytes}"):
        Copies([(mx.cpu(0), mx.cpu(1))], nbytes, seed=0)


def test_a_measured_link_has_a_price():
    assert measured_link(mx.cpu(0), mx.cpu(1), 1 << 22, seed=0).seconds(1 << 22) > 0


def test_the_numbers_of_a_perfect_link():
    link = Link(alpha=1e-5, beta=2e-10)
    found = describe({str(nbytes): link.seconds(nbytes) for nbytes in (4, 4096, 10**6)})
    assert found["alpha"] == pytest.approx(1e-5)
    assert found["beta"] == pytest.approx(2e-10)
    assert found["fit_error"] == pytest.approx(0, abs=1e-9)
    assert found["latency_us"] == pytest.approx(10.0008)
    assert found["bandwidth_gbs"] == pytest.approx(1e6 / 2.1e-4 / 1e9)


def test_the_fit_error_is_the_median_over_sizes():
    found = describe({"1000": 1e-6, "2000": 2e-6, "3000": 3e-6, "4000": 8e-6, "5000": 5e-6})
    assert 0 < found["fit_error"] < 0.5


@pytest.mark.parametrize("sizes", ["[4]", "[4, 4]", "[4, 6]", "[4, 8.0]"])
def test_a_line_is_fitted_to_two_sizes_of_whole_numbers(sizes, tmp_path):
    (tmp_path / "mine.toml").write_text(f"[links]\nsizes = {sizes}\n")
    with pytest.raises(UsageError, match="links: sizes must be two or more different multiples of 4, the bytes of a"):
        resolve([Links()], str(tmp_path / "mine.toml"), {})


def test_rounds_measure_and_those_at_once_carry_the_machine(monkeypatch):
    asked = []
    monkeypatch.setattr(work, "calibrate", lambda devices: asked.append(devices) or CPU)
    for label, names in (("2 to 1", ["cpu(1)", "cpu(2)"]), ("all 3 at once", ["cpu(0)", "cpu(1)", "cpu(2)"])):
        ready = work.set_up(CASES[label], SETTINGS)
        assert [str(device) for device in ready.devices] == names
        found = one_round(ready)
        assert list(found.metrics["seconds_by_bytes"]) == ["4", "12", "4000"]
        assert found.seconds == found.metrics["seconds_by_bytes"]["4000"] > 0
        assert ("machine" in found.last) is (len(names) == 3)
    assert asked == [[mx.cpu(0), mx.cpu(1), mx.cpu(2)]]
    assert json.loads(json.dumps(found.last))["machine"] == json.loads(json.dumps(asdict(CPU)))


def test_the_line_is_fitted_to_the_medians_of_all_rounds(measured):
    _, result = measured("links")
    for row in result["rows"]:
        metrics = row.metrics
        assert {**metrics, **describe(metrics["seconds_by_bytes"])} == metrics
        assert metrics["seconds_by_bytes"]["4096"] == row.median
        assert ("machine" in metrics) is ("over_alone" in metrics) is (len(row.case["pairs"]) > 1)
