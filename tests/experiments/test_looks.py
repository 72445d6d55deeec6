"""Processes that are started anew, more of them while a claim is open, and the first case beside itself."""

from __future__ import annotations

import faulty
import pytest
from measuring import children, lengths, measure

from mxdp.experiments.harness import disturbance
from mxdp.experiments.harness.claims import LOOK_ERRORS, Claim
from mxdp.experiments.harness.rows import CONFIDENCE

pytestmark = pytest.mark.usefixtures("importable")


def test_processes_are_added_while_a_claim_is_open(tmp_path, monkeypatch):
    monkeypatch.setattr(disturbance, "elsewhere", lambda rounds: None)
    result = measure(faulty.Claims, tmp_path)
    assert (result["looks"], lengths(result)) == (2, {"case 1": 12, "case 2": 12})
    (claim,) = result["verdict"]["claims"]
    measured = [{"label": "case 2", "median": 1.0, "low": 1.0, "high": 1.0}]
    assert (claim["holds"], claim["measured"]) == (True, measured)
    assert result["verdict"]["holds"] is True
    assert {row.confidence for row in result["rows"]} == {1 - LOOK_ERRORS[1]}
    assert len(result["disturbance"]["elsewhere"]) == 12


@pytest.mark.parametrize(
    ("changes", "looks", "rounds"),
    [
        (dict(seed=1), 1, 6),
        (dict(seed=99), 3, 18),
        (dict(seed=99, looks=1), 1, 6),
        (dict(repeats=2), 3, 6),
        (dict(seed=99, patience=1e-9), 1, 6),
    ],
)
def test_there_is_an_end_to_looking(tmp_path, monkeypatch, changes, looks, rounds):
    monkeypatch.setattr(disturbance, "elsewhere", lambda rounds: None)
    result = measure(faulty.Claims, tmp_path, **changes)
    assert (result["looks"], len(result["rows"][0].samples)) == (looks, rounds)
    # Where there may be several looks, the first one has its share of the errors alone, too.
    expected = CONFIDENCE if changes.get("looks") == 1 else 1 - LOOK_ERRORS[looks - 1]
    assert {row.confidence for row in result["rows"]} == {expected}


def test_a_busy_machine_can_not_tell(tmp_path, monkeypatch):
    monkeypatch.setattr(disturbance, "elsewhere", lambda rounds: 0.31)
    result = measure(faulty.Claims, tmp_path, seed=1, looks=1)
    assert (result["verdict"]["holds"], result["verdict"]["busy"]) == (None, 0.31)
    assert {row.busy for row in result["rows"]} == {0.31}  # so that an answer can know


def test_a_busy_machine_can_tell_what_has_no_noise(tmp_path, monkeypatch):
    monkeypatch.setattr(disturbance, "elsewhere", lambda rounds: 0.31)
    both = {name: Claim("At most 6.", "a test", 6.0, exact=name == "number") for name in ("fast", "number")}
    monkeypatch.setattr(faulty.Claims, "claims", both)
    result = measure(faulty.Claims, tmp_path, seed=1, looks=1)
    assert {each["name"]: each["holds"] for each in result["verdict"]["claims"]} == {"fast": None, "number": True}


def test_processes_are_started_anew(tmp_path):
    result = measure(faulty.Claims, tmp_path, seed=1, rounds=2, looks=1, repeats=3)
    for row in result["rows"]:
        assert row.rounds["repeat"] == row.rounds["begun"] == [0, 0, 1, 1, 2, 2]
        assert row.rounds["number"] == [1, 2] * 3
        assert len(set(row.rounds["process"])) == 3
        assert row.oracle["checked"] == 10  # once, not in every process
    assert "repeat" not in result["rows"][0].metrics
    assert children() == []


def test_what_failed_is_not_started_again(tmp_path):
    result = measure(faulty.Exits, tmp_path, rounds=2, repeats=3)
    assert result["error"].count("exit status 7") == 1
    assert lengths(result) == {"case 1": 6, "case 2": 1}
    assert result["verdict"]["text"] == "No answer: not every case was measured."


def test_the_first_case_is_compared_with_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(disturbance, "elsewhere", lambda rounds: None)
    result = measure(faulty.Claims, tmp_path, seed=1, again=True)
    assert result["verdict"]["noise"] == {"label": "case 1", "median": 1.0, "low": 1.0, "high": 1.0}
    assert [row.label for row in result["rows"] + result["references"]] == ["case 1", "case 2"]


def test_a_first_case_that_fails_has_no_comparison_with_itself(tmp_path):
    result = measure(faulty.Exits, tmp_path, devices=[2], again=True)
    assert "the answer could not be found" not in result["error"]
    assert result["verdict"]["noise"] is None
