"""How long does one answer take, and how many come out in a second? By batch, and by the use of a second device.

Answers are forward passes alone. A batch is sent alone and waited for (latency), and then a stream of batches without a
wait in between (throughput). A second device can take half of the layers (stages) or every other batch (replicas).

Expected: a larger batch gives more answers a second, until the device is always busy, and each answer comes later.
Stages don't shorten the way of a batch: it still goes through all layers, and over a link too. But the next batch
follows close behind, so p balanced stages give up to p times as many answers. Replicas give the same without the link,
if the whole network fits on each device. For small batches Python's time for the calls dominates, and no device helps.
"""

from __future__ import annotations

from typing import List

from mxdp.errors import plural
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Row, Settings, Verdict, experiment
from mxdp.experiments.other_splits.split import WHOLE_NUMBERS
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find, find_all
from mxdp.plans.cost.simulate import pipeline_seconds
from mxdp.plans.pipeline import inference

ONE = "1 device"
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
        "Latency is the time of one batch alone, from the call to its answers. Answers a second are those of a stream "
        "of batches, none of which is waited for. With stages every batch goes through all devices. With replicas each "
        "device has the whole network, and gets every other batch. 'Pred./time' is the stream's predicted over its "
        "measured time; the prediction plays the plan through with the times of the stages, each measured alone just "
        "before. 'MB' is the memory of the device that needs most, as MXNet counts it."
    )
    together = True
    compared = "scores of every replica"
    presets = {
        "quick": dict(devices=[2], kind="auto", seed=0, rounds=5, timeout=120.0, batches=[1, 8, 64], stream=8),
        "full": dict(
            devices=[2, 4], kind="auto", seed=0, rounds=9, timeout=1200.0, batches=[1, 4, 16, 64, 256], stream=16
        ),
    }
    checks = {"batches": WHOLE_NUMBERS}
    little = dict(batches=[1, 2], stream=2)

    def cases(self, settings: Settings) -> List[Case]:
        layouts = [(ONE, 1, 1)]
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
        more = f"{' and '.join(said)}, in a stream of {stream} batches" if said else "one device is measured alone"
        return f"On {plural(cores, 'core')} {more}. The latency of a batch stays the same."

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            one = find(rows, layout=ONE, batch=row["case"]["batch"])
            if one:
                metrics, single = row["metrics"], one["metrics"]
                metrics["answers_of_one"] = metrics["answers_per_second"] / single["answers_per_second"]
                metrics["latency_of_one"] = metrics["latency_seconds"] / single["latency_seconds"]

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        largest = max(settings["batches"])
        said = [f"On one device {_numbers(rows, min(settings['batches']))}, and {_numbers(rows, largest)}."]
        many = [row for row in find_all(rows, batch=largest) if row["case"]["layout"] != ONE]
        if not many:
            return Verdict(None, f"{said[0]} A second device was not tried: run it with --devices 2.")
        for row in many:
            metrics = row["metrics"]
            said.append(
                f"With {row['case']['layout']} there are {metrics['answers_of_one']:.2f} times as many answers, each "
                f"after {metrics['latency_of_one']:.2f} of the time."
            )
        stages = [row["metrics"] for row in many if row["case"]["stages"] > 1]
        holds = all(each["answers_of_one"] >= MORE and each["latency_of_one"] >= NO_SOONER for each in stages)
        said.append(
            "For an answer soon, use small batches on one device. For many answers, use large batches: on replicas if "
            "the network fits on each device, otherwise on stages."
        )
        return Verdict(holds, " ".join(said))

    def columns(self) -> List[Column]:
        return [
            Column("latency_seconds", "latency ms", scale=1e3),
            Column("answers_per_second", "answers/s"),
            Column("answers_of_one", "of 1 dev.", ".2f"),
            Column("predicted_over_measured", "pred./time", ".2f"),
            Column("bytes_moved", "kB sent", scale=1e-3),
            Column("peak_bytes", "MB", ".1f", 1e-6),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
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


def _numbers(rows: List[Row], batch: int) -> str:
    (row,) = find_all(rows, layout=ONE, batch=batch)
    metrics = row["metrics"]
    return (
        f"{style.number(metrics['answers_per_second'])} answers a second come out in batches of {batch}, each after "
        f"{style.number(metrics['latency_seconds'] * 1e3)} ms"
    )
