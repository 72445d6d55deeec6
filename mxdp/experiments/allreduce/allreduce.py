"""Which all-reduce is the fastest, and does the cost model know beforehand?

Each algorithm sums one array over the devices, as do MXNet's own stores, for each size and number of devices. The cost
model simulates every plan with the speeds that were measured in the same process (see ``links``). Small arrays cost
calls and start-up times, so plans with few operations win. Large arrays cost bytes, so plans that send little and keep
all devices busy win.
"""

import itertools
import statistics
from functools import lru_cache, partial

from mxdp.backend import npx
from mxdp.collectives import AllReduce
from mxdp.collectives.calibration import calibrate
from mxdp.collectives.tuning import choose
from mxdp.errors import either, plural, size
from mxdp.experiments.allreduce.arrays import exact_sums, replicas, seconds_in_turn, store_sync
from mxdp.experiments.allreduce.common import LOOKS, STORES, draw_times, tell_choices, tell_over_others
from mxdp.experiments.devices import SEVERAL, devices_of, several
from mxdp.experiments.lab import Case, Work, contenders, fastest
from mxdp.experiments.lab.rows import by_process
from mxdp.experiments.show import style
from mxdp.plans.collective.algorithms import ALGORITHMS, AUTO, plan
from mxdp.plans.collective.operations import operations
from mxdp.plans.cost.link import bus_bandwidth
from mxdp.plans.cost.machine import CPU
from mxdp.plans.cost.simulate import predict

SOURCE = "Dive into Deep Learning, 'Training on Multiple GPUs' and 'Parameter Servers', exercises"
COMPARED = "every element of every replica, against the exact sum"
TOGETHER = True
PRESETS = {
    "quick": dict(devices=[2, 4], sizes=[1 << k for k in (2, 12, 18, 20, 22, 26)], timeout=120.0),
    "full": dict(devices=[2, 4, 8], sizes=[1 << k for k in (2, 10, 16, 18, 20, 22, 24, 26)], timeout=1200.0),
}
CHECKS = SEVERAL
LITTLE = dict(sizes=[4, 1 << 20])
NAMES = sorted(ALGORITHMS)
"""A row of ``auto`` has the numbers of what it chose in this list: a result keeps no words of each process."""
LARGE = 1 << 20
"""Bytes from which on an array is large: the cost model is judged by these."""


def cases(s):
    short = {"bidirectional-ring": "bidir. ring", "shared-memory": "shared mem."}  # for a terminal of 80 columns
    for n, nbytes, name in itertools.product(s.devices, s.sizes, [*NAMES, AUTO, *STORES]):
        yield Case(f"{n} arrays of {size(nbytes)}, {short.get(name, name)}", n, algorithm=name, bytes=nbytes)


def expect(s, cores):
    machine, largest, said = CPU.with_cores(cores), max(s.sizes), []
    for n in several(s):
        best, name = min((predict(plan(name, n, [largest]), largest, machine), name) for name in ALGORITHMS)
        said.append(f"on {n} devices {name} ({style.number(best * 1e3)} ms)")
    return f"The fastest for {size(largest)}, at the reference machine's speeds: {', '.join(said)}."


def oracle(case, s):
    """One sum of whole numbers."""
    arrays = replicas([_shape(case)], devices_of(case, s), s.seed)
    sync, _ = _sync(case, arrays)
    sync()
    npx.waitall()  # a store of MXNet's is freed with ``sync``, and its jobs would still use it
    return exact_sums(arrays, s.seed)


