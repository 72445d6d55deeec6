"""What if no worker waits for the others?

In synchronous training every worker waits for the slowest. With ``dist_async`` the server applies each gradient when it
arrives. No worker waits, but a gradient is stale: it was computed from parameters that others have updated since.
An asynchronous update applies one worker's part of the batch, so k equal workers gain nothing. If one worker takes f
times as long as the others, synchronous training does k / f parts of a batch in that time, asynchronous k - 1 + 1 / f.
"""

import itertools
import statistics
import time

import numpy as onp

from mxdp.backend import devices, mx, npx
from mxdp.datasets import Split, load
from mxdp.datasets.minibatches import Stream
from mxdp.errors import plural
from mxdp.experiments import sources
from mxdp.experiments.devices import WARM_UP
from mxdp.experiments.lab import Case, Work
from mxdp.experiments.lab.ranks import ASYNC, SYNC
from mxdp.experiments.many_processes.lenet_ranks import KEYS, store
from mxdp.scratch import evaluate, get_params, init_lenet, train_batch

SOURCE = f"exercise 2 of {sources.PARAMETER_SERVERS}"
COMPARED = (
    "parameters after known gradients from all workers, against NumPy's sum: each counts once"
)
COMMON = dict(
    devices=[2],
    kind="cpu",
    data="auto",
    data_dir=None,
    batch_size=256,
    lr=0.2,
    accuracy=0.6,
    updates=20,
)
PRESETS = {
    "quick": dict(COMMON, timeout=600.0, most_updates=800),
    "full": dict(COMMON, most_updates=1600),
}
LITTLE = dict(
    data="synthetic",
    batch_size=16,
    accuracy=0.01,
    updates=2,
    most_updates=4,
)
SLOW = 2.0
"""How many times as long the slow worker takes to compute."""
EVEN = "equal workers"
ONE_SLOW = "one slow worker"
TEST = 2000
"""Test pictures in an evaluation."""
CHECKED = 5


def cases(s):
    for n in s.devices:
        for pace in (EVEN, ONE_SLOW):
            for engine in (SYNC, ASYNC):
                yield Case(f"{engine}, {plural(n, 'worker')}, {pace}", 1, n, engine, workers=pace)


def expect(s, cores):
    n = max(s.devices)
    rate = n / SLOW / (n - 1 + 1 / SLOW)
    return f"""For as many updates, asynchronous over synchronous time: 1.00 with equal workers; {rate:.2f} with a
        worker that takes {SLOW:g} times as long. More updates are needed, since gradients are stale by about
        {plural(n - 1, "update")}."""


