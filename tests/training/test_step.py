"""A step by a recorded graph: how far Python is ahead, whose memory it uses, what it refuses. (``test_any_training.py``
asks whether it trains right.)"""

import collections
import gc
import itertools
import linecache
import math
import sys
import threading
import time
from functools import partial

import numpy as onp
import pytest
from gate import Gate
from small_networks import all_bits, batch, bits, cpus, mlp, replicas_on

from mxdp import engine
from mxdp.backend import autograd, mx, np, npx
from mxdp.collectives import GradientSync
from mxdp.collectives.shards import ShardedSync
from mxdp.datasets import Split
from mxdp.engine import CompletionEvent
from mxdp.scratch import evaluate, get_params, naive_allreduce, train_batch
from mxdp.training.graph import BoundNet, Inbox
from mxdp.training.step import RUN_AHEAD, TrainStep


def step_of(replicas, sync=None, **more):
    return TrainStep(replicas, [params[0].ctx for params in replicas], 0.1, sync, mlp, **more)


def slow_step(X, y, replicas):
    return train_batch(X, y, replicas, [params[0].ctx for params in replicas], 0.1, net=mlp)


def test_a_step_adds_to_some_gradients_and_overwrites_others():
    (params,) = replicas_on(cpus(1))
    step = TrainStep([params], cpus(1), 0.0, GradientSync([params], accumulate=[True, False] * 2), mlp)
    gradients = []
    for _ in range(3):
        step(*batch(4))
        gradients.append([param.grad.asnumpy() for param in params])
    for times, arrays in enumerate(gradients, 1):
        for number, (array, first) in enumerate(zip(arrays, gradients[0])):
            onp.testing.assert_allclose(array, first * (times if number % 2 == 0 else 1), rtol=1e-6)


def test_python_is_ahead_by_a_bounded_number_of_steps_also_after_ctrl_c_in_a_wait(monkeypatch):
    """After it the next step waits before it takes a batch."""
    made, waited = [], []

    class Event:
        def __init__(self, losses):
            self.devices = len(losses)
            made.append(self)

        def wait(self):
            waited.append((made.index(self), len(made)))
            if len(waited) == 1:
                raise KeyboardInterrupt

    monkeypatch.setattr("mxdp.training.step.CompletionEvent", Event)
    step = step_of(replicas_on(cpus(2)))
    for _ in range(RUN_AHEAD):
        step(*batch(4))
    with pytest.raises(KeyboardInterrupt):
        step(*batch(4))
    for samples in (4, 2, 0, 4):
        step(*batch(samples), 4)
    assert [event.devices for event in made[-5:]] == [2, 2, 2, 0, 2]
    assert waited == [(0, RUN_AHEAD + 1), *[(number, RUN_AHEAD + 1 + number) for number in range(5)]]


def own_sum(replicas):
    return lambda: [naive_allreduce([param.grad for param in of_param]) for of_param in zip(*replicas)]


SUMS = {"GradientSync": lambda replicas: None, "ShardedSync": ShardedSync, "of one's own": own_sum}
REPLACED = {
    "an array": lambda replicas: replicas[1].__setitem__(2, replicas[1][2].copy()),
    "a replica": lambda replicas: replicas.__setitem__(0, get_params(replicas[0], replicas[0][0].ctx)),
    "their number": lambda replicas: [params.pop() for params in replicas],
    "their order": lambda replicas: [params.reverse() for params in replicas],
    "a gradient": lambda replicas: replicas[1][3].attach_grad(),
    "all gradients": lambda replicas: [param.attach_grad() for params in replicas for param in params],
    "gradients that add up": lambda replicas: [param.attach_grad("add") for param in replicas[0]],
    "another GradientSync": GradientSync,
}


@pytest.mark.parametrize("sums", SUMS)
@pytest.mark.parametrize("how", REPLACED)
def test_what_was_replaced_is_not_trained_in_silence(how, sums):
    """Neither the arrays that the step has, nor those that the replicas have now."""
    for before in (0, 1):
        replicas = replicas_on(cpus(2))
        step = step_of(replicas, SUMS[sums](replicas))
        for _ in range(before):
            step(*batch(4))
        arrays = [list(params) for params in replicas]
        REPLACED[how](replicas)
        arrays += [list(params) for params in replicas]
        expected = all_bits(arrays)
        for samples in (4, 1):
            with pytest.raises(RuntimeError, match=r"^(TrainStep can't train|GradientSync can't sum): the "):
                step(*batch(samples))
        assert all_bits(arrays) == expected


