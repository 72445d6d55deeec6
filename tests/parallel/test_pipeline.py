"""What a pipeline sends, keeps, refuses, and in which order its devices work; the times of stages and layers. (That it
equals the serial run is tested with all strategies.)"""

import gc
from functools import reduce
from operator import concat
from types import SimpleNamespace

import pytest
from gate import Gate
from nets import NETS, pipe, prepared, run, serial, wrong
from nets import devices as cpus

from mxdp import timing
from mxdp.backend import mx, np, npx
from mxdp.layers import BatchNorm, Conv, Dense, Relu, apply, init, outputs
from mxdp.parallel import layer_costs, stage_times
from mxdp.parallel.layer_costs import LayerCost, find_cuts, measure_layers
from mxdp.parallel.pipeline import Pipeline
from mxdp.parallel.stage_times import measure_stages
from mxdp.plans.pipeline import PIPELINES, pipeline
from mxdp.tracing import record


def test_places_for_other_lengths_are_let_go():
    """As after the last batch of an epoch; the next epoch's gradients are right all the same."""
    *_, X, y, expected = serial("lenet", micro_batches=2)
    strategy = pipe("lenet", 3, 2)
    for samples in (7, 5, 2):
        losses = strategy.step(X[:samples], y[:samples])
        lengths = {stop - start for start, stop in strategy.pieces(samples)}
        assert [set(stage._buffers) for stage in strategy.stages[1:]] == [lengths] * 2
        assert losses.shape == (samples,)
    assert wrong(run(strategy, X, y), expected) == []


def test_micro_batches_need_a_sample_each():
    _, X, y = prepared("lenet")
    strategy = pipe("lenet", 2, 8)
    for call in (lambda: strategy.step(X, y), lambda: strategy.scores(X), lambda: measure_stages(strategy, X, y)):
        with pytest.raises(ValueError, match="can't cut a batch of 7 into 8 micro-batches: each needs at least one"):
            call()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (dict(devices=cpus(10)), "9 layers can't be cut into 10 stages: use at most 9 devices"),
        (dict(schedule="gpip"), "no schedule is called 'gpip'; did you mean 'gpipe'"),
        (dict(micro_batches=0), "not 2 stages and 0 micro-batches"),
        (dict(cuts=()), "2 devices need 1 cuts, not \\(\\)"),
        (dict(cuts=(9,)), "rising layer numbers from 1 to 8"),
    ],
)
def test_what_cannot_be_is_one_sentence(arguments, problem):
    net, shape = NETS["lenet"]
    with pytest.raises(ValueError, match=problem):
        Pipeline(**{**dict(net=net, params=prepared("lenet")[0], input_shape=shape, devices=cpus(2)), **arguments})


def events_of_a_step(strategy, X, y):
    """Bulks and copies on each device in the order in which they ran. All were pushed before, and those that wait for
    nothing else stood in the devices' queues, behind products."""
    strategy.step(X, y)
    blocks = [np.ones((1000, 1000), ctx=device) for device in strategy.devices]
    with record(strategy.devices) as recording:
        gates = [Gate(stage.flat[0]) for stage in strategy.stages]
        strategy.step(X, y)
        for block in blocks * 3:
            np.dot(block, block)
        for gate in gates:
            gate.open()
    names = {"ImperativeBulk": "task", "CopyCPU2CPU": "send"}
    events = sorted(recording.timeline.events, key=lambda event: event.start)
    return [
        [names[event.name] for event in events if event.device == str(device) and event.name in names]
        for device in strategy.devices
    ]


@pytest.fixture
def garbage(monkeypatch):
    """Before each layer Python's collector, if it may, frees an array that it alone can free."""
    rings = [[np.ones(3)] for _ in range(200)]
    for ring in rings:
        ring.append(ring)

    def littering(*arguments):
        rings.pop()
        if gc.isenabled():
            gc.collect()
        return apply(*arguments)

    monkeypatch.setattr("mxdp.parallel.stage.apply", littering)


@pytest.mark.parametrize("schedule", sorted(PIPELINES))
def test_a_message_leaves_before_the_next_task_begins(schedule, garbage):
    """Also where Python collects garbage while a task is pushed: to free an array would cut the task in two."""
    _, X, y = prepared("lenet")
    first, last = events_of_a_step(pipe("lenet", 2, 3, schedule), X, y)
    forward, backward = ["task", "send"], ["task"]
    expected = [forward if task.kind == "F" else backward for task in PIPELINES[schedule](2, 3).tasks[0]]
    assert first == reduce(concat, expected)
    assert last == ["task", "send"] * 6


def test_nothing_waits(monkeypatch):
    _, X, y = prepared("stack")
    strategy = pipe("stack", 3, 3, "1f1b")
    npx.waitall()
    for name in ("MXNDArrayWaitAll", "MXNDArrayWaitToRead", "MXNDArrayWaitToWrite", "MXNDArraySyncCopyToCPU"):

        def refuse(*arguments, name=name):
            raise AssertionError(f"{name} was called")

        monkeypatch.setattr(mx.base._LIB, name, refuse)
    with pytest.raises(AssertionError, match="MXNDArrayWaitAll was called"):
        npx.waitall()
    strategy.scores(X)
    strategy.step(X, y)
    strategy.update(0.1, len(X))


