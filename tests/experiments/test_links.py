from __future__ import annotations

from types import SimpleNamespace

import pytest
from littles import little

from mxdp.backend import mx
from mxdp.engine import prepare
from mxdp.experiments import links as copies
from mxdp.experiments.allreduce import links
from mxdp.experiments.lab.module import find
from mxdp.experiments.links import Copies, measured_link
from mxdp.experiments.oracle import count

S = little(find("links"), devices=[3], kind="cpu", sizes=[4, 12, 4000])
CASES = {case.label: case for case in links.cases(S)}


def copy_shifted(operator, inputs, out):
    return prepare(operator, [inputs[0][1:]], out[:-1]) if out.size > 1 else prepare(operator, inputs, out)


@pytest.mark.parametrize("label", ["0 to 1", "all 3 at once"])
def test_the_oracle_catches_a_broken_copy(monkeypatch, label):
    monkeypatch.setattr(copies, "prepare", copy_shifted)
    checked, wrong = count(links.oracle(CASES[label], S))
    assert 0 < wrong <= checked


def test_the_oracle_catches_copies_of_another_device(monkeypatch):
    made = []

    def copy_of_the_first(operator, inputs, out):
        made.append(inputs)
        return prepare(operator, made[-1 - (len(made) - 1) % 3], out)

    monkeypatch.setattr(copies, "prepare", copy_of_the_first)
    # What device 0 sends is right; the other two devices' copies are not (but for equal numbers here and there).
    assert 2000 < count(links.oracle(CASES["all 3 at once"], S))[1] <= 2 * 1004


def mean(nbytes, pairs=1):
    """Of a copy, and of the last wait."""
    repeats = max(copies.FEWEST, min(copies.MOST, copies.ENOUGH // nbytes))
    return pairs + 1 / repeats


def test_copies_go_where_they_should(virtual):
    both = Copies([(mx.cpu(1), mx.cpu(2)), (mx.cpu(2), mx.cpu(0))], 40, seed=3)
    assert count(both.compare()) == (20, 0)
    assert [target.ctx for target in both._targets] == [mx.cpu(2), mx.cpu(0)]
    assert both.seconds() == pytest.approx(mean(40, 2))


def test_a_link_is_measured_in_its_direction_with_messages_of_several_sizes(monkeypatch):
    made, pairs = [], [(mx.cpu(1), mx.cpu(0))]
    monkeypatch.setattr(copies, "Copies", lambda *given: made.append(given) or SimpleNamespace(seconds=lambda: 1e-3))
    measured_link(*pairs[0], 1 << 22, seed=3)
    assert made == [(pairs, nbytes, 3) for nbytes in (4, 1 << 16, 1 << 18, 1 << 20, 1 << 22)]


def test_a_round_times_each_size_on_the_devices_of_the_pairs(virtual):
    for label, names in (("2 to 1", ["cpu(1)", "cpu(2)"]), ("all 3 at once", ["cpu(0)", "cpu(1)", "cpu(2)"])):
        ready = links.set_up(CASES[label], S)
        assert [str(device) for device in ready.devices] == names
        seconds, more = ready.round()
        expected = {str(nbytes): mean(nbytes, len(CASES[label].pairs)) for nbytes in (4, 12, 4000)}
        assert more["seconds_by_bytes"] == pytest.approx(expected)
        assert seconds == more["seconds_by_bytes"]["4000"]
