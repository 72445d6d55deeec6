"""What each question tells of drawn rows: every ratio, the numbers of its sentences, and what its claims judge and by
which bound, compared with the same quotients computed here in NumPy."""

from __future__ import annotations

import importlib
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as onp
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from littles import little

from mxdp.experiments.allreduce.arrays import STORES
from mxdp.experiments.automatic_parallelism.graph import TASKS, WAYS, modelled
from mxdp.experiments.automatic_parallelism.mixed_devices import step_tasks
from mxdp.experiments.data_parallel import lenet_steps
from mxdp.experiments.data_parallel.bugs import BY_NAME
from mxdp.experiments.lab import Number, Row, Told
from mxdp.experiments.lab.module import Question, Settings
from mxdp.experiments.lab.told import Bars
from mxdp.experiments.other_splits.split import COMBINED
from mxdp.experiments.show.style import number
from mxdp.plans.collective.algorithms import ALGORITHMS, plan
from mxdp.plans.collective.operations import operations
from mxdp.plans.cost.link import fit_link
from mxdp.plans.cost.machine import CPU
from mxdp.plans.cost.simulate import predict, simulate
from mxdp.plans.cost.step import break_even as step_break_even
from mxdp.plans.cost.step import step_seconds

TELLS = {}
PARTS = " ".join(lenet_steps.PARTS)
STEP = "seconds predicted_seconds bytes_moved peak_bytes predicted_peak_bytes"
INTERVAL = 7
"""Values that have an interval: from the least to the largest."""
NAMES = ("label", "reference", "devices", "processes", "engine")


def tells(module, numbers, facts=lambda row: {}, **drawn):
    """The function below computes what this question tells. ``numbers``: what rows have values of: names, or a
    function of a row that returns them; ``(name, entries)`` is a dict of them. ``facts``: what else a row has, by a
    function of it. ``drawn``: of a setting, the values to choose from (of ``devices`` some of 1 to 4, unless given); of
    ``missing`` names that no row has then."""

    def keep(compute):
        TELLS[module] = compute, numbers, facts, drawn
        return compute

    return keep


class Expected(SimpleNamespace):
    """The rows, with arrays for numbers, to which the functions below add what ``tell`` must; and what it must say."""

    def all(self, **known):
        return [row for row in self.rows if all(vars(row).get(name) == value for name, value in known.items())]

    def one(self, **known):
        return self.all(**known)[0]

    def say(self, *parts):
        self.answer += parts

    def expect(self, *parts):
        self.expectation += parts

    def explain(self, *parts):
        self.explanation += parts

    def claim(self, *arrays, **bound):
        if arrays:
            self.claims.append((bound, list(arrays)))


def m(values, form=".2f"):
    return f"{onp.median(values):{form}}"


def fast(ratio):
    return f"is {m(ratio)} times as fast" if onp.median(ratio) >= 1 else f"takes {m(1 / ratio)} times as long"


def off(ratio):
    return onp.maximum(ratio, 1 / ratio)


def by_median(row, name="seconds"):
    return onp.median(getattr(row, name))


def each(function, *arrays):
    return onp.array([function(*values) for values in zip(*map(onp.atleast_1d, onp.broadcast_arrays(*arrays)))])


def expect_speedups(x, s):
    x.expect(*(f"{min(n, x.cores):.2f} on {n} devices" for n in s.devices if n > 1))


def surely_above(values, bound):
    return bool(len(values) == INTERVAL and min(values) > bound)


def length(groups, cores, workers=1):
    return max(end for _, end in simulate(groups, cores, workers).values())


def model(groups, row, seconds, workers=1):
    """The length, in ms, of these groups of tasks, which take the medians of ``seconds``."""
    timed = [[replace(task, cost=onp.median(seconds[task.name])) for task in group] for group in groups]
    return length(timed, row.cores, workers) * 1e3


@tells("mxdp.experiments.data_parallel.batch_norm", "seconds differs test_accuracy gain other_replica")
def batch_norm(x, s):
    x.expect(*(f"{n**-0.5:.2f} with {n} samples" for n in s.shards))
    for row in x.rows:
        if row.way != "own":
            row.of_own = row.seconds / x.one(way="own", shard=row.shard).seconds
    few, many = ({row.way: row for row in x.all(shard=shard)} for shard in (min(s.shards), max(s.shards)))
    x.claim(*(row.differs for row in x.all(way="synchronised")), at_most=0.01, exact=True)
    x.say(str(min(s.shards)), m(few["own"].differs), m(few["synchronised"].of_own))
    x.explain(m(many["own"].differs), m(many["synchronised"].differs, ".2g"), m(many["synchronised"].of_own))
    x.explain(m(many["own, mxdp's operators"].of_own), m(few["own"].differs / many["own"].differs, ".1f"))
    x.explain(
        f"{(max(s.shards) / min(s.shards)) ** 0.5:.1f}", m(few["own"].gain, "+.3f"), m(few["own"].other_replica, ".3f")
    )
    x.explain(m(many["own"].gain, "+.3f"), m(many["own"].other_replica, ".3f"))


@tells("mxdp.experiments.data_parallel.batch_scaling", "seconds test_accuracy", times=[[2], [2, 4]])
def batch_scaling(x, s):
    n = max(s.devices)
    base = x.one(times=1, devices=n)
    for row in x.rows:
        row.of_base = row.seconds / base.seconds
        if row is not base:
            row.gain = row.test_accuracy - base.test_accuracy
    kept, root, linear = (x.one(times=n, rule=rule) for rule in ("kept", "root", "linear"))
    x.claim(kept.gain, at_most=0.0)
    x.say(f"{n} devices, {n} times", m(linear.gain, "+.3f"), fast(1 / linear.of_base))
    x.explain(m(kept.gain, "+.3f"), kept.label, m(root.gain, "+.3f"), root.label, m(x.one(devices=1).gain, "+.3f"))


def of_several(first, more):
    return lambda row: first if row.devices == 1 else f"{first} {more}"


@tells(
    "mxdp.experiments.data_parallel.break_even",
    of_several("seconds", "shard_seconds python_seconds allreduce_seconds"),
    lenet=[[4, 16], [5, 7, 64]],
    devices=[[1, 2], [1, 2, 4], [1, 2, 3]],
)
def break_even(x, s):
    several = [row for row in x.rows if row.devices > 1 and x.all(net=row.net, batch=row.batch, devices=1)]
    for row in several:
        one = x.one(net=row.net, batch=row.batch, devices=1).seconds
        parts = (row.shard_seconds, row.python_seconds, row.devices, row.cores, row.allreduce_seconds)
        row.predicted_seconds = each(step_seconds, *parts)
        row.speedup = one / row.seconds
        row.predicted = one / row.predicted_seconds
        row.off = off(row.predicted_seconds / row.seconds)
        row.pays = "yes" if surely_above(row.speedup, 1) else "no" if surely_above(1 / row.speedup, 1) else "open"
        row.right = None if row.pays == "open" else (onp.median(row.predicted) > 1) == (row.pays == "yes")
    x.claim(*(row.speedup for row in several if row.devices == 2 and row.batch == max(s[row.net])), at_least=1.0)
    judged = [row.right for row in several if row.pays != "open"]
    x.explain(f"Of {len(several)} points", f"{len(judged)} have", f"at {sum(judged)} of these")
    worst = max(several, key=lambda row: by_median(row, "off"))
    x.explain(f"{onp.median([by_median(row, 'off') for row in several]):.2f}", m(worst.off), worst.label)
    for net in ("lenet", "mlp", "resnet"):
        times = [(row.batch, by_median(row)) for row in x.all(net=net, devices=1)]
        own = [row for row in several if row.net == net]
        times += [(math.ceil(row.batch / row.devices), by_median(row, "shard_seconds")) for row in own]
        two = x.all(net=net, devices=2)
        python, sums = (
            onp.median([by_median(row, f"{part}_seconds") for row in two]) for part in ("python", "allreduce")
        )
        least = step_break_even(fit_link(times), python, 2, two[0].cores, sums)
        if math.isfinite(least):
            x.explain(f"{least:.1f}")


