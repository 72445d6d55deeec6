"""What if one device is slower than the other?

With equal shards the fast device waits at each all-reduce. With shards in proportion to the devices' speeds both end at
the same time. If a slow device takes f times as long for a sample, equal shards take f / 2 of what the fast one alone
would take, and proportional ones f / (1 + f): 2 / (1 + f) of the time of equal shards.

Each device's thread stays on a core of its own, and in all rows but the reference a process that only counts keeps the
last device's core busy. So this needs Linux, and a core for each device.
"""

import atexit
import os
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as onp

from mxdp.backend import npx
from mxdp.experiments import sources
from mxdp.experiments.data_parallel.lenet_steps import check_step, synced_step
from mxdp.experiments.devices import WARM_UP, devices_of, timed
from mxdp.experiments.lab import Case, Skipped, Work, faster
from mxdp.experiments.oracle import random_batch
from mxdp.plans.partition import cuts
from mxdp.scratch import get_params, init_lenet
from mxdp.training import TrainStep

SOURCE = f"exercise 2 of {sources.CONCISE}"
COMPARED = (
    "gradients and parameters of every replica, steps with shards in proportion to other weights"
)
QUICK = dict(devices=[2], kind="cpu", batch_size=128, steps=8)
PRESETS = {"quick": QUICK, "full": dict(QUICK, timeout=600.0)}
LITTLE = dict(batch_size=24, steps=2)
EQUAL = "equal"
BY_SPEED = "by speed"
TASKS = Path("/proc/self/task")
NEIGHBOUR = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(20000):
        pass
"""
"""Counts until the process has ended that has started it."""


def cases(s):
    n = s.devices[0]
    yield Case("equal shards", n, split=EQUAL, busy=True)
    yield Case("shards by speed", n, split=BY_SPEED, busy=True)
    yield Case("equal shards, equal devices", n, reference=True, split=EQUAL, busy=False)


def expect(s, cores):
    return "If a device is half as fast: on two devices 1.5 times as fast as equal shards."


def oracle(case, s):
    devices = devices_of(case, s)
    others = len(devices) - 1
    for weights in ([1] * others + [3], [3] * others + [1]):
        yield from check_step(devices, 61, s.seed, step=synced_step(weights))


def set_up(case, s):
    """A round is ``steps`` steps, after each device's share alone; speeds are measured here, with the neighbour."""
    devices = devices_of(case, s)
    X, y = random_batch(s.batch_size, s.seed)
    if not hasattr(os, "sched_setaffinity"):
        raise Skipped("this system can't bind a thread to a core: run it on Linux")
    cores = sorted(os.sched_getaffinity(0))
    count = len(devices)
    if len(cores) < count:
        raise Skipped(
            f"{count} devices need a core each, and this process has {len(cores)}: take fewer --devices"
        )
    params = init_lenet(s.seed)
    half = len(X) // count
    alone = [TrainStep([get_params(params, device)], [device], 0.1) for device in devices]
    for step, core in zip(alone, cores):
        os.sched_setaffinity(_thread_of(step, X[:half], y[:half]), {core})

    if case.busy:
        neighbour = subprocess.Popen([sys.executable, "-c", NEIGHBOUR, str(os.getpid())])
        os.sched_setaffinity(neighbour.pid, {cores[count - 1]})
        # Its time is to count as this process's, not as another program's. What is registered last is called first.
        atexit.register(neighbour.wait)
        atexit.register(neighbour.kill)

    def train(step, samples, steps):
        for _ in range(steps):
            step(X[:samples], y[:samples])

    def seconds(step, samples):
        train(step, samples, 1)
        return timed(lambda: train(step, samples, s.steps))

    def speeds():
        return [1 / seconds(step, half) for step in alone]

    for step in alone:
        train(step, half, WARM_UP)
    weights = None
    if case.split == BY_SPEED:
        measured = [speeds() for _ in range(5)]
        weights = list(map(statistics.median, zip(*measured)))
    replicas = [get_params(params, device) for device in devices]
    together = TrainStep(replicas, devices, 0.1, weights=weights)
    train(together, len(X), WARM_UP)  # each device's own number of samples

    def one_round():
        first, *_, last = speeds()
        return seconds(together, len(X)), {"slower": first / last}

    one_round()
    shards = onp.array_split(X, cuts(len(X), count, weights))
    return Work(one_round, shards=" + ".join(str(len(shard)) for shard in shards))


def _thread_of(step, *batch):
    """The thread of the device of these steps: the one that works most while they run."""

    def ran(times):
        """Do ``times`` more steps; then, for each thread, the nanoseconds that it has run so far."""
        for _ in range(times):
            step(*batch)
        npx.waitall()
        known = {}
        for path in TASKS.iterdir():
            known[int(path.name)] = int((path / "schedstat").read_text().split()[0])
        return known

    before = ran(1)
    after = ran(3)
    return max(after, key=lambda thread: after[thread] - before.get(thread, 0))


def tell(t, s):
    equal = t.one(split=EQUAL)
    by_speed = t.one(split=BY_SPEED)
    for row in t:
        row.of_equal = row.seconds / equal.seconds
    n = by_speed.devices
    by_speed.predicted = n / (1 + (n - 1) * by_speed.slower)
    t.column("seconds", form=".3f", about="the time of 'steps' steps")
    t.column(
        "shards",
        about="the samples of each device, from the speeds that `split_and_load` gets as `weights`",
    )
    t.column(
        "slower",
        form=".2f",
        spread=True,
        about="the last device's time for the same samples, over the first's",
    )
    t.column("of_equal", form=".2f", spread=True, about="the time over that of equal shards")
    t.column("predicted", form=".2f", about="2 / (1 + slower)")
    t.note("In all rows but the last a process keeps the last device's core busy.")
    t.answer(f"""If one device takes {by_speed.slower:.2f} times as long, training in shards by speed
        {faster(1 / by_speed.of_equal)} as in equal ones.""")
    t.explain(f"""That takes {by_speed.of_equal / by_speed.predicted:.2f} times what the cost model says. Gradients are
        sums over the whole batch, divided once: uneven shards change them by rounding alone. (A mean of the shards'
        means would differ.)""")
