from __future__ import annotations

import gc
import subprocess
import sys
import time
import weakref

import pytest

from mxdp.backend import mx, np, npx
from mxdp.engine import CompletionEvent, Gate
from mxdp.errors import BackendError
from mxdp.tracing import record


def test_an_event_is_set_when_its_arrays_are_written_and_not_before():
    x = np.ones((2, 2))
    gate = Gate(x)
    y = x + 1
    event = CompletionEvent([y])
    time.sleep(0.05)
    assert event.at is None
    opened = time.perf_counter()
    gate.open()
    assert opened < event.wait(10) <= time.perf_counter()
    assert event.at == event.wait(0)
    assert (y.asnumpy() == 2).all()


def test_it_needs_all_of_its_arrays():
    free, held = np.ones((2,), ctx=mx.cpu(1)), np.ones((2,), ctx=mx.cpu(2))
    npx.waitall()
    gate = Gate(held)
    both, one = CompletionEvent([free, held]), CompletionEvent([free])
    one.wait(10)
    assert both.at is None
    gate.open()
    both.wait(10)


def test_recorded_it_is_no_work():
    x = np.ones((2, 2))
    with record() as recording:
        CompletionEvent([x + 1]).wait(10)
    kinds = {event.name: event.kind for event in recording.timeline.lanes["cpu(0)"]}
    assert kinds["mxdp job"] == "engine"


def test_it_does_not_wait_for_what_is_queued_on_the_first_device():
    """MXNet's own ``wait_to_read`` does, and that is why there are completion events."""
    blocked, other = np.ones((2,)), np.ones((2,), ctx=mx.cpu(1))
    npx.waitall()
    gate = Gate(blocked)
    behind = blocked + 1
    y = other + 1
    assert CompletionEvent([y]).wait(10) > 0
    gate.open()
    assert behind.asnumpy().tolist() == [2, 2]


def test_waiting_has_an_end():
    x = np.ones((2,))
    npx.waitall()
    gate = Gate(x)
    event = CompletionEvent([x])
    with pytest.raises(BackendError, match=r"not written within 0\.05 s"):
        event.wait(0.05)
    gate.open()
    event.wait(10)


def test_a_gate_that_is_forgotten_opens_by_itself():
    x = np.ones((2,))
    Gate(x, limit=0.05)
    assert (x + 1).asnumpy().tolist() == [2, 2]


def test_an_array_that_failed_is_told_from_one_that_is_late():
    event = CompletionEvent([np.random.normal(0, -1, (2, 2))])
    with pytest.raises(BackendError, match="its operator failed"):
        event.wait(10)
    with pytest.raises(ValueError, match="scale"):
        npx.waitall()


def test_an_event_may_be_pushed_and_forgotten():
    x = np.ones((300, 300))
    watched = []
    for _ in range(50):
        x = np.dot(x, x) * 0
        event = CompletionEvent([x])
        watched.append(weakref.ref(event))
    del event
    for _ in range(100):
        npx.waitall()
        gc.collect()
        if not any(ref() for ref in watched):
            break
        time.sleep(0.01)
    assert not any(ref() for ref in watched)


ENDS = """
from mxdp.backend import np
from mxdp.engine import CompletionEvent, Gate

class Says(CompletionEvent):
    def _call(self):
        print("called", flush=True)

x = np.ones((2,))
gate = Gate(x, limit=0.5)
Says([x + 1])
"""


def test_python_does_not_end_before_the_engine_has_called():
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "called\n"), done.stderr
