"""How fast do devices talk?

A copy has a start-up time and a bandwidth: between every two devices, and for all at once. The cost model of
:mod:`mxdp.plans.cost.link` gives every link the same alpha and beta. Between GPUs links often differ: NVLink or a PCIe
switch joins some pairs, the processors join the others. CPU devices share one memory, and so one link. Their copies are
made on the machine's cores; those at the same time share cores and bandwidth, which the rows "at once" measure.
"""

import itertools
import statistics

from mxdp.errors import plural, size
from mxdp.experiments import sources
from mxdp.experiments.devices import SEVERAL, devices_of, several
from mxdp.experiments.lab import Case, Work, by_process, fastest
from mxdp.experiments.links import Copies
from mxdp.plans.cost.link import fit_link
from mxdp.plans.cost.machine import CPU

SOURCE = f"ours; the book's star is at about 20 GB/s: {sources.FIRST_PRINCIPLES}"
COMPARED = "what arrived, against what was sent"
TOGETHER = True
FEW = [4**k for k in (1, 3, 5, 7, 9, 10, 11, 12)]
ALL = [4**k for k in range(1, 14)]
PRESETS = {
    "quick": dict(devices=[4], sizes=FEW, timeout=120.0),
    "full": dict(devices=[4], sizes=ALL, timeout=3600.0),
}
LITTLE = dict(sizes=[4, 4096])
CHECKS = {
    **SEVERAL,
    "sizes": (
        lambda sizes: len(set(sizes)) > 1 and all(n % 4 == 0 for n in sizes),
        "two or more different multiples of 4, the bytes of a float32",
    ),
}
ALIKE = 1.5
"""Links are alike if the slowest pair takes at most 1.5 times as long as the fastest, for the largest size. Equal CPU
devices are 1.05 times apart, 1.4 on a busy machine; NVLink (100 GB/s) and PCIe 3.0 (16 GB/s) 6 times."""


def cases(s):
    most = max(s.devices)
    for i, j in itertools.product(range(most), repeat=2):
        yield Case(f"{i} to {'itself' if i == j else j}", most, pairs=[[i, j]])
    for n in several(s):
        yield Case(f"all {n} at once", n, pairs=[[i, (i + 1) % n] for i in range(n)])


def expect(s, cores):
    machine = CPU.with_cores(cores)
    largest = max(s.sizes)
    start = max(machine.push, machine.copy.start)
    alone = machine.copy.seconds(largest, 2 * largest, others=False)
    return f"""At the reference machine's speeds, all links of CPU devices are alike: {start * 1e6:.1f} µs for a small
        copy, {largest / alone / 1e9:.1f} GB/s for {size(largest)}. Copies at once share the memory's bandwidth."""


def oracle(case, s):
    for nbytes in s.sizes:
        yield from _copies(case, s, nbytes).compare()


def set_up(case, s):
    """A round times a copy of each size, on fresh arrays; its seconds are those of the largest."""
    devices = devices_of(case, s)
    ranks = sorted(set(itertools.chain(*case.pairs)))
    sizes = sorted(s.sizes)
    _copies(case, s, sizes[0]).seconds()

    def one_round():
        times = {str(nbytes): _copies(case, s, nbytes).seconds() for nbytes in sizes}
        return times[str(sizes[-1])], {"seconds_by_bytes": times}

    return Work(one_round, [devices[rank] for rank in ranks])


def _copies(case, s, nbytes):
    devices = devices_of(case, s)
    pairs = [(devices[i], devices[j]) for i, j in case.pairs]
    return Copies(pairs, nbytes, s.seed)


def tell(t, s):
    for row in t:
        times = {}
        for nbytes, time in row.seconds_by_bytes.items():
            times[int(nbytes)] = getattr(time, "median", time)  # old results have plain numbers
        link = fit_link(list(times.items()))
        row.alpha = link.alpha
        row.beta = link.beta
        row.latency_us = times[min(times)] * 1e6
        row.bandwidth_gbs = max(times) / times[max(times)] / 1e9
    together = [row for row in t.rows if len(row.pairs) > 1]
    single = [row for row in t.rows if len(row.pairs) == 1]
    alone = [row for row in single if len(set(row.pairs[0])) == 2]
    usual = by_process(lambda *pairs: statistics.median(pairs), *(row.seconds for row in alone))
    for row in together:
        row.over_alone = row.seconds / usual
    t.column("latency_us", "µs", ".1f", about="the time of the smallest copy")
    t.column("bandwidth_gbs", "GB/s", ".1f", about="the bandwidth of the largest")
    t.column(
        "alpha",
        "alpha µs",
        ".1f",
        1e6,
        about="the start-up time: the time of a copy of m bytes is alpha + m beta, fitted to all sizes",
    )
    t.column("beta", "beta ps/B", ".0f", 1e12, about="the time of a byte")
    t.column(
        "over_alone",
        "over alone",
        ".1f",
        spread=True,
        about="the time over that of a pair alone (their median)",
    )
    t.note("At once: every device copies to the next; the numbers are those of one device.")
    t.bars(unit="ms", scale=1e3, title=f"A copy of {size(max(s.sizes))}")
    speeds = sorted(row.bandwidth_gbs for row in alone)
    t.answer(f"""A copy of {size(max(s.sizes))} between two devices runs at {statistics.median(speeds):.1f} GB/s; if all
        {together[-1].devices} devices copy at once, each copy takes {together[-1].over_alone:.1f} times as long.""")
    slowest = max(alone, key=lambda row: row.seconds.median)
    apart = slowest.seconds / fastest(alone).seconds
    alike = {
        True: ", so one link will do for all",
        False: ", so one link does not do for all",
        None: "",
    }
    alpha = statistics.median(row.alpha for row in alone)
    beta = statistics.median(row.beta for row in alone)
    t.explain(f"""The speed is the median of {plural(len(alone), "pair")}, which have {speeds[0]:.1f} to
        {speeds[-1]:.1f} GB/s. The slowest pair takes {apart:.2f} times as long as the
        fastest{alike[apart.at_most(ALIKE)]}. A copy costs alpha = {alpha * 1e6:.1f} µs and beta = {beta * 1e12:.0f} ps
        a byte (medians over the pairs). CPU devices share one memory: if their links differ, the cause is other work on
        the machine, or NUMA.""")
