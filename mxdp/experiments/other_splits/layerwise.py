"""With small batches, is it faster to split the layers than the batch?

Data parallelism sums the gradients of all P parameters, whatever the batch. Layerwise partitioning sums A activations a
sample, so it sends less up to a batch of P / A. Both divide the work alike, but only layerwise partitioning divides the
update of the parameters. Three dense layers of u units, from 784 inputs to 10 outputs, have P of about 2 u^2 + 794 u,
and A = 2 u + 10: forward u outputs and the 10 scores, backward u gradients.
"""

from itertools import product

from mxdp.errors import plural
from mxdp.experiments import sources
from mxdp.experiments.devices import SEVERAL, several
from mxdp.experiments.lab import Case, faster
from mxdp.experiments.other_splits import split, strategies
from mxdp.experiments.other_splits.nets import numbers_of

SOURCE = f"{sources.MULTIPLE_GPUS}, layerwise partitioning"
COMPARED = split.COMPARED
TOGETHER = True
PRESETS = {
    "quick": dict(split.QUICK, units=512, batch_sizes=[16, 128, 2048], steps=3),
    "full": dict(split.FULL, units=1024, batch_sizes=[8, 128, 2048], steps=3),
}
CHECKS = {
    **SEVERAL,
    "batch_sizes": (lambda sizes: len(set(sizes)) > 1, "two or more different numbers"),
}
LITTLE = dict(units=16, batch_sizes=[4, 16], steps=2)
oracle = strategies.oracle
set_up = strategies.set_up


def cases(s):
    ways = [(1, split.SERIAL), *product(several(s), ("data", "layerwise"))]
    for samples in sorted(s.batch_sizes):
        for n, strategy in ways:
            label = f"batch {samples:,}, {split.label_of(strategy, n)}"
            yield Case(label, n, net="wide", strategy=strategy, batch=samples)


def expect(s, cores):
    params, sums = numbers_of("wide", s.units)
    return f"""The network has {params:,} parameters, and layerwise partitioning sums {sums:,} a sample, so it sends
        less up to a batch of {params / sums:,.0f}. The work is divided by at most {plural(cores, "core")}."""


def tell(t, s):
    split.tell_steps(t, "batch")
    t.column(
        "of_data", "of data", ".2f", spread=True, about="the time over that of data parallelism"
    )
    t.note("The network is three dense layers.")
    t.bars(
        "of_data", "", title="Layers split: time over that of data parallelism", colour="devices"
    )
    params, sums = numbers_of("wide", s.units)
    ends = []
    for n in several(s):
        rows = []
        for row in t.find(strategy="layerwise", devices=n):
            row.of_data = None
            data = t.maybe(strategy="data", devices=n, batch=row.batch)
            if data:
                row.of_data = row.seconds / data.seconds
                rows.append(row)
        if len(rows) > 1:
            ends.append((rows[0], rows[-1]))
    if ends:
        least, most = ends[0]
        t.answer(f"""On {least.devices} devices, a step that splits layers {faster(1 / least.of_data)} as one that
            splits a batch of {least.batch:,}; with {most.batch:,} samples, it {faster(1 / most.of_data)}.""")
    t.explain(
        f"Layerwise partitioning sends less than data parallelism up to a batch of {params / sums:,.0f}."
    )
    for first, last in ends[1:]:
        t.explain(f"""On {first.devices} devices it {faster(1 / first.of_data)} with {first.batch:,}, and with
            {last.batch:,} it {faster(1 / last.of_data)}.""")
