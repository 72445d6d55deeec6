from __future__ import annotations

import pytest

from mxdp.experiments.data_parallel.account import LOST
from mxdp.experiments.data_parallel.epochs import Epochs
from mxdp.experiments.data_parallel.work import epochs as work
from mxdp.experiments.harness import claims
from mxdp.experiments.harness.experiment import Case
from mxdp.experiments.report import tables
from mxdp.tracing import Parts

SETTINGS = dict(devices=[1, 2])


def row(devices, seconds, in_sync=True, **case):
    synced = {"in_sync": in_sync} if devices > 1 else {}
    metrics = dict(round_samples=100, test_accuracy=0.8, **synced)
    return {
        "label": f"{devices} devices",
        "case": {"devices": [f"cpu({rank})" for rank in range(devices)], "epoch_samples": 600, **case},
        "seconds": {"median": seconds, "samples": [seconds * drift for drift in (1, 2, 3, 4, 5, 6)]},
        "metrics": metrics,
        "rounds": {name: [value] * 6 for name, value in synced.items()},
    }


def finished(two=1.05, ceiling=1.02, in_sync=True):
    rows, references = [row(1, 2.0), row(2, two, in_sync)], [row(1, ceiling, processes=2)]
    Epochs().finish(rows, references, SETTINGS)
    return rows, references


@pytest.mark.parametrize(
    ("changes", "fails"),
    [
        ({}, []),
        ({"two": 1.15, "ceiling": 1.11}, ["halves"]),
        ({"ceiling": 0.99}, ["of_ceiling"]),
        ({"in_sync": False}, ["in_sync"]),
    ],
)
def test_an_epoch_must_halve_near_the_ceiling_and_in_step(changes, fails):
    rows, references = finished(**changes)
    held = {name: claims.judged(name, claim, rows + references)["holds"] for name, claim in Epochs.claims.items()}
    assert held == {name: name not in fails for name in Epochs.claims}


def test_the_answer_compares_with_one_device_and_the_ceiling():
    said = Epochs().answer(*finished(), SETTINGS)
    assert "An epoch is 1.90 (1.90 to 1.90) times as fast on 2 devices. That is 0.97 (0.97 to 0.97) of" in said
    assert "fell out of step on 2 devices" in Epochs().answer(*finished(in_sync=False), SETTINGS)
    one = [row(1, 2.0)]
    Epochs().finish(one, [], SETTINGS)
    assert "--devices 1,2" in Epochs().answer(one, [], SETTINGS)


def test_its_rows_carry_what_other_programs_read(measured):
    _, result = measured("epochs")
    names = {"sec_per_epoch", "samples_per_sec", "test_accuracy", "speedup"}
    assert [row["case"]["devices"] for row in result["rows"]] == [["cpu(0)"], ["cpu(0)", "cpu(1)"]]
    assert all(names <= set(row["metrics"]) for row in result["rows"])
    # A replica that is alone is not compared with itself.
    assert [row["metrics"].get("in_sync") for row in result["rows"] + result["references"]] == [None, True, None]
    (claim,) = [each for each in result["verdict"]["claims"] if each["name"] == "in_sync"]
    assert [each["label"] for each in claim["measured"]] == ["2 devices"]
    assert [line[-1] for line in tables.table(result, Epochs()).rows] == ["–", "yes"]
    one = result["rows"][0]["metrics"]
    assert one["speedup"] == 1.0
    assert one["sec_per_epoch"] == pytest.approx(6000 / one["samples_per_sec"])


def test_accuracy_and_loss_of_every_round_are_kept(measured):
    _, result = measured("epochs")
    for row in result["rows"]:
        assert len(row["rounds"]["test_accuracy"]) == len(row["rounds"]["loss"]) == 2
        assert row["metrics"]["test_accuracy"] == row["rounds"]["test_accuracy"][-1]


def recorded(own, **parts):
    """``own`` with a share of each part in every round."""
    own["rounds"].update({name: [share] * 6 for name, share in parts.items()})
    return own


def lossy(two=1.25, ceiling=1.1):
    """One device takes 2 s; two of them ``two``, of which 10 % goes to the all-reduce."""
    rows = [row(1, 2.0), recorded(row(2, two), exposed_communication=0.10, waiting=0.04, front_end=0.06, input=0.01)]
    alone = dict(exposed_communication=0.0, waiting=0.02 * two / ceiling, front_end=0.0, input=0.0)
    references = [recorded(row(1, ceiling, processes=2), **alone)]
    Epochs().finish(rows, references, SETTINGS)
    return rows, references


def test_the_account_of_what_is_lost_adds_up():
    rows, _ = lossy()
    metrics = rows[1]["metrics"]
    assert [metrics[name] for name in LOST] == pytest.approx([0.16, 0.2, 0.04, 0.12, 0.02, -0.14])
    assert metrics["possible"] - sum(metrics[name] for name in LOST) == pytest.approx(metrics["speedup"])
    assert "reached" not in rows[0]["metrics"]


