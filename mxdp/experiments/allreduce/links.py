"""How fast do devices talk?

A copy has a start-up time and a bandwidth: between every two devices, and for all at once. The cost model of
:mod:`mxdp.plans.cost.link` gives every link the same alpha and beta. Between GPUs links often differ: NVLink or a PCIe
switch joins some pairs, the processors join the others. CPU devices share one memory, and so one link.

On CPU devices the source's worker makes the copy, on one of the machine's cores. Copies at the same time share the
cores and the memory's bandwidth, which the rows "at once" measure. They also hold what
:func:`mxdp.calibrate` measures here, from which ``auto`` and the experiment ``allreduce`` plan.
"""

import itertools
import statistics
from dataclasses import asdict

from mxdp.collectives.calibration import calibrate
from mxdp.errors import plural, size
from mxdp.experiments.devices import SEVERAL, devices_of, several
from mxdp.experiments.lab import Case, Work
from mxdp.experiments.lab.rows import by_process
from mxdp.experiments.links import Copies
from mxdp.experiments.show import style
from mxdp.plans.cost.link import fit_link
from mxdp.plans.cost.machine import CPU

SOURCE = "Slides 'Multi-GPU', communications"
COMPARED = "what arrived, against what was sent"
TOGETHER = True
PRESETS = {
    "quick": dict(devices=[4], sizes=[4**k for k in (1, 3, 5, 7, 9, 10, 11, 12)], timeout=120.0),
    "full": dict(devices=[4], sizes=[4**k for k in range(1, 14)], timeout=3600.0),
}
LITTLE = dict(sizes=[4, 4096])
CHECKS = {
    **SEVERAL,
    "sizes": (
        lambda sizes: len(set(sizes)) > 1 and all(type(nbytes) is int and nbytes % 4 == 0 for nbytes in sizes),
        "two or more different multiples of 4, the bytes of a float32",
    ),
}
ALIKE = 1.5
"""Links are alike if the slowest pair of different devices takes at most 1.5 times as long as the fastest, for the
largest size. Twelve pairs of equal CPU devices came out 1.05 times apart, and 1.4 times while others worked on the
machine. The book's NVLink (100 GB/s) and PCIe 3.0 (16 GB/s) are 6 times apart."""


def cases(s):
    most = max(s.devices)
    for i, j in itertools.product(range(most), repeat=2):
        yield Case(f"{i} to {'itself' if i == j else j}", most, pairs=[[i, j]])
    for n in several(s):
        yield Case(f"all {n} at once", n, pairs=[[i, (i + 1) % n] for i in range(n)])


def expect(s, cores):
    machine, largest, n = CPU.with_cores(cores), max(s.sizes), max(s.devices)
    alone, running = machine.copy.seconds(largest, 2 * largest, others=False), min(n, cores)
    together = machine.copy.seconds(largest, 2 * largest * n, others=running > 1) * n / running
    return (
        "At the reference machine's speeds, all links of CPU devices are alike: "
        f"{max(machine.push, machine.copy.start) * 1e6:.1f} µs for a small copy, {largest / alone / 1e9:.1f} GB/s for "
        f"{size(largest)}. If {n} devices copy at once, on {plural(cores, 'core')}, each copy takes "
        f"{together / alone:.1f} times as long."
    )


def oracle(case, s):
    for nbytes in s.sizes:
        yield from _copies(case, s, nbytes).compare()


def set_up(case, s):
    """A round times a copy of each size, on fresh arrays; its seconds are those of the largest."""
    devices, sizes = devices_of(case, s), sorted(s.sizes)
    machine = asdict(calibrate(devices)) if len(case.pairs) > 1 else None
    _copies(case, s, sizes[0]).seconds()

    def one_round():
        times = {str(nbytes): _copies(case, s, nbytes).seconds() for nbytes in sizes}
        return times[str(sizes[-1])], {"seconds_by_bytes": times}

    return Work(one_round, [devices[rank] for rank in sorted(set(itertools.chain(*case.pairs)))], machine=machine)


def _copies(case, s, nbytes):
    devices = devices_of(case, s)
    return Copies([(devices[i], devices[j]) for i, j in case.pairs], nbytes, s.seed)


