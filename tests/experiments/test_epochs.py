from __future__ import annotations

import pytest

from mxdp.experiments.data_parallel.account import LOST, PARTS, account
from mxdp.experiments.data_parallel.epochs import Epochs
from mxdp.experiments.data_parallel.where_the_time_went import WhereTheTimeWent
from mxdp.experiments.data_parallel.work import epochs as work
from mxdp.experiments.harness.experiment import Case
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.report import tables
from mxdp.tracing import Parts

SETTINGS = dict(devices=[1, 2])


def row(devices, seconds, in_sync=True, **case):
    synced = {"in_sync": in_sync} if devices > 1 else {}
    return Row(
        f"{devices} devices",
        {"devices": [f"cpu({rank})" for rank in range(devices)], "epoch_samples": 600, **case},
        samples=[seconds * drift for drift in (1, 2, 3, 4, 5, 6)],
        metrics=dict(round_samples=100, test_accuracy=0.8, **synced),
        rounds={name: [value] * 6 for name, value in synced.items()},
    )


def finished(two=1.05, ceiling=1.02, in_sync=True):
    rows, references = [row(1, 2.0), row(2, two, in_sync)], [row(1, ceiling, processes=2)]
    Epochs().finish(rows, references, SETTINGS)
    return rows, references


def test_its_rows_carry_what_other_programs_read(measured):
    _, result = measured("epochs")
    names = {"sec_per_epoch", "samples_per_sec", "test_accuracy", "speedup"}
    assert [row.case["devices"] for row in result["rows"]] == [["cpu(0)"], ["cpu(0)", "cpu(1)"]]
    assert all(names <= set(row.metrics) for row in result["rows"])
    # A replica that is alone is not compared with itself.
    assert [row.metrics.get("in_sync") for row in result["rows"] + result["references"]] == [None, True, None]
    (claim,) = [each for each in result["verdict"]["claims"] if each["name"] == "in_sync"]
    assert [each["label"] for each in claim["measured"]] == ["2 devices"]
    assert [line[-1] for line in tables.table(result, Epochs()).rows] == ["–", "yes"]
    one = result["rows"][0].metrics
    assert one["speedup"] == 1.0
    assert one["sec_per_epoch"] == pytest.approx(6000 / one["samples_per_sec"])


def test_accuracy_and_loss_of_every_round_are_kept(measured):
    _, result = measured("epochs")
    for row in result["rows"]:
        assert len(row.rounds["test_accuracy"]) == len(row.rounds["loss"]) == 2
        assert row.metrics["test_accuracy"] == row.rounds["test_accuracy"][-1]


def recorded(own, **parts):
    """``own`` with a share of each part in every round; the device computes for the rest of the time."""
    shares = {**dict.fromkeys(PARTS, 0.0), **parts, "compute": 1 - sum(parts.values())}
    own.rounds.update({name: [share] * 6 for name, share in shares.items()})
    return own


def lossy(two=1.25, ceiling=1.1):
    """One device takes 2 s; two of them ``two``, of which 10 % goes to the all-reduce."""
    parts = dict(exposed_communication=0.10, hidden_communication=0.05, waiting=0.04, front_end=0.06, input=0.01)
    rows = [row(1, 2.0), recorded(row(2, two), **parts, rest=0.02)]
    references = [recorded(row(1, ceiling, processes=2), waiting=0.02 * two / ceiling)]
    Epochs().finish(rows, references, SETTINGS)
    return rows, references


def test_the_account_of_what_is_lost_adds_up():
    rows, references = lossy()
    metrics = rows[1].metrics
    assert [metrics[name] for name in LOST] == pytest.approx([0.16, -0.18, 0.2, 0.04, 0.12, 0.02, 0.04])
    assert metrics["possible"] - sum(metrics[name] for name in LOST) == pytest.approx(metrics["speedup"])
    assert "reached" not in rows[0].metrics
    assert account(rows[1], references[0]) == {name: metrics[name] for name in LOST}


def test_both_accounts_agree_on_the_same_recorded_steps():
    """The ceiling's steps are fed to `where-the-time-went` as a row of its own."""
    rows, references = [row(1, 2.0), row(2, 1.25)], [row(1, 1.1, processes=2)]
    steps = [
        [Parts(0.6 + 0.01 * k, 0.03, 0.02 * k, 0.01, 0.04, 0.1 * k, 0.02 + 0.01 * k) for k in range(6)],
        [Parts(0.9, 0.0, 0.0, 0.02 * k, 0.01, 0.0, 0.01) for k in range(6)],
    ]
    for own, each in zip((rows[1], references[0]), steps):
        for name in Parts().as_dict():
            own.rounds[name] = [step.shares()[name] for step in each]
    Epochs().finish(rows, references, SETTINGS)
    metrics, of_ceiling = dict(rows[1].metrics), rows[1].metrics["of_ceiling"]
    WhereTheTimeWent().finish([rows[1], *references], [], SETTINGS)
    own, alone = rows[1].metrics, references[0].metrics
    assert sum(own[part] for part in PARTS) == pytest.approx(1)
    for name, loss in LOST.items():
        if loss.parts:
            expected = 2 * sum(own[part] - of_ceiling * alone[part] for part in loss.parts)
            assert metrics[name] == pytest.approx(expected), name
    assert sorted(part for loss in LOST.values() for part in loss.parts) == sorted(PARTS)
    assert set(PARTS) == set(Parts().as_dict())


