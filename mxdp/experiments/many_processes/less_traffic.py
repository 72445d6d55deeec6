"""What if devices say less?

Where the link is slow, a step waits for the gradients' bytes. Every other number of float16 or bfloat16 halves them; 2
bits a number make a sixteenth, the largest 1 % a fiftieth (each needs its place, too); a sum every h steps 1 / h. All
lose something. Error feedback keeps what was not sent and adds it to the next gradient, so that it is only late (Seide
et al. 2014; Stich 2019). Without it small gradients are never heard of. MXNet's stores compress to 2 bits, between
devices of one process (``device``) or on the way to a server (``dist``), whose answers are not compressed.

What breaks, and when: a sum of many in float16. It has 11 significant bits, so from 2,048 times an addend on, adding it
changes nothing; bfloat16's 8 bits stop at 256. So all forms here are decoded and added up in float32. And float16 ends
at 65,504, which gradients that are summed over a large batch may pass.
"""

import itertools
import json
from functools import lru_cache

import numpy as onp

from mxdp.collectives.compress import BFLOAT16, FLOAT16
from mxdp.datasets.minibatches import Stream
from mxdp.errors import plural
from mxdp.experiments import sources
from mxdp.experiments.devices import devices_of
from mxdp.experiments.lab import Case, Work, by_process, faster, fastest, mean
from mxdp.experiments.many_processes import hosts
from mxdp.experiments.many_processes import traffic_ranks as forms
from mxdp.experiments.many_processes.traffic_ranks import (
    BETWEEN_HOSTS,
    BFLOAT,
    CARELESS,
    EVERY,
    FULL,
    HALF,
    KEEPING,
    LARGEST,
    MXNET,
    TWO_BITS,
    WORKERS,
)
from mxdp.experiments.show import style
from mxdp.processes import ALONE
from mxdp.scratch import evaluate, lenet
from mxdp.training import BoundNet

SOURCE = f"exercise 4 of {sources.FIRST_PRINCIPLES}; {sources.COMPRESSION}"
COMPARED = "gradients after ten sums, parameters and what was kept, against NumPy; with h = 1, the plain step"
TOGETHER = True
COMMON = dict(
    kind="cpu",
    data="auto",
    data_dir=None,
    batch_size=32,
    lr=0.1,
    rate=100,
    threshold=0.5,
    share=0.01,
    every=8,
)
PRESETS = {
    "quick": dict(COMMON, steps=48, test=500, hosts_steps=8),
    "full": dict(
        COMMON,
        timeout=1800.0,
        steps=384,
        test=2000,
        hosts_steps=40,
        processes=6,
    ),
}
LITTLE = dict(
    data="synthetic",
    batch_size=4,
    steps=12,
    test=100,
    hosts_steps=4,
    every=2,
)
PARTS = 6
"""Parts of a training: the network is evaluated before it and after each of them."""
CHECKS = {
    "steps": (lambda steps: steps > 0 and steps % (8 * PARTS) == 0, f"a multiple of {8 * PARTS}"),
    "every": (lambda every: every in (2, 4, 8), "2, 4 or 8"),
    "hosts_steps": (lambda steps: steps > 0 and steps % 8 == 0, "a multiple of 8"),
    "share": (lambda share: 0 < share <= 1, "above 0 and at most 1"),
}
MANY = [1 << power for power in range(6, 13)]
"""Equal numbers that are added up in float16, one after another."""
LESS = "Without error feedback, the form '{}' is less accurate than the full sum after equal steps."
MANY_ONES = (
    "4,096 equal numbers, added up in float16 one after another, make at most half of their sum."
)
NUMBERS = 129_068
"""LeNet's parameters."""


def titles(s):
    """The title of each form, in the order of the rows."""
    share = f"largest {100 * s.share:g} %"
    return {
        FULL: "full sum",
        HALF: "float16",
        BFLOAT: "bfloat16",
        TWO_BITS: "2 bits",
        LARGEST: share,
        CARELESS: f"{share}, nothing kept",
        EVERY: f"every {s.every} steps",
        MXNET: "2 bits by MXNet's store",
    }


def cases(s):
    for place, rate in (("devices", 0), ("hosts", s.rate)):
        for form, title in titles(s).items():
            if form in BETWEEN_HOSTS or not rate:
                yield Case(f"{place}: {title}", WORKERS, form=form, place=place)


