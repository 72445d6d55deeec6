"""Is the engine's order of a net with branches as good as one made by hand?

::

    device 0   stem ─┬─ short 1 ... short 5 ───────────────── mid 2 ─┬─ join
                     │                               ┌───────────┘   │
    device 1         ├─ mid 1 ───────────────────────┘               │
                     └─ long 1, long 2, ... long 6 ──────────────────┘

Each of the 15 tasks is a matrix product; where a line crosses devices, there is a copy. The program decides where a
task runs, the engine only when. An order made by hand has phases, with a wait after each. It takes the time of 9
products, and no order takes less: the stem, seven on device 1, and the join.

The engine runs the task that became ready first; of several, the one that was pushed first. A copy waits in the queue
of its source. With the long branch listed first the engine should also take 9. With the long branch last, the copy for
it waits behind all short branches: 13. Two workers a device let the copy overtake.
"""

from functools import partial

import numpy as onp

from mxdp.backend import npx, upload
from mxdp.errors import plural
from mxdp.experiments import sources
from mxdp.experiments.automatic_parallelism.task_graph import alone, copy_to, length, run_tasks
from mxdp.experiments.devices import SEVERAL, devices_of, random_of, timed
from mxdp.experiments.lab import Case, Work
from mxdp.plans.cost.simulate import Job

SOURCE = f"exercise 5 of {sources.PARALLELISM}"
COMPARED = "the result of every task, against NumPy's, exactly"
TOGETHER = True
CHECKS = SEVERAL
PRESETS = {
    "quick": dict(devices=[2], timeout=120.0, size=768),
    "full": dict(devices=[2], timeout=900.0, size=1024),
}
LITTLE = dict(size=64)
COPY = "copy for "
COPY_COST = 0.02  # in products
STEM = Job("stem", 0)
LONG = [
    Job("copy for long 1", 0, ("stem",), COPY_COST),
    Job("long 1", 1, ("copy for long 1",)),
    *(Job(f"long {number}", 1, (f"long {number - 1}",)) for number in range(2, 7)),
    Job("copy for join", 1, ("long 6",), COPY_COST),
]
MID = [
    Job("copy for mid 1", 0, ("stem",), COPY_COST),
    Job("mid 1", 1, ("copy for mid 1",)),
    Job("copy for mid 2", 1, ("mid 1",), COPY_COST),
    Job("mid 2", 0, ("copy for mid 2",)),
]
SHORT = [Job(f"short {number}", 0, ("stem",)) for number in range(1, 6)]
JOIN = Job("join", 0, ("copy for join", "mid 2", *(task.name for task in SHORT)))
TASKS = [STEM, *LONG, *MID, *SHORT, JOIN]
LONG_LAST = [STEM, *MID, *SHORT, *LONG, JOIN]
PHASES = [
    [STEM],
    [LONG[0], MID[0], LONG[1], MID[1], *SHORT[:2]],
    [*LONG[2:6], *MID[2:], *SHORT[2:]],
    LONG[6:],
    [JOIN],
]
WAYS = {
    "one": ("one device", [TASKS]),
    "waits": ("a wait after each task", [[task] for task in TASKS]),
    "by hand": ("by hand: 5 phases", PHASES),
    "engine": ("engine, long branch first", [TASKS]),
    "long last": ("engine, long branch last", [LONG_LAST]),
    "2 workers": ("the same, 2 workers a CPU device", [LONG_LAST]),
}
"""Each row's label, and its groups of tasks."""


def cases(s):
    for way, (label, _) in WAYS.items():
        environment = {"MXNET_CPU_WORKER_NTHREADS": "2"} if way == "2 workers" else {}
        yield Case(label, 1 if way == "one" else 2, environment=environment, way=way)


def expect(s, cores):
    times = []
    for way, (label, _) in WAYS.items():
        if way != "one":
            times.append(f"{label} {modelled(way, cores):.1f}")
    return f"In products' times, on {plural(cores, 'core')}: one device 15; on two devices: {'; '.join(times)}."


def modelled(way, cores, seconds=None):
    """The simulated length of a pass in this way: of the costs, or of each task's measured time."""
    workers = 2 if way == "2 workers" else 1
    return length(WAYS[way][1], cores, workers, seconds)


