"""Does one process's time predict several processes, and hosts with slow links?

The prediction takes a step of one device on its part of the batch, Python's part of that, and how long sums of other
sizes than the network's take between the processes. Nothing that several processes have trained goes into it.
"""

import statistics

from mxdp.errors import plural
from mxdp.experiments.lab import Case, Work, by_process, factor
from mxdp.experiments.many_processes import hosts, predicted_ranks
from mxdp.experiments.networks import LR, NETS, in_buckets, serial_gradients
from mxdp.experiments.oracle import changed, random_batch, same_bits
from mxdp.experiments.show import style
from mxdp.plans.cost.link import fit_link
from mxdp.plans.cost.step import step_seconds

SOURCE = (
    "ours: `python -m mxdp.experiments predict` says what it would be on machines that are not here"
)
COMPARED = (
    "parameters of every process after a step, with those of the shards one by one on one device"
)
TOGETHER = True
COMMON = dict(kind="cpu", at_least=0.35)
PRESETS = {
    "quick": dict(
        COMMON,
        timeout=300.0,
        ranks=[2],
        rates=[100],
        delays=[10],
        resnet=[8],
        lenet=[64],
    ),
    "full": dict(
        COMMON,
        timeout=1800.0,
        ranks=[2, 4],
        rates=[10, 100, 1000],
        delays=[1, 10],
        resnet=[8, 16, 32],
        lenet=[16, 64, 256],
    ),
}
LITTLE = dict(
    rates=[100],
    delays=[1],
    lenet=[4],
    resnet=[],
    at_least=0.01,
)
FEW_COPIES = {"MXNET_CPU_TEMP_COPY": "16"}
"""Pieces of temporary space: enough for one device, here and in each process, and the same for both."""
DELAYED = 100
"""Mbit/s of a cable that delays: no more, since Python carries its frames."""
FAST = 500
"""Mbit/s from which on ResNet-18's gradients, 45 MB, are sent in seconds."""


def cases(s):
    places = [(n, 0, 0, plural(n, "process")) for n in s.ranks]
    places += [(2, rate, 0, f"hosts, {rate:,} Mbit/s") for rate in s.rates]
    places += [(2, DELAYED, ms, f"hosts, {DELAYED} Mbit/s + {ms} ms") for ms in s.delays]
    for net, (title, _) in NETS.items():
        for batch in s[net]:
            for n, rate, delay, words in places:
                if batch % n == 0 and (not rate or _carried(net, rate)):
                    yield Case(
                        f"{title}, batch {batch}, {words}",
                        n,
                        environment=FEW_COPIES,
                        net=net,
                        batch=batch,
                        ranks=n,
                        rate=rate,
                        delay=delay,
                    )


def _carried(net, rate):
    """True if a cable of ``rate`` Mbit/s carries this network's gradients in a time that one can wait for."""
    return net == "lenet" or rate >= FAST


def expect(s, cores):
    sums = []
    for net, (title, count) in NETS.items():
        for rate in s.rates:
            if _carried(net, rate):
                seconds = style.number(4 * count * 8 / (rate * 1e6))
                sums.append(f"{seconds} s for {title} at {rate:,} Mbit/s")
    return f"""A sum sends each process's gradients once: {", ".join(sums) or "nothing to wait for"}.
        {plural(cores, "core")} compute at the same time."""


def launched(case, s, before=None):
    """What each of the case's processes found: its parameters after a step from those ``before``, or the measurement.
    Raises Skipped where there must be hosts with a slow cable, and they can't be made."""
    order = dict(
        net=case.net,
        batch=case.batch,
        seed=s.seed,
        kind=s.kind,
        at_least=s.at_least,
        before=before,
    )
    return hosts.launched(predicted_ranks.__name__, order, case.ranks, case.rate, case.delay / 1e3)


