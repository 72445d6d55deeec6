"""Where should gradients be added up: on one device, on a server, or in parts on all?

The book has four GPUs with 160 MB of gradients each, on links of 16 GB/s, over which 160 MB take 10 ms. Added up on one
GPU that is three transfers there and three back: 60 ms. On the CPU it is four and four: 80 ms. In four parts, each on
another GPU and all at the same time, it is a quarter of the 60 ms: 15 ms. (For the ring the book gives 6 ms, but of
eight GPUs on NVLink.) Here its plans are carried out, and predicted twice: by this arithmetic, and simulated
(:mod:`mxdp.plans.cost.simulate`) on the machine as calibrated in the same process.
"""

import itertools

import numpy as onp

from mxdp.backend import mx
from mxdp.collectives.program import Program, chunk_views
from mxdp.errors import MxdpError, size
from mxdp.experiments import sources
from mxdp.experiments.allreduce.arrays import apart
from mxdp.experiments.devices import SEVERAL, devices_of, several, timed
from mxdp.experiments.lab import Case, Work
from mxdp.experiments.links import calibrated
from mxdp.experiments.oracle import count, whole_numbers
from mxdp.experiments.show import style
from mxdp.plans.collective import one_hop
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.cost.link import Link, allreduce_seconds
from mxdp.plans.cost.machine import CPU
from mxdp.plans.cost.simulate import predict
from mxdp.plans.partition import bounds

SOURCE = sources.PARAMETER_SERVERS
COMPARED = "every element of every replica after three sums, exactly"
TOGETHER = True
PRESETS = {
    "quick": dict(devices=[4], nbytes=1 << 24, timeout=120.0),
    "full": dict(devices=[4], nbytes=160_000_000, timeout=900.0),
}
CHECKS = SEVERAL
LITTLE = dict(nbytes=65536)
BOOK_LINK = Link(alpha=0.0, beta=1 / 16e9)
BOOK_MS = {"server": 80.0, "naive": 60.0, "sharded": 15.0}
"""The book's own results, the slowest first."""
LABELS = {"server": "on a server (CPU)", "naive": "on one device", "sharded": "an array on each"}
ODD = 10_007
"""Elements that the oracle sums: a prime, so that the chunks are not equal for any number of devices."""
TIMED = 2
"""Sums that are timed, after one that warms up. Each multiplies the numbers by the replicas, so they must be few."""


def cases(s):
    for n, name in itertools.product(several(s), (*LABELS, "ring", "direct")):
        label = LABELS.get(name, name)
        if len(several(s)) > 1:
            label = f"{n}: {label}"
        yield Case(label, n, algorithm=name, bytes=s.nbytes)


def expect(s, cores):
    machine = CPU.with_cores(cores)
    times = []
    for case in cases(s):
        seconds = predict(schedule_of(case, s.nbytes // 4), s.nbytes, machine)
        times.append(f"{case.label} {style.number(seconds * 1e3)}")
    return f"For {size(s.nbytes)}, in ms at the reference machine's speeds: {', '.join(times)}."


def oracle(case, s):
    return summed(schedule_of(case, ODD), _devices(case, s), case.devices, ODD, s.seed)[1]


def set_up(case, s):
    """A round makes its own vectors, as the cases share a process, and compares what it has summed."""
    devices = _devices(case, s)
    elements = s.nbytes // 4
    schedule = schedule_of(case, elements)

    def one_round():
        machine = calibrated(tuple(devices[: case.devices]))
        seconds, compared = summed(schedule, devices, case.devices, elements, s.seed)
        checked, wrong = count(compared)
        if wrong:
            raise MxdpError(
                f"{wrong:,} of {checked:,} numbers of the sums that were timed are wrong"
            )
        return seconds, {"predicted_ms": predict(schedule, 4 * elements, machine) * 1e3}

    return Work(one_round, devices)


def schedule_of(case, elements):
    """The plan of a case or row. As in the book, ``sharded`` gets one array for each device, all of nearly one size."""
    if case.algorithm == "server":
        return one_hop.server(case.devices + 1)
    sizes = [stop - start for start, stop in bounds(elements, case.devices)]
    return plan(case.algorithm, case.devices, sizes)


def summed(schedule, devices, replicas, elements, seed):
    """Sum vectors of ``elements`` whole numbers by ``schedule``, again and again in place; the seconds of a sum, and
    for an oracle every chunk of every replica, with the exact sum. The first ``replicas`` devices hold parts of it; any
    other is a server, and what it holds at first is overwritten. Waits."""
    total = onp.zeros(elements, "float32")
    borders = list(schedule.borders(elements))
    spots = []
    for rank, device in enumerate(devices):
        numbers = whole_numbers(rank, elements, seed)
        if rank < replicas:
            total += numbers
        if schedule.sizes:  # it sums whole arrays, not parts of one
            spots.append([mx.nd.array(numbers[a:b], ctx=device) for a, b in borders])
        else:
            spots.append(chunk_views(schedule, mx.nd.array(numbers, ctx=device)))
    program = Program(schedule, spots)
    program()

    def again():
        for _ in range(TIMED):
            program()

    seconds = timed(again) / TIMED
    total *= replicas**TIMED  # the sum on every replica has been summed again

    def compared():
        for chunks in spots[:replicas]:
            for array, (start, stop) in zip(chunks, borders):
                if array.size:
                    yield array.asnumpy(), total[start:stop], 0.0

    return seconds, compared()


def _devices(case, s):
    """The devices with gradients; for a server one CPU device more. Beside GPUs that is the book's own plan."""
    devices = devices_of(case, s)
    if case.algorithm == "server":
        devices.append(mx.cpu(case.devices))
    return devices


def tell(t, s):
    for row in t:
        schedule = schedule_of(row, row.bytes // 4)
        row.book_ms = allreduce_seconds(schedule, row.bytes, BOOK_LINK) * 1e3
        row.sent_bytes_busiest = 4 * max(schedule.sent(row.bytes // 4))
        row.prediction_error = apart(row.predicted_ms / 1e3, row.seconds)
    t.column("seconds", "ms", ".2f", 1e3, about="to sum one vector a device")
    t.column(
        "predicted_ms",
        "simulated",
        ".2f",
        about="the plan's time at this machine's measured speeds",
    )
    t.column(
        "prediction_error",
        "off",
        "+.0%",
        about="its distance from the time; 0 % if their intervals overlap",
    )
    t.column("book_ms", "book's", ".2f", about="transfers times the book's link of 16 GB/s")
    t.column("sent_bytes_busiest", "sent MB", scale=1e-6, about="what leaves the busiest device")
    t.note("The server is a further CPU device without gradients.")
    by_name = {row.algorithm: row for row in t.find(devices=several(s)[-1])}
    server = by_name["server"]
    one = by_name["naive"]
    parts = by_name["sharded"]
    t.answer(f"""With {size(one.bytes)} on each of {one.devices} devices, adding up on one device takes
        {one.seconds / parts.seconds:.2f} times as long as in parts on all, and on a server
        {server.seconds / parts.seconds:.2f} times.""")
    slowest, middle, least = BOOK_MS.values()
    t.explain(f"""By the book's arithmetic for four GPUs, whose links work side by side, it is {middle / least:.0f}
        times ({middle:.0f} ms and {least:.0f} ms) and {slowest / least:.1f} times ({slowest:.0f} ms).""")
    if one.device_names[0].startswith("cpu"):
        t.explain("""CPU devices share one memory and the cores: in parts, as many bytes go through that memory as on
            one device, and only more cores take part.""")
    t.bars(unit="ms", scale=1e3)
