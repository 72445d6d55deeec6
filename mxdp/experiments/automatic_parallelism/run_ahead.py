"""How far should Python run ahead of the devices?

If Python never waits, each step's batch piles up; if it waits at each step, the devices stand still while it pushes the
next. All rows train by the step of ``mxdp.train``, whose own bound is the last of them; the other rows switch it off.
On CPU devices ``wait_to_read`` queues behind all work on ``cpu(0)``, later steps' too; a completion event does not.

An addition costs t1 to push, t2 to compute, and t3 until Python hears of its end. The book: n with a wait for each take
n (t1 + t2 + t3), pushed at once t1 + n t2 + t3, *if* n t2 > (n - 1) t1; otherwise pushing takes the time.
"""

import math
import time
from functools import partial

from mxdp.backend import np, npx, upload
from mxdp.datasets.minibatches import Stream
from mxdp.datasets.synthetic import load_synthetic
from mxdp.engine import CompletionEvent
from mxdp.experiments import sources
from mxdp.experiments.devices import devices_of, random_of, timed
from mxdp.experiments.lab import Case, Work
from mxdp.experiments.memory_use import grown
from mxdp.scratch import get_params, init_lenet
from mxdp.training import RUN_AHEAD, TrainStep

SOURCE = f"exercises 1 and 2 of {sources.ASYNCHRONOUS}; exercise 3 of {sources.CONCISE}"
COMPARED = (
    "parameters after 6 steps: bits as with a wait at each, values as on one device; products; sums"
)
TOGETHER = True
PRESETS = {
    "quick": dict(
        devices=[2],
        additions=10_000,
        timeout=120.0,
        batch_size=64,
        samples=896,
        size=768,
        products=10,
    ),
    "full": dict(
        devices=[2],
        additions=10_000,
        timeout=1800.0,
        batch_size=256,
        samples=3584,
        size=1000,
        products=10,
    ),
}
LITTLE = dict(
    batch_size=20,
    samples=100,
    size=64,
    products=2,
    additions=20,
)
POLICIES = ("never", "each epoch", "each step", "2 ahead, events")
BOUNDED = POLICIES[-1]
WAITS = {
    "waitall": lambda products: npx.waitall(),
    "the first: wait_to_read": lambda products: products[0].wait_to_read(),
    "the first: completion event": lambda products: CompletionEvent(products[:1]).wait(),
}
"""Waits for all products; for the first by MXNet's own wait, and by ours."""
EPOCHS = 2
LR = 0.1
RECORDED_STEPS = 4
OWN_PROCESS = "RUN_AHEAD_PROCESS"  # Nothing reads this variable: cases of equal environment would share their memory.


def cases(s):
    n = max(s.devices)
    for name in POLICIES:
        label = name.replace("each", "wait each")
        yield Case(label, n, environment={OWN_PROCESS: name}, wait=name)
    for name in WAITS:
        yield Case(name, n, way=name)
    yield Case(f"{s.additions:,} additions", 1, each=False)
    yield Case(f"{s.additions:,}, a wait for each", 1, each=True)


