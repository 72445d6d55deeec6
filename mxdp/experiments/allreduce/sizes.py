"""Which all-reduce is the fastest, for which size, on how many devices; and does the cost model know?

Each algorithm sums one array over the devices, as do MXNet's own stores. The cost model plays every plan through with
the speeds that were measured in the same process just before (see ``links``): small arrays cost calls and starts, so
few moves win; large ones cost bytes, so those plans win in which all devices work all the time and little is sent.

How to read the table: ``algbw`` is the array's bytes over the time, ``busbw`` what each device's link must have carried
at least (algbw x 2 (n - 1) / n), to be compared with a link's bandwidth whatever n is. Both are NVIDIA nccl-tests'.
"""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple

from mxdp.experiments.harness.experiment import (
    Case,
    Column,
    Experiment,
    Oracle,
    Ready,
    Result,
    Round,
    Row,
    Settings,
    Verdict,
    experiment,
)
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find_all, metric, plural, ratio, size
from mxdp.plans.collective.algorithms import ALGORITHMS, AUTO, plan
from mxdp.plans.cost.link import algorithm_bandwidth, bus_bandwidth
from mxdp.plans.cost.machine import CPU, Machine
from mxdp.plans.cost.simulate import predict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STORES = {"mxnet-local": "local", "mxnet-device": "device"}
CLAIM = 0.75
"""Time of our best over MXNet's ``device`` store, for the largest array."""
MODEL_ERROR = 0.25
LARGE = 1 << 20
"""Bytes from which the cost model's error is judged."""
KIB, MIB = 1 << 10, 1 << 20