@tells(
    "mxdp.experiments.data_parallel.epochs",
    lambda row: f"seconds round_samples {PARTS}" + " test_accuracy" * (not row.reference),
    lambda row: dict(epoch_samples=6000, possible=2, in_sync=Number([float(row.devices != 3)])),
    missing=["", PARTS],
)
def epochs(x, s):
    expect_speedups(x, s)
    for row in x.rows:
        row.samples_per_sec = row.round_samples / row.seconds
        row.sec_per_epoch = 6000 / row.samples_per_sec
        row.speedup = x.rows[0].seconds / row.seconds
    for row in x.all(reference=False):
        row.accuracy = row.test_accuracy[-1]
    halves = []
    for ceiling in x.all(reference=True):
        row = x.one(devices=ceiling.processes)
        row.of_ceiling = ceiling.seconds / row.seconds
        halves.append(row.speedup / row.devices)
        of_ceiling = onp.median(row.of_ceiling)
        row.lost = {"machine": row.possible * of_ceiling - onp.median(row.speedup)}
        if s.missing:
            row.lost["unexplained"] = row.possible * (1 - of_ceiling)
        for part, words in [] if s.missing else lenet_steps.PARTS.items():
            shared, alone = (getattr(one, part).mean() for one in (row, ceiling))
            row.lost[words] = row.possible * (shared - of_ceiling * alone)
        for words, part in row.lost.items():
            setattr(row, f"lost_{words}", part)
    x.claim(*halves, at_least=0.8)
    x.claim(*(row.in_sync for row in x.rows if row.devices > 1), at_least=1, exact=True)
    x.say(*(["out of step"] if 3 in s.devices else [fast(row.speedup), fast(ceiling.speedup)]))
    x.explain(m(1 / row.of_ceiling), f"{sum(row.lost.values()):.2f} are lost")
    largest = max(row.lost, key=row.lost.get)
    if sum(row.lost.values()) > 0.1 or row.devices > 2:
        x.explain(f"{largest} ({row.lost[largest]:.2f})")


@tells("mxdp.experiments.data_parallel.parallel_evaluation", "seconds right test_accuracy")
def parallel_evaluation(x, s):
    expect_speedups(x, s)
    for row in x.rows:
        row.speedup = x.one(devices=1).seconds / row.seconds
        row.differs = abs(row.right - x.one(devices=1).right)
    x.claim(*(row.differs for row in x.rows if row.devices > 1), at_most=0, exact=True)
    x.say(x.rows[-1].label, fast(x.rows[-1].speedup), "another accuracy")


@tells("mxdp.experiments.data_parallel.resnet", "seconds")
def resnet(x, s):
    expect_speedups(x, s)
    book = []
    for row in x.rows:
        row.samples_per_sec = row.devices * s.batch_size / row.seconds
        if row.devices > 1:
            row.of_one = row.seconds / x.one(devices=1, hybrid=row.hybrid).seconds / row.devices
            row.of_mxnet = row.seconds / x.one(devices=row.devices, hybrid=row.hybrid, trainer="device").seconds
            if (row.devices, row.trainer) == (2, "device"):
                book.append(row)
    x.claim(*(row.of_one for row in book), at_most=0.6)
    last = x.all(trainer="mxdp.Trainer")[-1]
    x.say(f"{last.devices} devices", "hybridised", fast(1 / last.of_one), fast(1 / last.of_mxnet))
    if book:
        x.explain(fast(1 / book[0].of_one))


@tells(
    "mxdp.experiments.data_parallel.scaling",
    of_several("seconds", "unsynced_seconds shard_seconds allreduce_seconds"),
    lambda row: {"nbytes": 1000 * row.devices},
    lenet=[4, 6],
)
def scaling(x, s):
    n = max(s.devices)
    for size in (129_068, 11_175_818):
        seconds = predict(plan("direct", n), 4 * size, CPU.with_cores(x.cores))
        x.expect(f"{number(seconds * 1e3)} ms")
    for row in x.rows:
        row.samples_per_sec = row.batch / row.seconds
        if row.devices == 1:
            continue
        n, batch = row.devices, s[row.net]
        one, whole = (x.one(net=row.net, devices=1, batch=size).seconds for size in (batch, 2 * batch))
        row.predicted_seconds = row.shard_seconds + row.allreduce_seconds
        row.off = off(row.predicted_seconds / row.seconds)
        row.to_sums = row.allreduce_seconds / row.seconds
        row.to_rest = 1 - row.predicted_seconds / row.seconds
        row.difference = row.seconds - row.unsynced_seconds
        row.instrument = row.difference / row.allreduce_seconds
        row.beta = 2 * row.nbytes / row.allreduce_seconds
        if row.batch == n * batch:
            row.weak = one / row.seconds
        if row.batch == 2 * batch:
            row.strong = whole / (n * row.seconds)
            row.half = row.shard_seconds / whole
            row.to_compute = (row.shard_seconds - whole / n) / row.seconds
    two = x.all(net="lenet", devices=2)
    x.claim(*(row.half for row in two), at_least=0.9)
    for n, least in ((2, 0.88), (4, 0.82)):
        x.claim(*(row.weak for row in x.all(net="resnet", devices=n, batch=n * s.resnet)), at_least=least)
    n = max(s.devices)
    strong, weak = x.one(net="lenet", devices=n, batch=2 * s.lenet), x.one(net="resnet", devices=n, batch=n * s.resnet)
    x.say(fast(n * strong.strong), fast(n * weak.weak))
    x.explain(*(m(row.half) for row in two), m(weak.instrument), m(strong.instrument))


@tells("mxdp.experiments.data_parallel.sharded_optimizer", "seconds state_bytes moved_bytes", devices=[[2], [3, 2]])
def sharded_optimizer(x, s):
    held, moved = [], []
    for row in x.all(sharded=True):
        plain = x.one(sharded=False, net=row.net, optimizer=row.optimizer, devices=row.devices)
        row.of_time = row.seconds / plain.seconds
        row.of_plain = row.state_bytes / plain.state_bytes
        held.append(row.of_plain * row.devices)
        moved.append(row.moved_bytes / plain.moved_bytes)
    x.claim(*held, at_most=1.05, exact=True)
    x.claim(*moved, at_most=1.0, exact=True)
    row = x.one(sharded=True, net="resnet", optimizer="adam", devices=2)
    x.say(m(row.of_plain), m(row.of_time))


ACCURACIES = [f"accuracy_{part}" for part in range(4)]


