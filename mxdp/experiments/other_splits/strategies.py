"""Which way to split a network is the fastest?

Data parallelism cuts the batch, a pipeline the list of layers, layerwise partitioning each layer, and tiles the
pictures. All divide the work, and differ in what they send: data parallelism the gradients of all parameters, whatever
the batch, the others activations, which grow with it, and at most the gradients of parameters that devices share. So
the cost model (:mod:`.split`) recommends data parallelism for few parameters and a large batch (LeNet: 129,000 and 256
samples), layerwise partitioning for many parameters and a small batch (three dense layers: 2.9 million and 32).
"""

from mxdp.errors import either, plural
from mxdp.experiments import sources
from mxdp.experiments.devices import SEVERAL, several
from mxdp.experiments.lab import Case, contenders, fastest
from mxdp.experiments.other_splits import split
from mxdp.experiments.other_splits.nets import NETS, numbers_of
from mxdp.experiments.show.style import number

SOURCE = f"{sources.MULTIPLE_GPUS}, the figure of the ways to split"
COMPARED = split.COMPARED
TOGETHER = True
PRESETS = {
    "quick": dict(split.QUICK, batch_size=256, units=1024, steps=2),
    "full": dict(split.FULL, batch_size=256, units=2048, steps=2),
}
CHECKS = SEVERAL
LITTLE = dict(batch_size=40, units=16, steps=2)
WAYS = {
    split.SERIAL: "serial training",
    "data": "data parallelism",
    "pipeline": "a pipeline",
    "layerwise": "layerwise partitioning",
    "tile": "tiles",
}
MICRO_BATCHES = 4
ODD = 13
"""Samples that the oracle compares, at least: a prime, so that shards and micro-batches are uneven."""


def cases(s):
    for net, title in NETS.items():
        for strategy in WAYS:
            if (net, strategy) == ("wide", "tile"):  # it has no pictures to cut into tiles
                continue
            for n in [1] if strategy == split.SERIAL else several(s):
                label = f"{title}, {split.label_of(strategy, n)}"
                yield Case(label, n, net=net, strategy=strategy, batch=_batch(net, s))


def expect(s, cores):
    sentences = []
    for net, title in NETS.items():
        samples = _batch(net, s)
        params, sums = numbers_of(net, s.units)
        # Twice the four bytes of each number, in MB.
        data = 8e-6 * params
        layers = 8e-6 * sums * samples
        less = "data parallelism" if data < layers else "layerwise partitioning"
        sentences.append(
            f"{title}, batch {samples}: {less} sends less ({number(data)} and {number(layers)} MB)."
        )
    return f"""On two devices, {" ".join(sentences)} The work is divided by at most {plural(cores, "core")}, in every
        way."""


def oracle(case, s):
    return _split(case, s).compare(ODD)


def set_up(case, s):
    return split.set_up_steps(_split(case, s), case.batch, s.steps)


def _split(case, s):
    options = {}
    if case.strategy.endswith("pipeline"):
        options = dict(micro_batches=MICRO_BATCHES, schedule="gpipe", batch_size=case.batch)
    return split.split_net(case, s, case.strategy, case.net, s.units, **options)


def _batch(net, s):
    return s.batch_size if net == "lenet" else max(1, s.batch_size // 8)


def _tell_way(row):
    return f"{WAYS[row.strategy]} on {plural(row.devices, 'device')}"


def tell(t, s):
    split.tell_steps(t, "net")
    t.note(f"""The pipeline is GPipe with {MICRO_BATCHES} micro-batches. The wide net has three dense layers and an
        eighth of the batch. Layers that are cut also divide the parameters, for a network that does not fit on one
        device; tiles divide a single picture.""")
    answers = []
    for net, title in NETS.items():
        rows = t.find(net=net)
        t.bars(unit="ms", scale=1e3, title=f"{title}: time of a step", colour="strategy", rows=rows)
        chosen = fastest(rows, "predicted_seconds")
        best = fastest(rows)
        for row in rows:
            row.of_chosen = chosen.seconds / row.seconds
        other_ways = [row.of_chosen for row in rows if row is not chosen]
        if other_ways:
            closest = max(other_ways, key=lambda number: number.median)
            t.explain(f"""{title}: the cost model chooses {_tell_way(chosen)}. It takes {closest:.2f} times as long as
                the fastest other way ({closest.label}).""")
        others = [_tell_way(row) for row in contenders(rows) if row is not best]
        if others:
            t.explain(f"{title}: {either(others)} may be as fast.")
        answer = _tell_way(best)
        if best is not rows[0]:
            answer += f", at {rows[0].seconds / best.seconds:.2f} times one device's speed"
        answers.append(answer)
    lenet, wide = answers
    t.answer(f"For LeNet, the fastest way was {lenet}; for the wide net it was {wide}.")
