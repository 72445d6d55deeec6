"""Two splits at once, over 2 x 2 devices: what does each device keep, and what do all send, beside each split alone?

Data parallelism sums the gradients of all P parameters over n devices: 2 (n - 1) P numbers. Layerwise partitioning sums
A activations a sample over n devices: 2 (n - 1) A B numbers for a batch of B. Split into g groups of p devices, the
batch costs 2 (g - 1) P and the layers 2 (p - 1) A B numbers, as each all-reduce spans fewer devices. With B = P / A,
where either alone sends as much, 2 x 2 devices send 4 P numbers instead of 6 P. A device of a group holds a p-th of the
parameters, and the activations of a g-th of the batch.
"""

from __future__ import annotations

from typing import List, Tuple

from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find, find_all
from mxdp.experiments.other_splits import panels, split
from mxdp.experiments.other_splits.split import COMBINED, GROUPS, SERIAL, several, wide_numbers
from mxdp.experiments.other_splits.strategies import LENET_NUMBERS, MICRO_BATCHES, NETS
from mxdp.experiments.report import style

TOO_FEW = f"Two splits at once need {2 * GROUPS} devices, or another even number above: run it with --devices 4."
"""In place of an answer."""


@experiment
class TwoSplits(split.SplitExperiment):
    """Data parallelism with a pipeline or with layerwise partitioning in each group, and each of the three alone."""

    name = "combined"
    question = "What do two splits at once save, over each split alone?"
    source = (
        "Narayanan et al., 'Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM', SC 2021: "
        "PTD-P"
    )
    how_to_read = (
        f"'Data 2 x pipeline 2': two groups have half of the batch each, and each group's two devices are a pipeline. "
        f"{split.COLUMNS} 'Of less' is what is moved, over the lesser of the two splits alone; 'of data' is the memory "
        f"over that of data parallelism. Pipelines are GPipe with {MICRO_BATCHES} micro-batches. The first batch of a "
        "net is the one with which data parallelism and layerwise partitioning alone move as much."
    )
    claims = {
        "moves_less": Claim(
            "Data parallelism and layerwise partitioning together move at most as much as the lesser of the two alone, "
            "with the batch at which these are equal.",
            "the cost model",
            1.0,
            exact=True,
        ),
        "needs_less": Claim(
            "With a sixteenth of that batch, where most of the wide net's memory is that of its parameters, each "
            "combination needs at most as much memory on its fullest device as data parallelism alone.",
            "Narayanan et al. 2021, takeaway 2: split the model until it fits in memory, and the batch over the rest",
            1.0,
        ),
    }
    alike = ("net", "batch")
    presets = {
        "quick": dict(split.QUICK, rounds=1, devices=[4], units=512, steps=2),
        "full": dict(split.FULL, rounds=1, devices=[4], units=1024, steps=2),
    }
    little = dict(units=64, steps=1)

    def cases(self, settings: Settings) -> List[Case]:
        ways = [(SERIAL, 1, SERIAL)]
        for n in several(settings):
            ways += [(each, n, f"{each} x {n}") for each in ("data", "pipeline", "layerwise")]
            if n in _divisible(settings):
                ways += [(each, n, f"{each.replace(' x', f' {GROUPS} x')} {n // GROUPS}") for each in COMBINED]
        return [
            Case(f"{NETS[net]}, batch {samples}, {name}", n, settings=dict(
                net=net, strategy=strategy, batch=samples, split=n,
            ))
            for net, samples in _batches(settings)
            for strategy, n, name in ways
        ]  # fmt: skip

    def predict(self, settings: Settings, cores: int) -> str:
        said = []
        for net, title in NETS.items():
            params, _ = _numbers(net, settings)
            for n in _divisible(settings):
                alone, both = (8e-6 * params * spanned for spanned in (n - 1, GROUPS + n // GROUPS - 2))
                said.append(
                    f"{title}, batch {_even_batch(net, settings)}, {n} devices: data parallelism or layerwise "
                    f"partitioning alone moves {style.number(alone)} MB, both together {style.number(both)} MB."
                )
        return " ".join(said) or TOO_FEW

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        super().finish(rows, references, settings)
        for row in rows:
            own = row.case
            alone = [find(rows, **{**own, "strategy": each}) for each in own["strategy"].split(" x ")]
            data, other = alone[0], alone[-1]
            if own["strategy"] not in COMBINED or not data or not other:
                continue
            row.keep("moved_of_less", map(max, row.ratios(data, "bytes_moved"), row.ratios(other, "bytes_moved")))
            even = own["batch"] == _even_batch(own["net"], settings)
            if even and own["strategy"] == COMBINED[1]:
                row.keep("moves_less", row.rounds["moved_of_less"])
            if row.metrics["peak_bytes"] and data.metrics["peak_bytes"]:
                row.keep("memory_of_data", row.ratios(data, "peak_bytes"))
                if not even:
                    row.keep("needs_less", row.rounds["memory_of_data"])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        own = find_all(rows, net="wide", strategy=COMBINED[1])
        if not own:
            return TOO_FEW
        (even, small), n = own[:2], own[0].case["split"]
        memory = "" if "memory_of_data" not in small.rounds else (
            f", and with small batches need {small.estimate('memory_of_data'):.2f} of data parallelism's memory"
        )  # fmt: skip
        moved = even.metrics["moved_of_less"]
        return f"Two splits on {GROUPS} x {n // GROUPS} devices move {moved:.2f} of the better one's bytes{memory}."

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        own = find_all(rows, net="wide", strategy=COMBINED[1])
        if not own:
            return ""
        even, small = own[:2]
        known = "memory_of_data" in even.rounds
        more = f" and needs {even.estimate('memory_of_data'):.2f} of data parallelism's memory" if known else ""
        return (
            "This is the wide net, with layerwise partitioning in each group. Each all-reduce spans fewer devices than "
            "with one split alone, and each device holds a part of the parameters. With a batch of "
            f"{even.case['batch']} it moves {even.metrics['moved_of_less']:.2f} of the lesser split's bytes{more}; "
            f"with {small.case['batch']} it moves {small.metrics['moved_of_less']:.1f} times as many as the lesser. "
            "Times can show a gain only where each device has a core of its own."
        )

    def columns(self) -> List[Column]:
        return [
            *super().columns(),
            Column("moved_of_less", "of less", ".2f"),
            Column("memory_of_data", "of data", ".2f", spread=True),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        blocks = [
            (NETS[net], find_all(result["rows"], net=net, batch=samples))
            for net, samples in _batches(result["settings"])
        ]
        panels.draw(figure, blocks)


def _divisible(settings: Settings) -> List[int]:
    """The numbers of devices that make groups of several devices."""
    return [n for n in several(settings) if n > GROUPS and n % GROUPS == 0]


def _numbers(net: str, settings: Settings) -> Tuple[int, int]:
    """As :func:`mxdp.experiments.other_splits.split.wide_numbers`."""
    return wide_numbers(settings["units"]) if net == "wide" else LENET_NUMBERS


def _batches(settings: Settings) -> List[Tuple[str, int]]:
    """Networks, and how many samples a batch of each has."""
    return [*((net, _even_batch(net, settings)) for net in NETS), ("wide", _small_batch(settings))]


def _even_batch(net: str, settings: Settings) -> int:
    """Samples with which data parallelism and layerwise partitioning move as much."""
    params, sums = _numbers(net, settings)
    return round(params / sums)


def _small_batch(settings: Settings) -> int:
    """Samples with which most of the wide net's memory is that of its parameters."""
    return _even_batch("wide", settings) // 16
