from __future__ import annotations

import pytest
from littles import little

from mxdp.backend import mx
from mxdp.datasets import load
from mxdp.experiments.data_parallel import epochs, lenet_steps
from mxdp.experiments.lab import Case, Number, Row, Settings, Told
from mxdp.experiments.lab.module import Question

SETTINGS = Settings(devices=[1, 2], rounds=1)


def row(label, seconds, devices=1, processes=1, reference=False, **more):
    """Six processes, which become slower; ``parts``: the share of each part in every process."""
    parts = more.pop("parts", {})
    numbers = dict(round_samples=100, test_accuracy=0.8, in_sync=more.pop("in_sync", 1.0))
    if parts:
        numbers.update({**dict.fromkeys(lenet_steps.PARTS, 0.0), **parts, "compute": 1 - sum(parts.values())})
    known = {name: Number([value] * 6, label=label) for name, value in numbers.items()}
    known["seconds"] = Number([seconds * drift for drift in (1, 2, 3, 4, 5, 6)], label=label)
    return Row(label, reference, dict(known, devices=devices, processes=processes, epoch_samples=600, **more))


def told(two=1.25, ceiling=1.1, devices=2, possible=2, parts=None, alone=None, in_sync=1.0):
    """One device takes 2 s, and several ``two``."""
    several = row("2 devices", two, devices, parts=parts or {}, possible=possible, in_sync=in_sync)
    reference = row("2 processes", ceiling, processes=devices, reference=True, parts=alone or {})
    found = Told([row("1 device", 2.0), several, reference])
    epochs.tell(found, SETTINGS)
    return found


PARTS = dict(exposed_communication=0.10, hidden_communication=0.05, waiting=0.04, front_end=0.06, input=0.01, rest=0.02)


def test_the_account_of_what_is_lost_adds_up():
    two = told(parts=PARTS, alone=dict(waiting=0.02 * 1.25 / 1.1)).rows[1]
    assert list(two.lost.values()) == pytest.approx([0.16, -0.28, 0.1, 0.2, 0.02, 0.12, 0.04, 0.04])
    assert two.possible - sum(two.lost.values()) == pytest.approx(two.speedup.median)
    assert not hasattr(told(parts=PARTS, alone=PARTS).rows[0], "lost")


@pytest.mark.parametrize("recorded", [dict(), dict(parts=PARTS), dict(alone=PARTS)])
def test_without_recorded_steps_what_sharing_costs_is_unexplained(recorded):
    lost = told(**recorded).rows[1].lost
    assert lost == {"machine": pytest.approx(0.16), "unexplained": pytest.approx(0.24)}


@pytest.mark.parametrize(("kind", "cores", "possible"), [("cpu", 2, 2), ("cpu", 8, 4), ("cpu", 1, 1), ("gpu", 2, 4)])
def test_no_more_is_possible_than_the_machine_can_give(monkeypatch, kind, cores, possible):
    monkeypatch.setattr("mxdp.process.cores", lambda: cores)
    devices = [mx.Context(kind, number) for number in range(4)]
    assert epochs.possible(devices) == possible
    lost = told(1.0, 0.9, 4, possible, parts=dict(exposed_communication=0.1), alone=dict(rest=0.0)).rows[1].lost
    expected = [0.9 * possible - 2, 0.1 * possible, 0]
    assert [lost[name] for name in ("machine", "all-reduce waited for", "compute")] == pytest.approx(expected)
    assert possible - sum(lost.values()) == pytest.approx(2)


@pytest.mark.parametrize(("in_sync", "said"), [(1.0, False), (0.0, True)])
def test_times_of_replicas_that_differ_mean_nothing(in_sync, said):
    assert ("fell out of step" in told(in_sync=in_sync).sentence) == said


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