PUSH = 0.25


class Clock:
    """Python takes ``PUSH`` for a task; a device begins when it has received the first, and works behind it."""

    def __init__(self):
        self.now = 0.0
        self._free = 0.0

    def perf_counter(self):
        return self.now

    def waitall(self):
        self.now = max(self.now, self._free)

    def timed(self, task, seconds):
        def call(*arguments):
            self.now += PUSH
            self._free = max(self._free, self.now) + seconds(*arguments)
            return task(*arguments)

        return call


@pytest.mark.parametrize("micro_batches", [1, 2, 7])
def test_stages_are_measured_alone_and_the_next_step_is_right(micro_batches, monkeypatch):
    """Stage s takes s + 1 seconds a sample forward, twice as long back, and three times to infer."""
    *_, X, y, expected = serial("lenet", micro_batches=micro_batches)
    strategy = pipe("lenet", 3, micro_batches)
    clock = Clock()
    clock._free = 100.0  # earlier work
    with monkeypatch.context() as patched:
        patched.setattr(stage_times, "time", clock)
        patched.setattr(stage_times, "npx", clock)
        for place, stage in enumerate(strategy.stages, 1):
            for name, seconds in (
                ("forward", lambda number, x, *others, n=place: n * len(x)),
                ("backward", lambda number, *others, n=place, stage=stage: 2 * n * len(stage.kept[number].x)),
                ("infer", lambda x, target, n=place: 3 * n * len(x)),
            ):
                patched.setattr(stage, name, clock.timed(getattr(stage, name), seconds))
        times = measure_stages(strategy, X, y)
        longest = -(-7 // micro_batches)
        assert times.forward == [1 * longest, 2 * longest, 3 * longest]
        assert times.backward == [2 * longest, 4 * longest, 6 * longest]
        assert times.push == PUSH
        assert measure_stages(strategy, X, None) == ([3 * longest, 6 * longest, 9 * longest], [], PUSH)
    assert wrong(run(strategy, X, y), expected) == []


def test_a_layer_takes_the_median_of_its_rounds_and_nothing_back_without_a_gradient(monkeypatch):
    """A clock that counts the numbers that are made: forward one second each, back two. The rounds are longer by one
    second and more, but for the warm-up, which is much longer."""
    net, shape = (Relu(), Conv(3, kernel=2), Relu(), BatchNorm(), Dense(10)), (2, 5, 4)
    clock = SimpleNamespace(now=0.0, waitall=lambda: None, rounds=[])
    clock.perf_counter = lambda: clock.now
    monkeypatch.setattr(timing, "time", clock)
    monkeypatch.setattr(timing, "npx", clock)
    devices = set()

    def timed(layer, x, params):
        y = apply(layer, x, params)
        devices.update(array.ctx for array in (x, *params))
        longer = (1000, 3, 1, 5)[len(clock.rounds) % 4]
        clock.rounds.append(x.shape)
        clock.now += y.size + longer

        def backward():
            y.backward()
            clock.now += 2 * (y.size + longer)

        return SimpleNamespace(backward=backward, detach=y.detach)

    monkeypatch.setattr(layer_costs, "apply", timed)
    costs = measure_layers(net, init(net, shape), shape, mx.cpu(1), samples=7)
    made = [7 * size for size in (2 * 5 * 4, 3 * 4 * 3, 3 * 4 * 3, 3 * 4 * 3, 10)]
    assert [cost.forward for cost in costs] == [size + 3 for size in made]
    assert [cost.backward for cost in costs] == [0, *[2 * (size + 3) for size in made[1:]]]
    assert [cost.seconds for cost in costs] == [made[0] + 3, *[3 * (size + 3) for size in made[1:]]]
    assert clock.rounds[::4] == [(7, *size) for size in [shape, *outputs(net, shape)[:-1]]]
    assert devices == {mx.cpu(1)}


@pytest.mark.parametrize(
    ("forward", "backward", "plan", "batch_size", "training", "cuts"),
    [
        ([1] * 9, [0, 0, 0, 5, 0, 0, 0, 0, 0], pipeline("gpipe", 3, 5), 3, True, (3, 4)),
        ([1] * 9, [9, *[0] * 8], pipeline("gpipe", 2, 2), 7, True, (1,)),
        ([1] * 9, [9, *[0] * 8], pipeline("gpipe", 2, 2), 7, False, (4,)),  # only the forward passes count
    ],
)
def test_the_slowest_stage_is_as_fast_as_can_be(forward, backward, plan, batch_size, training, cuts, monkeypatch):
    asked = []

    def measure(net, params, *arguments):
        asked.append(arguments)
        return [LayerCost(*pair) for pair in zip(forward, backward)]

    monkeypatch.setattr(layer_costs, "measure_layers", measure)
    net, shape = NETS["lenet"]
    assert find_cuts(net, prepared("lenet")[0], shape, mx.cpu(2), plan, batch_size, training=training) == cuts
    assert asked == [(shape, mx.cpu(2), max(1, -(-batch_size // plan.micro_batches)))]