def expect(s, cores):
    full_ms = 4e3 * NUMBERS * 8 / (s.rate * 1e6)
    return f"""Between hosts at {s.rate} Mbit/s a step's gradients take {style.number(full_ms)} ms, in float16 half of
        that, in 2 bits a sixteenth, the largest {100 * s.share:g} % {2 * s.share:.2g} times as long. On devices of one
        machine ({plural(cores, "core")}) a sum takes less than a millisecond: each costs more than it saves."""


@lru_cache(maxsize=None)
def between_hosts(settings_words, number):
    """What the process of each host has found, by form: all started once (the ``number``-th time)."""
    order = json.loads(settings_words)
    return hosts.launched(forms.__name__, order, WORKERS, order["rate"])


def oracle(case, s):
    if case.place == "hosts":
        found = between_hosts(json.dumps({**s, "compare": True}), 0)
        ranks = [rank[case.form] for rank in found]
    else:
        ranks = forms.compared(case.form, s, devices_of(case, s), ALONE)
    for (after, params, kept), right in zip(ranks, forms.in_numpy(case.form, s)):
        expected_after, expected_params, expected_kept = right
        for vector, expected in zip(after, expected_after):
            yield vector, expected, 0.0
        yield params, expected_params, 0.0
        if kept is not None:
            yield kept, expected_kept, 0.0
    after, _, kept = ranks[0]
    if case.form in KEEPING and kept is not None:
        # What was said and kept are all gradients together.
        said = sum(gradients.astype("float64") for gradients in after)
        kept = sum(of_rank for _, _, of_rank in ranks)
        full, *_ = forms.in_numpy(FULL, s)[0]
        yield said + kept, sum(full), 0.0
    if case.form == EVERY and case.place == "devices":
        yield from forms.one_by_one(devices_of(case, s), s)


def set_up(case, s):
    """Between devices a round is a training from a seed of its own, evaluated PARTS times outside the clock; its time
    is that of a step. Between hosts it is steps on one batch."""
    numbers = itertools.count(1)
    seeds = case.seeds(s.seed)
    if case.place == "hosts":
        words = json.dumps({**s, "compare": False})
        names = [f"cpu(0) of host {rank + 1}" for rank in range(WORKERS)]
        return Work(lambda: between_hosts(words, next(numbers))[0][case.form], names)
    devices = devices_of(case, s)
    net = BoundNet(lenet)
    data = forms.pictures(s.data, s.data_dir, s.seed, s.test)
    halves = {BFLOAT: BFLOAT16, HALF: FLOAT16}
    of_many = sums_of_ones(halves[case.form]) if case.form in halves else None

    def train(seed, parts):
        replicas, train_part, sync = forms.training(case.form, s, seed, devices)
        stream = Stream(data.train, s.batch_size, seed)
        part = s.steps // PARTS
        seconds = 0.0
        accuracies = {"0": evaluate(data.test, replicas, net=net)}
        for number in range(1, parts + 1):
            seconds += train_part(stream.take(part * s.batch_size))
            accuracies[str(number * part)] = evaluate(data.test, replicas, net=net)
        numbers = {"accuracies": accuracies, "seed": seed}
        if hasattr(sync, "sent"):
            numbers["sent"] = sync.sent / (parts * part)
        if of_many:
            numbers["of_many"] = of_many
        return seconds / (parts * part), numbers

    train(s.seed, 1)  # warms up what the form calls: each training makes its arrays anew
    return Work(lambda: train(next(seeds), PARTS), data=data.name)


def sums_of_ones(form):
    """What as many ones as :data:`MANY` make, added one after another in this form, as shares of their sums."""
    total = onp.zeros(1, "float32")
    shares = {}
    for count in range(1, max(MANY) + 1):
        total = form.decode(form.encode(total + 1), 1)
        if count in MANY:
            shares[str(count)] = float(total[0]) / count
    return shares


