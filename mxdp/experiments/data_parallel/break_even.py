"""When does a second device pay? A map of parameters, batch and devices, predicted and measured.

"Two GPUs are slower than one" is what people ask most about training on several devices. The answers in the threads are
two: take a larger batch, and mind the ratio of compute to parameters. :mod:`mxdp.plans.cost.break_even` makes numbers
of them. It takes what can be measured without training on several devices: the time of a step on one device, on the
batch and on a part of it, Python's part of that, and the speed of the links.
"""

from __future__ import annotations

import statistics
from typing import List, Optional

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find_all, one_way
from mxdp.experiments.report import style
from mxdp.plans.collective.algorithms import ALGORITHMS, plan
from mxdp.plans.cost.break_even import break_even, step_seconds
from mxdp.plans.cost.link import fit_link
from mxdp.plans.cost.machine import CPU
from mxdp.plans.cost.simulate import predict

NETS = {"lenet": "LeNet", "mlp": "MLP", "resnet": "ResNet-18"}
GRID = tuple(round(10 ** (half / 2)) for half in range(8, 17))
"""Numbers of parameters for which the all-reduce is predicted, for the lines of the map."""
WHOLE = (lambda batches: batches and all(type(each) is int and each > 0 for each in batches), "whole numbers above 0")
"""A check of a setting."""


def parameters(net: str, units: int, width: int) -> int:
    """Trained parameters of that network. ``units``: of the MLP's two hidden layers; ``width``: of ResNet's first
    convolution."""
    mlp = (784 + 1) * units + (units + 1) * units + (units + 1) * 10
    return {"lenet": 129_068, "mlp": mlp, "resnet": 2724 * width**2 + 286 * width + 10}[net]


