"""Which all-reduce is the fastest, and does the cost model know beforehand?

Each algorithm sums one array over the devices, as do MXNet's own stores, for each size and number of devices. The cost
model simulates every plan with the speeds measured in the same process (see ``links``). Small arrays cost calls and
start-up times, so few operations win. Large arrays cost bytes, so plans that send little and keep all devices busy win.
"""

import itertools
import statistics
from functools import lru_cache, partial

from mxdp.backend import np, upload
from mxdp.collectives import AllReduce
from mxdp.collectives.tuning import choose
from mxdp.errors import either, plural, size
from mxdp.experiments import sources
from mxdp.experiments.allreduce import arrays
from mxdp.experiments.devices import SEVERAL, devices_of, several
from mxdp.experiments.lab import Case, Work, by_process, contenders, factor, faster, fastest
from mxdp.experiments.links import calibrated
from mxdp.experiments.show import style
from mxdp.plans.collective.algorithms import ALGORITHMS, AUTO, plan
from mxdp.plans.collective.operations import operations
from mxdp.plans.cost.link import bus_bandwidth
from mxdp.plans.cost.machine import CPU
from mxdp.plans.cost.simulate import predict

SOURCE = f"exercises of {sources.MULTIPLE_GPUS}, and of {sources.PARAMETER_SERVERS}"
COMPARED = "every element of every replica, against the exact sum"
TOGETHER = True
FEW = [1 << k for k in (2, 18, 22, 24)]
ALL = [1 << k for k in (2, 10, 16, 18, 20, 22, 24, 26)]
PRESETS = {
    "quick": dict(devices=[2, 4], sizes=FEW, timeout=120.0),
    "full": dict(devices=[2, 4, 8], sizes=ALL, timeout=1200.0),
}
CHECKS = SEVERAL
LITTLE = dict(sizes=[4, 1 << 20])
NAMES = sorted(ALGORITHMS)
"""A row of ``auto`` has the numbers of what it chose in this list: a result keeps no words of each process."""
EVERY = [*NAMES, AUTO, *arrays.STORES]


def cases(s):
    # A row has to fit a terminal of 80 columns.
    short = {"bidirectional-ring": "bidir. ring", "shared-memory": "shared mem."}
    for n, nbytes, name in itertools.product(s.devices, s.sizes, EVERY):
        label = f"{n} arrays of {size(nbytes)}, {short.get(name, name)}"
        yield Case(label, n, algorithm=name, bytes=nbytes)


def expect(s, cores):
    machine = CPU.with_cores(cores)
    largest = max(s.sizes)
    fastest_ones = []
    for n in several(s):
        times = [(predict(plan(name, n, [largest]), largest, machine), name) for name in ALGORITHMS]
        best, name = min(times)
        fastest_ones.append(f"on {n} devices {name} ({style.number(best * 1e3)} ms)")
    return f"The fastest for {size(largest)}, at the reference machine's speeds: {', '.join(fastest_ones)}."


def oracle(case, s):
    devices = devices_of(case, s)
    data = []
    for rank, device in enumerate(devices):
        data.append([upload(arrays.numbers(_shape(case), rank, s.seed), device)])
    return arrays.exact_sums(data, _sync(case, data), s.seed)


