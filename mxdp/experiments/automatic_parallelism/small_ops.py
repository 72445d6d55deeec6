"""Does it help to run many tiny operators side by side?

The exercise says that for a sufficiently small workload parallelization can help even on a single CPU or GPU. The cost
model: an operator of n bytes costs its call, c, in Python and in MXNet's engine, one call after the other; and its
work, w(n), which k workers or devices share. So it takes max(c, w(n) / k). Side by side pays once w(n) is more than c;
below that only cheaper calls pay. Operator i adds i to an array, into array i: none needs another's result.
"""

from functools import partial

from mxdp.backend import devices, np, upload
from mxdp.engine import prepare
from mxdp.errors import plural, size
from mxdp.experiments import sources
from mxdp.experiments.devices import mean_seconds, workers
from mxdp.experiments.lab import Case, Work
from mxdp.experiments.oracle import whole_numbers
from mxdp.experiments.show import style

SOURCE = f"exercise 2 of {sources.PARALLELISM}"
COMPARED = "every way's sums, against NumPy's, exactly"
TOGETHER = True
PRESETS = {
    "quick": dict(
        timeout=120.0,
        round_seconds=0.0125,
        sizes=[4, 1 << 12, 1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 21],
    ),
    "full": dict(
        timeout=1800.0,
        round_seconds=0.025,
        sizes=[4, 1 << 8, 1 << 12, *(1 << n for n in range(15, 22))],
    ),
}
LITTLE = dict(sizes=[4, 4096], round_seconds=0.001)
CHECKS = {
    "sizes": (
        lambda sizes: all(n % 4 == 0 for n in sizes),
        "multiples of 4, a float32's bytes",
    ),
}
COUNT = 30
"""Operators in a group."""
COMPARED_BYTES = 1 << 18
"""Bytes of the largest arrays that are compared with NumPy's: a group has 30 of them, and there are many groups."""
ONE = "1 worker"
TWO = "2 workers"
BOTH = "_two_devices"
WAYS = {ONE: ("calls", "ready", f"calls{BOTH}", f"ready{BOTH}"), TWO: ("calls", "ready")}


def cases(s):
    for number, under in enumerate(WAYS, 1):
        for nbytes in sorted(s.sizes):
            label = f"{under}, {size(nbytes)}"
            yield Case(label, 2, environment=workers(number), under=under, bytes=nbytes)


def expect(s, cores):
    where = "from about 100 to 200 KB on" if cores > 1 else "nowhere"
    return f"""On {plural(cores, "core")}, with calls of 10 to 20 µs and a memory of 20 GB/s, two devices help
        {where}."""


def group(way, nbytes, s):
    """A group of ``COUNT`` operators on arrays of ``nbytes``: the input on the host, the results, and what pushes it,
    by MXNet's function (``calls``) or calls prepared once (``ready``). A second device has every second one."""
    count = 2 if way.endswith(BOTH) else 1
    places = devices(2, s.kind)[:count]
    host = whole_numbers(0, nbytes // 4, s.seed)
    inputs = [upload(host, device) for device in places]
    results = [np.zeros(host.shape, ctx=places[i % count]) for i in range(COUNT)]
    jobs = [(inputs[i % count], i, result) for i, result in enumerate(results)]
    prepared = [prepare("_npi_add_scalar", [x], result, scalar=i) for x, i, result in jobs]

    def calls():
        for x, i, result in jobs:
            np.add(x, i, out=result)

    def ready():
        for call in prepared:
            call()

    return host, results, calls if way.startswith("calls") else ready


def oracle(case, s):
    for way in WAYS[case.under]:
        host, results, push = group(way, min(case.bytes, COMPARED_BYTES), s)
        for result in results:
            result[:] = -1
        push()
        for i, result in enumerate(results):
            yield result.asnumpy(), host + i, 0.0


def set_up(case, s):
    """A round times a group in every way, on its own arrays: cases share a process, and none may hold memory."""

    def measure():
        numbers = {}
        for way in WAYS[case.under]:
            pushed, done = mean_seconds(group(way, case.bytes, s)[-1], s.round_seconds)
            numbers[f"{way}_us"] = 1e6 * done / COUNT
            numbers[f"{way}_push_us"] = 1e6 * pushed / COUNT
        return numbers["calls_us"] / 1e6, numbers

    return Work(measure, devices(2, s.kind))


def tell(t, s):
    t.column(
        "calls_us",
        "calls",
        ".1f",
        about="µs an operator (x + i, into an array of its own), by MXNet's function",
    )
    t.column("calls_push_us", "push", ".1f", about="the part of it until the call returns")
    t.column("ready_us", "ready", ".1f", about="calls prepared once (mxdp.engine)")
    about = "every second operator on another device"
    for way in ("calls", "ready"):
        t.column(f"{way}{BOTH}_us", f"{way}+", ".1f", about=about)
    t.note("A row is a device's number of workers, and the bytes of an array.")
    t.draw(partial(_draw, t))
    least = min(s.sizes)
    most = max(s.sizes)
    t.first([row for row in t.rows if row.bytes in (least, most) and row.under in WAYS])
    tiny = t.one(under=ONE, bytes=least)
    tiny_shared = t.one(under=TWO, bytes=least)
    large = t.one(under=ONE, bytes=most)
    large_shared = t.one(under=TWO, bytes=most)
    t.answer(f"""Spread over two devices, additions of {size(least)} take
        {tiny.calls_two_devices_us / tiny.calls_us:.2f} times as long as on one; over two workers of one device,
        {tiny_shared.calls_us / tiny.calls_us:.2f} times.""")
    t.explain(f"""A second device or worker makes the work shorter, not the call: an addition of {size(least)} takes
        {tiny.calls_us.median:.1f} µs, {tiny.calls_push_us.median:.1f} of them for the call. With a prepared call it
        takes {tiny.ready_us.median:.1f} µs; two devices then take
        {tiny.ready_two_devices_us / tiny.ready_us:.2f} times as long, and two workers
        {tiny_shared.ready_us / tiny.ready_us:.2f} times. Additions of {size(most)} take
        {large.calls_two_devices_us / large.calls_us:.2f} times as long on two devices, and
        {large_shared.calls_us / large.calls_us:.2f} times with two workers.""")


def _draw(t, axes):
    lines = {
        "calls": (ONE, "calls"),
        "calls, 2 devices": (ONE, f"calls{BOTH}"),
        "prepared": (ONE, "ready"),
        "prepared, 2 devices": (ONE, f"ready{BOTH}"),
        "prepared, 2 workers": (TWO, "ready"),
    }
    for marker, (label, (under, way)) in zip(style.MARKERS, lines.items()):
        points = [(row.bytes, row.get(f"{way}_us").median) for row in t.find(under=under)]
        axes.plot(*zip(*points), f"{marker}-", label=label)
    axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="µs an operator")
    style.plain_logarithmic(axes.yaxis)
    axes.legend()