@experiment
class BreakEven(Experiment):
    """Three networks, four batches each, on one device and on several."""

    name = "break-even"
    question = "When does a second device pay?"
    source = "MXNet issues 2277, 3136, 4286, 5943 and 12577: several GPUs are slower than one"
    how_to_read = (
        "'ms': a step, of steps that follow one another. 'Speed-up': one device's time for the same whole batch over "
        "this time; it pays above 1, and 'pays' is open where the interval touches 1. 'Pred.': the speed-up from one "
        "device's time for a part of the batch, Python's processor time and the calibrated links; nothing that was "
        "measured on several devices goes into it. 'Right': is the prediction on the measured side of 1? 'Step x': the "
        "predicted time of a step over the measured one, or its inverse where that is less than 1. In the map, "
        "a mark is filled where it pays, hollow where it doesn't, and grey where that is open. A line is the predicted "
        "break-even of a network with this one's time a sample, by its number of parameters: above it more devices pay."
    )
    claims = {
        "right_side": Claim(
            "Of the points whose interval does not touch 1, the prediction has at least 80 % on the right side of 1.",
            "ours: what a reader wants to know of a model",
            0.8,
            least=True,
        ),
        "large_batch": Claim(
            "A second device pays if the batch is large enough: with each network's largest batch, two devices are "
            "faster than one.",
            "MXNet issues 2277 and 3136: 'increase the batch size'",
            1.0,
            least=True,
        ),
        "step_time": Claim(
            "Predicted from one device, the time of a step of LeNet and of ResNet-18 on several devices is within 15 % "
            "of the measured one, for all batches but the smallest.",
            "ours: what a reader wants to know of a model",
            1.15,
        ),
    }
    compared = "gradients and parameters of every replica, against the shards one by one on one device"
    together = True
    full = dict(
        devices=[1, 2, 4], kind="auto", seed=0, rounds=1, timeout=1800.0, units=1024, width=64, at_least=0.1,
        lenet=[4, 16, 64, 256], mlp=[4, 16, 64, 256], resnet=[4, 8, 16, 32],
    )  # fmt: skip
    presets = {
        "quick": dict(full, timeout=300.0, lenet=[16, 256], mlp=[16, 256], resnet=[4, 12]),
        "full": dict(full, resnet=[4, 6, 8, 12]),
    }
    little = dict(devices=[1, 2], units=16, width=4, at_least=0.01, lenet=[4], mlp=[4], resnet=[2])
    checks = dict.fromkeys(NETS, WHOLE)

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(
                f"{title}, batch {batch}, {plural(n, 'device')}",
                n,
                settings={
                    "net": net,
                    "batch": batch,
                    "parameters": parameters(net, settings["units"], settings["width"]),
                },
            )
            for net, title in NETS.items()
            for batch in settings[net]
            for n in settings["devices"]
            if n <= batch
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        machine, said = CPU.with_cores(cores), []
        for net, title in NETS.items():
            count = parameters(net, settings["units"], settings["width"])
            best = min(predict(plan(name, 2, [count]), 4 * count, machine) for name in ALGORITHMS)
            said.append(f"{title} ({style.number(best * 1e3)} ms)")
        return (
            "Two devices pay where half the batch takes longer than Python and the all-reduce: at the reference "
            f"machine's speeds, {', '.join(said)}. So ResNet-18 pays from the smallest batch, and the MLP last, since "
            f"it computes least for each parameter. On {plural(cores, 'core')}, more than {cores} devices bring "
            "nothing more."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            ones = [one for one in _points(rows, 1) if one.case["net"] == row.case["net"]]
            one = next(iter(find_all(ones, batch=row.case["batch"])), None)
            if one is None or one is row:
                continue
            names = ("shard_seconds", "python_seconds", "allreduce_seconds")
            n, cores = len(row.devices), row.case["cores"]
            expected = [step_seconds(a, b, n, cores, c) for a, b, c in zip(*(row.rounds[name] for name in names))]
            row.keep("predicted_seconds", expected)
            row.keep("off", one_way([seconds / own for seconds, own in zip(expected, row.samples)]))
            if row.case["net"] != "mlp" and row.case["batch"] > min(settings[row.case["net"]]):
                row.keep("step_time", row.rounds["off"])
            row.keep("speedup", one.ratios(row))
            row.keep("predicted", [own / seconds for own, seconds in zip(one.samples, expected)])
            row.metrics.update(pays={True: "yes", False: "no", None: "open"}[pays(row)])
            if pays(row) is not None:
                row.metrics["right"] = (row.metrics["predicted"] > 1) == pays(row)
            if n == 2 and row.case["batch"] == max(settings[row.case["net"]]):
                row.keep("large_batch", row.rounds["speedup"])
        judged = [row for row in rows if "right" in row.metrics]
        if judged:
            sides = [[(each > 1) == pays(row) for each in row.rounds["predicted"]] for row in judged]
            judged[-1].keep("right_side", [statistics.mean(own) for own in zip(*sides)])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        two = _points(rows, 2)
        if not any("speedup" in row.rounds for row in two):
            return "There is nothing to compare: that takes a run on 1 device, and one on 2."
        said = []
        for net, title in NETS.items():
            found = {row.case["batch"]: pays(row) for row in find_all(two, net=net)}
            slower = [batch for batch, answer in found.items() if answer is not True]
            paying = [each for each in settings[net] if each > max(slower, default=0)]
            open_ = [batch for batch in slower if found[batch] is None]
            words = f" ({' and '.join(map(str, open_))}: open)" if open_ else f" ({max(slower)}: no)" if slower else ""
            said.append((f"from {min(paying)}" if paying else "never") + f" for {title}{words}")
        return f"By batch, a second device surely pays {', '.join(said[:-1])} and {said[-1]}."

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        points = [row for row in rows if "pays" in row.metrics]
        if not points:
            return "Run it with --devices 1,2."
        judged = [row for row in points if "right" in row.metrics]
        wrong = [row for row in judged if not row.metrics["right"]]
        text = (
            f"Of {len(points)} points on several devices, {len(judged)} have an interval that does not touch 1; the "
            f"prediction is on the right side of 1 at {len(judged) - len(wrong)} of these. "
        )
        text += " ".join(_why(row) for row in wrong)
        said = [
            f"{least:.1f} samples a device for {title}"
            for net, title in NETS.items()
            for least in [_break_even(rows, net, 2)]
            if least is not None
        ]
        return f"{text} Predicted for two devices, the break-even is at {', '.join(said)}."

    def columns(self) -> List[Column]:
        return [
            Column("seconds", "ms", scale=1e3),
            Column("speedup", "speed-up", ".2f", spread=True),
            Column("predicted", "pred.", ".2f", spread=True),
            Column("pays", "pays"),
            Column("right", "right"),
            Column("off", "step x", ".2f"),
        ]

    def answering(self, rows: List[Row]) -> List[Row]:
        """Those on two devices."""
        return _points(rows, 2) or rows

    def draw(self, result: Result, figure: style.Figure) -> None:
        """A map for each number of devices."""
        rows = [row for row in result["rows"] if "pays" in row.metrics]
        counts = sorted({len(row.devices) for row in rows})
        figure.set_figheight(3.4 * len(counts) + 0.6)
        for axes, n in zip(figure.subplots(max(1, len(counts)), squeeze=False)[:, 0], counts):
            _draw_map(axes, result["rows"], n)
        if counts:
            figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)


