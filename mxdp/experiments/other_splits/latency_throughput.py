"""How long does one answer take, and how many come out in a second? By batch, and by what a second device is used for.

Answers are forward passes alone. A batch is sent in by itself and waited for (latency), and then a stream of them, with
no wait in between (throughput). A second device can take half of the layers (stages) or every other batch (replicas).

Expected: a larger batch gives more answers a second, until the device is busy all the time, and each later. Stages
don't shorten the way of a batch: it still goes through all layers, and over a link besides; but the next follows close
behind, so that p balanced stages give up to p times as many answers. Replicas give as many without the link, if the
whole network fits on each device. For small batches Python's time for the calls is what counts, and no device helps.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Tuple

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
from mxdp.experiments.report.rows import find, find_all, metric, plural
from mxdp.plans.cost.simulate import pipeline_seconds
from mxdp.plans.pipeline import inference, pipeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MORE = 1.2
"""Answers a second with stages over those of one device, at the largest batch, for the claim to hold; on two cores."""
NO_SOONER = 0.9
"""Stages don't shorten the latency to less than this."""


@experiment
class LatencyThroughput(Experiment):
    """One device, stages and replicas, by batch: forward passes alone and in a stream."""

    name = "latency-throughput"
    question = "How long does one answer take, and how many come out in a second?"
    source = "Slides 'Multi-GPU', latency and throughput"
    how_to_read = (
        "A batch alone, from the call to its answers: latency. A stream of batches, none of which is waited for: "
        "answers a second. Stages: every batch goes through all devices. Replicas: each device has the whole network, "
        "and gets every other batch. 'Off': how far the plan, played through with the stages' times, each measured "
        "alone just before, is from the stream's time. MB: of the device that needs most, counted by MXNet."
    )
    together = True
    presets = {
        "quick": dict(devices=[2], kind="auto", seed=0, rounds=5, timeout=120.0, batches=[1, 8, 64], stream=8),
        "full": dict(
            devices=[2, 4], kind="auto", seed=0, rounds=9, timeout=1200.0, batches=[1, 4, 16, 64, 256], stream=16
        ),
    }

    def __init__(self) -> None:
        self._cuts: Dict[int, Tuple[int, ...]] = {}

    def cases(self, settings: Settings) -> List[Case]:
        layouts = [("1 device", 1, 1)]
        for n in settings["devices"]:
            if n > 1:
                layouts += [(f"{n} stages", n, 1), (f"{n} replicas", 1, n)]
        return [
            Case(f"{name}, batch {batch}", stages * replicas, settings=dict(
                schedule="inference", layout=name, stages=stages, replicas=replicas, batch=batch,
                micro_batches=settings["stream"],
            ))
            for name, stages, replicas in layouts
            for batch in settings["batches"]
        ]  # fmt: skip

    def predict(self, settings: Settings, cores: int) -> str:
        stream, said = settings["stream"], []
        for n in settings["devices"]:
            if n > 1:
                seconds = pipeline_seconds(inference(n, stream), [1 / n] * n, cores=cores)
                said.append(f"{n} equal stages give {stream / seconds:.2f} times the answers of one device")
        more = f"{' and '.join(said)} in a stream of {stream} batches" if said else "One device alone"
        return f"On {plural(cores, 'core')}: {more}. The latency of a batch stays what it is."

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        from mxdp.backend import upload
        from mxdp.experiments.measure.oracle import count_wrong
        from mxdp.experiments.other_splits.work.stages import NET, problem
        from mxdp.layers import forward

        pipes = self._pipes(case, settings)
        params, X, _ = problem(case.settings["batch"], settings["seed"])
        expected = forward(NET, upload(X, params[0][0].ctx), params).asnumpy()
        counts = [count_wrong(made.scores(X).asnumpy(), expected) for made in pipes]
        text = "scores of every replica, against the plain run on one device"
        return Oracle(sum(checked for checked, _ in counts), sum(wrong for _, wrong in counts), text)

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        from mxdp import Timer
        from mxdp.experiments.other_splits.work.stages import memory, problem, workers
        from mxdp.parallel.stage_times import measure_stages

        pipes, batch, stream = self._pipes(case, settings), case.settings["batch"], settings["stream"]
        _, X, _ = problem(batch, settings["seed"])

        def send(batches: int) -> List[Any]:
            return [pipes[number % len(pipes)].scores(X) for number in range(batches)]

        send(stream)
        devices = [device for made in pipes for device in made.devices]
        peaks = memory(devices, [2 * own for made in pipes for own in made.param_bytes()], lambda: send(stream))
        found = {"bytes_moved": pipes[0].scores_bytes(batch), "peak_bytes": max(peaks) if peaks else None}
        yield Ready(list(map(str, devices)))
        timer, history = Timer(), []
        while True:
            times = measure_stages(pipes[0], X, None)
            with timer:
                send(1)
            with timer:
                send(stream)
            latency, together = timer.times[-2:]
            expected = _predicted(times, stream, len(pipes), workers(pipes[0]))
            history.append((latency, together / stream, expected / together))
            names = ("latency_seconds", "seconds_per_step", "predicted_over_measured")
            found.update(zip(names, map(statistics.median, zip(*history))))
            found["answers_per_second"] = batch / found["seconds_per_step"]
            yield Round(together, found)

    def _pipes(self, case: Case, settings: Settings) -> List[Any]:
        """A pipeline for each replica; with one replica its stages are on all devices."""
        from mxdp.experiments.measure.devices import devices_of
        from mxdp.experiments.other_splits.work.stages import INPUT, NET, problem
        from mxdp.parallel.layer_costs import find_cuts
        from mxdp.parallel.pipeline import Pipeline

        devices, stages = devices_of(case, settings), case.settings["stages"]
        params, _, _ = problem(1, settings["seed"])
        if stages not in self._cuts:
            plan, most = pipeline("gpipe", stages, 1), max(settings["batches"])
            self._cuts[stages] = find_cuts(NET, params, INPUT, devices[0], plan, most, training=False)
        groups = [devices[first : first + stages] for first in range(0, len(devices), stages)]
        return [Pipeline(NET, params, INPUT, group, cuts=self._cuts[stages]) for group in groups]

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            one = find(rows, layout="1 device", batch=row["case"]["batch"])
            if one:
                metrics, single = row["metrics"], one["metrics"]
                metrics["answers_of_one"] = metrics["answers_per_second"] / single["answers_per_second"]
                metrics["latency_of_one"] = metrics["latency_seconds"] / single["latency_seconds"]

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        least, most = min(settings["batches"]), max(settings["batches"])
        small, large = (find(rows, layout="1 device", batch=batch) for batch in (least, most))
        assert small is not None
        assert large is not None
        said = [f"On one device {_numbers(small)}, {_numbers(large)}."]
        many = [row for row in find_all(rows, batch=most) if row["case"]["layout"] != "1 device"]
        for row in many:
            metrics = row["metrics"]
            said.append(
                f"With {row['case']['layout']} there are {metrics['answers_of_one']:.2f} times as many answers, each "
                f"after {metrics['latency_of_one']:.2f} of the time."
            )
        if not many:
            return Verdict(None, f"{said[0]} A second device was not tried: run it with --devices 2.")
        stages = [row["metrics"] for row in many if row["case"]["stages"] > 1]
        holds = all(each["answers_of_one"] >= MORE and each["latency_of_one"] >= NO_SOONER for each in stages)
        said.append(
            "For an answer soon: small batches, on one device. For many: large batches, on replicas if the network "
            "fits on each device, else on stages."
        )
        return Verdict(holds, " ".join(said))

    def columns(self) -> List[Column]:
        return [
            Column("latency ms", lambda row: style.number(row["metrics"]["latency_seconds"] * 1e3)),
            Column("answers/s", lambda row: style.number(row["metrics"]["answers_per_second"])),
            metric("answers_of_one", "of 1 dev."),
            Column("off", lambda row: f"{row['metrics']['predicted_over_measured'] - 1:+.0%}"),
            Column("kB sent", lambda row: style.number(row["metrics"]["bytes_moved"] / 1e3)),
            Column("MB", lambda row: f"{row['metrics']['peak_bytes'] / 1e6:.1f}"),
        ]

    def draw(self, result: Result, figure: Figure) -> None:
        from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

        figure.set_size_inches(style.WIDTH, 1.3 * style.HEIGHT)
        axes = figure.add_subplot()
        layouts = list(dict.fromkeys(row["case"]["layout"] for row in result["rows"]))
        for layout, colour in zip(layouts, style.COLOURS):
            rows = sorted(find_all(result["rows"], layout=layout), key=lambda row: row["case"]["batch"])
            answers = [row["metrics"]["answers_per_second"] for row in rows]
            latency = [row["metrics"]["latency_seconds"] * 1e3 for row in rows]
            axes.plot(answers, latency, "o-", color=colour, label=layout)
            for row, x, y in zip(rows, answers, latency):
                if layout == layouts[0]:
                    axes.annotate(str(row["case"]["batch"]), (x, y), (-8, 4), textcoords="offset points", ha="right")
        axes.set(yscale="log", xlabel="answers a second", ylabel="latency, ms")
        axes.set_xlim(left=0)
        axes.set_title("at the points: the batch", loc="right", weight="normal", size=11.5)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_formatter(NullFormatter())
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
        axes.legend()


def _predicted(times: Any, stream: int, replicas: int, cores: int) -> float:
    """Seconds of a stream. Replicas: each has its share of it, and Python pushes for all of them in turn."""
    plan = inference(len(times.forward), -(-stream // replicas))
    crowd = max(1.0, replicas / cores)
    forward = [seconds * crowd for seconds in times.forward]
    return pipeline_seconds(plan, forward, cores=cores, push=times.push * replicas)


def _numbers(row: Row) -> str:
    metrics = row["metrics"]
    return (
        f"{style.number(metrics['answers_per_second'])} answers a second by batches of {row['case']['batch']}, each "
        f"after {style.number(metrics['latency_seconds'] * 1e3)} ms"
    )