def oracle(case, s):
    """A step from parameters that are nowhere zero, in float64; and the processes bit for bit with each other."""
    one = predicted_ranks.PredictedRank(case.net, s.seed, s.kind)
    X, y = random_batch(case.batch, s.seed)
    before = [param.asnumpy() for param in one.params]
    gradients = serial_gradients(one.model, X, y, case.ranks)
    first, *others = launched(case, s, before)
    for param, start, gradient in zip(first, before, gradients):
        yield changed(param, start, -LR / len(X) * gradient)
    for params in others:
        yield from map(same_bits, params, first)


def set_up(case, s):
    """A round is sums of other sizes and some steps of all processes, then steps of one device on its part."""
    one = predicted_ranks.PredictedRank(case.net, s.seed, s.kind)
    X, y = (array[: case.batch // case.ranks] for array in random_batch(case.batch, s.seed))
    one.steps(X, y, 1)

    def measure():
        measured, *_ = launched(case, s)
        link = fit_link(measured["sums"])
        steps = measured["steps"]
        shard_seconds, python_seconds = one.steps(X, y, steps, -(-steps // 4))
        buckets = in_buckets([param.size for param in one.params])
        return measured["seconds"], {
            "shard_seconds": shard_seconds,
            "python_seconds": python_seconds,
            "sum_seconds": sum(link.seconds(4 * sum(sizes)) for sizes in buckets),
        }

    return Work(measure, [f"cpu(0) of process {rank}" for rank in range(case.ranks)])


def _off(row):
    return row.off.median


def tell(t, s):
    for row in t.rows:
        row.predicted_seconds = by_process(
            step_seconds,
            row.shard_seconds,
            row.python_seconds,
            row.ranks,
            row.cores,
            row.sum_seconds,
        )
        row.off = factor(row.predicted_seconds / row.seconds)
    t.column(
        "seconds",
        "ms",
        scale=1e3,
        about="a step of a batch that all processes share, while others follow",
    )
    t.column("predicted_seconds", "pred., ms", scale=1e3)
    t.column("sum_seconds", "of it sums", scale=1e3)
    about = "by which factor the prediction is off the measured time"
    t.column("off", "x", ".2f", spread=True, about=about)
    t.note("""The prediction is from one process's time for its part of the batch, Python's processor time, and sums of
        other sizes between the same processes, measured in the same round. Hosts are two network namespaces of this
        machine with a cable of a limited rate, on which a frame may take some ms.""")
    worst = max(t.rows, key=_off)
    usual = statistics.median(map(_off, t.rows))
    t.answer(f"""The predicted times of {plural(len(t.rows), "row")} are off by a factor of {usual:.2f} in the middle,
        and of {worst.off:.2f} in the worst row ({worst.label}).""")
    here = [row for row in t.rows if not row.rate]
    kinds = {
        "in as many processes as there are cores": [row for row in here if row.ranks <= row.cores],
        "in more processes than cores": [row for row in here if row.ranks > row.cores],
        "between two hosts with a slow link": [row for row in t.rows if row.rate],
    }
    for where, rows in kinds.items():
        if rows:
            furthest = max(rows, key=_off)
            t.explain(f"{where.capitalize()}, the worst is {furthest.off:.2f} ({furthest.label}).")
    most = sum(row.sum_seconds.median > 0.5 * row.predicted_seconds.median for row in t.rows)
    t.explain(
        f"In {most} of {len(t.rows)} rows the sums take more than half of the predicted time."
    )
    t.draw(lambda axes: _draw(axes, t.rows))


def _draw(axes, rows):
    for words, linked in (("processes", False), ("hosts", True)):
        shown = [row for row in rows if bool(row.rate) is linked]
        x = [1e3 * row.seconds.median for row in shown]
        y = [1e3 * row.predicted_seconds.median for row in shown]
        axes.plot(x, y, "o", label=words)
    axes.axline((1, 1), (10, 10), color=style.GREY, linestyle="--")
    axes.set(xscale="log", yscale="log", xlabel="measured, ms", ylabel="predicted, ms")
    axes.legend()
