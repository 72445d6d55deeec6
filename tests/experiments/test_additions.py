from __future__ import annotations

import pytest

from mxdp.backend import mx
from mxdp.experiments.automatic_parallelism.work import additions
from mxdp.experiments.automatic_parallelism.work.additions import BULK, COUNT, Additions

ONE, TWO = [mx.cpu(0)], [mx.cpu(0), mx.cpu(1)]
WAYS = ("calls", "bulk", "ready", "graph")


@pytest.mark.parametrize("nbytes", [4, 40])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_numpys_sums(way, nbytes):
    assert Additions(ONE, nbytes).compare(way) == (COUNT * nbytes // 4, 0)


@pytest.mark.parametrize("way", ["calls", "bulk", "ready"])
def test_every_second_operator_is_on_the_second_device(way):
    made = Additions(TWO, 40)
    assert made.compare(way) == (COUNT * 10, 0)
    assert [out.ctx for out in made.out] == TWO * (COUNT // 2)


def test_no_two_results_are_alike():
    made = Additions(ONE, 40)
    made.compare("ready")
    assert len({tuple(out.asnumpy()) for out in made.out}) == COUNT


@pytest.mark.parametrize("way", WAYS)
def test_what_was_there_before_does_not_count(way):
    made = Additions(ONE, 40)
    made.ways[way] = lambda: None
    assert made.compare(way) == (COUNT * 10, COUNT * 10)


def test_results_that_change_places_are_found():
    made = Additions(ONE, 40)
    push = made.ways["calls"]

    def swapped():
        push()
        made.out[3], made.out[4] = made.out[4], made.out[3]

    made.ways["calls"] = swapped
    assert made.compare("calls") == (COUNT * 10, 20)


def test_one_wrong_number_is_found():
    made = Additions(ONE, 40)
    push = made.ways["graph"]

    def spoilt():
        push()
        made.out[29][7] += 1

    made.ways["graph"] = spoilt
    assert made.compare("graph") == (COUNT * 10, 1)


def test_a_bulk_is_of_so_many_operators(monkeypatch):
    sizes = []
    bulk = mx.engine.bulk
    monkeypatch.setattr(additions.mx.engine, "bulk", lambda size: (sizes.append(size), bulk(size))[1])
    assert Additions(ONE, 4).compare("bulk") == (COUNT, 0)
    assert sizes == [BULK]


def test_ready_calls_do_not_go_through_mxnets_function(monkeypatch):
    made = Additions(ONE, 4)
    monkeypatch.setattr(additions.np, "add", None)
    made.ways["ready"]()
    with pytest.raises(TypeError):
        made.ways["calls"]()


@pytest.mark.parametrize("nbytes", [-4, 0, 2, 6])
def test_a_size_is_of_whole_float32_numbers(nbytes):
    with pytest.raises(ValueError, match=f"a size is 4, 8, 12 ... bytes, not {nbytes}"):
        Additions(ONE, nbytes)