def tell(t, s):
    devices = {row.form: row for row in t.find(place="devices")}
    far = {row.form: row for row in t.find(place="hosts")}
    shown = far or devices
    words = titles(s)
    for place in ("devices", "hosts"):
        rows = t.find(place=place)
        for row in rows:
            full = t.one(place=place, form=FULL)
            _tell_row(row, full, fastest(rows), devices, s)
    t.column("seconds", "ms", ".3g", 1e3, about="a step")
    t.column(
        "of_full", "of full", ".2f", spread=True, about="that over the full sum's at the same place"
    )
    t.column(
        "sent_bytes", "kB", ".4g", 1e-3, about="that a worker sends in a step, without headers"
    )
    t.column(
        "accuracy",
        form=".3f",
        about="test accuracy after equal steps: the mean of the last three evaluations",
    )
    t.column("gain", "differs", "+.3f", spread=True, about="from the full sum's, seed by seed")
    about = "as much, in the time of the fastest form's steps"
    t.column("time_gain", "in equal time", "+.3f", spread=True, about=about)
    t.note("""Devices: two of one process. Hosts: two network namespaces of this machine with a cable of a limited rate,
        a process on each. The accuracy is that of the training on devices: between hosts the numbers are the same.""")
    less = LESS.format(words[LARGEST])
    t.claim(less, devices[CARELESS].gain, at_most=0.0, source=sources.SEIDE)
    of_most = devices[HALF].of_many[str(MANY[-1])]
    t.claim(MANY_ONES, of_most, at_most=0.5, exact=True, source=sources.FLOAT16)
    where = f"two hosts at {s.rate} Mbit/s" if far else "two devices of this machine"
    rows = list(shown.values())
    t.first(rows)
    t.answer(f"""Between {where}, a step with the {words[LARGEST]} {faster(1 / shown[LARGEST].of_full)} as with the full
        sum; after equal steps the accuracy differs by {shown[LARGEST].gain:+.3f}.""")
    t.explain(f"""With float16 it {faster(1 / shown[HALF].of_full)}. In equal time the accuracy with the
        {words[LARGEST]} differs by {shown[LARGEST].time_gain:+.3f}. Without error feedback, after equal steps, it
        differs by {devices[CARELESS].gain:+.3f}. Between devices of one machine the {words[LARGEST]} takes
        {devices[LARGEST].of_full:.1f} times as long as the full sum: the host encodes it.""")
    others = [devices[form] for form in (HALF, BFLOAT, TWO_BITS, EVERY)]
    least = min(others, key=lambda row: row.gain.median)
    t.explain(
        f"Of the other forms the least accurate is '{words[least.form]}': it differs by {least.gain:+.3f}."
    )
    t.draw(lambda axes: _draw_accuracy(axes, rows, devices, words))
    t.bars(unit="ms", scale=1e3, title="A step", rows=rows)
    t.draw(lambda axes: _draw_many(axes, [devices[HALF], devices[BFLOAT]]))


def _tell_row(row, full, least, devices, s):
    """``full`` and ``least`` are the full sum and the fastest form at the row's place."""
    on_devices = devices[row.form]
    steps_known = [int(steps) for steps in on_devices.accuracies]

    def by_then(mine, fast, *accuracies):
        return float(onp.interp(s.steps * fast / mine, steps_known, accuracies))

    def in_time(row):
        accuracies = devices[row.form].accuracies.values()
        return by_process(by_then, row.seconds, least.seconds, *accuracies)

    row.of_full = row.seconds / full.seconds
    row.sent_bytes = on_devices.get("sent")
    if not row.sent_bytes:
        row.sent_bytes = NUMBERS / 4 if row.form == MXNET else 4 * NUMBERS
    row.accuracy = _accuracy(on_devices)
    if row is not full:
        row.gain = row.accuracy - _accuracy(devices[FULL])
        row.time_gain = in_time(row) - in_time(full)


def _accuracy(row):
    """The mean of a training's last three evaluations."""
    return mean(list(row.accuracies.values())[-3:])


def _draw_accuracy(axes, rows, devices, words):
    for row, colour, marker in zip(rows, style.COLOURS, style.MARKERS):
        known = devices[row.form].accuracies
        seconds = [int(steps) * row.seconds.median for steps in known]
        accuracies = [number.median for number in known.values()]
        axes.plot(
            seconds, accuracies, f"{marker}-", color=colour, markersize=4, label=words[row.form]
        )
    axes.set(xlabel="s", ylabel="accuracy", title=f"Between {rows[0].place}")
    axes.legend(fontsize=9.5)


def _draw_many(axes, rows):
    for row, colour in zip(rows, style.COLOURS):
        shares = {int(count): share.median for count, share in row.of_many.items()}
        axes.plot(list(shares), list(shares.values()), "o-", color=colour, label=row.form)
    axes.set(xscale="log", xlabel="equal numbers, added one after another", ylabel="of their sum")
    style.plain_logarithmic(axes.xaxis)
    axes.set_ylim(0, 1.05)
    axes.legend()
