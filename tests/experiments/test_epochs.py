from __future__ import annotations

import pytest
from littles import little

from mxdp.backend import mx
from mxdp.datasets import load
from mxdp.errors import UsageError
from mxdp.experiments.data_parallel import epochs, lenet_steps, where_the_time_went
from mxdp.experiments.lab import Case
from mxdp.experiments.lab.module import Question


@pytest.mark.parametrize(("kind", "cores", "possible"), [("cpu", 2, 2), ("cpu", 8, 4), ("cpu", 1, 1), ("gpu", 2, 4)])
def test_no_more_is_possible_than_the_machine_can_give(monkeypatch, kind, cores, possible):
    monkeypatch.setattr("mxdp.process.cores", lambda: cores)
    devices = [mx.Context(kind, number) for number in range(4)]
    assert epochs.possible(devices) == possible


@pytest.mark.parametrize(("devices", "reference"), [(1, False), (2, False), (1, True)])
def test_what_is_measured_beside_the_time(devices, reference):
    """A ceiling is not evaluated, and a replica that is alone is not compared with itself."""
    work = epochs.set_up(Case("x", devices, reference=reference), little(Question(epochs)))
    _, more = work.round()
    assert ("test_accuracy" in more, "in_sync" in more) == (not reference, devices > 1)
    assert sum(more[part] for part in lenet_steps.PARTS) == pytest.approx(1)
    assert (more["round_samples"], work.facts["epoch_samples"]) == (200, 6000)


@pytest.mark.parametrize("case", [Case("x"), Case("x", 2), Case("x", processes=2)])
def test_a_process_goes_on_with_the_training_of_the_one_before(tmp_path, monkeypatch, case):
    """Over the end of an epoch, too: 200 pictures are one. Of a ceiling's processes the second one, too."""
    data, case.process = load("synthetic").take(200, 50), case.processes - 1
    monkeypatch.setattr(lenet_steps, "pictures", lambda s: data)

    def measured(rounds, folder, number=0):
        case.folder, case.number = folder, number
        work = epochs.set_up(case, little(Question(epochs), samples=120))
        return [(more["loss"], more["test_accuracy"]) for _, more in (work.round() for _ in range(rounds))]

    assert measured(2, str(tmp_path)) + measured(1, str(tmp_path), number=2) == measured(3, "")


def test_more_devices_than_the_profiler_can_follow_are_refused(monkeypatch):
    monkeypatch.setattr(where_the_time_went, "can_record", lambda devices: False)
    with pytest.raises(UsageError, match="can't follow 2 CPU devices on this machine: ask for fewer"):
        where_the_time_went.set_up(Case("", 2), little(Question(where_the_time_went), kind="cpu"))