def tell(t, s):
    for row in t:
        times = _tell_times(row)
        link = fit_link(list(times.items()))
        row.alpha, row.beta = link.alpha, link.beta
        row.fit_error = statistics.median(abs(link.seconds(nbytes) / times[nbytes] - 1) for nbytes in times)
        row.latency_us, row.bandwidth_gbs = times[min(times)] * 1e6, max(times) / times[max(times)] / 1e9
    alone = [row for row in t.rows if len(row.pairs) == 1 and len(set(row.pairs[0])) == 2]
    together = [row for row in t.rows if len(row.pairs) > 1]
    for row in together:
        row.over_alone = by_process(
            lambda mine, *pairs: mine / statistics.median(pairs), row.seconds, *(pair.seconds for pair in alone)
        )
    t.column("latency_us", "µs", ".1f", about="the time of the smallest copy")
    t.column("bandwidth_gbs", "GB/s", ".1f", about="the bandwidth of the largest")
    about = "the start-up time: the time of a copy of m bytes is alpha + m beta, fitted to all sizes"
    t.column("alpha", "alpha µs", ".1f", 1e6, about=about)
    t.column("beta", "beta ps/B", ".0f", 1e12, about="the time of a byte")
    t.column("fit_error", "off", ".0%", about="the fit's median error (caches bend the line)")
    t.column("over_alone", "over alone", ".1f", spread=True, about="the time over that of a pair alone (their median)")
    t.note(
        "Copies follow one another on one pair of arrays, so that no worker has to be woken. At once: every device "
        "copies to the next; the numbers are those of one device. CPU devices share one memory: if their links differ, "
        "the cause is other work on the machine, or NUMA."
    )
    t.draw(lambda figure: _draw(figure, t.rows, alone, together))
    speeds = sorted(row.bandwidth_gbs for row in alone)
    t.answer(
        f"A copy of {size(max(s.sizes))} between two devices runs at {speeds[0]:.1f} to {speeds[-1]:.1f} GB/s, "
        f"depending on the pair; if all {together[-1].devices} devices copy at once, each copy takes "
        f"{together[-1].over_alone:.1f} times as long."
    )
    fast, slow = (end(alone, key=lambda row: row.seconds.median) for end in (min, max))
    apart = slow.seconds / fast.seconds
    alike = {True: ", so one link will do for all", False: ", so one link does not do for all", None: ""}
    alpha, beta = (statistics.median(row.get(name) for row in alone) for name in ("alpha", "beta"))
    t.explain(
        f"The slowest pair takes {apart:.2f} times as long as the fastest{alike[apart.at_most(ALIKE)]}. A copy costs "
        f"alpha = {alpha * 1e6:.1f} µs and beta = {beta * 1e12:.0f} ps a byte (medians over the pairs)."
    )


def _tell_times(row):
    """Seconds of a copy by its bytes: medians over the processes (old results have plain numbers)."""
    return {int(nbytes): getattr(seconds, "median", seconds) for nbytes, seconds in row.seconds_by_bytes.items()}


def _draw(figure, rows, alone, together):
    """GB/s from each device to each device. Below it time by bytes: a thin line for every pair of different devices,
    their medians with the line fitted to these, and the rows in which all copy at once."""
    figure.set_size_inches(style.WIDTH, 2.25 * style.HEIGHT)
    upper, lower = figure.subplots(2, 1)
    speeds = {tuple(row.pairs[0]): row.bandwidth_gbs for row in rows if len(row.pairs) == 1}
    n, most = 1 + max(itertools.chain(*speeds)), max(speeds.values())
    matrix = [[speeds.get((source, target), 0.0) for target in range(n)] for source in range(n)]  # 0: a case has failed
    upper.imshow(matrix, cmap="Blues", vmin=0, vmax=most, aspect="auto")
    for (source, target), value in speeds.items():
        colour, text = "white" if value > most / 2 else style.INK, style.number(value, 3 if n <= 6 else 2)
        upper.text(target, source, text, ha="center", va="center", color=colour)
    upper.grid(visible=False)
    upper.set(xticks=range(n), yticks=range(n), xlabel="to device", ylabel="from device", title="GB/s, largest copy")
    pairs = [_tell_times(row) for row in alone]
    medians = {nbytes: statistics.median(times[nbytes] for times in pairs) for nbytes in pairs[0]}
    link = fit_link(list(medians.items()))
    fitted = {nbytes: link.seconds(nbytes) for nbytes in medians}
    lines = [
        *((times, "each pair" if times is pairs[0] else "", dict(color=style.GREY, linewidth=0.6)) for times in pairs),
        (medians, "median of the pairs", dict(marker="o", linestyle="")),
        *((_tell_times(row), row.label, dict(marker="^", linestyle="")) for row in together),
        (fitted, "alpha + bytes x beta", dict(color=style.COLOURS[0])),
    ]
    for times, label, look in lines:
        lower.plot(list(times), [seconds * 1e6 for seconds in times.values()], label=label, **look)
    lower.set(xscale="log", yscale="log", xlabel="bytes", ylabel="µs", title="Time of a copy")
    lower.legend(loc="upper left")