@tells(
    "mxdp.experiments.data_parallel.silent_bugs",
    lambda row: f"seconds test_accuracy wrong {' '.join(ACCURACIES)}" if row.optimizer else "seconds",
    lambda row: {"steps": 40, "in_sync": Number([True, row.bug != "rebinds"])} if row.optimizer else {},
)
def silent_bugs(x, s):
    rights = {(BY_NAME[row.bug].right, row.optimizer): row for row in x.rows if row.reference and row.optimizer}
    rows = x.all(reference=False)
    for row in [*rows, *rights.values()]:
        row.in_sync = row.bug != "rebinds"
    for row in rows:
        right = rights[BY_NAME[row.bug].right, row.optimizer]
        behind = [getattr(right, name) - getattr(row, name) for name in ACCURACIES]
        row.behind = behind[-1]
        near = [onp.median(part) <= 0.05 for part in behind]
        row.shown_after = None if near[-1] else 10 * (4 - near[::-1].index(True) if True in near else 0) * 4 + 40
    x.claim(*(row.wrong for row in rows), at_least=1, exact=True)
    x.claim(x.one(optimizer="").seconds, at_most=60.0)
    hidden = [row for row in rows if onp.median(row.behind) <= 0.05]
    sgd, adam = (sum(row.optimizer == name for row in hidden) for name in ("SGD", "Adam"))
    x.say(f"{len(BY_NAME)} bugs", f"{sgd} with SGD", f"{adam} with Adam")
    always = sum(max(row.behind) <= 0.05 for row in hidden)
    x.explain(f"{always} of these {len(hidden)}", f"{sum(row.in_sync for row in hidden)} keep")
    for bug in ("averaged-twice", "not-divided"):
        x.explain(m(x.one(bug=bug, optimizer="Adam", reference=False).behind, "+.3f"))


@tells("mxdp.experiments.data_parallel.uneven", "seconds slower")
def uneven(x, s):
    for row in x.rows:
        row.of_equal = row.seconds / x.one(split="equal", busy=True).seconds
    row = x.one(split="by speed")
    row.predicted = row.devices / (1 + (row.devices - 1) * row.slower)
    x.say(m(row.slower), fast(1 / row.of_equal))
    x.explain(m(row.of_equal / row.predicted))


@tells("mxdp.experiments.data_parallel.where_the_time_went", f"seconds on_processor {PARTS}")
def where_the_time_went(x, s):
    expect_speedups(x, s)
    for row in x.rows:
        row.speedup = x.one(devices=1).seconds / row.seconds
        for part in PARTS.split():
            setattr(row, f"mean_{part}", float(getattr(row, part).mean()))
    x.claim(*(row.rest for row in x.rows), at_most=0.05)
    row = x.rows[-1]
    most = max(PARTS.split()[1:], key=lambda part: getattr(row, part).mean())
    x.say(f"{row.devices} devices", m(row.compute, ".1%"), m(getattr(row, most), ".1%"))
    if onp.median(row.on_processor) < 0.95:
        x.explain(m(row.on_processor, ".0%"))


@tells("mxdp.experiments.data_parallel.stock_loop", "seconds")
def stock_loop(x, s):
    expect_speedups(x, s)
    for row in x.rows:
        row.of_book = row.seconds / x.one(loop="book", devices=row.devices).seconds
    for row in x.all(loop="mxdp")[:-3:-1]:
        x.say(fast(1 / row.of_book), str(row.devices))


def worst_choice(x, which):
    """What ``auto`` chose in each process over each other thing to do: algorithms that do the same are one, of which
    the median counts, and so does the row of ``auto``."""
    over = []
    for auto in x.all(algorithm="auto"):
        rows = [row for row in x.all(bytes=auto.bytes, devices=auto.devices) if row.algorithm in ALGORITHMS]
        elements = auto.bytes // 4
        work = {}
        for row in rows:
            schedule = plan(row.algorithm, row.devices, [elements])
            filled = [start < stop for start, stop in schedule.borders(elements)]
            work[row.algorithm] = tuple(operations(schedule, filled=filled))
        chosen = [work[sorted(ALGORITHMS)[int(number)]] for number in getattr(auto, which)]

        def took(thing, process, rows=rows, work=work, chosen=chosen, auto=auto):
            same = [row.seconds[process] for row in rows if work[row.algorithm] == thing]
            return onp.median(same + [auto.seconds[process]] * (chosen[process] == thing))

        others = [thing for thing in {*work.values()} if {*chosen} != {thing}]
        over += [[took(done, k) / took(thing, k) for k, done in enumerate(chosen)] for thing in others]
    x.explain(f"{max(map(onp.median, over)):.2f}", f"worst of {len(over)} comparisons")