def pays(row: Row) -> Optional[bool]:
    """Is the speed-up above 1? None: its interval touches 1. With too few rounds for one, the median decides."""
    median, low, high = row.estimate("speedup")
    if low is None or high is None:
        return median > 1
    return True if low > 1 else False if high < 1 else None


def _points(rows: List[Row], devices: int) -> List[Row]:
    return [row for row in rows if len(row.devices) == devices]


def _why(row: Row) -> str:
    """What the prediction of this row has wrong: the devices' work, or what the all-reduce adds to it."""
    found, n = row.metrics, len(row.devices)
    expected = found["predicted_seconds"] - found["allreduce_seconds"]
    added = row.median - found["alone_seconds"]
    pairs = {
        "without the all-reduce a step takes {:.3g} ms, not {:.3g}": (found["alone_seconds"], expected),
        "the all-reduce adds {:.3g} ms, not {:.3g}": (added, found["allreduce_seconds"]),
    }
    reason, (measured, predicted) = max(pairs.items(), key=lambda pair: abs(pair[1][0] - pair[1][1]))
    return (
        f"Wrong: {NETS[row.case['net']]}, batch {row.case['batch']} on {plural(n, 'device')}, predicted "
        f"{found['predicted']:.2f}, measured {row.estimate('speedup'):.2f}: "
        f"{reason.format(1e3 * measured, 1e3 * predicted)}."
    )


def _break_even(rows: List[Row], net: str, devices: int, allreduce: Optional[float] = None) -> Optional[float]:
    """The predicted break-even of a network in samples a device, from a line through all times of one device; None
    without enough of them. ``allreduce``: seconds, in place of the network's own."""
    own = find_all(rows, net=net)
    several = [row for row in own if "shard_seconds" in row.metrics]
    times = [(row.case["batch"], row.median) for row in own if len(row.devices) == 1]
    times += [(-(-row.case["batch"] // len(row.devices)), row.metrics["shard_seconds"]) for row in several]
    found = _points(several, devices)
    if not found or len({samples for samples, _ in times}) < 2:
        return None
    python, own_allreduce = (
        statistics.median(row.metrics[name] for row in found) for name in ("python_seconds", "allreduce_seconds")
    )
    seconds = own_allreduce if allreduce is None else allreduce
    return break_even(fit_link(times), python, devices, found[0].case["cores"], seconds)


def _draw_map(axes: style.Axes, rows: List[Row], n: int) -> None:
    """Parameters and batch a device: the marks are measured, the lines predicted."""
    points = [row for row in _points(rows, n) if "pays" in row.metrics]
    heights = [row.case["batch"] / n for row in points]
    for (net, title), colour, marker in zip(NETS.items(), style.COLOURS, style.MARKERS):
        by_count = [row.metrics["allreduce_by_parameters"] for row in points]
        line = [_break_even(rows, net, n, statistics.median(each[str(count)] for each in by_count)) for count in GRID]
        known = {count: least for count, least in zip(GRID, line) if least}
        axes.plot(list(known), list(known.values()), color=colour, linewidth=1.6)
        for row in find_all(points, net=net):
            fill = {"yes": colour, "no": "white", "open": style.LIGHT_GREY}[row.metrics["pays"]]
            label = (
                title if row.case["batch"] == max(each.case["batch"] for each in find_all(points, net=net)) else None
            )
            place = row.case["parameters"], row.case["batch"] / n
            axes.plot(
                *place, marker, color=fill, markeredgecolor=colour, markeredgewidth=1.6, markersize=9, label=label
            )
    counts = [row.case["parameters"] for row in points]
    axes.set(xscale="log", yscale="log", xlim=(min(counts) / 3, max(counts) * 3), xlabel="parameters")
    axes.set(ylim=(min(heights) / 3, max(heights) * 2), ylabel="batch a device", title=plural(n, "device"))