class Worker:
    """It has its own part of the training set. The server updates the parameters; its last key counts the updates."""

    def __init__(self, case, s):
        self.case = case
        self._s = s
        self.store = store(case.engine)
        optimizer = mx.optimizer.SGD(learning_rate=s.lr, rescale_grad=1 / s.batch_size)
        self.store.set_optimizer(optimizer)
        (self.device,) = devices(1, "cpu")
        data = load(s.data, s.data_dir, seed=s.seed)
        X = data.train.X[case.process :: case.processes]
        y = data.train.y[case.process :: case.processes]
        part = Split(onp.ascontiguousarray(X), onp.ascontiguousarray(y))
        self._stream = Stream(part, s.batch_size // case.processes, s.seed)
        self._test = data.test.take(TEST)
        last = case.process == case.processes - 1
        self._wait = SLOW - 1 if last and case.workers == ONE_SLOW else 0.0
        self._at_once = case.processes if case.engine == SYNC else 1

    def start(self):
        """Parameters as at the beginning, under keys of their own: a store can't be given values twice."""
        self.params = get_params(init_lenet(self._s.seed, scale=0.1), self.device)
        self.seen = 0
        self._values = [param.as_nd_ndarray() for param in self.params]
        self._values.append(mx.nd.zeros((1,)))
        self._gradients = [param.grad.as_nd_ndarray() for param in self.params]
        self._gradients.append(mx.nd.zeros((1,)))
        self._keys = list(itertools.islice(KEYS, len(self._values)))
        for key, value in zip(self._keys, self._values):
            self.store.init(key, value)
        self.pull()
        self.case.share()

    def train(self, updates):
        """Train until the server has made that many updates; how stale each gradient was."""
        stale = []
        while self.seen < updates:
            X, y = next(self._stream.take(self._s.batch_size // self.case.processes))
            started = time.perf_counter()
            # With a step of 0 no parameter moves here: the server's do.
            train_batch(X, y, [self.params], [self.device], 0.0)
            npx.waitall()
            time.sleep(self._wait * (time.perf_counter() - started))
            before = self.seen
            self.seen = self.exchange()
            stale.append(self.seen - before - self._at_once)
        return stale

    def accuracy(self):
        """The accuracy of the parameters on the server, as the first worker finds them; for all workers."""
        self.pull()
        own = evaluate(self._test, [self.params]) if self.case.process == 0 else None
        return self.case.share(own)[0]

    def exchange(self):
        """Push the gradients, pull the parameters, and return how many updates the server has made. Waits. MXNet's
        store keeps the array that was pushed as its buffer, and a pull overwrites it."""
        # By this gradient the server's step adds 1.
        self._gradients[-1][:] = -self._s.batch_size / self._s.lr
        for key, gradient in zip(self._keys, self._gradients):
            self.store.push(key, gradient)
        return self.pull()

    def pull(self):
        """Pull the parameters, and return how many updates the server has made. Waits."""
        for key, value in zip(self._keys, self._values):
            self.store.pull(key, value)
        return round(float(self._values[-1].asscalar()))


def oracle(case, s):
    """Every worker's gradients count, each once: a few from each, filled with its number plus 1."""
    worker = Worker(case, s)
    worker.start()
    for _ in range(CHECKED):
        for param in worker.params:
            param.grad[:] = case.process + 1
        worker.exchange()
    npx.waitall()
    case.share()
    worker.pull()
    total = CHECKED * sum(range(1, case.processes + 1)) * s.lr / s.batch_size
    for param, start in zip(worker.params, init_lenet(s.seed, scale=0.1)):
        yield param.asnumpy(), start.asnumpy() - total


def set_up(case, s):
    """A round trains until the accuracy is reached, evaluated outside the clock after each ``updates`` updates."""
    worker = Worker(case, s)

    def train():
        worker.start()
        seconds = 0.0
        stale = []
        updates = 0
        accuracy = 0.0
        while accuracy < s.accuracy and updates < s.most_updates:
            updates += s.updates
            case.share()
            started = time.perf_counter()
            staleness = worker.train(updates)
            shared = case.share((time.perf_counter() - started, staleness))
            seconds += max(took for took, _ in shared)
            for _, of_worker in shared:
                stale += of_worker
            accuracy = worker.accuracy()
        return seconds, {
            "staleness": statistics.median(stale),
            "updates": updates,
            "test_accuracy": accuracy,
            "reached": accuracy >= s.accuracy,
        }

    worker.start()
    worker.train(WARM_UP * case.processes)
    worker.accuracy()
    return Work(train, [worker.device])


def tell(t, s):
    for row in t.rows:
        sync = t.one(engine=SYNC, workers=row.workers, processes=row.processes)
        if row is not sync:
            row.of_sync = row.seconds / sync.seconds
            if row.workers == ONE_SLOW and row.processes > 1:
                row.slow_rate = row.of_sync / (row.updates / sync.updates)
    t.column(
        "seconds",
        form=".2f",
        spread=True,
        about="a training from the start until the test accuracy is reached",
    )
    t.column("of_sync", form=".2f", spread=True, about="the row's time over dist_sync's")
    t.column("slow_rate", "an update", ".2f", spread=True, about="that for as many updates")
    t.column(
        "updates", form=".0f", about="parts of batches: k workers' parts make a synchronous step"
    )
    t.column(
        "staleness",
        "stale",
        ".1f",
        about="updates by others between a worker's pull and its update (median)",
    )
    t.column("test_accuracy", "accuracy", ".3f")
    t.note(
        "The slow worker sleeps after it has computed, so it takes twice as long. There is one server."
    )
    t.bars(colour="engine")
    late = [row.label for row in t.rows if not all(row.reached.values)]
    if late:
        t.answer(f"""{len(late)} of {plural(len(t.rows), "training")} did not reach the accuracy {s.accuracy:g} within
            {s.most_updates} updates.""")
        t.explain(f"""Not reached by {", ".join(late)}: compare with a lower accuracy, or with more most_updates, in a
            preset (a TOML file).""")
        return
    even, slow = (row.of_sync for row in t.find(engine=ASYNC, processes=max(s.devices)))
    t.answer(f"""Asynchronous training takes {slow:.2f} times as long as synchronous to the accuracy {s.accuracy:g}
        beside a worker of half the speed, and {even:.2f} times with equal workers.""")
    rates = [row for row in t.rows if row.get("slow_rate")]
    if rates:
        n = rates[-1].processes
        t.explain(f"""Beside a slow worker it takes {rates[-1].slow_rate:.2f} of the time for as many updates; the rates
            at which workers deliver say {n / SLOW / (n - 1 + 1 / SLOW):.2f}.""")