@experiment
class AllReduceSizes(Experiment):
    """Every algorithm and both stores, by size and number of devices."""

    name = "allreduce"
    question = "Which all-reduce is the fastest, and does the cost model know beforehand?"
    source = "Dive into Deep Learning, 'Training on Multiple GPUs' and 'Parameter Servers', exercises"
    how_to_read = (
        "One array on each device, summed in place; every call is waited for. algbw: its bytes over the time, busbw: "
        "what each device's link carries at least, in GB/s. 'Pred.' is the plan played through with the speeds "
        "measured in the same process; 'off' is how far that is from the median. auto is what the cost model chose."
    )
    together = True
    presets = {
        "quick": dict(
            devices=[2, 4], kind="auto", seed=0, rounds=5, timeout=120.0,
            sizes=[4, 4 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB],
        ),
        "full": dict(
            devices=[2, 4, 8], kind="auto", seed=0, rounds=9, timeout=1200.0,
            sizes=[4, 64, KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB],
        ),
    }  # fmt: skip

    def __init__(self) -> None:
        self._machines: List[Machine] = []
        """A calibration for each round: a shared machine is not as fast at one time as at another."""
        self._wrong: Dict[str, int] = {}

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(f"{n} x {size(nbytes)} {_short(name)}", n, settings={"algorithm": name, "bytes": nbytes})
            for n in settings["devices"]
            for nbytes in settings["sizes"]
            for name in [*sorted(ALGORITHMS), AUTO, *STORES]
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        machine, largest = CPU.with_cores(cores), max(settings["sizes"])
        said = []
        for n in settings["devices"]:
            if n > 1:
                expected = {name: predict(plan(name, n, [largest]), largest, machine) for name in ALGORITHMS}
                name = min(expected, key=lambda name: expected[name])
                said.append(f"on {plural(n, 'device')} {name} ({style.number(expected[name] * 1e3)} ms)")
        return f"The fastest for {size(largest)}, at the reference machine's speeds: {', '.join(said) or 'none'}."

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        from mxdp.experiments.allreduce.work.arrays import count_wrong_sums, replicas
        from mxdp.experiments.measure.devices import devices_of

        arrays = replicas([_shape(case)], devices_of(case, settings), settings["seed"])
        self._sync(case, arrays)[0]()
        checked, wrong = count_wrong_sums(arrays, settings["seed"])
        self._wrong[case.label] = wrong
        return Oracle(checked, wrong, "every element of every replica, against the exact sum")

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        from mxdp.collectives import calibrate
        from mxdp.experiments.allreduce.work.arrays import replicas, seconds_a_call
        from mxdp.experiments.measure.devices import devices_of

        devices = devices_of(case, settings)
        yield Ready([str(device) for device in devices])
        expected: List[float] = []
        for number in itertools.count():
            if len(devices) > 1 and len(self._machines) == number:
                self._machines.append(calibrate(devices))
            arrays = replicas([_shape(case)], devices, seed=None)
            sync, chosen = self._sync(case, arrays)
            seconds = seconds_a_call(sync)
            del arrays, sync  # the cases share one process, so none may hold memory while another is measured
            if chosen and self._machines:
                nbytes = case.settings["bytes"]
                expected.append(predict(plan(chosen, case.devices, [nbytes // 4]), nbytes, self._machines[-1]))
            yield Round(seconds, self._metrics(case, chosen, expected))

    def _sync(self, case: Case, arrays: Any) -> Tuple[Any, Optional[str]]:
        """The call, and for ``auto`` what it chose."""
        from mxdp.collectives import AllReduce
        from mxdp.experiments.allreduce.work.arrays import store_sync

        name = case.settings["algorithm"]
        if name in STORES:
            return store_sync(STORES[name], arrays), None
        sync = AllReduce([own[0] for own in arrays], name, machine=self._machines[0] if self._machines else None)
        return sync, sync.algorithm

    def _metrics(self, case: Case, chosen: Optional[str], expected: List[float]) -> Dict[str, Any]:
        metrics: Dict[str, Any] = {"wrong": self._wrong.get(case.label)}
        if chosen:
            metrics["chosen"] = chosen
        if expected:
            metrics["predicted_ms"] = statistics.median(expected) * 1e3
        return metrics

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            metrics, nbytes, median = row["metrics"], row["case"]["bytes"], row["seconds"]["median"]
            devices = len(row["case"]["devices"])
            metrics["ms"] = median * 1e3
            metrics["algbw"] = algorithm_bandwidth(nbytes, median) / 1e9
            metrics["busbw"] = bus_bandwidth(nbytes, median, devices) / 1e9
            if metrics.get("predicted_ms") is not None:
                metrics["error"] = metrics["predicted_ms"] / metrics["ms"] - 1
            store = _one(rows, row, "mxnet-device")
            metrics["of_device_store"] = ratio(row, store) if store else None

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        largest, smallest = max(settings["sizes"]), min(settings["sizes"])
        counts = [n for n in settings["devices"] if n > 1]
        if not counts:
            return Verdict(None, "Nothing to sum on 1 device: run it with --devices 2,4.")
        said, shares = [], []
        for n in counts:
            (name, share), (small_name, small) = _best(rows, n, largest), _best(rows, n, smallest)
            shares.append(share)
            said.append(
                f"On {n} devices {name} sums {size(largest)} in {share:.2f} of the time of MXNet's device store, and "
                f"{small_name} {size(smallest)} in {small:.2f}."
            )
        errors = [
            abs(row["metrics"]["error"])
            for row in rows
            if row["case"]["bytes"] >= LARGE and row["metrics"].get("error") is not None
        ]
        off = statistics.median(errors) if errors else None
        if off is not None:
            said.append(f"The cost model is off by {off:.0%} (median from {size(LARGE)} on).")
        said.append(_auto(rows))
        losing = [small for n in counts for small in [_best(rows, n, smallest)[1]] if small > 1]
        if losing:
            said.append(
                "Where the store wins, at the smallest array, it makes one call of C++ where each move of ours is a "
                "call from Python."
            )
        return Verdict(max(shares) <= CLAIM and (off is None or off <= MODEL_ERROR), " ".join(said))

    def columns(self) -> List[Column]:
        return [
            Column("ms", lambda row: style.number(row["metrics"]["ms"])),
            metric("algbw", "algbw"),
            metric("busbw", "busbw"),
            Column("pred. ms", lambda row: style.number(row["metrics"]["predicted_ms"])),
            metric("error", "off", "{:+.0%}"),
            metric("wrong", "wrong", "{:d}"),
        ]

    def draw(self, result: Result, figure: Figure) -> None:
        counts = sorted({len(row["case"]["devices"]) for row in result["rows"]})
        figure.set_size_inches(1.6 * style.WIDTH, 2.6 * style.HEIGHT)
        times, shares = figure.subplots(2, len(counts), sharey="row", sharex=True, squeeze=False)
        for upper, lower, n in zip(times, shares, counts):
            rows = [row for row in result["rows"] if len(row["case"]["devices"]) == n]
            for number, name in enumerate([*sorted(ALGORITHMS), *STORES]):
                colour, line = _look(name, number)
                own = find_all(rows, algorithm=name)
                bytes_ = [row["case"]["bytes"] for row in own]
                look = dict(color=colour, linestyle=line, marker="o", markersize=3, linewidth=1.5, label=name)
                upper.plot(bytes_, [row["metrics"]["ms"] for row in own], **look)
                lower.plot(bytes_, [row["metrics"]["of_device_store"] for row in own], **look)
            upper.set(xscale="log", yscale="log", title=plural(n, "device"))
            lower.set(xscale="log", xlabel="bytes", ylim=(0, 3))
        times[0].set_ylabel("ms")
        shares[0].set_ylabel("time / mxnet-device's")
        figure.legend(*times[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)


def _look(name: str, number: int) -> Tuple[str, str]:
    """Colour and line: the stores in grey, ours in the colours, and again in the colours with broken lines."""
    if name in STORES:
        return style.GREY, "--" if name == "mxnet-device" else ":"
    return style.COLOURS[number % len(style.COLOURS)], "-" if number < len(style.COLOURS) else "-."


def _short(algorithm: str) -> str:
    """For the table, which has to fit a terminal of 80 columns."""
    return algorithm.replace("bidirectional", "bidirect.")


def _shape(case: Case) -> Tuple[int]:
    return (max(1, case.settings["bytes"] // 4),)


def _one(rows: List[Row], like: Row, algorithm: str) -> Optional[Row]:
    """The row of that algorithm for the same bytes and devices."""
    case = like["case"]
    return next(iter(find_all(rows, algorithm=algorithm, bytes=case["bytes"], devices=case["devices"])), None)


def _auto(rows: List[Row]) -> str:
    """How near to the fastest ``auto`` came."""
    over = []
    for row in find_all(rows, algorithm=AUTO):
        case = row["case"]
        same = find_all(rows, bytes=case["bytes"], devices=case["devices"])
        fastest = min(each["seconds"]["median"] for each in same if each["case"]["algorithm"] in ALGORITHMS)
        over.append(row["seconds"]["median"] / fastest)
    worst, usual = max(over), statistics.median(over)
    return f"auto takes {usual:.2f} times as long as the fastest of ours (median), at most {worst:.2f}."


def _best(rows: List[Row], devices: int, nbytes: int) -> Tuple[str, float]:
    """Our fastest algorithm there, and its time over that of MXNet's device store."""
    ours = [
        row
        for row in find_all(rows, bytes=nbytes)
        if len(row["case"]["devices"]) == devices and row["case"]["algorithm"] in ALGORITHMS
    ]
    row = min(ours, key=lambda row: row["seconds"]["median"])
    return row["case"]["algorithm"], row["metrics"]["of_device_store"]
