"""Gradients in fewer bytes: that the oracle finds what is said wrong or lost."""

from __future__ import annotations

import numpy as onp
import pytest
from littles import little

from mxdp.collectives import compress
from mxdp.collectives.compress import CompressedSync, Form
from mxdp.experiments.lab import Number, Row, Told
from mxdp.experiments.lab.module import Question
from mxdp.experiments.many_processes import less_traffic, traffic_ranks
from mxdp.experiments.oracle import count

QUESTION = Question(less_traffic)
S = little(QUESTION)
CASES = {case.form: case for case in less_traffic.cases(S) if case.place == "devices"}


def reversed_places(share):
    form = compress.largest(share)
    return Form(form.encode, lambda data, size: form.decode(data, size)[::-1])


@pytest.mark.parametrize(
    ("form", "broken"),
    [
        # cut off, not rounded
        (traffic_ranks.BFLOAT, dict(BFLOAT16=Form(lambda x: x.view("<u2")[1::2].tobytes(), compress.BFLOAT16.decode))),
        (traffic_ranks.HALF, dict(FLOAT16=compress.BFLOAT16)),
        (traffic_ranks.TWO_BITS, dict(two_bits=lambda threshold: compress.two_bits(threshold * 1.01))),
        (traffic_ranks.LARGEST, dict(largest=reversed_places)),
        (traffic_ranks.LARGEST, dict(largest=lambda share: compress.largest(share * 1.01))),
    ],
)
def test_its_oracle_finds_what_is_said_otherwise(form, broken, monkeypatch):
    for name, value in broken.items():
        monkeypatch.setattr(traffic_ranks, name, value)
    assert count(less_traffic.oracle(CASES[form], S))[1] > 100


@pytest.mark.parametrize("form", [traffic_ranks.TWO_BITS, traffic_ranks.LARGEST])
def test_its_oracle_finds_feedback_that_is_lost(form, monkeypatch):
    def forgetful(*given, feedback, **more):
        return CompressedSync(*given, feedback=False, **more)

    monkeypatch.setattr(traffic_ranks, "CompressedSync", forgetful)
    checked, wrong = count(less_traffic.oracle(CASES[form], S))
    assert wrong > checked / 100


def test_its_oracle_finds_local_steps_from_which_nobody_comes_back(monkeypatch):
    right = CompressedSync.__call__

    def call(self):
        if self._calls % self._every == self._every - 1:
            self._start = []
        right(self)

    monkeypatch.setattr(CompressedSync, "__call__", call)
    assert count(less_traffic.oracle(CASES[traffic_ranks.EVERY], S))[1] > less_traffic.NUMBERS


def told(hosts=True):
    """A full sum of 10 s a step between hosts, and the largest in 5 s, both as accurate after as many steps."""
    rows = []
    for case in less_traffic.cases(S):
        if case.place == "hosts" and not hosts:
            continue
        numbers = {"seconds": 5.0 if case.form == traffic_ranks.LARGEST else 10.0}
        known = dict(form=case.form, place=case.place, devices=2, processes=1)
        if case.place == "devices":
            steps = [8 * part for part in range(7)]
            known["accuracies"] = {str(step): Number([step / 48] * 6) for step in steps}
            known["of_many"] = {str(n): Number([min(1.0, 2048 / n)] * 6) for n in less_traffic.MANY}
        known.update({name: Number([value] * 6) for name, value in numbers.items()})
        known["sent"] = known.get("sent") or 7.0
        rows.append(Row(case.label, False, known))
    about = Told(rows)
    less_traffic.tell(about, S)
    return about


def test_in_the_time_of_the_fastest_form_the_others_get_less_far():
    about = told()
    row = about.one(place="hosts", form=traffic_ranks.LARGEST)
    assert row.of_full.median == 0.5
    assert row.gain.median == 0
    assert row.time_gain.median == pytest.approx(1.0 - 0.5)
    assert "Between two hosts at 100 Mbit/s" in about.sentence
    assert about.sentence.endswith(
        "is 2.00 times as fast as with the full sum; after equal steps the accuracy differs by +0.000."
    )
    assert "In equal time the accuracy with the largest 1 % differs by +0.500" in about.explanation
    assert about.claims[less_traffic.MANY_ONES].holds is True


def test_without_hosts_devices_alone_are_told():
    about = told(hosts=False)
    assert "Between two devices of this machine" in about.sentence
    assert "largest 1 % is 2.00 times as fast as with the full sum" in about.sentence


def test_a_sum_of_many_stands_still_where_the_bits_end():
    assert less_traffic.sums_of_ones(compress.FLOAT16) == {str(n): min(1.0, 2048 / n) for n in less_traffic.MANY}
    assert less_traffic.sums_of_ones(compress.BFLOAT16)["4096"] == 256 / 4096


def test_hosts_that_can_not_be_made_are_skipped_with_a_sentence(monkeypatch):
    from mxdp.experiments.lab import Skipped
    from mxdp.experiments.many_processes import hosts

    monkeypatch.setattr(hosts, "_ip", lambda *words: (_ for _ in ()).throw(OSError("none")))
    less_traffic.between_hosts.cache_clear()
    case = next(case for case in less_traffic.cases(S) if case.place == "hosts")
    with pytest.raises(Skipped, match="there is no `ip` to make network namespaces"):
        next(less_traffic.oracle(case, S))


def test_known_gradients_are_such_that_float16_must_round():
    vector = traffic_ranks.known_gradient(0, 0, [1000], 0)
    assert (vector != vector.astype("float16")).any()
    assert (vector * 1024 == onp.rint(vector * 1024)).all()
