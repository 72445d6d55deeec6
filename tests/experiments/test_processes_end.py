from __future__ import annotations

from contextlib import contextmanager

import pytest

from mxdp.experiments.lab import start


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
    def running(commands, out, root):
        yield [Ends(at) for _ in commands]

    monkeypatch.setattr(start, "_running", running)
    assert start.wait_for([((), {})] * 2, [], 9.0, tmp_path / "log", None, lambda: None) is None
