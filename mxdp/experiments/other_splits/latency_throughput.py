"""Latency and throughput of forward passes: on one device, in stages and on replicas, by batch.

Stages don't shorten the latency: a batch still goes through all layers, and over a link too. But the next batch follows
close behind, so p balanced stages give up to p times the throughput. Replicas do, too.
"""

from __future__ import annotations

from typing import List

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find_all
from mxdp.experiments.other_splits.split import FULL, INTEGERS, ONE_DEVICE, QUICK, several
from mxdp.experiments.report import style
from mxdp.plans.cost.simulate import pipeline_seconds
from mxdp.plans.pipeline import inference

ONE = "1 device"


@experiment
class LatencyThroughput(Experiment):
    """One device, stages and replicas, by batch: forward passes alone and in a stream."""

    name = "latency-throughput"
    question = "Do several devices give more answers a second, or each answer sooner?"
    source = "Slides 'Multi-GPU', latency and throughput"
    how_to_read = (
        "Latency ('ms') is the time of one batch alone. Throughput ('answers/s') is that of a stream of batches, with "
        "no wait between them. With replicas, each device has the whole network, and they take turns. 'Model' is the "
        "stream's predicted over its measured time, from the times of the stages, each measured alone just before. "
        "'MB' is the memory of the device that needs most, as MXNet counts it."
    )
    claims = {
        f"stages_{name}": Claim(
            f"With the largest batch, stages have at least {most} of one device.", source, bound, True
        )
        for name, most, source, bound in (
            ("answers", "1.2 times the throughput", "the cost model", 1.2),
            ("latency", "0.9 times the latency", "the slides", 0.9),
        )
    }
    together = True
    compared = "scores of every replica"
    presets = {
        "quick": dict(QUICK, batches=[1, 8, 64], stream=8),
        "full": dict(FULL, batches=[1, 16, 256], stream=8),
    }
    checks = {"batches": INTEGERS}
    little = dict(batches=[1, 2], stream=2)

    def cases(self, settings: Settings) -> List[Case]:
        layouts = [(ONE, 1, 1)]
        for n in several(settings):
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
        for n in several(settings):
            seconds = pipeline_seconds(inference(n, stream), [1 / n] * n, cores=cores)
            said.append(f"{n} equal stages give {stream / seconds:.2f} times the throughput of one device")
        return f"On {plural(cores, 'core')}, {' and '.join(said)}, at the same latency." if said else ONE_DEVICE

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            judged = row.case["stages"] > 1 and row.case["batch"] == max(settings["batches"])
            for one in find_all(rows, layout=ONE, batch=row.case["batch"]):
                for name, metric in (("answers", "answers_per_second"), ("latency", "latency_seconds")):
                    for kept in [f"{name}_of_one"] + [f"stages_{name}"] * judged:
                        row.keep(kept, row.ratios(one, metric))

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        if not several(settings):
            return ONE_DEVICE
        row = find_all(rows, batch=max(settings["batches"]), stages=several(settings)[0])[0]
        answers, latency = row.estimate("answers_of_one"), row.estimate("latency_of_one")
        given = f"{answers:.2f} times the throughput of one device, at {latency:.2f} times its latency"
        return f"With batches of {row.case['batch']}, {row.case['layout']} give {given}."

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

        figure.set_size_inches(style.WIDTH, 1.3 * style.HEIGHT)
        axes = figure.add_subplot()
        for layout, colour in zip(dict.fromkeys(row.case["layout"] for row in result["rows"]), style.COLOURS):
            points = sorted(
                (row.case["batch"], row.metrics["answers_per_second"], row.metrics["latency_seconds"] * 1e3)
                for row in find_all(result["rows"], layout=layout)
            )
            axes.plot(*list(zip(*points))[1:], "o-", color=colour, label=layout)
            for batch, *point in points if layout == ONE else ():
                place = dict(textcoords="offset points", ha="right", color=colour, weight="bold", zorder=5)
                text = axes.annotate(str(batch), point, (-8, 4), **place)
                text.set_path_effects([withStroke(linewidth=5, foreground="white")])  # no curve runs through it
        axes.set(yscale="log", xlabel="answers a second", ylabel="latency, ms", xlim=(0, None))
        axes.set_title("numbers: batch of each point", loc="right", weight="normal", size=11.5)
        axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter("{x:,.6g}")
        style.plain_logarithmic(axes.yaxis)
        figure.legend(loc="outside lower center", ncols=3)
