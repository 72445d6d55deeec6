"""The split of made recordings is exact; of a real one it adds up."""

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace

import pytest

from mxdp.backend import mx, np
from mxdp.tracing import where, where_the_time_went
from mxdp.tracing.timeline import build

MADE = build(
    2000,
    [
        ("cpu(0)", "dot", "compute", 100, 500),
        ("cpu(0)", "dot", "compute", 1100, 1400),
        ("cpu(1)", "CopyCPU2CPU", "copy", 0, 350),
        ("python", "input", "section", 500, 1000),
        ("python", "invoke", "call", 80, 100),
        ("python", "invoke", "call", 1090, 1100),
    ],
)


@pytest.fixture
def made(monkeypatch, tmp_path):
    """Recordings have this timeline, and threads these times. ``happened``: in its order."""
    happened = []

    @contextlib.contextmanager
    def record(chosen, kinds):
        happened.append((chosen, kinds))
        yield SimpleNamespace(timeline=made.timeline)
        happened.append("end")

    made = SimpleNamespace(timeline=MADE, happened=happened, folder=tmp_path / "task")
    monkeypatch.setattr(where, "record", record)
    monkeypatch.setattr(where, "THREADS", made.folder)
    return made


def write(folder, thread, text):
    (folder / str(thread)).mkdir(parents=True, exist_ok=True)
    (folder / str(thread) / "schedstat").write_text(text)


def test_of_made_recordings_all_is_exact(made):
    def step():
        made.happened.append("step")
        seen = made.happened.count("step")
        # A device's thread has run, and waited for a processor; another begins; Python's own counts nothing.
        write(made.folder, 7, f"{100 * seen} {20 * seen} 1")
        write(made.folder, 9, "0 0 0" if seen < 2 else f"{150 * (seen - 2)} 0 1")
        write(made.folder, threading.get_native_id(), f"{9999 * seen} {7777 * seen} 1")
        write(made.folder, 11, "nonsense")

    result = where_the_time_went(step, 2, warm_up=3, devices=["cpu(0)"], kinds={"a": "copy"})
    assert made.happened == [*["step"] * 3, (["cpu(0)"], {"a": "copy"}), *["step"] * 2, "end"]
    assert (result.device, result.steps, result.timeline) == ("cpu(0)", 2, MADE)
    assert result.wall_clock == pytest.approx(1000e-6)
    expected = dict(compute=700, input=500, front_end=800)
    one = {name: pytest.approx(expected.get(name, 0) / 2e6) for name in result.as_dict()}
    assert result.as_dict() == result.by_device["cpu(0)"].as_dict() == one
    assert result.by_device["cpu(1)"].exposed_communication == pytest.approx(175e-6)
    assert result.shares()["compute"] == pytest.approx(0.35)
    assert result.on_processor == pytest.approx((2 * 100 + 2 * 150) / (2 * 120 + 2 * 150))


def test_where_the_system_does_not_tell_the_share_is_unknown(made):
    assert where_the_time_went(lambda: None, 1, 0).on_processor is None
    write(made.folder, 7, "0 0 0")
    assert where_the_time_went(lambda: None, 1, 0).on_processor is None
    made.timeline = build(9, [("gpu(0)", "dot", "compute", 0, 5)])
    assert where_the_time_went(lambda: write(made.folder, 7, "5 0 0"), 1, 0).on_processor is None
    with pytest.raises(ValueError, match="at least one step, not 0"):
        where_the_time_went(lambda: None, 0)


def test_a_real_step_is_taken_apart():
    """How much of it stays unexplained depends on the machine: the experiment where-the-time-went judges that."""
    x = np.ones((300, 300), ctx=mx.cpu(0))
    run = where_the_time_went(lambda: np.dot(x, x).copyto(mx.cpu(1)), 3, 1)
    for parts in run.by_device.values():
        assert parts.total == pytest.approx(run.wall_clock, abs=1e-9)
    assert min(run.by_device["cpu(0)"].compute, run.by_device["cpu(0)"].exposed_communication) > 0
    assert sum(event.name == "step" for event in run.timeline.lanes["python"]) == 3
    if any(where.THREADS.glob("*/schedstat")):  # the system tells it
        assert 0 < run.on_processor <= 1