@pytest.mark.parametrize("sums", SUMS)
def test_a_step_that_was_broken_off_adds_nothing_to_the_next_one(sums, monkeypatch):
    """Which has no sample for device 1, where the gradient of the step that was broken off is fresh."""
    results = []
    for broken in (True, False):
        replicas = replicas_on(cpus(2))
        step = step_of(replicas, SUMS[sums](replicas))
        step(*batch(4))
        if broken:
            ((*_, last),) = step._bound.values()
            with monkeypatch.context() as patched:
                patched.setattr(last, "backward", lambda of=last: type(of).backward(of) or 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    step(*batch(4, 1))
        step(*batch(1, 2))
        results.append(all_bits(replicas))
    assert results[0] == results[1]


@pytest.mark.parametrize("bound", [0, 1, RUN_AHEAD, math.inf])
def test_a_batch_may_be_overwritten_at_once_though_no_step_before_has_begun(bound):
    """No step is done before the gate opens. Without a bound each batch has memory of its own."""
    fast, slow = replicas_on(cpus(1)), replicas_on(cpus(1))
    step, (X, y) = step_of(fast, run_ahead=bound), batch(4)
    step(X, y)
    npx.waitall()
    ((graph,),) = step._bound.values()
    gates = [Gate(inbox.array) for inbox in graph.inputs]
    opener = threading.Timer(0.2, lambda: [gate.open() for gate in gates])
    if bound < math.inf:  # else no step waits
        opener.start()
    ahead = []
    for seed in range(1, 6):
        X[:], y[:] = batch(4, seed)
        step(X, y)
        ahead.append(step.ahead)
    X[:], y[:] = 0, 0
    if bound == math.inf:
        opener.start()
    opener.join()
    for seed in range(6):
        slow_step(*batch(4, seed), slow)
    assert all_bits(fast) == all_bits(slow)
    assert ahead == [1, 2, 3, 4, 5] if bound == math.inf else max(ahead) <= bound


def test_a_step_that_is_done_is_not_ahead():
    replicas = replicas_on(cpus(1))
    step, gates = step_of(replicas, run_ahead=math.inf), []
    for seed in range(3):
        gates.append(Gate(replicas[0][0]))
        step(*batch(4, seed))
    found = [step.ahead]
    for left, gate in zip((2, 1, 0), gates):
        gate.open()
        until = time.monotonic() + 20
        while step.ahead > left and time.monotonic() < until:
            time.sleep(0.01)
        found.append(step.ahead)
    assert found == [3, 2, 1, 0]


def test_a_batch_of_another_length_uses_the_memory_of_the_largest_on_each_device(monkeypatch):
    made = []

    def noted(self, ctx, *more, shared_exec, bind=mx.sym.Symbol.bind, **options):
        executor = bind(self, ctx, *more, shared_exec=shared_exec, **options)
        made.append((executor, ctx, shared_exec))
        return executor

    monkeypatch.setattr(mx.sym.Symbol, "bind", noted)
    some = cpus(3)
    step = step_of(replicas_on(some))
    for samples in (6, 8, 7, 8, 6):  # with 8 the graphs for 6 are forgotten
        step(*batch(samples))
    firsts = {device: executor for executor, device, other in made if other is None}
    assert [device for _, device, _ in made] == [*some] * 4
    assert list(firsts) == some
    assert all(other is None for _, _, other in made[:6])
    assert all(other is firsts[device] for _, device, other in made[6:])


def test_steps_and_evaluations_of_any_lengths_leave_nothing_behind():
    """No array, event, job or bound graph is more than after the first ones."""
    replicas = replicas_on(cpus(2))
    step, net, test = step_of(replicas), BoundNet(mlp), Split(*batch(50, shape=(1, 3, 4)))
    others = set(engine._jobs)  # of tests in which a job was noted and Ctrl-C came before its push

    def kept():
        npx.waitall()
        for _ in range(1000):
            if set(engine._jobs) <= others:
                break
            time.sleep(0.01)
        gc.collect()
        kinds = collections.Counter(map(type, gc.get_objects()))
        return [kinds[kind] for kind in (np.ndarray, mx.nd.NDArray, CompletionEvent, mx.executor.Executor)]

    counts = []
    for lengths in ((20, 19, 18, 17, 16), (16,), (15, 14, 13, 20, 12, 11), (10, 9, 8, 7, 6, 5, 4, 3, 2)):
        for length in lengths:
            step(*batch(length))
            evaluate(test, replicas, length, net)
        counts.append(kept())
    assert counts == counts[:1] * 4
    assert set(engine._jobs) <= others
    assert len(step._pending) == RUN_AHEAD


def test_labels_of_another_dtype_and_another_byte_order_are_taken():
    (fast,), (slow,) = replicas_on(cpus(1)), replicas_on(cpus(1))
    step, (X, y) = step_of([fast]), batch(6)
    for labels in (*map(y.astype, (">i4", "int64", "float32", "uint8")), np.array(y).astype("float32")):
        assert bits(step(X.astype(">f4"), labels)) == bits(slow_step(X, labels, [slow]))


@pytest.mark.parametrize("sums", ["train_batch", *SUMS])
@pytest.mark.parametrize("samples", [4, 1])
def test_a_step_inside_record_or_no_sync_is_refused_and_changes_no_replica(sums, samples):
    replicas = replicas_on(cpus(2))
    sync = None if sums == "train_batch" else SUMS[sums](replicas) or GradientSync(replicas)
    step = step_of(replicas, sync) if sync else partial(slow_step, replicas=replicas)
    scopes = {r"^a step inside autograd.record\(\) would become": autograd.record}
    if hasattr(sync, "no_sync"):
        scopes["inside no_sync would leave each device with its own"] = sync.no_sync
    for message, scope in scopes.items():
        expected = all_bits(replicas)
        with pytest.raises(RuntimeError, match=message), scope():
            step(*batch(samples))
        assert all_bits(replicas) == expected
        step(*batch(samples))
        assert bits(replicas[0]) == bits(replicas[1]) != expected[0]


def interrupted(do, after):
    """Call ``do`` and raise what Ctrl-C raises at the ``after``-th line that mxdp begins in it. Did it come to that?"""
    lines, withs = itertools.count(), set()

    def trace(frame, event, _):
        file, place = frame.f_code.co_filename, (frame, frame.f_lineno)
        if "mxdp" not in file:
            return None
        # At its end a with statement comes to its first line again, where no signal is handled before __exit__.
        leaves = place in withs
        if linecache.getline(file, frame.f_lineno).lstrip().startswith("with "):
            withs.add(place)
        if event == "line" and not leaves and next(lines) == after:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


class Watched(Inbox):
    """Notes if a batch overwrites one that can't have been copied yet, since a gate holds ``array`` back. (Whether a
    copy is done can't be asked: its completion event may come later than the one that the step waits for.)"""

    def __init__(self, array, run_ahead):
        super().__init__(array, run_ahead)
        self.turns, self.overwritten = itertools.cycle(range(RUN_AHEAD + 1)), 0

    def hold(self):
        self.gate, self.held = Gate(self.array), set()
        return self.gate

    def put(self, batch):
        turn, held = next(self.turns), hasattr(self, "gate") and not self.gate.opened.is_set()
        self.overwritten += held and turn in self.held
        try:
            super().put(batch)
        finally:
            if held:
                self.held.add(turn)


def test_after_ctrl_c_at_any_line_of_a_step_no_batch_is_overwritten_before_it_is_copied(monkeypatch):
    monkeypatch.setattr("mxdp.training.graph.Inbox", Watched)
    fast, slow = replicas_on(cpus(1)), replicas_on(cpus(1))
    step = step_of(fast)
    step(*batch(1))
    ((graph,),) = step._bound.values()
    for after in itertools.count(0, 3):
        npx.waitall()
        gates = [inbox.hold() for inbox in graph.inputs]
        opener = threading.Timer(0.03, lambda gates=gates: [gate.open() for gate in gates])
        opener.start()
        step(*batch(1))
        came = [interrupted(lambda: step(*batch(1)), after) for _ in range(RUN_AHEAD)]
        step(*batch(1))
        assert not any(inbox.overwritten for inbox in graph.inputs), after
        opener.join()
        if not any(came):
            break
    assert after > 40
    assert not engine._pushing._is_owned(), "else other threads wait for ever"
    engine._finish()
    engine._jobs.clear()  # notes of jobs that Ctrl-C has kept from being pushed
    for param, same in zip(fast[0], slow[0]):
        param.copyto(same)
    for seed in range(3):
        step(*batch(1, seed))
        slow_step(*batch(1, seed), slow)
    assert all_bits(fast) == all_bits(slow)
