from __future__ import annotations

import numpy as onp
import pytest

from mxdp.backend import mx, np, npx
from mxdp.experiments import memory_use as peaks
from mxdp.experiments.memory_use import grown, taken

MB = 1_000_000
SIZE = 80 * MB
"""Of an array: more than the 64 MB at the end of a thread's arena, which glibc can't give back, and than the free
places between what other tests have left in this process's heap."""


def filled(count):
    arrays = [np.ones((SIZE // 4,)) for _ in range(count)]
    npx.waitall()
    return arrays


@pytest.fixture(params=["system", "sampled"])
def measured(request, tmp_path, monkeypatch):
    """As on Linux, and as where there is no /proc."""
    if request.param == "sampled":
        monkeypatch.setattr(peaks, "CLEAR", tmp_path / "none" / "clear_refs")
    return grown


def test_it_is_the_most_at_a_time_also_in_memory_that_was_free_before_but_not_in_what_is_kept(measured):
    def work():
        filled(4)
        peaks.give_back()  # the engine frees arrays some time after their last use
        filled(2)

    kept = filled(2)
    filled(6)
    for _ in range(2):
        assert 3.75 * SIZE < measured(work) < 5.25 * SIZE
    assert len(kept) == 2


def test_work_that_still_runs_at_the_end_counts(measured):
    x = np.ones((1200, 1200))

    def work():
        y = np.dot(x, x)
        return [np.ones((SIZE // 4,)) + y[0, 0] for _ in range(4)]

    assert measured(work) > 3.75 * SIZE


def test_memory_that_nobody_writes_is_not_there(measured):
    assert measured(lambda: onp.empty(64 * MB // 4, dtype="float32")) < 8 * MB


def test_an_error_goes_through_and_no_thread_stays(measured):
    before = peaks.threading.active_count()
    with pytest.raises(ZeroDivisionError):
        measured(lambda: 1 / 0)
    assert peaks.threading.active_count() == before


def test_a_c_library_without_trim_is_no_hindrance(monkeypatch):
    monkeypatch.setattr(peaks.ctypes, "CDLL", lambda name: object())
    assert grown(lambda: filled(1)) >= 0


def test_what_an_action_takes_is_this_processs_or_on_a_gpu_mxnets_own_count(monkeypatch):
    assert 3.75 * SIZE < taken(lambda: filled(4), mx.cpu(0)) < 5.25 * SIZE
    asked = []
    monkeypatch.setattr(peaks, "peak_bytes", lambda action, devices: asked.append((action(), devices)) or [7])
    assert taken(lambda: "done", mx.gpu(1)) == 7
    assert asked == [("done", [mx.gpu(1)])]