def set_up(case, s):
    """Cases that sum the same arrays are timed in turn, when the first of them has its round. A round makes its own
    arrays, and none may hold memory while others are measured."""
    devices, rounds = tuple(devices_of(case, s)), itertools.count()
    calibrated = tuple(devices_of(Case("", several(s)[0]), s))
    _cases(devices, case.bytes).append(case)

    def one_round():
        number = next(rounds)
        first, now = (_machine(calibrated, k) for k in (0, number))
        seconds, chosen = _times(devices, case.bytes, number, first)[case.algorithm]
        more = {"chosen": chosen} if chosen else {}
        if chosen and case.algorithm == AUTO:
            default = choose(devices, list(_shape(case)), 4)
            more.update(choice=NAMES.index(chosen), default_choice=NAMES.index(default))
        if chosen and len(devices) > 1:
            more["predicted_ms"] = predict(plan(chosen, case.devices, [case.bytes // 4]), case.bytes, now) * 1e3
        return seconds, more

    return Work(one_round, devices)


@lru_cache(maxsize=None)
def _cases(devices, nbytes):
    """Those of these arrays that are set up."""
    return []


@lru_cache(maxsize=None)
def _times(devices, nbytes, number, machine):
    """What the sum of each case took in round ``number``, and the algorithm, by the case's algorithm."""
    cases = _cases(devices, nbytes)
    arrays = replicas([_shape(cases[0])], devices, seed=None)
    algorithms = {}

    def make(case):
        sync, algorithms[case.algorithm] = _sync(case, arrays, machine)
        return sync

    seconds = seconds_in_turn({case.algorithm: partial(make, case) for case in cases})
    return {name: (seconds[name], algorithm) for name, algorithm in algorithms.items()}


def _shape(case):
    return (max(1, case.bytes // 4),)


def _sync(case, arrays, machine=None):
    """The sum, and the algorithm, which ``auto`` chooses for ``machine``; none for a store."""
    if case.algorithm in STORES:
        return store_sync(case.algorithm, arrays), None
    sync = AllReduce([own[0] for own in arrays], case.algorithm, machine=machine)
    return sync, sync.algorithm


@lru_cache(maxsize=None)
def _machine(devices, number):
    """The machine's speeds in round ``number``, for all cases: a shared machine is not equally fast at all times."""
    return calibrate(devices)


def tell(t, s):
    for row in t:
        row.algbw = row.bytes / row.seconds.median / 1e9
        row.busbw = bus_bandwidth(row.bytes, row.seconds.median, row.devices) / 1e9
        row.error = (row.predicted_ms / 1e3).apart(row.seconds) if row.get("predicted_ms") else None
        store = t.one(bytes=row.bytes, devices=row.devices, algorithm="mxnet-device")
        row.of_device_store = row.seconds / store.seconds
    t.column("seconds", "ms", scale=1e3, about="to sum one array on each device in place; each call is waited for")
    t.column("algbw", form=".2f", about="the array's bytes over the time, in GB/s")
    t.column("busbw", form=".2f", about="what the link of each device carries at least, in GB/s")
    t.column("predicted_ms", "pred. ms", about="the plan simulated with the speeds measured in the same process")
    t.column("error", "off", "+.0%", about="how far its interval is off that of the time; 0 %: they overlap")
    t.note(
        "auto: what the cost model chose, judged against all others. Algorithms that do the same, such as naive and "
        "sharded for one array, are one: the median of their rows (and of auto's) counts. The cost model is judged by "
        "the median over algorithms and sizes in each process."
    )
    t.first(t.find(bytes=max(row.bytes for row in t)))
    chosen, default = _tell_claims(t)
    counts = sorted({row.devices for row in t})
    shown = [row for row in t.answering if row.devices == counts[len(counts) // 2]]
    t.draw(lambda figure: _draw(figure, t, shown))
    ours = [row for row in shown if row.algorithm in ALGORITHMS]
    best, names = fastest(ours), [row.algorithm for row in contenders(ours)]
    expected = "which the cost model does not expect"
    if next(row.chosen for row in shown if row.algorithm == AUTO) in names:
        expected = "as the cost model expects"
    t.answer(
        f"For {size(best.bytes)} on {plural(best.devices, 'device')}, mxdp's fastest all-reduce is {either(names)}, "
        f"{expected}, and takes {best.of_device_store:.2f} of the time of MXNet's device store."
    )
    t.explain(
        "Over all sizes, the algorithm that the cost model chooses takes "
        f"{statistics.median(chosen):.2f} times (median; at most {max(chosen):.2f}) as long as the fastest, and with "
        f"mxdp's own speeds {statistics.median(default):.2f} times (median; at most {max(default):.2f}). Large arrays "
        "cost bytes, so plans that send little win; small arrays cost calls, so plans with few operations win."
    )


def _tell_claims(t):
    """Judge the fastest, the cost model and its choices. Returns how many times as long as the fastest each choice
    takes: of those with the measured speeds, and of those with mxdp's own."""
    autos = [row for row in t.find(algorithm=AUTO) if row.devices > 1]
    for auto in autos:
        if auto in t.answering:
            for row in contenders(_tell_ours(t, auto)):
                t.claim(
                    "Our fastest all-reduce of the largest array takes at most 0.75 times as long as MXNet's device "
                    "store.",
                    row.of_device_store,
                    at_most=0.75,
                )
            large = [row for row in t.find(devices=auto.devices) if row.bytes >= LARGE and row.get("predicted_ms")]
            if large:
                off = [(row.predicted_ms / 1e3 / row.seconds).one_way() for row in large]
                auto.model_off = by_process(lambda *values: statistics.median(values), *off)
                t.claim(
                    "The cost model predicts the time of large arrays (1 MiB or more) within a factor of 1.25.",
                    auto.model_off,
                    at_most=1.25,
                    source="the cost model",
                )
    worst = []
    judged = {
        "choice": "'auto' takes at most 1.1 times as long as the fastest algorithm, also for the size for which it "
        "chooses worst, on each number of devices: with the speeds that mxdp.calibrate measures.",
        "default_choice": "'auto' takes at most 1.1 times as long with mxdp's own speeds, too: those of an Intel Xeon "
        "or an AMD EPYC, if nobody calibrates.",
    }
    for which, sentence in judged.items():
        over = []
        for auto in autos:
            work = {name: _tell_operations(name, auto.devices, *_shape(auto)) for name in NAMES}
            chosen = [None if number is None else work[NAMES[int(number)]] for number in auto.get(which).values]
            does = {row: [work[row.algorithm]] * len(chosen) for row in _tell_ours(t, auto)}
            over.append(tell_over_others(auto, chosen, {**does, auto: chosen}))
        tell_choices(t, sentence, list(itertools.chain(*over)))
        worst.append([max([1.0, *(number.median for number in numbers)]) for numbers in over])
    return worst


def _tell_ours(t, auto):
    """The rows of single algorithms that sum the same arrays."""
    return [row for row in t.find(devices=auto.devices, bytes=auto.bytes) if row.algorithm in ALGORITHMS]


@lru_cache(maxsize=None)
def _tell_operations(name, devices, elements):
    """What the algorithm does with one array of that size. Without what has no element to work on."""
    schedule = plan(name, devices, [elements])
    return tuple(operations(schedule, filled=[start < stop for start, stop in schedule.borders(elements)]))


def _draw(figure, t, shown):
    """Bars for the largest array; for each number of devices the ratios by size; then GB/s that each link carries at
    least, by size and by number of devices, measured and (dashed) by the simulated plan."""
    n, nbytes, counts = shown[0].devices, shown[0].bytes, sorted({row.devices for row in t})
    heights = [len(shown) * style.BAR_HEIGHT + 1.3, *[2.8] * (len(counts) + 2)]
    bars, *curves, by_size, by_number = figure.subplots(len(heights), height_ratios=heights)
    draw_times(bars, shown, [row.algorithm for row in shown], predicted_ms="predicted")
    bars.set_title(f"{size(nbytes)} on each of {plural(n, 'device')}")
    for axes, count in zip(curves, counts):
        for name in [*NAMES, *STORES]:
            points = t.find(devices=count, algorithm=name)
            _draw_curve(axes, "bytes", points, [row.of_device_store.median for row in points], label=name)
        axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="time / mxnet-device's")
        axes.set_title(plural(count, "device"))
        style.plain_logarithmic(axes.yaxis)
    by_size.set(xscale="log", title=f"{plural(n, 'device')}; dashed: its plan")
    by_number.set(xticks=counts, title=f"{size(nbytes)}; dashed: its plan")
    for axes, along, same in ((by_size, "bytes", dict(devices=n)), (by_number, "devices", dict(bytes=nbytes))):
        for name in ("naive", "ring", "shared-memory", "mxnet-device"):
            points = t.find(algorithm=name, **same)
            _draw_curve(axes, along, points, [row.busbw for row in points])
            plans = [row for row in points if row.get("predicted_ms")]
            speeds = [bus_bandwidth(row.bytes, row.predicted_ms.median / 1e3, row.devices) / 1e9 for row in plans]
            _draw_curve(axes, along, plans, speeds, linestyle="--", marker="")
        axes.set(xlabel=along, ylabel="bus bandwidth, GB/s")
    figure.legend(*curves[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    figure.set_figheight(sum(heights) + 1.5)


def _draw_curve(axes, along, rows, values, **look):
    for row in rows[:1]:
        colour, marker = LOOKS[row.algorithm]
        look = {"color": colour, "marker": marker, "markersize": 4, "linewidth": 1.3, **look}
        axes.plot([row.get(along) for row in rows], values, **look)
