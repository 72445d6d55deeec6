"""A step by a recorded graph: how far Python is ahead, whose memory it uses, what it refuses. (``test_any_training.py``
asks whether it trains right.)"""

from __future__ import annotations

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
from mxdp.engine import CompletionEvent
from mxdp.scratch import cross_entropy, get_params, naive_allreduce, sgd, train_batch
from mxdp.training.graph import Inbox
from mxdp.training.step import RUN_AHEAD, TrainStep
from mxdp.training.update import prepare_update


def step_of(replicas, sync=None, **more):
    return TrainStep(replicas, [params[0].ctx for params in replicas], 0.1, sync, mlp, **more)


def slow_step(X, y, replicas):
    return train_batch(X, y, replicas, [params[0].ctx for params in replicas], 0.1, net=mlp)


def test_a_step_adds_to_some_gradients_and_overwrites_others_as_autograd_does():
    results = []
    for fast in (True, False):
        (params,) = replicas_on(cpus(1))
        sync = GradientSync([params], accumulate=[number % 2 == 0 for number in range(len(params))])
        step = step_of([params], sync)
        for number in range(3):
            X, y = batch(4, number)
            if fast:
                step(X, y)
                continue
            with autograd.record():
                loss = cross_entropy(mlp(np.array(X), params), np.array(y))
            loss.backward()
            sync()
            sgd(params, 0.1, 4)
        results.append(bits([*params, *(param.grad for param in params)]))
    assert results[0] == results[1]


def test_python_is_ahead_by_a_bounded_number_of_steps_also_after_ctrl_c_in_a_wait(monkeypatch):
    """After it the next step waits before it takes a batch."""
    made, waited = [], []

    class Event:
        def __init__(self, losses):
            made.append(self)

        def wait(self):
            waited.append((made.index(self), len(made)))
            if len(waited) == 1:
                raise KeyboardInterrupt

    monkeypatch.setattr("mxdp.training.step.CompletionEvent", Event)
    step = step_of(replicas_on(cpus(1)))
    for _ in range(RUN_AHEAD):
        step(*batch(4))
    with pytest.raises(KeyboardInterrupt):
        step(*batch(4))
    for samples in (4, 2, 0, 4):
        step(*batch(samples), 4)
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


@pytest.mark.parametrize(("bound", "batches"), [(RUN_AHEAD, RUN_AHEAD + 1), (0, 1), (4, 5), (math.inf, 20)])
def test_an_inbox_takes_one_batch_more_than_python_is_steps_ahead(bound, batches):
    array = np.zeros((3,), dtype="float32")
    inbox, gate, taken, host = Inbox(array, bound), Gate(array), [], onp.zeros(3, "float32")
    for number in range(batches):
        host[:] = number
        inbox.put(host)
        taken.append(array.copy())
    gate.open()
    assert [copy.asnumpy().tolist() for copy in taken] == [[number] * 3 for number in range(batches)]


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
    opener.start()
    ahead = []
    for seed in range(1, 6):
        X[:], y[:] = batch(4, seed)
        ahead.append(step.ahead)
        step(X, y)
    X[:], y[:] = 0, 0
    opener.join()
    for seed in range(6):
        slow_step(*batch(4, seed), slow)
    assert all_bits(fast) == all_bits(slow)
    assert ahead[1:] == [1, 2, 3, 4] if bound == math.inf else max(ahead) <= bound
    CompletionEvent([graph._losses]).wait()
    step(*batch(4))
    assert len(step._pending) <= min(bound, 2), "steps that are done are forgotten"


@pytest.mark.parametrize("held", [0, 1, 2])
def test_python_waits_for_the_losses_of_every_device(held):
    opened = []
    step = step_of(replicas_on(cpus(3)))
    step(*batch(6))
    npx.waitall()
    ((*graphs,),) = step._bound.values()
    gate = Gate(graphs[held].inputs[0].array)
    step._pending.clear()
    for _ in range(RUN_AHEAD):
        step(*batch(6))
    opener = threading.Timer(0.1, lambda: (opened.append(True), gate.open()))
    opener.start()
    step(*batch(6))
    assert opened
    opener.join()


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


def test_a_step_leaves_nothing_behind():
    step = step_of(replicas_on(cpus(2)))
    others = set(engine._jobs)  # of tests in which a job was noted and Ctrl-C came before its push

    def kept():
        npx.waitall()
        for _ in range(1000):
            if set(engine._jobs) <= others:
                break
            time.sleep(0.01)
        gc.collect()
        kinds = collections.Counter(map(type, gc.get_objects()))
        return [kinds[kind] for kind in (np.ndarray, mx.nd.NDArray, CompletionEvent)]

    counts = []
    for steps in (5, 1, 7):
        for number in range(steps):
            step(*batch(6 - number % 2))
        counts.append(kept())
    assert counts[0] == counts[1] == counts[2]
    assert set(engine._jobs) <= others
    assert len(step._pending) == RUN_AHEAD


def test_labels_of_another_dtype_and_another_byte_order_are_taken():
    fast, slow = replicas_on(cpus(2)), replicas_on(cpus(2))
    step = step_of(fast)
    X, y = batch(6)
    for labels in (*map(y.astype, (">i4", "int64", "float32", "uint8")), np.array(y).astype("float32")):
        assert bits(step(X.astype(">f4"), labels)) == bits(slow_step(X, labels, slow))
    assert all_bits(fast) == all_bits(slow)


@pytest.mark.parametrize("samples", [6, 1])
def test_a_step_inside_no_sync_is_refused_and_changes_no_replica(samples):
    replicas = replicas_on(cpus(2))
    sync = GradientSync(replicas)
    step = step_of(replicas, sync)
    for seed in (0, 1):
        expected = all_bits(replicas)
        with pytest.raises(RuntimeError, match="inside no_sync would leave each device with its own"), sync.no_sync():
            step(*batch(samples))
        assert all_bits(replicas) == expected
        step(*batch(samples, seed))
        assert bits(replicas[0]) == bits(replicas[1]) != expected[0]


@pytest.mark.parametrize("sums", ["train_batch", *SUMS])
def test_a_step_inside_record_is_refused_and_changes_no_replica(sums):
    replicas = replicas_on(cpus(2))
    step = partial(slow_step, replicas=replicas) if sums == "train_batch" else step_of(replicas, SUMS[sums](replicas))
    expected = all_bits(replicas)
    with autograd.record(), pytest.raises(RuntimeError, match=r"^a step inside autograd.record\(\) would become"):
        step(*batch(4))
    assert all_bits(replicas) == expected
    step(*batch(4))
    assert bits(replicas[0]) == bits(replicas[1]) != expected[0]


@pytest.mark.parametrize("kind", [onp.float64, onp.float32, onp.float16, onp.int64, int, float])
def test_a_number_of_numpy_is_a_learning_rate(kind):
    some = cpus(2)
    fast, slow = replicas_on(some), replicas_on(some)
    lr = kind(1) if kind in (onp.int64, int) else kind(0.1)
    if kind is not onp.float16:  # lr / 6 would be rounded to 11 bits
        TrainStep(fast, some, lr, net=mlp)(*batch(6))
        train_batch(*batch(6), slow, some, lr, net=mlp)
    prepare_update(fast[0], lr)()
    sgd(slow[0], lr, 1)
    assert all_bits(fast) == all_bits(slow)


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
    for param, same in zip(fast[0], slow[0]):
        param.copyto(same)
    for seed in range(3):
        step(*batch(1, seed))
        slow_step(*batch(1, seed), slow)
    assert all_bits(fast) == all_bits(slow)
