"""Why is two devices not twice as fast? Every moment of a training step's wall clock, told by what it went for.

A LeNet step of :func:`mxdp.train_batch`, Python at most two steps ahead, is recorded, and the wall clock of the device
that works longest is split into parts that add up to it (:mod:`mxdp.tracing.breakdown`). On one device nearly all of
it should be compute. On two there is communication, and the waiting of one device for the other, at least the time that
they differ by; where they share memory, compute itself takes longer than half as well.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List

from mxdp.errors import UsageError
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
from mxdp.experiments.report.rows import find_all, metric, plural
from mxdp.plans.cost.link import speedup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS = {
    "compute": "compute",
    "hidden_communication": "hidden",
    "exposed_communication": "exposed",
    "input": "input",
    "front_end": "Python",
    "waiting": "waiting",
    "rest": "rest",
}
"""The metrics, and how the table calls them."""
FOR_EVER = 1 << 60
"""Samples."""
CLAIM = 0.05
"""The largest share that may stay unexplained."""
WAYS = {"buckets": "one bucket", "book": "the book's loop"}


@experiment
class WhereTheTimeWent(Experiment):
    """The step on each number of devices, with one all-reduce and with the book's loop over the parameters."""

    name = "where-the-time-went"
    question = "Where did the time of a training step go?"
    source = "Dive into Deep Learning, 'Automatic Parallelism', exercise 4, and 'Training on Multiple GPUs'"
    how_to_read = (
        "Mean shares of the wall clock of the device that works longest; they add up to 100 %. Communication is hidden "
        "where it runs beside compute, else exposed. Waiting: for another device's result, or because Python waited. "
        "Python: nothing had been pushed, so the device had nothing to do. Input: that too, while a batch was made."
    )
    presets = {
        "quick": dict(
            devices=[1, 2], kind="auto", data="synthetic", data_dir=None, seed=0, rounds=5, timeout=120.0,
            batch_size=256, steps=8,
        ),
        "full": dict(
            devices=[1, 2], kind="auto", data="auto", data_dir=None, seed=0, rounds=11, timeout=1200.0,
            batch_size=256, steps=20,
        ),
    }  # fmt: skip

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(f"{plural(n, 'device')}, {words}", n, settings={"sync": way})
            for n in settings["devices"]
            for way, words in WAYS.items()
            if n > 1 or way == "buckets"
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        said = [f"{1 / speedup(n, cores):.2f} on {plural(n, 'device')}" for n in settings["devices"] if n > 1]
        return (
            f"Compute takes {', '.join(said) or '1.00'} of one device's time on {plural(cores, 'core')}; the rest of "
            "the step is what several devices cost, and is all that is missing to that speed-up."
        )

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        from mxdp.experiments.data_parallel.work.serial_run import check_step, synced_step
        from mxdp.experiments.measure.devices import devices_of
        from mxdp.scratch import train_batch

        step = synced_step() if case.settings["sync"] == "buckets" else train_batch
        checked, wrong = check_step(devices_of(case, settings), 61, settings["seed"], step=step)
        return Oracle(checked, wrong, "gradients and parameters of every replica, steps on an uneven batch")

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        from mxdp.experiments.measure.devices import devices_of
        from mxdp.experiments.measure.timelines import described
        from mxdp.tracing import where_the_time_went
        from mxdp.tracing.recording import can_record

        devices = devices_of(case, settings)
        if not can_record(devices):
            raise UsageError(
                f"MXNet's profiler can't follow {plural(len(devices), 'CPU device')} on this machine: ask for fewer"
            )
        step = _step(case, settings, devices)
        yield Ready([str(device) for device in devices])
        shares: List[Dict[str, float]] = []
        while True:
            split = where_the_time_went(step, settings["steps"], devices=devices)
            shares.append(split.shares())
            means = {name: statistics.mean(each[name] for each in shares) for name in PARTS}
            three_steps = split.timeline.between(0.0, min(split.timeline.length, 3 * split.wall_clock))
            most = max(each["rest"] for each in shares)
            yield Round(split.wall_clock, {**described(three_steps), **means, "rest_most": most})

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        one = next((row for row in rows if len(row["case"]["devices"]) == 1), None)
        for row in rows:
            if one:
                row["metrics"]["speedup"] = one["seconds"]["median"] / row["seconds"]["median"]

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        last = find_all(rows, sync="buckets")[-1]
        metrics, said = last["metrics"], []
        for name, words in PARTS.items():
            if name != "compute" and metrics[name] >= 0.005:
                said.append(f"{words} {metrics[name]:.1%}")
        worst = max(row["metrics"]["rest_most"] for row in rows)
        fast = f" It is {metrics['speedup']:.2f} times as fast as one device." if "speedup" in metrics else ""
        return Verdict(
            worst <= CLAIM,
            f"On {last['label']}, {metrics['compute']:.1%} of a step is compute; {', '.join(said) or 'nothing else'}."
            f"{fast} What no rule explains is at most {worst:.1%} in any round.",
        )

    def columns(self) -> List[Column]:
        time = Column("ms", lambda row: f"{row['seconds']['median'] * 1e3:.1f}")
        return [time, *(metric(name, words, "{:.1%}") for name, words in PARTS.items())]

    def draw(self, result: Result, figure: Figure) -> None:
        axes = figure.add_subplot()
        rows = result["rows"]
        ends = [0.0] * len(rows)
        for number, (name, words) in enumerate(PARTS.items()):
            lengths = [row["metrics"][name] * row["seconds"]["median"] * 1e3 for row in rows]
            colour = style.COLOURS[number] if number < len(style.COLOURS) else style.GREY
            axes.barh(range(len(rows)), lengths, left=ends, height=0.5, color=colour, label=words)
            ends = [end + length for end, length in zip(ends, lengths)]
        axes.set_yticks(range(len(rows)))
        axes.set_yticklabels([row["label"].replace(", ", "\n") for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("ms a step")
        figure.legend(loc="outside lower center", ncols=4)


def _step(case: Case, settings: Settings, devices: Any) -> Callable[[], None]:
    """One training step, Python at most ``RUN_AHEAD`` steps ahead, as :func:`mxdp.train` does it."""
    from collections import deque

    import mxdp
    from mxdp.datasets.minibatches import Stream
    from mxdp.tracing import section
    from mxdp.training import RUN_AHEAD

    data = mxdp.load(settings["data"], settings["data_dir"], seed=settings["seed"])
    batches = Stream(data.train, settings["batch_size"], settings["seed"]).take(FOR_EVER)
    params = mxdp.init_lenet(settings["seed"])
    replicas = [mxdp.get_params(params, device) for device in devices]
    sync = mxdp.GradientSync(replicas, "auto") if case.settings["sync"] == "buckets" else None
    pending: Any = deque()

    def step() -> None:
        with section("input"):
            X, y = next(batches)
        pending.append(mxdp.train_batch(X, y, replicas, devices, lr=0.1, sync=sync))
        if len(pending) > RUN_AHEAD:
            for losses in pending.popleft():
                losses.wait_to_read()

    return step
