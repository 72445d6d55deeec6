"""Weak and strong scaling: what the oracle finds, and how a step is taken apart."""

from __future__ import annotations

import pytest
from littles import little

from mxdp.errors import UsageError
from mxdp.experiments.data_parallel import scaling
from mxdp.experiments.lab.module import Question
from mxdp.experiments.lab.settings import resolve

QUESTION = Question(scaling)
S = little(QUESTION, kind="cpu", devices=[1, 2, 4])


def test_weak_and_strong_scaling_share_what_is_the_same():
    batches = [(case.devices, case.batch) for case in scaling.cases(S) if case.net == "lenet"]
    assert batches == [(1, 4), (1, 8), (2, 8), (4, 8), (4, 16)]
    few = [(case.devices, case.batch) for case in scaling.cases(little(QUESTION, devices=[4], lenet=1))]
    assert few[:3] == [(1, 1), (1, 2), (4, 4)], "4 devices can't share 2 samples"


def test_one_device_is_refused_in_a_sentence():
    with pytest.raises(UsageError, match="scaling: devices must be numbers of which one is above 1"):
        resolve([QUESTION], "quick", {"devices": [1]})