@pytest.mark.parametrize(("kind", "cores", "possible"), [("cpu", 2, 2), ("cpu", 8, 4), ("cpu", 1, 1), ("gpu", 2, 4)])
def test_no_more_is_possible_than_the_machine_can_give(monkeypatch, kind, cores, possible):
    monkeypatch.setattr("mxdp.process.cores", lambda: cores)
    rows, references = [row(1, 2.0), recorded(row(4, 1.0), exposed_communication=0.1)], [row(1, 0.9, processes=4)]
    recorded(references[0], exposed_communication=0.0)
    for own in rows + references:
        own["case"]["devices"] = [f"{kind}({number})" for number in range(len(own["case"]["devices"]))]
    Epochs().finish(rows, references, dict(devices=[1, 4]))
    metrics = rows[1]["metrics"]
    assert metrics["possible"] == possible
    assert [metrics[name] for name in ("lost_machine", "lost_all_reduce")] == pytest.approx(
        [0.9 * possible - 2, 0.1 * possible]
    )
    assert possible - sum(metrics[name] for name in LOST if name in metrics) == pytest.approx(metrics["speedup"])
    assert f"Of the {possible:.2f} times that are possible" in Epochs().answer(rows, references, dict(devices=[1, 4]))


def test_the_largest_loss_is_named_with_what_to_change():
    said = Epochs().answer(*lossy(), SETTINGS)
    assert "Of the 2.00 times that are possible, 0.40 is lost: 0.20 to the all-reduce, 0.16 to the machine, " in said
    assert "0.02 to the input, -0.14 unexplained. The largest part, to the all-reduce: a larger batch" in said
    said = Epochs().answer(*lossy(1.9, 1.85), SETTINGS)
    assert "More devices bring nothing here. The largest part, to the machine: " in said


@pytest.mark.parametrize(
    ("variable", "cores", "reason"),
    [
        (("MXNET_ENGINE_TYPE", "NaiveEngine"), 2, "MXNET_ENGINE_TYPE is NaiveEngine"),
        (("OMP_NUM_THREADS", "2"), 2, "MXNet uses 2 OpenMP threads"),
        (("NOTHING", ""), 1, "2 devices share 1 core"),
    ],
)
def test_a_setting_or_a_lack_of_cores_is_the_reason(monkeypatch, variable, cores, reason):
    monkeypatch.setenv(*variable)
    monkeypatch.setattr("mxdp.process.cores", lambda: cores)
    assert f"The reason: {reason}" in Epochs().answer(*lossy(), SETTINGS)


def test_a_setting_is_no_reason_where_nothing_is_lost(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    said = Epochs().answer(*finished(), SETTINGS)
    assert "0.10 is lost" in said
    assert "The reason" not in said


def test_accuracy_is_compared_seed_by_seed():
    rows, references = lossy()
    repeats = [0, 0, 1, 1, 2, 2]
    for own, accuracies in zip(rows, ([0.1, 0.80, 0.1, 0.70, 0.1, 0.90], [0.9, 0.81, 0.9, 0.72, 0.9, 0.89])):
        own["rounds"].update(repeat=repeats, test_accuracy=accuracies)
    Epochs().finish(rows, references, SETTINGS)
    assert [own["metrics"]["test_accuracy"] for own in rows] == [0.80, 0.81]
    assert rows[1]["metrics"]["accuracy_gain"] == pytest.approx(0.01)
    assert "+0.0100 on 2 devices against one device, seed by seed" in Epochs().answer(rows, references, SETTINGS)


def test_the_second_table_and_the_recorded_steps(measured):
    _, result = measured("epochs")
    second = tables.more(result, Epochs())
    assert [line[0] for line in second.rows] == ["2 devices"]
    possible, *lost, reached = map(float, second.rows[0][1:])
    assert possible + sum(lost) == pytest.approx(reached, abs=0.04)
    for own in result["rows"] + result["references"]:
        shares = [own["rounds"][name] for name in Parts().as_dict()]
        assert [sum(each) for each in zip(*shares)] == pytest.approx([1, 1])


@pytest.mark.parametrize("reference", [False, True])
def test_a_ceiling_is_not_evaluated(reference, monkeypatch):
    evaluated = []
    monkeypatch.setattr(work, "evaluate", lambda data, replicas, net: evaluated.append(len(data)) or 0.5)
    settings = {**Epochs.presets["quick"], **Epochs.little, "data": "synthetic"}
    work.set_up(Case("x", settings={"repeat": 0}, reference=reference), settings).round()
    assert len(evaluated) == (not reference)
