"""Latency and throughput of forward passes on one device, in stages and on replicas, by batch.

Expected: a larger batch gives more answers a second, until the device is always busy, and each answer comes later.
Stages don't shorten the latency: a batch still goes through all layers, and over a link too. But the next batch follows
close behind, so p balanced stages give up to p times as many answers. Replicas give the same without the link, if the
whole network fits on each device. For small batches Python's time for the calls dominates, and no device helps.
"""

from __future__ import annotations

from typing import List

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim, at_most, estimate, unsure
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Row, Settings, experiment
from mxdp.experiments.other_splits.split import FULL, INTEGERS, QUICK
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find, find_all, keep
from mxdp.plans.cost.simulate import pipeline_seconds
from mxdp.plans.pipeline import inference

ONE = "1 device"


@experiment
class LatencyThroughput(Experiment):
    """One device, stages and replicas, by batch: forward passes alone and in a stream."""

    name = "latency-throughput"
    question = "How long does one answer take, and how many come out in a second?"
    source = "Slides 'Multi-GPU', latency and throughput"
    how_to_read = (
        "Latency ('ms') is the time of one batch alone, from the call to its answers. 'Answers/s' are those of a "
        "stream of batches, none of which is waited for. With stages each batch goes through all devices. With "
        "replicas each device has the whole network, and they take the batches by turns. 'Model' is the stream's "
        "predicted over its measured time; the plan is simulated with the times of the stages, each measured alone "
        "just before. 'MB' is the memory of the device that needs most, as MXNet counts it."
    )
    claims = {
        "stages_answers": Claim(
            "Stages give more answers a second, of the largest batch: at least 1.2 times as many as one device.",
            "the cost model",
            1.2,
            least=True,
        ),
        "stages_latency": Claim(
            "Stages don't shorten the latency, of the largest batch: an answer takes at least 0.9 of one device's "
            "time.",
            "the slides",
            0.9,
            least=True,
        ),
    }
    together = True
    compared = "scores of every replica"
    presets = {
        "quick": dict(QUICK, batches=[1, 8, 64], stream=8),
        "full": dict(FULL, batches=[1, 4, 16, 64, 256], stream=16),
    }
    checks = {"batches": INTEGERS}
    little = dict(batches=[1, 2], stream=2)

    def cases(self, settings: Settings) -> List[Case]:
        layouts = [(ONE, 1, 1)]
        for n in settings["devices"]:
            if n > 1:
                layouts += [(f"{n} stages", n, 1), (f"{n} replicas", 1, n)]
        return [
            Case(f"{layout}, batch {batch}", stages * replicas, settings=dict(
                schedule="inference", layout=layout, stages=stages, replicas=replicas, batch=batch,
                micro_batches=settings["stream"],
            ))
            for layout, stages, replicas in layouts
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
            case, one = row["case"], find(rows, layout=ONE, batch=row["case"]["batch"])
            if one:
                for name, metric in (("answers", "answers_per_second"), ("latency", "latency_seconds")):
                    own = [mine / ones for mine, ones in zip(row["rounds"][metric], one["rounds"][metric])]
                    keep(row, f"{name}_of_one", own)
                    if case["stages"] > 1 and case["batch"] == max(settings["batches"]):
                        keep(row, f"stages_{name}", own)

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        largest = max(settings["batches"])
        single = ", and ".join(
            f"{style.number(row['metrics']['answers_per_second'])} answers a second in batches of {batch}, each after "
            f"{style.number(row['metrics']['latency_seconds'] * 1e3)} ms"
            for batch in sorted({min(settings["batches"]), largest})
            for row in find_all(rows, layout=ONE, batch=batch)
        )
        many = [row for row in find_all(rows, batch=largest) if row["case"]["layout"] != ONE]
        if not many:
            return f"One device gives {single}. A second device was not tried: run it with --devices 2."
        others = "; ".join(
            f"{row['case']['layout']} give {estimate(row, 'answers_of_one'):.2f} times as many answers as one device, "
            f"each after {estimate(row, 'latency_of_one'):.2f} of its time"
            for row in many
        )
        more = [row for row in many if at_most(row, "answers_of_one", 1.0) is False]
        advice = ""
        if more:
            layouts = " or ".join(row["case"]["layout"] for row in more)
            advice = f"; for many answers, large batches on {layouts} (each replica needs room for the whole network)"
        elif any(at_most(row, "answers_of_one", 1.0) is None for row in many):
            advice = f"; one can't tell what to use for many answers ({unsure(many[0], 'answers_of_one')})"
        return (
            f"In batches of {largest}, {others}. A batch still goes through all layers, but the next one follows "
            f"close behind. One device gives {single}. For an answer soon, use small batches on one device{advice}."
        )

    def columns(self) -> List[Column]:
        return [
            Column("latency_seconds", "ms", scale=1e3),
            Column("answers_per_second", "answers/s"),
            Column("answers_of_one", "of 1 dev.", ".2f", spread=True),
            Column("predicted_over_measured", "model", ".2f"),
            Column("bytes_moved", "kB sent", scale=1e-3),
            Column("peak_bytes", "MB", ".1f", 1e-6),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        from matplotlib.patheffects import withStroke
        from matplotlib.ticker import MaxNLocator, StrMethodFormatter

        figure.set_size_inches(style.WIDTH, 1.3 * style.HEIGHT)
        axes = figure.add_subplot()
        layouts = list(dict.fromkeys(row["case"]["layout"] for row in result["rows"]))
        for layout, colour in zip(layouts, style.COLOURS):
            points = sorted(
                (row["case"]["batch"], row["metrics"]["answers_per_second"], row["metrics"]["latency_seconds"] * 1e3)
                for row in find_all(result["rows"], layout=layout)
            )
            _, answers, latency = zip(*points)
            axes.plot(answers, latency, "o-", color=colour, label=layout)
            for batch, *point in points if layout == layouts[0] else ():
                text = axes.annotate(
                    str(batch), point, (-8, 4), textcoords="offset points", ha="right", color=colour, weight="bold",
                    zorder=5,
                )  # fmt: skip
                text.set_path_effects([withStroke(linewidth=5, foreground="white")])  # no curve runs through it
        axes.set(yscale="log", xlabel="answers a second", ylabel="latency, ms")
        axes.set_xlim(left=0)
        axes.set_title("numbers: batch of each point", loc="right", weight="normal", size=11.5)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
        style.plain_logarithmic(axes.yaxis)
        figure.legend(loc="outside lower center", ncols=3)
