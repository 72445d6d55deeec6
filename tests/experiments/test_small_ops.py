from __future__ import annotations

import pytest
from littles import little

from mxdp.experiments.automatic_parallelism import small_ops
from mxdp.experiments.automatic_parallelism.small_ops import COUNT, WAYS, group
from mxdp.experiments.lab.module import Question
from mxdp.experiments.oracle import count

SETTINGS = little(Question(small_ops), kind="cpu", sizes=[4, 4096, 1 << 20])
CASES = {case.label: case for case in small_ops.cases(SETTINGS)}


def test_of_large_arrays_the_oracle_compares_smaller_ones():
    assert count(small_ops.oracle(CASES["2 workers, 1 MiB"], SETTINGS)) == (2 * COUNT * (1 << 16), 0)


def into_the_first(results):
    results[:] = [results[0]] * COUNT


def spoilt(results):
    results[29][7] += 1


@pytest.mark.parametrize(("fault", "wrong"), [(None, COUNT * 1024), (into_the_first, 29 * 1024), (spoilt, 1)])
def test_the_oracle_finds_what_was_not_pushed_and_one_wrong_number(monkeypatch, fault, wrong):
    def broken(*given):
        host, results, push = group(*given)
        return host, results, lambda: fault and (push(), fault(results))

    monkeypatch.setattr(small_ops, "group", broken)
    case = CASES["2 workers, 4 KiB"]
    assert count(small_ops.oracle(case, SETTINGS)) == (2 * COUNT * 1024, 2 * wrong)


def test_a_round_measures_every_way(monkeypatch):
    asked = []
    monkeypatch.setattr(small_ops, "group", lambda *given: given[:2])
    monkeypatch.setattr(small_ops, "mean_seconds", lambda push, _: (asked.append(push), (30e-6, 60e-6 * len(asked)))[1])
    ready = small_ops.set_up(CASES["1 worker, 4 KiB"], SETTINGS)
    assert list(map(str, ready.devices)) == ["cpu(0)", "cpu(1)"]
    seconds, more = ready.round()
    assert asked == [4096] * 4
    assert seconds == pytest.approx(60e-6 / COUNT)
    assert [more[f"{way}_us"] * COUNT for way in WAYS["1 worker"]] == pytest.approx([60, 120, 180, 240])
    assert more["calls_push_us"] == pytest.approx(30 / COUNT)


@pytest.mark.parametrize("way", WAYS["1 worker"])
def test_with_two_devices_every_second_operator_is_on_the_second(way):
    _, results, _ = group(way, 40, SETTINGS)
    both = ["cpu(0)", "cpu(1)"] if way.endswith("two_devices") else ["cpu(0)"] * 2
    assert [str(result.ctx) for result in results] == both * (COUNT // 2)


def test_ready_calls_do_not_go_through_mxnets_function(monkeypatch):
    calls, ready = (group(way, 4, SETTINGS)[-1] for way in ("calls", "ready"))
    monkeypatch.setattr(small_ops.np, "add", None)
    ready()
    with pytest.raises(TypeError):
        calls()
