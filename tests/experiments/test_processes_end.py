from __future__ import annotations

from contextlib import contextmanager

import pytest

from mxdp.experiments.automatic_parallelism import two_jobs
from mxdp.experiments.lab import Case, run
from mxdp.experiments.lab.module import Question, Settings


class Ends:
    """A process that has ended at the given look."""

    def __init__(self, at):
        self.at, self.looks = at, 0

    def poll(self):
        self.looks += 1
        return 0 if self.looks > self.at else None

    def wait(self, timeout):
        return 0


@pytest.mark.parametrize("at", range(5))
def test_a_process_may_end_at_any_moment_between_two_looks_at_it(at, monkeypatch, tmp_path):
    """Seen: one that ended just after a look made the whole measurement fail with a StopIteration."""

    @contextmanager
    def running(commands, log):
        yield [Ends(at) for _ in commands]

    monkeypatch.setattr(run, "_running", running)
    one = run.Run(Question(two_jobs), "quick", Settings(timeout=9.0))
    assert one._start(Case("", processes=2), tmp_path / "order", 1, lambda what: None) is None