def oracle(case, s):
    x, weights = exact_weights(TASKS, s.seed)
    functions = net(TASKS, weights, x, devices_of(case, s))
    done = run_tasks(WAYS[case.way][1], functions)
    for name, expected in serial_results(TASKS, weights, x).items():
        yield done[name][0].asnumpy(), expected, 0.0


def set_up(case, s):
    """A round times a pass; with a wait after each task, then every task in another pass."""
    shape = (1 + len(TASKS), s.size, s.size)
    numbers = random_of(s).uniform(-1, 1, size=shape).astype("float32")
    x, *matrices = numbers * s.size**-0.5
    weights = {task.name: matrix for task, matrix in zip(TASKS, matrices)}
    functions = net(TASKS, weights, x, devices_of(case, s))
    one_pass = partial(run_tasks, WAYS[case.way][1], functions)

    def measure():
        seconds = timed(one_pass)
        if case.way == "waits":
            return seconds, {"tasks": alone(TASKS, functions)}
        return seconds, {}

    for _ in range(2):  # the first ones ask for memory, which takes as long again
        measure()
    return Work(measure, record=None if case.way in ("one", "waits") else one_pass)


def net(tasks, weights, x, devices):
    """The function of each task: the sum of its inputs times its weights, (k, k); "copy for b" copies its input to b's
    device. A single device runs all lanes. ``x``, (rows, k), is the input of a task without needs."""
    place = {task.name: devices[task.lane % len(devices)] for task in tasks}
    functions = {}
    for task in tasks:
        name = task.name
        device = place[name]
        if name.startswith(COPY):
            reader = name[len(COPY) :]
            functions[name] = partial(copy_to, [place[reader]])
        else:
            first = [] if task.needs else [(upload(x, device),)]
            functions[name] = partial(_product, upload(weights[name].T, device), *first)
    return functions


def _product(weight, *inputs):
    total = sum((array for (array,) in inputs[1:]), inputs[0][0])
    return (npx.fully_connected(total, weight, num_hidden=weight.shape[0], no_bias=True),)


def exact_weights(tasks, seed, rows=67, k=31):
    """(x, weights) of exact products, however deep the net is: the weights permute columns and change signs."""
    random = onp.random.RandomState(seed)
    signs = [random.choice([-1.0, 1.0], size=(k, 1)) for _ in tasks]
    weights = {}
    for task, sign in zip(tasks, signs):
        permuted = onp.eye(k, dtype="float32")[random.permutation(k)]
        weights[task.name] = permuted * sign.astype("float32")
    x = random.randint(-99, 100, size=(rows, k)).astype("float32")
    return x, weights


def serial_results(tasks, weights, x):
    """Every task's result, in NumPy's integers."""
    done: dict = {}
    for task in tasks:
        total = sum(done[need] for need in task.needs) if task.needs else x.astype("int64")
        if not task.name.startswith(COPY):
            total = total @ weights[task.name].astype("int64")
        done[task.name] = total
    return done


def tell(t, s):
    t.column("seconds", "ms", ".1f", 1e3, about="the time of a pass: the net once")
    t.column(
        "of_by_hand",
        "by hand",
        ".2f",
        spread=True,
        about="that over the time with the phases made by hand",
    )
    t.column(
        "model_ms",
        "model ms",
        ".1f",
        about="the order, simulated with each task's time, measured with waits",
    )
    t.bars(unit="ms", scale=1e3, title="Time of a pass")
    one = t.one(way="one")
    waits = t.one(way="waits")
    by_hand = t.one(way="by hand")
    engine = t.one(way="engine")
    last = t.one(way="long last")
    for row in t.rows:
        row.of_by_hand = row.seconds / by_hand.seconds
        if row is not one:
            row.model_ms = modelled(row.way, row.cores, waits.tasks) * 1e3
    side_by_side = by_hand.seconds / one.seconds
    if side_by_side.at_most(0.9) is False:
        t.answer(
            f"There was no order to choose: by hand, two devices take {side_by_side:.2f} times as long as one."
        )
    else:
        t.answer(f"""With the longest branch listed first, MXNet's engine takes {engine.of_by_hand:.2f} times as long as
            an order made by hand; with it listed last, {last.of_by_hand:.2f} times.""")
    t.explain(f"By hand, two devices take {side_by_side:.2f} of one device's time.")
    t.explain("The engine runs what became ready first, and does not know which branch is long.")
    if (last.seconds / engine.seconds).at_most(1.0) is False:
        t.explain("List the longest branch first.")
