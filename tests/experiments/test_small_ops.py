from __future__ import annotations

import pytest
from littles import little

from mxdp.backend import mx
from mxdp.errors import UsageError
from mxdp.experiments.automatic_parallelism import small_ops
from mxdp.experiments.automatic_parallelism.small_ops import COUNT, WAYS, Additions
from mxdp.experiments.lab.module import Question
from mxdp.experiments.lab.settings import resolve
from mxdp.experiments.oracle import count

SETTINGS = little(Question(small_ops), kind="cpu", sizes=[4, 4096, 1 << 20])
CASES = {case.label: case for case in small_ops.cases(SETTINGS)}
ONE, TWO = [mx.cpu(0)], [mx.cpu(0), mx.cpu(1)]
CALLS = ("calls", "ready")


@pytest.mark.parametrize("under", WAYS)
def test_the_oracle_compares_every_result_of_every_way(under):
    assert count(small_ops.oracle(CASES[f"{under}, 4 KiB"], SETTINGS)) == (len(WAYS[under]) * COUNT * 1024, 0)


def test_of_large_arrays_the_oracle_compares_smaller_ones():
    assert count(small_ops.oracle(CASES["2 workers, 1 MiB"], SETTINGS)) == (2 * COUNT * (1 << 16), 0)


def test_the_oracle_catches_calls_that_all_write_one_array(monkeypatch):
    prepare = small_ops.prepare
    first = []

    def into_the_first(operator, inputs, out, **more):
        first.append(out)
        return prepare(operator, inputs, first[0], **more)

    monkeypatch.setattr(small_ops, "prepare", into_the_first)
    _, wrong = count(small_ops.oracle(CASES["2 workers, 4 bytes"], SETTINGS))
    assert wrong == COUNT  # of 'ready', whose first array holds the last sum


def test_a_round_measures_every_way_on_its_devices(monkeypatch):
    asked = []

    class Made:
        def __init__(self, devices, nbytes, seed):
            self.ways = {way: (way, len(devices), nbytes) for way in CALLS}

    def mean_seconds(push, at_least):
        asked.append(push)
        return 30e-6, 60e-6 * len(asked)

    monkeypatch.setattr(small_ops, "Additions", Made)
    monkeypatch.setattr(small_ops, "mean_seconds", mean_seconds)
    ready = small_ops.set_up(CASES["1 worker, 4 KiB"], SETTINGS)
    assert list(map(str, ready.devices)) == ["cpu(0)", "cpu(1)"]
    seconds, more = ready.round()
    assert asked == [*((way, 1, 4096) for way in CALLS), ("calls", 2, 4096), ("ready", 2, 4096)]
    assert seconds == pytest.approx(60e-6 / COUNT)
    assert more["calls_us"] == pytest.approx(60 / COUNT)
    assert more["calls_push_us"] == pytest.approx(30 / COUNT)
    assert more["ready_two_devices_us"] == pytest.approx(240 / COUNT)


@pytest.mark.parametrize("nbytes", [4, 40])
@pytest.mark.parametrize("way", CALLS)
def test_every_way_gives_numpys_sums(way, nbytes):
    made = Additions(ONE, nbytes)
    assert count(made.compared(way)) == (COUNT * nbytes // 4, 0)
    assert len({tuple(out.asnumpy()) for out in made.out}) == COUNT  # no two are alike


@pytest.mark.parametrize("way", CALLS)
def test_every_second_operator_is_on_the_second_device(way):
    made = Additions(TWO, 40)
    assert count(made.compared(way)) == (COUNT * 10, 0)
    assert [out.ctx for out in made.out] == TWO * (COUNT // 2)


def nothing(made):
    pass


def swapped(made):
    made.out[3], made.out[4] = made.out[4], made.out[3]


def spoilt(made):
    made.out[29][7] += 1


@pytest.mark.parametrize("way", CALLS)
@pytest.mark.parametrize(("fault", "wrong"), [(nothing, COUNT * 10), (swapped, 20), (spoilt, 1)])
def test_what_was_there_before_what_changes_places_and_one_wrong_number_are_found(way, fault, wrong):
    made = Additions(ONE, 40)
    push = made.ways[way]
    made.ways[way] = lambda: (fault is nothing or push(), fault(made))
    assert count(made.compared(way)) == (COUNT * 10, wrong)


def test_ready_calls_do_not_go_through_mxnets_function(monkeypatch):
    made = Additions(ONE, 4)
    monkeypatch.setattr(small_ops.np, "add", None)
    made.ways["ready"]()
    with pytest.raises(TypeError):
        made.ways["calls"]()


@pytest.mark.parametrize("nbytes", [-4, 0, 2, 6, 4.0])
def test_a_size_is_of_whole_float32_numbers(nbytes):
    with pytest.raises(UsageError, match="small-ops: sizes must be "):
        resolve([Question(small_ops)], "quick", {"sizes": [4, nbytes]})