def test_without_recorded_steps_what_sharing_costs_is_unexplained():
    rows, references = finished(two=1.25, ceiling=1.1)
    recorded(references[0])
    found = account(rows[1], references[0])
    assert found == {"lost_machine": pytest.approx(0.16), "lost_unexplained": pytest.approx(0.24)}


@pytest.mark.parametrize(("kind", "cores", "possible"), [("cpu", 2, 2), ("cpu", 8, 4), ("cpu", 1, 1), ("gpu", 2, 4)])
def test_no_more_is_possible_than_the_machine_can_give(monkeypatch, kind, cores, possible):
    monkeypatch.setattr("mxdp.process.cores", lambda: cores)
    rows = [row(1, 2.0), recorded(row(4, 1.0), exposed_communication=0.1)]
    references = [recorded(row(1, 0.9, processes=4))]
    for own in rows + references:
        own.case["devices"] = [f"{kind}({number})" for number in range(len(own.devices))]
    Epochs().finish(rows, references, dict(devices=[1, 4]))
    metrics = rows[1].metrics
    assert metrics["possible"] == possible
    assert [metrics[name] for name in ("lost_machine", "lost_all_reduce", "lost_compute")] == pytest.approx(
        [0.9 * possible - 2, 0.1 * possible, 0]
    )
    assert possible - sum(metrics[name] for name in LOST) == pytest.approx(metrics["speedup"])
    said = Epochs().explanation(rows, references, dict(devices=[1, 4]))
    assert f"Of the {possible} times that are possible here, {possible - 2:.2f} are lost" in said


@pytest.mark.parametrize(
    ("variable", "cores", "reason"),
    [
        (("MXNET_ENGINE_TYPE", "NaiveEngine"), 2, "MXNET_ENGINE_TYPE is NaiveEngine"),
        (("OMP_NUM_THREADS", "2"), 2, "MXNet uses 2 OpenMP threads"),
        (("NOTHING", ""), 1, "2 devices share 1 core"),
    ],
)
def test_a_setting_or_a_lack_of_cores_is_the_reason(monkeypatch, variable, cores, reason):
    with monkeypatch.context() as there:
        there.setenv(*variable)
        there.setattr("mxdp.process.cores", lambda: cores)
        measured = lossy()
    # Whoever reads the result may do so on another machine.
    assert f"The reason: {reason}" in Epochs().explanation(*measured, SETTINGS)


def test_a_setting_is_no_reason_where_nothing_is_lost(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    said = Epochs().explanation(*finished(), SETTINGS)
    assert "0.10 are lost" in said
    assert "The reason" not in said


@pytest.mark.parametrize(("devices", "processes"), [(1, 1), (2, 1), (1, 2)])
def test_a_process_goes_on_with_the_training_of_the_one_before(tmp_path, devices, processes):
    """Over the end of an epoch, too: 1000 pictures are one."""
    settings = {**Epochs.presets["quick"], "data": "synthetic", "samples": 600, "batch_size": 40}

    def losses(rounds, folder):
        case = Case("x", devices, processes, {"repeat": 0}, folder=folder, process=processes - 1)
        own = work.set_up(case, settings)
        return [own.round().last["loss"] for _ in range(rounds)]

    assert losses(2, str(tmp_path)) + losses(1, str(tmp_path)) == losses(3, "")


def test_the_second_table_and_the_recorded_steps(measured):
    _, result = measured("epochs")
    second = tables.more(result, Epochs())
    assert [line[0] for line in second.rows] == ["2 devices"]
    possible, *lost, reached = map(float, second.rows[0][1:])
    assert possible + sum(lost) == pytest.approx(reached, abs=0.04)
    for own in result["rows"] + result["references"]:
        shares = [own.rounds[name] for name in Parts().as_dict()]
        assert [sum(each) for each in zip(*shares)] == pytest.approx([1, 1])


@pytest.mark.parametrize("reference", [False, True])
def test_a_ceiling_is_not_evaluated(reference, monkeypatch):
    evaluated = []
    monkeypatch.setattr(work, "evaluate", lambda data, replicas, net: evaluated.append(len(data)) or 0.5)
    settings = {**Epochs.presets["quick"], **Epochs.little, "data": "synthetic"}
    work.set_up(Case("x", settings={"repeat": 0}, reference=reference), settings).round()
    assert len(evaluated) == (not reference)
