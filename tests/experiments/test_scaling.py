"""Weak and strong scaling: what the oracle finds, and how a step is taken apart."""

from __future__ import annotations

import pytest
from littles import little

from mxdp.backend import devices
from mxdp.errors import UsageError
from mxdp.experiments.data_parallel import scaling
from mxdp.experiments.lab import Case, Number, Row, Told
from mxdp.experiments.lab.module import Question
from mxdp.experiments.lab.settings import resolve
from mxdp.experiments.networks import network
from mxdp.experiments.oracle import count

QUESTION = Question(scaling)
S = little(QUESTION, kind="cpu", devices=[1, 2, 4])


@pytest.mark.parametrize(("net", "n", "batch"), [("lenet", 1, 4), ("lenet", 3, 7), ("resnet", 2, 4)])
def test_its_oracle_finds_a_missing_all_reduce(net, n, batch, monkeypatch):
    case, s = Case("", n, net=net, batch=batch), little(QUESTION, kind="cpu", devices=[n])
    assert count(scaling.oracle(case, s))[1] == 0
    monkeypatch.setattr(network(net, s.width, tuple(devices(n, "cpu")), s.seed), "sums", False)
    checked, wrong = count(scaling.oracle(case, s))
    assert (wrong > checked / 10) == (n > 1)


def test_weak_and_strong_scaling_share_what_is_the_same():
    batches = [(case.devices, case.batch) for case in scaling.cases(S) if case.net == "lenet"]
    assert batches == [(1, 4), (1, 8), (2, 8), (4, 8), (4, 16)]
    few = [(case.devices, case.batch) for case in scaling.cases(little(QUESTION, devices=[4], lenet=1))]
    assert few[:3] == [(1, 1), (1, 2), (4, 4)], "4 devices can't share 2 samples"


def test_one_device_is_refused_in_a_sentence():
    with pytest.raises(UsageError, match="scaling: devices must be numbers of which one is above 1"):
        resolve([QUESTION], "quick", {"devices": [1]})


def told(noise=0.0, **changes):
    """Two devices: a step of 7, of one device 10 for the whole and 6 for half, and an all-reduce of 0.5."""
    rows = []
    for net in scaling.NETS:
        batch = S[net]
        for n, of, seconds in ((1, batch, 6.0), (1, 2 * batch, 10.0), (2, 2 * batch, 7.0)):
            several = {} if n == 1 else {"unsynced_seconds": 6.25, "shard_seconds": 6.0, "allreduce_seconds": 0.5}
            numbers = {"seconds": seconds, **several, **(changes if n == 2 else {})}
            known = dict(net=net, devices=n, batch=of, nbytes=1000, processes=1)
            values = {name: [value * (1 + noise * n * k) for k in range(6)] for name, value in numbers.items()}
            known.update({name: Number(of_name) for name, of_name in values.items()})
            rows.append(Row(f"{net} {n} {of}", False, known))
    about = Told(rows)
    scaling.tell(about, little(QUESTION, devices=[1, 2]))
    return about


def test_a_step_is_taken_apart_and_its_parts_add_up():
    row = told().one(net="resnet", devices=2)
    assert row.weak.median == pytest.approx(6 / 7)
    assert row.strong.median == pytest.approx(10 / 14)
    assert row.predicted_seconds.median == 6.5
    lost = [row.get(name).median for name in ("to_compute", "to_sums", "to_rest")]
    assert lost == pytest.approx([1 / 7, 0.5 / 7, 0.5 / 7])
    assert sum(lost) + row.strong.median == pytest.approx(1)
    assert (row.half.median, row.instrument.median, row.beta.median) == (0.6, 1.5, 4000)


def test_the_book_s_claims_are_of_its_networks_and_name_its_setting():
    claims = told(noise=1e-6).claims
    assert [number.values[0] for number in claims[scaling.HALF].numbers] == [0.6]
    assert claims[scaling.HALF].holds is False
    two, four = (claim for sentence, claim in claims.items() if "weak scaling" in sentence)
    assert two.numbers[0].values[0] == pytest.approx(6 / 7)
    assert "256 pictures of 64 x 64 a device (here: 2 of 28 x 28)" in two.sentence
    assert two.holds is False
    assert not four.numbers