@tells(
    "mxdp.experiments.allreduce.allreduce",
    lambda row: (
        "seconds"
        + " predicted_ms" * (row.algorithm not in STORES)
        + " choice default_choice" * (row.algorithm == "auto")
    ),
    lambda row: {"chosen": "tree" if row.algorithm == "auto" else row.algorithm},
)
def allreduce(x, s):
    for row in x.rows:
        row.busbw = row.bytes / by_median(row) * 2 * (row.devices - 1) / row.devices / 1e9
        row.of_device_store = (
            row.seconds / x.one(bytes=row.bytes, devices=row.devices, algorithm="mxnet-device").seconds
        )
        row.error = None
        if hasattr(row, "predicted_ms") and len(row.seconds) == INTERVAL:
            row.error = apart(row.predicted_ms / 1e3, row.seconds)
    n = sorted(s.devices)[len(s.devices) // 2]
    rows = [row for row in x.all(devices=n, bytes=max(s.sizes)) if row.algorithm in ALGORITHMS]
    best = min(rows, key=by_median)
    as_fast = [row.algorithm for row in rows if row is best or not surely_above(row.seconds / best.seconds, 1)]
    expects = "as the cost model expects" if "tree" in as_fast else "which the cost model does not expect"
    x.say(f"{n} devices", best.algorithm, expects, fast(1 / best.of_device_store))
    for n in s.devices:
        large = [row for row in x.all(devices=n, bytes=1 << 20) if hasattr(row, "predicted_ms")]
        x.explain(
            m(onp.median([off(row.predicted_ms / 1e3 / row.seconds) for row in large], axis=0)), f"on {n} devices"
        )
    worst_choice(x, "choice")
    worst_choice(x, "default_choice")


def apart(one, other):
    """How far one interval is off the other: the share by which the gap's far end is beyond its near end."""
    return max(0.0, min(one) / max(other) - 1) + min(0.0, max(one) / min(other) - 1)


@tells(
    "mxdp.experiments.allreduce.buckets",
    "seconds",
    lambda row: {"buckets": row.label} if row.bucket_mb else {},
    bucket_mb=[[1.0], [0.25, 25.0]],
)
def buckets(x, s):
    fastest = []
    for row in x.rows:
        row.of_device_store = row.seconds / x.one(net=row.net, devices=row.devices, algorithm="mxnet-device").seconds
    for net in ("lenet", "resnet18"):
        ours = [row for row in x.all(net=net, devices=s.devices[0]) if row.bucket_mb]
        fastest.append(min(ours, key=by_median))
        shown = [row for row in ours if (row.algorithm, row.bucket_mb) == ("auto", 25.0)] or fastest[-1:]
        x.say(fast(1 / shown[0].of_device_store))
        x.explain(f"our {len(ours)} ways there is {fastest[-1].label.partition(': ')[2]}")
        x.explain(fast(1 / fastest[-1].of_device_store))
    over = []
    for auto in x.all(algorithm="auto", bucket_mb=25.0):
        others = [row for row in x.all(net=auto.net, devices=auto.devices) if row.bucket_mb and row is not auto]
        over += [auto.seconds / row.seconds for row in others]
    if over:
        x.explain(m(max(over, key=onp.median)), f"worst of {len(over)} comparisons")


@tells(
    "mxdp.experiments.allreduce.links",
    lambda row: ["seconds", ("seconds_by_bytes", ["4", "64", "4096"])],
    sizes=[[4, 64, 4096]],
)
def links(x, s):
    start = max(CPU.push, CPU.copy.start)
    alone = CPU.with_cores(x.cores).copy.seconds(4096, 8192, others=False)
    x.expect(f"{start * 1e6:.1f}", f"{4096 / alone / 1e9:.1f} GB/s")
    for row in x.rows:
        times = {int(size): onp.median(seconds) for size, seconds in row.seconds_by_bytes.items()}
        row.alpha, row.beta = (getattr(fit_link(list(times.items())), name) for name in ("alpha", "beta"))
        row.latency_us = times[4] * 1e6
        row.bandwidth_gbs = 4096 / times[4096] / 1e9
    alone = [row for row in x.rows if len(row.pairs) == 1 and row.pairs[0][0] != row.pairs[0][1]]
    for row in x.rows:
        if len(row.pairs) > 1:
            row.over_alone = row.seconds / onp.median([one.seconds for one in alone], axis=0)
    speeds = [row.bandwidth_gbs for row in alone]
    apart = max(alone, key=by_median).seconds / min(alone, key=by_median).seconds
    x.say(f"{onp.median(speeds):.1f}", f"all {row.devices} devices", m(row.over_alone, ".1f"))
    x.explain(f"{len(alone)} pairs", f"{min(speeds):.1f}", f"{max(speeds):.1f}", m(apart))
    if surely_above(apart, 1.5):
        x.explain("one link does not do")
    x.explain(
        f"{onp.median([row.alpha for row in alone]) * 1e6:.1f}", f"{onp.median([row.beta for row in alone]) * 1e12:.0f}"
    )


@tells("mxdp.experiments.allreduce.parameter_server", "seconds predicted_ms", nbytes=[48000])
def parameter_server(x, s):
    for row in x.all(algorithm="ring"):
        seconds = predict(
            plan("ring", row.devices, [12000 // row.devices] * row.devices), 48000, CPU.with_cores(x.cores)
        )
        x.expect(f"{row.label} {number(seconds * 1e3)}")
    for row in x.rows:
        n = row.devices
        transfers = {"server": 2 * n, "naive": 2 * (n - 1), "sharded": 2 * (n - 1) / n}
        if row.algorithm in transfers:
            row.book_ms = transfers[row.algorithm] * 48000 / 16e9 * 1e3
        row.sent_bytes_busiest = 48000 * (n if row.algorithm == "server" else n - 1)
        if row.algorithm in ("sharded", "ring", "direct"):
            row.sent_bytes_busiest = 2 * 48000 * (n - 1) // n
        row.prediction_error = None
        if len(row.seconds) == INTERVAL:
            row.prediction_error = apart(row.predicted_ms / 1e3, row.seconds)
    server, one, parts = (x.all(algorithm=name)[-1].seconds for name in ("server", "naive", "sharded"))
    x.say(f"{s.devices[-1]} devices", m(one / parts), m(server / parts))
    x.explain("4 times (60 ms and 15 ms) and 5.3 times (80 ms)")


@tells(
    "mxdp.experiments.automatic_parallelism.copy_overlap",
    "seconds run_seconds copy_seconds",
    lambda row: {"products": 7},
)
def copy_overlap(x, s):
    x.expect(f"take {(s.products + 1) / 2 / s.products if x.cores > 1 else 1:.2f} of")
    for row in x.rows:
        row.in_turn = row.run_seconds + row.copy_seconds
        row.over_sum = row.seconds / row.in_turn
    one, two = (x.one(work="chain", under=under) for under in ("1 worker", "2 workers"))
    square = x.one(work="slides", under="1 worker")
    x.say(fast(1 / two.over_sum), fast(1 / one.over_sum))
    x.explain(m(two.run_seconds / two.copy_seconds), m(x.one(work="indep.", under="2 workers").over_sum))
    x.explain("7 products", m(square.copy_seconds / square.in_turn, ".1%"))


@tells(
    "mxdp.experiments.automatic_parallelism.graph",
    lambda row: ["seconds", ("tasks", [task.name for task in TASKS])] if row.way == "waits" else "seconds",
)
def graph(x, s):
    x.expect(*(f"{modelled(way, x.cores):.1f}" for way in WAYS if way != "one"))
    one, by_hand, engine, last, waits = (x.one(way=way) for way in ("one", "by hand", "engine", "long last", "waits"))
    for row in x.rows:
        row.of_by_hand = row.seconds / by_hand.seconds
        if row is not one:
            row.model_ms = model(WAYS[row.way][1], row, waits.tasks, 1 + (row.way == "2 workers"))
    both = by_hand.seconds / one.seconds
    x.say(*([m(both)] if surely_above(both, 0.9) else [m(engine.of_by_hand), m(last.of_by_hand)]))
    x.explain(m(both), *["List the longest"] * surely_above(last.seconds / engine.seconds, 1.0))


@tells(
    "mxdp.experiments.automatic_parallelism.memory_guard",
    "seconds measured_bytes predicted_bytes at_once",
    lambda row: {"said": ""},
    size=[10, 64],
)
def memory_guard(x, s):
    of_one, fixed = 4 * s.size * (s.size + 65), 512 * s.size
    most = max(0, (s.limit_bytes - fixed) // of_one)
    x.expect(f"{of_one / 1e6:.1f} MB", f"{(fixed + s.products * of_one) / 1e6:.0f} MB", f"{s.limit_bytes / 1e6:.0f} MB")
    x.expect(f"at most {most} at a time")
    fits, refused, sliced = (x.one(way=way) for way in ("fits", "refused", "sliced"))
    for row in (fits, sliced):
        row.of_needs = row.measured_bytes / row.predicted_bytes
    x.claim(fits.of_needs, sliced.of_needs, at_most=1.1)
    x.claim(fits.of_needs, sliced.of_needs, at_least=0.9)
    x.claim(sliced.measured_bytes / s.limit_bytes, at_most=1)
    x.claim(refused.at_once, at_most=0, exact=True)
    x.claim(refused.measured_bytes / (4 * s.size * (s.size + 1 + 64)), at_most=1)
    x.say(f"{s.products} products", m(fits.of_needs, ".3f"), m(sliced.of_needs, ".3f"))


@tells(
    "mxdp.experiments.automatic_parallelism.mixed_devices",
    lambda row: ["seconds", ("tasks", [task.name for task in step_tasks(row.devices - 1, 3)])],
    steps=[2, 3],
)
def mixed_devices(x, s):
    tasks = step_tasks(max(s.devices) - 1, s.steps)
    waits, free = (length(groups, x.cores) for groups in ([[task] for task in tasks], [tasks]))
    x.expect(f"{max(s.devices)} devices are {waits / free:.2f} times")
    for row in x.rows:
        row.of_one = row.seconds / x.one(run="one").seconds
        if row.run == "free":
            waits = x.one(run="waits", devices=row.devices)
            row.of_waits = row.seconds / waits.seconds
            row.model_ms = model([step_tasks(row.devices - 1, s.steps)], row, waits.tasks) / s.steps
    x.say(f"{row.devices} devices", fast(1 / row.of_waits), fast(1 / row.of_one))


@tells(
    "mxdp.experiments.automatic_parallelism.operators",
    "seconds one_seconds",
    sides=[[8, 32], [32, 64, 8]],
    products=[2, 5],
)
def operators(x, s):
    x.expect(*(f"{s.products / max(1, s.products / min(count, x.cores)):.2f}" for count in (1, 2)))
    for row in x.rows:
        row.over_k_times_one = row.seconds / row.one_seconds / s.products
        row.over_one_worker = row.seconds / x.one(workers=1, side=row.side).seconds
    one, two = (x.one(workers=count, side=max(s.sides)) for count in (1, 2))
    x.say(
        f"{s.products} independent", f"{max(s.sides)} x", fast(1 / two.over_k_times_one), fast(1 / one.over_k_times_one)
    )
    least = x.one(workers=2, side=min(s.sides)).over_one_worker
    x.explain(*["Small products take longer"] * surely_above(least, 1.0))


@tells("mxdp.experiments.automatic_parallelism.profile", "seconds together cost")
def profile(x, s):
    most, worst = (max(x.rows, key=lambda row: by_median(row, name)) for name in ("together", "cost"))
    x.say(m(most.together, ".0%"), repr(most.label))
    x.explain(m(worst.cost), *["Doubt timelines"] * surely_above(worst.cost, 1.25))


@tells(
    "mxdp.experiments.automatic_parallelism.run_ahead",
    lambda row: "seconds peak_bytes ahead" if hasattr(row, "wait") else "seconds",
    additions=[20, 300],
)
def run_ahead(x, s):
    steps = math.ceil(s.samples / s.batch_size)
    x.expect(f"{2 * steps - 1} batches of {s.batch_size * 3136 / 1e6:.1f} MB", f"epoch {steps - 1}")
    firsts = {"wait": x.one(wait="never"), "way": x.one(way="waitall"), "each": x.one(each=False)}
    for row in x.rows:
        (kind,) = firsts.keys() & vars(row).keys()
        row.of_first = row.seconds / firsts[kind].seconds
        if kind == "each":
            row.us_an_op = row.seconds / s.additions * 1e6
    bounded, waited = x.one(wait="2 ahead, events"), x.one(each=True)
    peak = bounded.peak_bytes / firsts["wait"].peak_bytes
    x.claim(peak, at_most=1)
    x.claim(waited.of_first, at_least=1)
    x.say(m(bounded.of_first), m(peak))
    x.explain(m(firsts["each"].us_an_op, ".1f"), m(waited.us_an_op, ".1f"))


TWO = "_two_devices"


@tells(
    "mxdp.experiments.automatic_parallelism.small_ops",
    lambda row: "seconds calls_us calls_push_us ready_us" + f" calls{TWO}_us ready{TWO}_us" * (row.under == "1 worker"),
    sizes=[[4, 4096], [4096, 8, 16]],
)
def small_ops(x, s):
    (tiny, shared), (large, spread) = (
        [x.one(bytes=nbytes, under=under) for under in ("1 worker", "2 workers")]
        for nbytes in (min(s.sizes), max(s.sizes))
    )
    x.say(m(tiny.calls_two_devices_us / tiny.calls_us), m(shared.calls_us / tiny.calls_us))
    x.explain(*(m(values, ".1f") for values in (tiny.calls_us, tiny.calls_push_us, tiny.ready_us)))
    x.explain(m(tiny.ready_two_devices_us / tiny.ready_us), m(shared.ready_us / tiny.ready_us))
    x.explain(m(large.calls_two_devices_us / large.calls_us), m(spread.calls_us / large.calls_us))


@tells("mxdp.experiments.automatic_parallelism.two_jobs", "seconds together")
def two_jobs(x, s):
    x.expect(*(f"over one: {max(1, n / x.cores):.2f}" for n in s.devices))
    for row in x.rows:
        row.over_one = row.seconds / sum(one.seconds for one in x.all(run="alone", devices=row.devices)) * row.devices
    both, stock = (x.all(run="at once", reference=reference)[-1] for reference in (False, True))
    x.say(m(both.over_one), m(stock.over_one))
    x.explain(f"{s.products} products of {s.size} x {s.size}", m(both.together, ".0%"), m(stock.together, ".0%"))


def faster_than_serial(x, *alike):
    for row in x.rows:
        row.speedup = x.one(strategy="serial", **{name: getattr(row, name) for name in alike}).seconds / row.seconds


@tells("mxdp.experiments.other_splits.combined", STEP, devices=[[4], [6, 4]], missing=["", "peak_bytes"])
def combined(x, s):
    n = max(s.devices)
    x.expect(f"2 x {n // 2} devices move {(n // 2) / (n - 1):.2f}")
    faster_than_serial(x, "net", "batch")
    memory, moved, layerwise = [], [], []
    for row in [row for row in x.rows if row.strategy in COMBINED]:
        alike = dict(net=row.net, batch=row.batch, devices=row.devices)
        data, other = (x.one(strategy=name, **alike) for name in row.strategy.split(" x "))
        row.moved_of_less = row.bytes_moved / onp.minimum(data.bytes_moved, other.bytes_moved)
        row.memory_of_data = None if s.missing else row.peak_bytes / data.peak_bytes
        if row.strategy == "data x layerwise" and row.net == "wide":
            layerwise.append(row)
        if (row.net, row.batch) == ("wide", x.rows[-1].batch):
            memory += [row.memory_of_data] * (not s.missing)
        elif row.strategy == "data x layerwise":
            moved.append(row.moved_of_less)
    x.claim(*moved, at_most=1.0, exact=True)
    x.claim(*memory, at_most=1.0, exact=True)
    even = layerwise[0]
    small = [row for row in layerwise if row.devices == even.devices][-1]
    x.say(f"2 x {even.devices // 2} devices", m(even.moved_of_less), *([] if s.missing else [m(small.memory_of_data)]))
    x.explain(f"a batch of {small.batch}", m(small.moved_of_less, ".1f"))


@tells("mxdp.experiments.other_splits.layerwise", STEP, batch_sizes=[[4, 16], [8, 2, 32]])
def layerwise(x, s):
    params = 785 * s.units + 2 * (s.units + 1) * s.units + 10 * (s.units + 1)
    sums = 2 * s.units + 10
    x.expect(f"{params:,} parameters", f"{sums:,} a sample", f"{params / sums:,.0f}")
    faster_than_serial(x, "batch")
    for row in x.all(strategy="layerwise"):
        row.of_data = row.seconds / x.one(strategy="data", devices=row.devices, batch=row.batch).seconds
    x.explain(f"up to a batch of {params / sums:,.0f}")
    for n, tell in zip(s.devices, (x.say, x.explain)):
        least, most = (x.one(strategy="layerwise", devices=n, batch=end(s.batch_sizes)) for end in (min, max))
        tell(f"{n} devices", fast(1 / least.of_data), fast(1 / most.of_data))


@tells(
    "mxdp.experiments.other_splits.latency_throughput",
    "seconds latency_seconds answers_per_second",
    batches=[[1, 2], [4, 3]],
)
def latency_throughput(x, s):
    for n in s.devices:
        together = min(n, x.cores)
        if n <= x.cores or x.cores == 1:
            x.expect(f"{s.stream * n / (s.stream + n - 1) if together > 1 else 1:.2f} times")
    for row in x.rows:
        one = x.one(layout="1 device", batch=row.batch)
        row.answers_of_one = row.answers_per_second / one.answers_per_second
        row.latency_of_one = row.latency_seconds / one.latency_seconds
    row = next(row for row in x.all(batch=max(s.batches)) if row.stages > 1)
    x.say(f"batches of {row.batch}, {row.layout}", m(row.answers_of_one), m(row.latency_of_one))


@tells(
    "mxdp.experiments.other_splits.fully_sharded",
    "seconds moved_bytes layer_bytes lasting_bytes peak_bytes predicted_peak_bytes",
    missing=["", "peak_bytes lasting_bytes"],
)
def fully_sharded(x, s):
    for n in s.devices:
        x.expect(*(f"{(whole + (4 - whole) / n) / 4:.3g}" for whole in (2, 1, 0)))
    for row in x.rows:
        plain = x.one(stage=0, net=row.net, devices=row.devices)
        row.of_time = row.seconds / plain.seconds
        row.of_moved = row.moved_bytes / plain.moved_bytes
        if not s.missing:
            row.held = (row.peak_bytes - row.layer_bytes - plain.peak_bytes) / plain.lasting_bytes + 1
    third = x.all(stage=3)
    x.claim(*(row.held * row.devices for row in third if not s.missing), at_most=1.15, exact=True)
    x.claim(*(row.of_moved for row in x.rows if row.stage in (1, 2)), at_most=1.0, exact=True)
    x.claim(*(row.of_moved for row in third), at_most=1.5, exact=True)
    last, other = (x.one(stage=3, net=net, devices=s.devices[0]) for net in ("resnet", "wide"))
    x.say(f"{last.devices} devices", *([] if s.missing else [m(last.held)]), m(last.of_time))
    x.explain(m(other.of_time))


@tells(
    "mxdp.experiments.other_splits.pipeline",
    "seconds predicted_over_measured peak_bytes predicted_peak_bytes",
    lambda row: {"workers": Number([3]), "busy": {"cpu(0)": 0.25, "cpu(1)": 0.75 / row.stages}},
    micro_batches=[[1, 4], [1, 2], [2, 4, 8]],
)
def pipeline(x, s):
    if x.cores >= max(s.devices):
        for n in s.devices:
            x.expect(*(f"{n * of / (of + n - 1):.2f} times on {n} devices with m = {of}" for of in s.micro_batches))
    worst, few = [], min(s.micro_batches)
    several = 4 if 4 in s.micro_batches else max(s.micro_batches)
    over = []
    for row in x.rows:
        row.bubble = (row.stages - 1) / (row.micro_batches + row.stages - 1)
        row.idle = 1 - (0.25 + 0.75 / row.stages) / 2
        row.of_one_device = row.seconds / x.one(stages=1).seconds
        if row.stages <= 3 and not row.reference:
            worst.append((off(row.predicted_over_measured), row.label))
            if row.micro_batches == several:
                least = x.one(stages=row.stages, schedule=row.schedule, micro_batches=few)
                over.append(row.seconds / least.seconds)
    x.claim(*over, at_most=1.0)
    row = x.one(stages=s.devices[0], schedule="gpipe", micro_batches=several)
    x.say(f"{row.stages} devices", str(several), fast(1 / row.of_one_device), m(row.predicted_over_measured))
    for factor, label in sorted(worst, key=lambda one: onp.median(one[0]))[-1:]:
        x.explain(f"{len(worst)} rows", label, m(factor))
    for schedule in ("1f1b", "gpipe"):
        row = x.one(stages=s.devices[0], schedule=schedule, micro_batches=max(s.micro_batches))
        x.explain(m(row.peak_bytes / 1e6, ".1f"))


@tells("mxdp.experiments.other_splits.strategies", STEP)
def strategies(x, s):
    wide = (784 * s.units + 2 * s.units**2 + 13 * s.units + 10, 2 * s.units + 10, max(1, s.batch_size // 8))
    for params, sums, samples in ((129_068, 4_860, s.batch_size), wide):
        x.expect(f"batch {samples}", f"{number(8e-6 * params)} and {number(8e-6 * sums * samples)} MB")
    faster_than_serial(x, "net")
    for net in ("lenet", "wide"):
        rows = x.all(net=net)
        chosen, best = min(rows, key=lambda row: by_median(row, "predicted_seconds")), min(rows, key=by_median)
        for row in rows:
            row.of_chosen = chosen.seconds / row.seconds
        closest = max((row for row in rows if row is not chosen), key=lambda row: by_median(row, "of_chosen"))
        x.explain(m(closest.of_chosen), closest.label)
        x.say(f"{best.devices} device", *([m(best.speedup)] if best is not rows[0] else []))


@tells("mxdp.experiments.other_splits.tiles", f"{STEP} worst_error worst_error_inside")
def tiles(x, s):
    faster_than_serial(x)
    bare = x.all(halo=False)
    x.claim(*(row.worst_error for row in x.all(strategy="tile", halo=True)), at_most=0, exact=True)
    x.claim(*(row.worst_error for row in bare), at_least=1, exact=True)
    x.claim(*(row.worst_error_inside for row in bare), at_most=0, exact=True)
    last = x.one(grid=bare[-1].grid, halo=True)
    x.say("wrong with", "wrong without", last.label, fast(last.speedup))
    moved = onp.median(last.bytes_moved) / 1e6
    halos = onp.median(last.bytes_moved - bare[-1].bytes_moved) / 1e6
    x.explain(f"{number(float(moved))} MB", f"{number(float(halos))} MB")


@tells(
    "mxdp.experiments.many_processes.async_sgd",
    "seconds updates staleness test_accuracy",
    lambda row: {"reached": Number([True])},
)
def async_sgd(x, s):
    n = max(s.devices)
    x.expect(f"{n / 2 / (n - 0.5):.2f}", f"{n - 1} update")
    for row in x.all(engine="dist_async"):
        sync = x.one(engine="dist_sync", workers=row.workers, processes=row.processes)
        row.of_sync = row.seconds / sync.seconds
        if row.workers == "one slow worker":
            row.slow_rate = row.of_sync * sync.updates / row.updates
    n = max(s.devices)
    even, slow = x.all(engine="dist_async", processes=n)
    x.say(m(slow.of_sync), m(even.of_sync))
    x.explain(m(slow.slow_rate), f"{n / 2 / (n - 0.5):.2f}")


@tells("mxdp.experiments.many_processes.loader", "seconds input_ms compute_ms", scales=[[1, 2], [4, 1], [2]])
def loader(x, s):
    n = max(s.devices)
    for load in (0, n, 4 * n):
        least = max(1, (load + n) / x.cores)
        x.expect(f"{max(load / n, least) / max(load, least):.2f}")
    for row in x.rows:
        row.step_ms = row.seconds / s.steps * 1e3
        if row.engine:
            n, one = row.devices_in_all, x.one(engine="", scale=row.scale, devices_in_all=row.devices_in_all)
            row.of_one = row.seconds / one.seconds
            load, compute = by_median(one, "input_ms"), by_median(one, "compute_ms")
            least = max(compute, (load + n * compute) / row.cores)
            row.expected = max(load / n, least) / max(load, least)
    cheap, dear = (x.all(engine="mpi", scale=end(s.scales))[-1] for end in (min, max))
    parts = x.all(engine="", scale=max(s.scales))[-1]
    x.say(f"{by_median(parts, 'input_ms') / by_median(parts, 'compute_ms'):.1f}", fast(1 / dear.of_one))
    x.say(*([fast(1 / cheap.of_one)] if cheap is not dear else []))


@tells(
    "mxdp.experiments.many_processes.lost_worker",
    "seconds lost",
    lambda row: {"noticed": Number([True, row.by != "dist_sync"]), "same": Number([True, row.harm != "stopped"])},
    engines=["mpi", "mpi,dist_sync"],
)
def lost_worker(x, s):
    ours = x.all(by="mpi")
    x.claim(*(row.seconds for row in ours), at_most=30)
    x.claim(*(onp.array([1.0, row.harm != "stopped"]) for row in ours), at_least=1, exact=True)
    for row in x.rows:
        row.noticed, row.same = row.by != "dist_sync", row.harm != "stopped"
    lost = onp.concatenate([row.lost for row in ours])
    steps = [f"{min(lost):.0f} to"] if min(lost) < max(lost) else []
    killed = x.all(by="mpi", harm="killed")[-1]
    x.say(m(killed.seconds), m(max(ours, key=by_median).seconds, ".1f"), *steps, str(round(max(lost))))


@tells("mxdp.experiments.many_processes.machines", "seconds", steps=[2, 7])
def machines(x, s):
    for row in x.rows:
        row.step_ms = row.seconds / s.steps * 1e3
        alike = dict(devices_in_all=row.devices_in_all)
        alone, one = x.one(reference=True, **alike), x.one(reference=False, engine="", **alike)
        if row is not alone:
            row.of_alone = row.seconds / alone.seconds
        if row is not one:
            row.of_one = row.seconds / one.seconds
    cores = [row.processes for row in x.all(engine="mpi") if row.processes <= row.cores]
    n = max(cores or s.devices)
    mpi, sync = (x.one(engine=engine, devices_in_all=n) for engine in ("mpi", "dist_sync"))
    x.say(f"{n} processes", m(mpi.of_alone), m(sync.of_alone))
    x.explain(m(mpi.of_one))


@tells("mxdp.experiments.many_processes.peers", "seconds", lambda row: {"steps": 7})
def peers(x, s):
    hybrids = []
    for row in x.rows:
        alike = dict(devices_in_all=row.devices_in_all, batch_size=row.batch_size)
        row.step_seconds = row.seconds / 7
        row.of_mxdp = row.seconds / x.one(peer="mxdp", **alike).seconds
        by_mpi = x.all(peer="mxdp-mpi", **alike)
        row.of_mpi = row.seconds / by_mpi[0].seconds if by_mpi else None
        if row.peer == "gluon-hybrid" and row.devices_in_all > 1:
            hybrids.append(1 / row.of_mxdp)
    x.claim(*hybrids, at_most=1.0)
    n = max(s.devices)
    by = {row.peer: row for row in x.all(devices_in_all=n, batch_size=s.batch_size)}
    x.say(m(by["gluon-hybrid"].of_mxdp), m(by["torch"].of_mxdp))
    whole, half = x.all(peer="ceiling", devices_in_all=n)
    x.explain(m(1 / whole.of_mxdp), m(1 / whole.of_mpi), m(1 / half.of_mxdp))
    x.explain(m(by["book"].of_mxdp), m(by["torch-ddp"].of_mpi))


@tells(
    "mxdp.experiments.many_processes.predicted",
    "seconds shard_seconds python_seconds sum_seconds",
    ranks=[[2], [2, 4]],
    rates=[[100], [10, 1000]],
)
def predicted(x, s):
    x.expect(*(f"{number(129_068 * 32 / rate / 1e6)} s for LeNet at {rate:,}" for rate in s.rates))
    x.expect(*(f"{number(11_175_818 * 32 / rate / 1e6)} s for ResNet-18 at {rate:,}" for rate in s.rates if rate > 499))
    for row in x.rows:
        parts = (row.shard_seconds, row.python_seconds, row.ranks, row.cores, row.sum_seconds)
        row.predicted_seconds = each(step_seconds, *parts)
        row.off = off(row.predicted_seconds / row.seconds)

    def worst(rows):
        row = max(rows, key=lambda row: by_median(row, "off"))
        return [m(row.off), row.label]

    middle = onp.median([by_median(row, "off") for row in x.rows])
    x.say(f"{len(x.rows)} rows", f"{middle:.2f}", *worst(x.rows))
    here = x.all(rate=0)
    kinds = ([row for row in here if row.ranks <= row.cores], [row for row in here if row.ranks > row.cores])
    for rows in (*kinds, [row for row in x.rows if row.rate]):
        x.explain(*(worst(rows) if rows else []))
    most = sum(2 * by_median(row, "sum_seconds") > by_median(row, "predicted_seconds") for row in x.rows)
    x.explain(f"In {most} of {len(x.rows)}")


@tells(
    "mxdp.experiments.many_processes.less_traffic",
    lambda row: (
        ["seconds", *([("accuracies", ["0", "8", "16", "24", "48"]), ("of_many", ["64", "4096"])])]
        if row.place == "devices"
        else "seconds"
    ),
    lambda row: {"sent": Number([2e4])} if row.form not in ("full", "mxnet") and row.place == "devices" else {},
    without=[None, "hosts"],
)
def less_traffic(x, s):
    x.expect(f"{s.rate} Mbit/s", f"{number(129_068 * 32 / s.rate / 1e3)} ms", "largest 1 % 0.02 times")

    def reached(row, fast):
        """The accuracy in the time that the fastest form takes for all steps."""
        known = x.one(form=row.form, place="devices").accuracies
        steps = s.steps * fast.seconds / row.seconds
        return each(lambda at, *of: onp.interp(at, [int(step) for step in known], of), steps, *known.values())

    for row in x.rows:
        rows = x.all(place=row.place)
        full, fastest = rows[0], min(rows, key=by_median)
        row.of_full = row.seconds / full.seconds
        row.sent_bytes = {"full": 4 * 129068, "mxnet": 129068 / 4}.get(row.form)
        if row.sent_bytes is None:
            row.sent_bytes = onp.array([2e4])
        of_row, of_full = (x.one(form=form, place="devices").accuracies for form in (row.form, "full"))
        last = [sum(accuracies[step] for step in ("16", "24", "48")) / 3 for accuracies in (of_row, of_full)]
        row.accuracy = last[0]
        if row is not full:
            row.gain = last[0] - last[1]
            row.time_gain = reached(row, fastest) - reached(full, fastest)
    careless, half, *others = (
        x.one(form=form, place="devices") for form in ("careless", "float16", "bfloat16", "two-bits", "every")
    )
    x.claim(careless.gain, at_most=0.0)
    x.claim(half.of_many["4096"], at_most=0.5, exact=True)
    near, far = x.all(form="largest")[0], x.all(form="largest")[-1]
    x.say("two devices" if s.without else "two hosts", fast(1 / far.of_full), m(far.gain, "+.3f"))
    half_far = x.all(form="float16")[-1]
    x.explain(fast(1 / half_far.of_full), m(far.time_gain, "+.3f"), m(careless.gain, "+.3f"))
    x.explain(m(near.of_full, ".1f"), m(min((half, *others), key=lambda row: by_median(row, "gain")).gain, "+.3f"))


def drawn_rows(question, s, numbers, facts, random, processes):
    """A row for each case as ``tell`` gets it, and as the functions above do."""
    for case in question.cases(s):
        if case.get("place", "") == s.get("without"):
            continue
        cores = int(random.randint(2, 5))
        row = SimpleNamespace(**{name: getattr(case, name) for name in NAMES}, cores=cores, **case.settings)
        known = {"device_names": ["cpu(0)"], **facts(row)}
        names = numbers(row) if callable(numbers) else numbers
        for name in names.split() if isinstance(names, str) else names:
            of = [name] if isinstance(name, str) else name[1]
            sizes = 10 ** random.uniform(-1, 1, (len(of), 1))
            values = list(sizes * random.uniform(0.8, 1.2, (len(of), processes)))
            name = name if isinstance(name, str) else name[0]
            if name.endswith("choice"):
                values = [onp.floor(values[0] * 1e3 % len(ALGORITHMS))]
            known[name] = values[0] if of == [name] else dict(zip(of, values))
        vars(row).update(known)
        for name in s.get("missing", "").split():
            vars(row)[name] = None
        given = {}
        for name, value in vars(row).items():
            is_dict = isinstance(value, dict)
            parts = value if is_dict else {"": value}
            parts = {
                key: Number(part, label=case.label) if isinstance(part, onp.ndarray) else part
                for key, part in parts.items()
            }
            given[name] = parts if is_dict else parts[""]
        yield Row(given.pop("label"), given.pop("reference"), given), row


def alike(found, expected):
    if isinstance(found, Number) and not isinstance(expected, Number):
        return found.values == pytest.approx(onp.broadcast_to(expected, len(found.values)).tolist())
    if isinstance(found, dict) and not isinstance(expected, Number):
        return found.keys() == expected.keys() and all(alike(found[name], expected[name]) for name in found)
    return found is expected or found == (pytest.approx(expected) if isinstance(expected, float) else expected)


def plain(text):
    """Without the ranges in brackets."""
    return re.sub(r"(?<=[\d%]) \((range )?[-+\d.e%]+( to|,) [^()]*\)", "", text)


def in_order(text, parts):
    """Whether these stand in the text, one after the other."""
    between = r"(?!\d).*?(?<![\d.])".join(map(re.escape, parts))
    return re.search(rf"(?<![\d.]){between}(?!\d)", plain(text))


@pytest.mark.parametrize("module", [name for name in TELLS if ".other_splits." in name and "fully" not in name])
def test_what_could_not_be_cut_is_told_of_without(module):
    """Any one case, or all that have a setting in common. A pipeline's stages or micro-batches are too many always."""
    question = Question(importlib.import_module(module))
    _, numbers, facts, _ = TELLS[module]
    s = little(question, devices=[2, 4])

    def rows():
        return [row for row, _ in drawn_rows(question, s, numbers, facts, onp.random, 1)]

    names = ["strategy", "devices", "batch", "stages", "micro_batches", "grid", "label"]
    for name in names[: -1 if "pipeline" in module else None]:
        for value in {str(row.get(name)) for row in rows() if row.devices > 1}:
            question.tell(Told([row for row in rows() if row.devices == 1 or str(row.get(name)) != value]), s)


@pytest.mark.parametrize("module", TELLS)
@settings(max_examples=8, phases=[Phase.reuse, Phase.generate])  # a seed has none that is less
@given(seed=st.integers(0, 2**31 - 1), processes=st.sampled_from([1, 3, INTERVAL]))
def test_what_is_told_are_quotients_of_the_rows(module, seed, processes):
    compute, numbers, facts, changes = TELLS[module]
    random = onp.random.RandomState(seed)
    question = Question(importlib.import_module(module))
    chosen = {name: values[random.randint(len(values))] for name, values in changes.items()}
    usual = question.preset("quick").get("devices", [1])
    if usual != [1] and "devices" not in chosen:
        several = random.choice([2, 3, 4], random.randint(1, 3), replace=False)
        chosen["devices"] = [1] * (1 in usual) + sorted(several.tolist())
    s = little(question, **chosen)
    pairs = list(drawn_rows(question, s, numbers, facts, random, processes))
    told = Told([row for row, _ in pairs])
    cores = int(random.choice([1, 2, 4]))
    code = Path(question.module.__file__).read_text(encoding="utf-8")  # has the book's numbers
    texts = dict(answer=(), explanation=(), expectation=())
    expected = Expected(rows=[row for _, row in pairs], cores=cores, claims=[], **texts)
    compute(expected, s)
    question.tell(told, s)
    for row, own in pairs:
        for name, value in vars(own).items():
            assert alike(row.get(name), value), (row.label, name, row.get(name), value)
        for name, value in vars(row).items():
            assert hasattr(own, name) or not isinstance(value, Number), (row.label, name)
    found = [claim for claim in told.claims.values() if claim.numbers]
    assert len(found) == len(expected.claims)
    for claim, (bound, arrays) in zip(found, expected.claims):
        exact = {"exact": True} if claim.exact else {}
        assert {"at_least" if claim.least else "at_most": claim.bound, **exact} == bound
        assert len(claim.numbers) == len(arrays)
        assert all(map(alike, claim.numbers, arrays)), claim.sentence
    for text, parts in (
        (told.sentence, expected.answer),
        (told.explanation, expected.explanation),
        (question.expect(s, cores), expected.expectation),
    ):
        assert in_order(" ".join(text.split()), parts), (text, parts)
        others = {*re.findall(r"\d+\.\d+", plain(text))} - {*re.findall(r"\d+\.\d+", f"{parts} {code}")}
        assert not others or parts in ((), expected.expectation), (text, others)
    there = {}
    for name, shown, scale in shown_in(told):
        kind = next((kind for kind in UNITS if kind in name), "none")
        here = {"_ms": 1e-3, "_us": 1e-6}.get(name[-3:], 1.0)
        # Without a unit it is that of the column before.
        sizes = [size for unit, size in UNITS.get(kind, {}).items() if re.search(rf"(?<!\w){unit}(?!\w)", shown)]
        there[kind] = (sizes or [there.get(kind, here)])[0]
        if kind in UNITS:  # of a number of steps one is shown
            steps = here / there[kind] / scale
            assert steps == pytest.approx(max(1, round(steps))), (name, shown, scale)


TIMES = {"ms": 1e-3, "µs": 1e-6}
UNITS = {"bytes": {"MB": 1e6, "kB": 1e3}, "seconds": TIMES, "_ms": TIMES, "_us": TIMES, "alpha": TIMES}
UNITS["together"] = {"%": 0.01}


def shown_in(told):
    """The name of each number in a table or a picture, what is said of it, and by what it is multiplied."""
    for column in told.columns:
        yield str(column.name), f"{column.heading} {column.about}", column.scale
    for panel in told.panels:
        if isinstance(panel, Bars):
            yield panel.name, panel.unit, panel.scale


OF_THEIR_OWN = ("times", "batches", "batch_sizes")
"""Settings whose values in the preset ``quick`` are not among those of ``full``."""
REFERENCE = Path(__file__).parents[2] / "experiments" / "reference"


@pytest.mark.parametrize("module", TELLS)
def test_the_newest_committed_result_is_of_the_full_preset_and_of_all_cases(module):
    """If another one is meant, it has to be measured: docs and ``list`` quote it as what ``full`` is."""
    question = Question(importlib.import_module(module))
    path = max(REFERENCE.glob(f"*/*/{question.name}/*.json"), key=lambda path: path.stem)
    result = json.loads(path.read_text(encoding="utf-8"))
    quick, full, measured = question.preset("quick"), question.preset("full"), result["settings"]
    for name in [name for name in quick if isinstance(quick[name], list) and name not in OF_THEIR_OWN]:
        assert {*quick[name]} <= {*full[name]} | {1}, f"what quick measures, full does, too: {name}"
    names = full.keys() & measured.keys() - {"processes", "data", "data_dir"}
    assert {name: full[name] for name in names} == {name: measured[name] for name in names}
    cases = {}
    for case in question.cases(Settings({**full, **measured})):
        settings = dict(devices=case.devices, processes=case.processes, engine=case.engine, **case.settings)
        if case.label not in result["skipped"]:
            cases[case.label] = (case.reference, json.loads(json.dumps(settings)))
    assert cases == {row["label"]: (row["reference"], row["case"]) for row in result["rows"]}
