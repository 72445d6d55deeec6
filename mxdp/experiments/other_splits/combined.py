"""What do two splits at once save, over each split alone?

Data parallelism sums the gradients of all P parameters over n devices: 2 (n - 1) P numbers. Layerwise partitioning sums
A activations a sample over n devices: 2 (n - 1) A B numbers for a batch of B. Split into g groups of p devices, the
batch costs 2 (g - 1) P and the layers 2 (p - 1) A B numbers, as each all-reduce spans fewer devices. With B = P / A,
where either alone sends as much, 2 x 2 devices send 4 P numbers instead of 6 P. A device of a group holds a p-th of the
parameters, and the activations of a g-th of the batch.
"""

from mxdp.experiments import sources
from mxdp.experiments.devices import SEVERAL, several
from mxdp.experiments.lab import Case, by_process
from mxdp.experiments.other_splits import split, strategies
from mxdp.experiments.other_splits.nets import NETS, numbers_of
from mxdp.experiments.other_splits.split import COMBINED, GROUPS, SERIAL, tell_steps

SOURCE = sources.NARAYANAN
COMPARED = split.COMPARED
TOGETHER = True
PRESETS = {
    "quick": dict(split.QUICK, devices=[4], units=512, steps=2),
    "full": dict(split.FULL, devices=[4], units=1024, steps=2),
}
CHECKS = SEVERAL
LITTLE = dict(units=64, steps=1)
TOO_FEW = f"Two splits at once need {2 * GROUPS} devices, or another even number above: run it with --devices 4."
"""This takes the place of an answer."""
oracle = strategies.oracle
set_up = strategies.set_up


def cases(s):
    ways = [(SERIAL, 1)]
    for n in several(s):
        ways += [(way, n) for way in ("data", "pipeline", "layerwise")]
        if n in _divisible(s):
            ways += [(way, n) for way in COMBINED]
    for net, samples in _batches(s):
        for strategy, n in ways:
            label = f"{NETS[net]}, batch {samples}, {split.label_of(strategy, n)}"
            yield Case(label, n, net=net, strategy=strategy, batch=samples)


def expect(s, cores):
    n = max(_divisible(s), default=0)
    if not n:
        return TOO_FEW
    part = (GROUPS + n // GROUPS - 2) / (n - 1)
    return f"Where each split alone moves as much, both on {GROUPS} x {n // GROUPS} devices move {part:.2f} of that."


def _divisible(s):
    """The numbers of devices that make groups of several devices."""
    return [n for n in several(s) if n > GROUPS and n % GROUPS == 0]


def _batches(s):
    """Networks, and how many samples a batch of each has. With as many, data parallelism and layerwise partitioning
    alone move as much. The last batch is so small that most of the wide net's memory is that of its parameters."""
    even = {}
    for net in NETS:
        params, sums = numbers_of(net, s.units)
        even[net] = round(params / sums)
    return [*even.items(), ("wide", even["wide"] // 16)]


def _tell_combined(t, s, row):
    """What a row of two splits at once saves, over each split alone."""
    alike = dict(net=row.net, batch=row.batch, devices=row.devices)
    first, second = row.strategy.split(" x ")
    data = t.maybe(strategy=first, **alike)
    other = t.maybe(strategy=second, **alike)
    row.moved_of_less = None
    row.memory_of_data = None
    if data and other:
        less = by_process(min, data.bytes_moved, other.bytes_moved)
        row.moved_of_less = row.bytes_moved / less
    if data and row.get("peak_bytes"):
        row.memory_of_data = row.peak_bytes / data.peak_bytes
    if (row.net, row.batch) == _batches(s)[-1]:
        sentence = """With a sixteenth of that batch, where most of the wide net's memory is that of its parameters,
            each combination needs at most as much memory on its fullest device as data parallelism alone."""
        t.claim(sentence, row.memory_of_data, at_most=1.0, exact=True, source=sources.NARAYANAN)
    elif row.strategy == COMBINED[1]:
        sentence = """Data parallelism and layerwise partitioning together move at most as much as the lesser of the
            two alone, with the batch at which these are equal."""
        t.claim(sentence, row.moved_of_less, at_most=1.0, exact=True)


def tell(t, s):
    tell_steps(t, "net", "batch")
    t.column(
        "moved_of_less",
        "of less",
        ".2f",
        about="what is moved, over the lesser of the two splits alone",
    )
    t.column(
        "memory_of_data",
        "of data",
        ".2f",
        spread=True,
        about="the memory over that of data parallelism",
    )
    t.note(f"""'Data 2 x pipeline 2': two groups have half of the batch each, and each group's two devices are a
        pipeline. Pipelines are GPipe with {strategies.MICRO_BATCHES} micro-batches. With the first batch of a net, data
        parallelism and layerwise partitioning alone move as much.""")
    t.bars("bytes_moved", "MB", 1e-6, title="Moved between devices in a step", colour="strategy")
    t.bars("peak_bytes", "MB", 1e-6, title="Memory of the fullest device", colour="strategy")
    for row in t.rows:
        if row.strategy in COMBINED:
            _tell_combined(t, s, row)
    if not _divisible(s):
        return t.answer(TOO_FEW)
    layerwise = t.find(net="wide", strategy=COMBINED[1])
    rows = [row for row in layerwise if row.moved_of_less is not None]
    if not rows:
        return None
    even = rows[0]
    n = even.devices
    small = [row for row in rows if row.devices == n][-1]
    memory = ""
    if small.memory_of_data:
        memory = (
            f", and with small batches need {small.memory_of_data:.2f} of data parallelism's memory"
        )
    t.answer(f"""Two splits on {GROUPS} x {n // GROUPS} devices move {even.moved_of_less:.2f} of the better one's
        bytes{memory}.""")
    t.explain(f"""This is the wide net, layerwise in each group: each all-reduce spans fewer devices than with one split
        alone. With a batch of {small.batch} it moves {small.moved_of_less:.1f} times as many bytes as the lesser split.
        Times can show a gain only where each device has a core of its own.""")
