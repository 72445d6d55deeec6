"""Several processes of one case: by every engine that is installed; one that fails ends all."""

import os
import subprocess
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from unittest import mock

import pytest
import ranked
from hypothesis import given
from hypothesis import strategies as st
from littles import little

from mxdp.experiments.lab import ranks, run
from mxdp.experiments.lab.module import Question, lacking

QUESTION = Question(ranked)


@pytest.fixture
def measure(tmp_path, importable):
    def measure(**changes):
        missing = lacking(ranks.NEEDS.get(changes.get("engine"), {}))
        if missing:
            pytest.skip(missing)
        return run.run(QUESTION, "quick", little(QUESTION, **changes), tmp_path, lambda *_: None)

    return measure


@pytest.mark.parametrize(("engine", "size"), [*((name, 2) for name in ranks.WORDS), ("", 3), (ranks.SYNC, 1)])
def test_processes_exchange_begin_together_and_the_slowest_decides(measure, engine, size):
    result = measure(engine=engine, size=size, processes=1, rounds=2)
    assert (result["status"], result["error"]) == ("ok", None)
    (row,) = result["rows"]
    assert row["processes"] == [{"seconds": float(size), "process": 0, "waited": 1}]
    assert row["facts"]["process_of_facts"] == 0
    assert row["devices"] == [f"device {number}" for number in range(size)]
    assert row["oracle"]["wrong"] == 0
    assert row["oracle"]["checked"] >= size * size


@pytest.mark.parametrize(("engine", "fault"), [("", "raise"), (ranks.MPI, "exit"), (ranks.SYNC, "raise")])
def test_one_that_fails_ends_the_others_with_its_reason(measure, engine, fault):
    result = measure(engine=engine, fault=fault, timeout=50.0, processes=1)
    said = "process 1 of 2: ValueError: broken (while measuring round 1)" if fault == "raise" else "exit status 3"
    assert result["status"] == "failed"
    assert said in result["error"]
    assert result["elapsed_seconds"] < 50, "the others are ended, and not waited for until the case's time is over"


@given(st.sampled_from(list(ranks.WORDS)), st.integers(1, 5))
def test_each_process_is_told_who_it_is(engine, size):
    started, servers = ranks.commands(engine, size, ["work", "hard"], {"kept": "1", "gone": None})
    assert all(environ["kept"] == "1" and "gone" not in environ for _, environ in started + servers)
    if engine in (ranks.MPI, ranks.HOROVOD):
        ((command, _),) = started
        assert command[-2:] == ["work", "hard"]
        assert command[1:-2] in (["-m", "mxdp.launch", "-n", str(size), "--"], ["--gloo", "-np", str(size)])
        return
    for rank, (command, environ) in enumerate(started):
        with mock.patch.dict(os.environ, environ):
            assert (command, environ["WORLD_SIZE"], ranks.rank(engine)) == (["work", "hard"], str(size), rank)
        assert ("MASTER_ADDR" in environ, "MASTER_PORT" in environ) == (engine == ranks.DDP,) * 2
    assert len(started) == size
    roles = [environ.pop("DMLC_ROLE", None) for _, environ in started + servers]
    of_mxnet = engine in (ranks.SYNC, ranks.ASYNC)
    assert roles == (["worker"] * size + ["scheduler", "server"] if of_mxnet else [None] * size)
    every = [{name: value for name, value in environ.items() if name != "RANK"} for _, environ in started + servers]
    assert every == every[:1] * len(every)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from([0, 0, 0, 3, -9, -11])), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from([5, -15])), max_size=2),
    st.integers(0, 5),
)
def test_all_are_waited_for_until_one_fails_or_the_time_is_over(working, serving, limit):
    """Each process ends at a time of its own, with a status; each look at the first that is left takes a second. (Seen:
    one that ended just after a look made the whole measurement fail.)"""
    now = SimpleNamespace(seconds=0)

    def process(ends, status):
        def wait(seconds=None):
            now.seconds += 1
            raise subprocess.TimeoutExpired("", seconds)

        return SimpleNamespace(poll=lambda: status if now.seconds >= ends else None, wait=wait)

    ticks = []
    every = [process(*one) for one in [*working, *serving]]
    log = mock.MagicMock()
    log.read_bytes.return_value = b"first\nthe reason \xff\n\n"
    with mock.patch.object(ranks, "running", return_value=nullcontext(every)), mock.patch.object(
        ranks, "time", SimpleNamespace(monotonic=lambda: now.seconds)
    ), mock.patch("builtins.open", mock.mock_open()):
        found = ranks.wait_for((working, serving), limit, log, None, lambda: ticks.append(now.seconds))
    done = max(ends for ends, _ in working)
    bad = min([ends for ends, status in [*working, *serving] if status], default=99)
    end = min(done, bad)
    assert ticks == list(range(min(end, limit + 1)))
    ended = [status for ends, status in [*working, *serving] if status and ends <= end]
    if end > limit + (done <= bad):  # who finds all at their end looks at no clock
        assert found == ("timeout", f"no answer within the time limit of {limit} s")
    elif not ended:
        assert found is None
    else:
        status, reason = found
        assert (status, ended[0] == -9) == ("failed", "as the system does when memory runs out," in reason)
        assert reason.endswith(": the reason \ufffd") == (ended[0] > 0)


def test_a_reason_is_said_once_with_how_many_cases_it_has():
    reasons = dict(a="broken", b="gone", c="broken", d="lost", e="gone", f="broken")
    said = "a (and 2 more cases): broken; b (and 1 more case): gone; d: lost"
    assert ranks.in_words({label: ("failed", reason) for label, reason in reasons.items()}) == said
    assert (ranks.in_words({}), ranks.in_words({"": ("failed", "gone")})) == (None, "gone")


def test_processes_run_the_code_of_a_checkout_and_find_files_where_this_one_does(tmp_path, monkeypatch):
    """Before Python 3.11 a folder that has an mxdp of its own would win: files are then looked for in the checkout."""
    for name in ("checkout", "here"):
        (tmp_path / name / "mxdp").mkdir(parents=True)
        (tmp_path / name / "mxdp" / "__init__.py").touch()
        (tmp_path / name / "mxdp" / "which.py").write_text(f"print({name!r})")
    monkeypatch.chdir(tmp_path / "here")
    environ = {"PYTHONPATH": None}
    folder = ranks.use_checkout(tmp_path / "checkout", environ)
    command = [sys.executable, "-m", "mxdp.which"]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **environ}, capture_output=True, text=True)
    assert (done.stdout, folder.name) == ("checkout\n", "here" if sys.version_info >= (3, 11) else "checkout")
    (tmp_path / "here" / "mxdp" / "__init__.py").unlink()
    assert ranks.use_checkout(tmp_path / "checkout", environ).name == "here"
