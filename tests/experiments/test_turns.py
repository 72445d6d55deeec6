import pytest

from mxdp.experiments.allreduce import links
from mxdp.experiments.lab import Case, run
from mxdp.experiments.lab.module import Question


@pytest.mark.parametrize("lost", ["skipped", "failed"])
def test_a_case_that_is_lost_takes_no_turn_from_another(monkeypatch, lost):
    question = Question(links)
    monkeypatch.setattr(links, "cases", lambda s: [Case(label) for label in "abc"])
    monkeypatch.setattr(links, "TOGETHER", False)
    turns = []

    def once(self, number, cases, folder, doing):
        turns.append((number, cases[0].label))
        if turns[-1] == (0, "b"):
            self._skip(cases[0], "") if lost == "skipped" else self.failures.append(run.Failure("failed", "", "b"))

    monkeypatch.setattr(run.Run, "once", once)
    settings = {"processes": 2, **question.preset("quick"), "devices": [2]}
    run.measure([run.Run(question, "quick", run.Settings(settings))], lambda *_: None)
    assert turns == [(0, "a"), (0, "b"), (0, "c"), (1, "a"), (1, "c")]
