from __future__ import annotations

import numpy as onp
import pytest

from mxdp.backend import mx, np, npx
from mxdp.experiments import memory as peaks
from mxdp.experiments.memory import Peak, taken

MB = 1_000_000


SIZE = 80 * MB
"""Of an array: more than the 64 MB at the end of a thread's arena, which glibc can't give back, and than the free
places between what other tests have left in this process's heap."""


def filled(count):
    arrays = [np.ones((SIZE // 4,)) for _ in range(count)]
    npx.waitall()
    return arrays


@pytest.fixture(params=["system", "sampled"])
def peak(request, tmp_path):
    """As on Linux, and as where there is no /proc."""
    missing = tmp_path / "none" / "clear_refs"
    return lambda: Peak() if request.param == "system" else Peak(clear=missing)


def test_it_is_the_most_at_a_time_and_not_what_is_left(peak):
    filled(1)
    with peak() as measured:
        filled(4)
        peaks.give_back()  # the engine frees arrays some time after their last use
        filled(2)
    assert 3.75 * SIZE < measured.bytes < 5.25 * SIZE


def test_work_that_still_runs_at_the_end_counts(peak):
    x = np.ones((1200, 1200))
    npx.waitall()
    with peak() as measured:
        x = np.dot(x, x)
        kept = [np.ones((SIZE // 4,)) + x[0, 0] for _ in range(4)]
    assert measured.bytes > 3.75 * SIZE
    assert len(kept) == 4


def test_memory_that_was_freed_before_counts_again(peak):
    filled(4)
    for _ in range(2):
        with peak() as measured:
            filled(4)
        assert 3.75 * SIZE < measured.bytes < 5.25 * SIZE


def test_what_was_there_before_does_not_count(peak):
    kept = filled(4)
    with peak() as measured:
        filled(1)
    assert measured.bytes < 2 * SIZE
    assert len(kept) == 4


def test_memory_that_nobody_writes_is_not_there(peak):
    with peak() as measured:
        reserved = onp.empty(64 * MB // 4, dtype="float32")
    assert measured.bytes < 8 * MB
    assert reserved.size


def test_an_error_in_the_block_goes_through_and_no_thread_stays(peak):
    before = peaks.threading.active_count()
    with pytest.raises(ZeroDivisionError), peak():
        raise ZeroDivisionError
    assert peaks.threading.active_count() == before


def test_a_c_library_without_trim_is_no_hindrance(monkeypatch):
    monkeypatch.setattr(peaks.ctypes, "CDLL", lambda name: object())
    with Peak() as measured:
        filled(1)
    assert measured.bytes >= 0


def test_what_an_action_takes_is_this_processs_or_on_a_gpu_mxnets_own_count(monkeypatch):
    assert 3.75 * SIZE < taken(lambda: filled(4), mx.cpu(0)) < 5.25 * SIZE
    asked = []
    monkeypatch.setattr(peaks, "peak_bytes", lambda action, devices: asked.append((action(), devices)) or [7])
    assert taken(lambda: "done", mx.gpu(1)) == 7
    assert asked == [("done", [mx.gpu(1)])]