def set_up(case, s):
    """Cases that sum the same arrays are timed in turn, when the first of them has its round. A round makes its own
    arrays, and none may hold memory while others are measured."""
    devices = tuple(devices_of(case, s))
    rounds = itertools.count()
    few = tuple(devices_of(Case("", several(s)[0]), s))
    _cases(devices, case.bytes).append(case)

    def one_round():
        machine = calibrated(few)
        chosen = case.algorithm
        seconds = _times(devices, case.bytes, next(rounds), machine)[chosen]
        if chosen in arrays.STORES:
            return seconds, {}
        more: dict = {}
        if chosen == AUTO:
            chosen = choose(devices, _shape(case), 4, machine)
            more["choice"] = NAMES.index(chosen)
            more["default_choice"] = NAMES.index(choose(devices, _shape(case), 4))
        more["chosen"] = chosen
        if len(devices) > 1:
            schedule = plan(chosen, case.devices, [case.bytes // 4])
            more["predicted_ms"] = predict(schedule, case.bytes, machine) * 1e3
        return seconds, more

    return Work(one_round)


@lru_cache(maxsize=None)
def _cases(devices, nbytes):
    """The cases of these arrays that are set up."""
    return []


@lru_cache(maxsize=None)
def _times(devices, nbytes, number, machine):
    """What the sum of each case took in round ``number``, by the case's algorithm. Sums of zeros stay zeros."""
    cases = _cases(devices, nbytes)
    data = [[np.zeros(_shape(cases[0]), ctx=device)] for device in devices]
    return arrays.seconds_in_turn(
        {case.algorithm: partial(_sync, case, data, machine) for case in cases}
    )


def _shape(case):
    return (max(1, case.bytes // 4),)


def _sync(case, data, machine=None):
    """The sum, whose algorithm ``auto`` chooses for ``machine``."""
    if case.algorithm in arrays.STORES:
        return arrays.store_sync(case.algorithm, data)
    return AllReduce([array for (array,) in data], case.algorithm, machine=machine)


def tell(t, s):
    for row in t:
        row.busbw = bus_bandwidth(row.bytes, row.seconds.median, row.devices) / 1e9
        row.error = None
        if row.get("predicted_ms"):
            row.error = arrays.apart(row.predicted_ms / 1e3, row.seconds)
        store = t.one(bytes=row.bytes, devices=row.devices, algorithm="mxnet-device")
        row.of_device_store = row.seconds / store.seconds
    t.column(
        "seconds",
        "ms",
        scale=1e3,
        about="to sum one array on each device in place; each call is waited for",
    )
    t.column("busbw", form=".2f", about="what the link of each device carries at least, in GB/s")
    t.column(
        "predicted_ms",
        "pred. ms",
        about="the plan simulated with the speeds measured in the same process",
    )
    t.column(
        "error",
        "off",
        "+.0%",
        about="how far its interval is off that of the time; 0 %: they overlap",
    )
    t.note("""auto: what the cost model chose, compared with all others. Algorithms that do the same, such as naive and
        sharded for one array, are one: the median of their rows (and of auto's) counts.""")
    t.first(t.find(bytes=max(row.bytes for row in t)))
    counts = sorted({row.devices for row in t})
    shown = [row for row in t.answering if row.devices == counts[len(counts) // 2]]
    t.draw(lambda axes: _draw(axes, t, shown[0].devices), 6)
    ours = [row for row in shown if row.algorithm in ALGORITHMS]
    best = fastest(ours)
    names = [row.algorithm for row in contenders(ours)]
    chosen = next(row.chosen for row in shown if row.algorithm == AUTO)
    expects = "as the cost model expects"
    if chosen not in names:
        expects = "which the cost model does not expect"
    t.answer(f"""For {size(best.bytes)} on {plural(best.devices, "device")}, mxdp's fastest all-reduce is
        {best.algorithm}, {expects}; it {faster(1 / best.of_device_store)} as MXNet's device store.""")
    if others := [name for name in names if name != best.algorithm]:
        t.explain(f"There {either(others)} may be as fast.")
    t.explain("""Large arrays cost bytes, so plans that send little win; small arrays cost calls, so plans with few
        operations win.""")
    _tell_model(t)


def _tell_model(t):
    """How far off the cost model is, and what its choices cost."""
    autos = [row for row in t.find(algorithm=AUTO) if row.devices > 1]
    model = []
    for auto in autos:
        ratios = []
        for row in t.find(devices=auto.devices):
            if row.bytes >= 1 << 20 and row.get("predicted_ms"):
                ratios.append(factor(row.predicted_ms / 1e3 / row.seconds))
        if auto in t.answering and ratios:
            off = by_process(lambda *values: statistics.median(values), *ratios)
            model.append(f"{off:.2f} on {plural(auto.devices, 'device')}")
    if model:
        t.explain(f"""For 1 MiB or more, the cost model's times are off by a factor of {", ".join(model)}: the median
            over algorithms and sizes.""")
    measured = _tell_choices(t, autos, "choice")
    default = _tell_choices(t, autos, "default_choice")
    t.explain(f"""Where it chooses worst, 'auto' takes {arrays.tell_worst(measured)}, with the speeds that
        mxdp.calibrate measures; with mxdp's own, those of an Intel Xeon or an AMD EPYC, {arrays.tell_worst(default)}.
        """)


def _tell_choices(t, autos, which):
    """The time of what ``auto`` chose over that of each other algorithm, for each size and number of devices."""
    over = []
    for auto in autos:
        work = {name: _tell_operations(name, auto.devices, *_shape(auto)) for name in NAMES}
        chosen = []
        for number in auto.get(which).values:
            chosen.append(None if number is None else work[NAMES[int(number)]])
        does = {}
        for row in t.find(devices=auto.devices, bytes=auto.bytes):
            if row.algorithm in ALGORITHMS:
                does[row] = [work[row.algorithm]] * len(chosen)
        does[auto] = chosen
        over += arrays.tell_over_others(auto, chosen, does)
    return over


@lru_cache(maxsize=None)
def _tell_operations(name, devices, elements):
    """What the algorithm does with one array of that size. Without what has no element to work on."""
    schedule = plan(name, devices, [elements])
    filled = [start < stop for start, stop in schedule.borders(elements)]
    return tuple(operations(schedule, filled=filled))


def _draw(axes, t, n):
    """The time on ``n`` devices over that of MXNet's device store, by size."""
    colours = (*style.COLOURS, style.LIGHT_GREY, style.GREY)
    for name, colour, marker in zip(EVERY, colours, style.MARKERS + "dd"):
        rows = t.find(devices=n, algorithm=name)
        ratios = [row.of_device_store.median for row in rows]
        axes.plot([row.bytes for row in rows], ratios, color=colour, marker=marker, label=name)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="bytes",
        ylabel="time / mxnet-device's",
        title=plural(n, "device"),
    )
    style.plain_logarithmic(axes.yaxis)
    style.legend_below(axes)
