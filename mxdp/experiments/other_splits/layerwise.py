"""With small batches, is it faster to split the layers than the batch?

Data parallelism sums the gradients of all P parameters, whatever the batch. Layerwise partitioning sums A activations a
sample, so it sends less up to a batch of P / A. Both divide the work alike, but only layerwise partitioning divides the
update of the parameters. Three dense layers of u units, from 784 inputs to 10 outputs, have P of about 2 u^2 + 794 u,
and A = 2 u + 10: forward u outputs and the 10 scores, backward u gradients.
"""

from mxdp.errors import plural
from mxdp.experiments.devices import SEVERAL, several
from mxdp.experiments.lab import Case
from mxdp.experiments.other_splits import split, strategies

SOURCE = "Dive into Deep Learning, 'Training on Multiple GPUs': layerwise partitioning"
COMPARED = split.COMPARED
TOGETHER = True
PRESETS = {
    "quick": dict(split.QUICK, units=512, batch_sizes=[16, 128, 2048], steps=3),
    "full": dict(split.FULL, units=1024, batch_sizes=[8, 128, 2048], steps=3),
}
CHECKS = {**SEVERAL, "batch_sizes": (lambda sizes: len(set(sizes)) > 1, "two or more different numbers")}
LITTLE = dict(units=16, batch_sizes=[4, 16], steps=2)
oracle, set_up = strategies.oracle, strategies.set_up


def cases(s):
    for samples in sorted(s.batch_sizes):
        yield Case(f"batch {samples:,}, {split.SERIAL}", 1, net="wide", strategy=split.SERIAL, batch=samples)
        for n in several(s):
            for strategy in ("data", "layerwise"):
                yield Case(f"batch {samples:,}, {strategy} x {n}", n, net="wide", strategy=strategy, batch=samples)


def expect(s, cores):
    params, sums = split.numbers_of("wide", s.units)
    return f"""The network has {params:,} parameters, and layerwise partitioning sums {sums:,} a sample, so it sends
        less up to a batch of {params / sums:,.0f}. The work is divided by at most {plural(cores, "core")}."""


def tell(t, s):
    split.tell_steps(t, "batch")
    t.column("of_data", "of data", ".2f", spread=True, about="the time over that of data parallelism")
    t.note("The network is three dense layers.")
    t.bars("of_data", "", title="Layers split: time over that of data parallelism", colour="devices")
    params, sums = split.numbers_of("wide", s.units)
    ends = []
    for n in several(s):
        rows = []
        for row in t.find(strategy="layerwise", devices=n):
            data = t.maybe(strategy="data", devices=n, batch=row.batch)
            row.of_data = row.seconds / data.seconds if data else None
            rows += [row] if data else []
        if len(rows) > 1:
            ends.append((rows[0], rows[-1]))
    for first, last in ends:
        if first.batch < params / sums:
            sentence = "With the smallest batch, if it sends less there, it takes at most as long as data parallelism."
            t.claim(sentence, first.of_data, at_most=1.0, source="the cost model")
        sentence = "With the largest batch, its time over that of data parallelism is at least 1 times what it is with"
        t.claim(f"{sentence} the smallest.", last.of_data / first.of_data, at_least=1.0, source="the cost model")
    if ends:
        least, most = ends[0]
        t.answer(f"""On {least.devices} devices, splitting layers instead of the batch is {1 / least.of_data:.2f} times
            as fast with a batch of {least.batch:,}, and {1 / most.of_data:.2f} times with {most.batch:,}.""")
    t.explain(f"Layerwise partitioning sends less than data parallelism up to a batch of {params / sums:,.0f}.")