def expect(s, cores):
    steps = -(-s.samples // s.batch_size)
    batch = f"batches of {s.batch_size * 28 * 28 * 4 / 1e6:.1f} MB"
    return f"Never waiting keeps up to {EPOCHS * steps - 1} {batch}, each epoch {steps - 1}, a bound of two steps 3."


def oracle(case, s):
    devices = devices_of(case, s)
    if case.get("wait"):
        waited = _trained("each step", devices, s.seed)
        (serial,) = _trained("each step", devices[:1], s.seed)
        for replica, same in zip(_trained(case.wait, devices, s.seed), waited):
            for param, bits, number in zip(replica, same, serial):
                yield param, bits, 0.0
                yield param, number
    elif case.get("way"):
        factor, push = products(devices, 129, 3, s)
        answers = push()
        WAITS[case.way](answers)
        exact = factor.astype("int64") @ factor.T.astype("int64")
        for answer in answers:
            yield answer.asnumpy(), exact, 0.0
    else:
        last = additions(np.ones((1, 2), ctx=devices[0]), 10, case.each)
        yield last.asnumpy(), [[2.0, 2.0]], 0.0


def _trained(way, devices, seed):
    """Each replica's parameters after six steps."""
    data = load_synthetic(seed, 61 * 6, 1).train
    # Larger weights than the book's: with N(0, 0.01) the first gradients are so small that an error could hide.
    training = Training(devices, seed, way, scale=0.1)
    training.steps(Stream(data, 61, seed).take(len(data)), epoch_steps=3)
    return [[param.asnumpy() for param in replica] for replica in training.replicas]


def set_up(case, s):
    """A round is two epochs of training, products and a wait, or additions."""
    devices = devices_of(case, s)
    if case.get("wait"):
        return _train(case.wait, devices, s)
    if case.get("way"):
        _, push = products(devices, s.size, s.products, s)

        def until_python_goes_on():
            """Seconds. Products that run after this wait don't count; the laboratory waits for them."""
            started = time.perf_counter()
            WAITS[case.way](push())
            return time.perf_counter() - started

        # Alone in its process, the first rounds after a single push took twice as long.
        for _ in range(3):
            until_python_goes_on()
            npx.waitall()
        return Work(until_python_goes_on)
    x = np.ones((1, 2), ctx=devices[0])
    additions(x, -(-s.additions // 10), case.each)
    add = partial(additions, x, s.additions, case.each)
    return Work(lambda: timed(add))


def _train(way, devices, s):
    stream = Stream(load_synthetic(s.seed, s.samples, 1).train, s.batch_size, s.seed)
    training = Training(devices, s.seed, way)
    epoch_steps = -(-s.samples // s.batch_size)

    def train(some):
        return training.steps(stream.take(some), epoch_steps)

    def measure():
        ahead = []
        seconds = []

        def epochs():
            ahead.append(train(EPOCHS * s.samples))

        peak = grown(lambda: seconds.append(timed(epochs)))
        return seconds[0], {"ahead": ahead[0], "peak_bytes": peak}

    train(s.samples)
    # In a few steps, waiting each epoch is the same as never waiting.
    few = None if way == "each epoch" else partial(train, RECORDED_STEPS * s.batch_size)
    return Work(measure, record=few)


class Training:
    """LeNet on ``devices``, a replica each, trained by the step of :func:`mxdp.train`, in one of the ways of
    :data:`POLICIES`."""

    def __init__(self, devices, seed, way, scale=0.01):
        self.devices = devices
        self._way = way
        params = init_lenet(seed, scale)
        self.replicas = [get_params(params, device) for device in devices]
        most = RUN_AHEAD if way == BOUNDED else math.inf
        self._step = TrainStep(self.replicas, devices, LR, run_ahead=most)

    def steps(self, batches, epoch_steps):
        """A step for each batch. Returns the most steps that were pushed and not done, the one being pushed included.
        Doesn't wait at the end. Every way pays for the completion events, whether it needs them or not."""
        ahead = 0
        for number, (X, y) in enumerate(batches, 1):
            ahead = max(ahead, self._step.ahead + 1)
            self._step(X, y)
            last = number % epoch_steps == 0
            if self._way == "each step" or (self._way == "each epoch" and last):
                npx.waitall()
        return ahead


def products(devices, size, count, s):
    """A factor, and a function that pushes a product of it on each device in turn, ``count`` times."""
    # Whole numbers this small have exact float32 products, in any order of the sums.
    factor = random_of(s).randint(-8, 9, size=(size, size)).astype("float32")
    in_turn = [upload(factor, device) for device in devices] * count

    def push():
        return [npx.fully_connected(x, x, num_hidden=size, no_bias=True) for x in in_turn]

    return factor, push


def additions(x, count, each):
    """``y = x + 1``, ``count`` times, as in the book: the last sum. Waits for ``each``, or not at all."""
    for _ in range(count):
        y = x + 1
        if each:
            y.wait_to_read()
    return y


def tell(t, s):
    never = t.one(wait="never")
    bounded = t.one(wait=BOUNDED)
    pushed = t.one(each=False)
    waited = t.one(each=True)
    for row in t.rows:
        if row.get("wait"):
            row.of_first = row.seconds / never.seconds
        elif row.get("way"):
            row.of_first = row.seconds / t.one(way="waitall").seconds
        else:
            row.of_first = row.seconds / pushed.seconds
            row.us_an_op = row.seconds * 1e6 / s.additions
    t.column("seconds", "ms", scale=1e3, about="the time of a round")
    t.column(
        "of_first",
        "of first",
        ".2f",
        spread=True,
        about="the time over that of the first row of its kind",
    )
    t.column(
        "peak_bytes",
        "peak MB",
        ".1f",
        1e-6,
        about="the most that the process grew in a round",
    )
    t.column("ahead", form=".0f", about="the most steps pushed and not done")
    t.column("us_an_op", "µs an op", ".1f", about="the time of an addition")
    t.note("""The first rows: two epochs of LeNet. The next rows: the time until Python goes on after it has pushed
        several products. The last rows: y = x + 1, many times.""")
    trained = [row for row in t.rows if row.get("wait")]
    steps = EPOCHS * -(-s.samples // s.batch_size)
    t.bars("peak_bytes", "MB", 1e-6, title="Memory at the worst moment", rows=trained)
    t.bars(unit="ms", scale=1e3 / steps, title="Time of a step", rows=trained)
    peak = bounded.peak_bytes / never.peak_bytes
    sentence = "Bounded to two steps ahead, training takes at most 1 times the memory that it takes without any wait."
    t.claim(sentence, peak, at_most=1, source=sources.ASYNCHRONOUS)
    sentence = "Additions with a wait for each take at least 1 times as long as without."
    t.claim(sentence, waited.of_first, at_least=1, source=sources.ASYNCHRONOUS)
    t.answer(f"""Bounded to two steps ahead, training takes {bounded.of_first:.2f} times as long as without any wait,
        and {peak:.2f} times the memory.""")
    t.explain(f"""Without any wait, the batches of all steps that are pushed ahead pile up. An addition takes
        {pushed.us_an_op.median:.1f} µs, and with a wait for each {waited.us_an_op.median:.1f} µs.""")
