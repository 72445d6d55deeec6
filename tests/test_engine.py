"""mxdp.engine: prepared calls, and Python functions as jobs of MXNet's engine."""

import json
import threading
import time
from pathlib import Path

import numpy as onp
import pytest
from children import child, printed
from gate import Gate

from mxdp import engine
from mxdp.backend import mx, np, npx
from mxdp.engine import CompletionEvent, prepare, prepare_sum
from mxdp.errors import BackendError
from mxdp.tracing import record

TESTS = Path(__file__).parent  # where a child finds `gate`


class Spelt(onp.float64):
    """As NumPy 2 spells its numbers in lists."""

    def __repr__(self):
        return f"np.float64({self!s})"


def test_numpys_numbers_are_attributes():
    x, w = mx.nd.array([3.0, 6.0]), mx.nd.array([1.0, 1.0])
    prepare("_mul_scalar", [x], x, scalar=Spelt(2))()
    assert x.asnumpy().tolist() == [6, 12]
    out = mx.nd.zeros((2,))
    prepare("multi_sgd_update", [w, x], out, lrs=[Spelt(0.5)], wds=(Spelt(0),), num_weights=onp.int64(1))()
    assert out.asnumpy().tolist() == [-2, -5]


def test_the_arrays_are_kept():
    out = mx.nd.zeros((1000,))
    add = prepare("elemwise_add", [mx.nd.ones((1000,)), mx.nd.ones((1000,))], out)
    others = [mx.nd.full((1000,), 7) for _ in range(50)]
    add()
    assert (set(out.asnumpy()), len(others)) == ({2.0}, 50)


def test_an_unknown_operator_is_named_and_what_one_refuses_it_still_refuses():
    with pytest.raises(ValueError, match="no operator 'elemwise_ad'"):
        prepare("elemwise_ad", [], mx.nd.zeros((1,)))
    call = prepare("elemwise_add", [mx.nd.zeros((2,)), mx.nd.zeros((3,))], mx.nd.zeros((2,)))
    with pytest.raises(mx.MXNetError, match=r"expected \[2\], got \[3\]"):
        call()


@pytest.mark.parametrize("count", [2, 3])
def test_a_sum_into_its_first_part(count):
    parts = [mx.nd.array([1.0, 10.0]) * 2**number for number in range(count)]
    prepare_sum(parts, parts[0])()
    assert parts[0].asnumpy().tolist() == [2**count - 1, 10 * (2**count - 1)]
    assert parts[-1].asnumpy().tolist() == [2 ** (count - 1), 10 * 2 ** (count - 1)]


def test_an_event_needs_all_of_its_arrays_however_long_and_not_what_is_queued_on_the_first_device(monkeypatch):
    """MXNet's own ``wait_to_read`` waits for that queue, and that is why there are completion events."""
    monkeypatch.setattr(engine, "SLICE_SECONDS", 0.001)
    free, held = np.ones((2,), ctx=mx.cpu(1)), np.ones((2,))
    npx.waitall()
    gate = Gate(held)
    behind = held + 1
    both, one = CompletionEvent([free, behind]), CompletionEvent([free + 1])
    assert one.wait() == one.at
    time.sleep(0.05)
    assert both.at is None
    begun = time.perf_counter()
    threading.Timer(0.1, gate.open).start()
    assert begun + 0.1 <= both.wait() == both.at <= time.perf_counter()
    assert behind.asnumpy().tolist() == [2, 2]


def test_recorded_it_is_no_work():
    x = np.ones((2, 2))
    with record() as recording:
        CompletionEvent([x + 1]).wait()
    kinds = {event.name: event.kind for event in recording.timeline.lanes["cpu(0)"]}
    assert kinds["mxdp job"] == "engine"


def test_a_wait_for_an_array_that_failed_ends():
    event = CompletionEvent([np.random.normal(0, -1, (2, 2))])
    with pytest.raises(BackendError, match="its operator failed"):
        event.wait()
    with pytest.raises(ValueError, match="scale"):
        npx.waitall()


def test_an_event_may_be_pushed_and_forgotten():
    x = np.ones((300, 300))
    for _ in range(50):
        x = np.dot(x, x) * 0
        CompletionEvent([x])
    engine._finish()
    assert engine._jobs == {}


LATE = """
import ctypes, sys, time
from mxdp import engine

sys.setswitchinterval(60)  # no thread takes over between the pop and the end of `late`, as none does where C pops

def late(address):  # as on a busy machine
    time.sleep(0.2)
    engine._jobs.pop(address)

engine._DROPPED = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(late)
"""

ENDS = """
from mxdp.backend import np
from mxdp.engine import CompletionEvent
from gate import Gate

class Says(CompletionEvent):
    def _call(self):
        print("called", flush=True)

x = np.ones((2,))
gate = Gate(x, limit=0.5)
Says([x + 1])
"""


def test_python_does_not_end_before_the_engine_has_called_and_dropped():
    assert printed(LATE + ENDS, path=[TESTS]) == "called\n"


FORKS = """
import json, os, subprocess, sys, threading, warnings
from mxdp.backend import np, npx
from mxdp.engine import CompletionEvent
from gate import Gate
from mxdp.errors import BackendError
from mxdp.process import MxdpWarning

def work():
    x = np.ones((200, 200))
    for _ in range(9):
        x = np.dot(x, x) * 0
        event = CompletionEvent([x])
    return event

def that_ends_by_itself():
    pid = os.fork()
    if not pid:
        work().wait()
        sys.exit(3)
    return os.waitpid(pid, 0)[1] >> 8

class Forks(CompletionEvent):
    def _call(self):
        pid = os.fork()
        if not pid:
            os._exit(6)
        self.status = os.waitpid(pid, 0)[1] >> 8
        super()._call()

def in_a_job():
    x = np.ones((2,))
    gate = Gate(x)
    job = Forks([x])
    gate.open()
    job.wait()
    return job.status

found = {}
for way in (
    that_ends_by_itself,
    lambda: subprocess.run(["true"]).returncode,
    lambda: subprocess.run(["true"], preexec_fn=lambda: None).returncode,
    in_a_job,
):
    work()
    found[way.__name__ + str(len(found))] = way()

over, x = threading.Event(), np.ones((2,))
def events():  # no operator: MXNet itself hangs in a fork beside a thread that calls one
    while not over.is_set():
        CompletionEvent([x]).wait()
thread = threading.Thread(target=events)
thread.start()
found["beside a thread"] = [subprocess.run(["true"], preexec_fn=lambda: None).returncode for _ in range(3)]
over.set()
thread.join()

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always", MxdpWarning)
    failed = CompletionEvent([np.random.normal(0, -1, (2, 2))])
    subprocess.run(["true"], preexec_fn=lambda: None)
found["warnings"] = [str(warning.message) for warning in caught if warning.category is MxdpWarning]
try:
    failed.wait()
except BackendError as error:
    found["error"] = str(error)
print(json.dumps(found))
"""


def test_a_fork_waits_for_the_jobs_in_the_engine():
    """``os.fork`` holds Python's lock while MXNet's handler waits for the engine, whose jobs need the lock."""
    done = child(LATE.replace("0.2", "0.05") + FORKS, path=[TESTS])
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    texts, error = results.pop("warnings"), results.pop("error")
    assert list(results.values()) == [3, 0, 0, 6, [0, 0, 0]]
    assert ["an operator failed" in text and "scale" in text for text in texts] == [True], texts
    assert "its operator failed" in error
    assert "Traceback" not in done.stderr
