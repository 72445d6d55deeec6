"""What does a second device bring to an epoch?

The slides of the book's chapter say that the time of an epoch roughly halves; the book's own results for this very
network say that it grew. The cost model: the compute of a batch divides by the devices, as far as there are cores; the
all-reduce, the input and Python's own time don't, and are small beside the convolutions. The ceiling is measured:
processes that share nothing, as many as there are devices, each train alone on their part of the batch.
"""

from __future__ import annotations

from typing import List, Optional, Tuple

from mxdp.errors import plural
from mxdp.experiments.data_parallel import account as accounts
from mxdp.experiments.data_parallel.accuracy import draw_accuracy
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find
from mxdp.experiments.report import style
from mxdp.plans.cost import link


@experiment
class Epochs(Experiment):
    """LeNet on one and on several devices, and the ceiling."""

    name = "epochs"
    question = "What does a second device bring to an epoch?"
    source = "Dive into Deep Learning, 'Training on Multiple GPUs'"
    how_to_read = (
        "A round is an epoch, or the part of one that the setting 'samples' asks for; the rows take turns, and each "
        "process goes on with the training of the one before it. 'Speed-up' "
        "is the first row's time over this row's, round by round. 'Of ceiling' compares with processes that share "
        "nothing, one for each device, on its part of the batch: 1.00 is the best this machine can give. 'In sync' "
        "says whether all replicas of a row are equal. 'Accuracy' is that after the last round. All rows see the same "
        "batches in the same order, but sums over other shards differ in their last bits, and training magnifies that: "
        "so accuracies differ, most where they still rise. The second table: 'possible' is the speed-up that this "
        "machine's devices (or cores, if those are fewer) could give, 'reached' what was measured, and between them "
        "stands what each part takes away. Processes "
        "that share nothing lose the machine's part, too. The other parts are those of `where-the-time-went`, from a "
        "few steps that are recorded after each round, less what they take in those processes."
    )
    claims = {
        "halves": Claim(
            "An epoch takes roughly half the time on two devices: on k devices it is at least 0.8 k times as fast.",
            "the slides of the book's chapter; the book's own run became slower",
            0.8,
            least=True,
        ),
        "of_ceiling": Claim(
            "Sharing one network costs little: it is at least 0.9 times as fast as processes that share nothing.",
            "ours",
            0.9,
            least=True,
        ),
        "in_sync": Claim("All replicas stay equal, bit for bit.", "the book", 1, least=True, exact=True),
    }
    compared = "gradients and parameters of every replica, steps on an uneven batch"
    tour = True
    common = dict(devices=[1, 2], kind="auto", data="auto", data_dir=None)
    presets = {
        "quick": dict(common, seed=0, rounds=1, timeout=300.0, batch_size=128, lr=0.25, samples=10000),
        "full": dict(common, seed=0, rounds=1, timeout=900.0, batch_size=256, lr=0.2, samples=20000),
    }
    little = dict(samples=200, batch_size=40)

    def cases(self, settings: Settings) -> List[Case]:
        counts = settings["devices"]
        return [Case(plural(n, "device"), devices=n) for n in counts] + [
            Case(f"{plural(n, 'process')}, nothing shared", processes=n, settings={"processes": n}, reference=True)
            for n in counts
            if n > 1
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        said = [
            f"{link.speedup(n, cores):.2f} on {plural(n, 'device')} ({link.speedup(n, cores, 0.05):.2f} if "
            "5% of a step can't be split)"
            for n in settings["devices"]
            if n > 1
        ]
        return f"Speed-up over one device, on {plural(cores, 'core')}: {', '.join(said) or 'nothing to compare'}."

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        first = next((row for row in rows if len(row.devices) == settings["devices"][0]), None)
        for row in rows + references:
            row.metrics["samples_per_sec"] = row.metrics["round_samples"] / row.median
            row.metrics["sec_per_epoch"] = row.case["epoch_samples"] / row.metrics["samples_per_sec"]
            if first:
                row.keep("speedup", first.ratios(row))
        for row in rows:
            devices, ceiling = len(row.devices), find(references, processes=len(row.devices))
            if first and devices > 1 and len(first.devices) == 1:
                row.keep("halves", [each / devices for each in row.rounds["speedup"]])
            if ceiling:
                row.keep("of_ceiling", ceiling.ratios(row))
            if ceiling and "halves" in row.rounds:
                row.metrics.update(possible=accounts.possible(row), reached=row.metrics["speedup"])
                row.metrics.update(accounts.account(row, ceiling), hindrance=accounts.hindrance(row))

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        if not all(row.metrics.get("in_sync", True) for row in rows):
            return "The replicas fell out of step, so the times mean nothing."
        row, ceiling = _most_devices(rows, references)
        if not (row and ceiling):
            return "There is nothing to compare: that takes a run on 1 device, and one on 2."
        devices = "A second device makes" if len(row.devices) == 2 else f"{row.label} make"
        return (
            f"{devices} an epoch {row.estimate('speedup'):.2f} times as fast; the best this machine can give is "
            f"{ceiling.estimate('speedup'):.2f}."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        row, ceiling = _most_devices(rows, references)
        if not (row and ceiling):
            return "Run it with --devices 1,2."
        accuracies = " and ".join(f"{each.metrics['test_accuracy']:.3f} on {each.label}" for each in rows)
        return f"{accounts.losses(row, ceiling)} In the end the test accuracy is {accuracies}."

    def columns(self) -> List[Column]:
        return [
            Column("sec_per_epoch", "s/epoch", ".2f"),
            Column("samples_per_sec", "samples/s", ",.0f"),
            Column("speedup", "speed-up", ".2f", spread=True),
            Column("of_ceiling", "of ceiling", ".2f", spread=True),
            Column("test_accuracy", "accuracy", ".4f"),
            Column("in_sync", "in sync"),
        ]

    def more_columns(self) -> List[Column]:
        lost = [Column(name, loss.name, "+.2f", -1) for name, loss in accounts.LOST.items()]
        return [Column("possible", "possible", ".2f"), *lost, Column("reached", "reached", ".2f")]

    def draw(self, result: Result, figure: style.Figure) -> None:
        """Bars of the times; what became of the possible speed-up; the accuracy by epoch, as the book draws it."""
        rows = result["rows"] + result["references"]
        accounted, ceiling = _most_devices(result["rows"], result["references"])
        curves = [row for row in result["rows"] if len(row.rounds.get("test_accuracy", ())) > 1]
        heights = [len(rows) * style.BAR_HEIGHT + 0.9]
        heights += [accounts.HEIGHT] * bool(ceiling) + [2.8] * bool(curves)
        parts = figure.subplots(len(heights), squeeze=False, height_ratios=heights)[:, 0]
        colours = [style.COLOURS[0]] * len(result["rows"]) + [style.GREY] * len(result["references"])
        scale = [row.metrics["sec_per_epoch"] / row.median for row in rows]
        style.row_bars(figure, rows, "s/epoch", colours, scale, parts[0])
        parts[0].set_title("Time of an epoch")
        if accounted and ceiling:
            accounts.draw(parts[1], accounted, ceiling)
        if curves:
            draw_accuracy(parts[-1], curves)
        figure.set_figheight(sum(heights))


def _most_devices(rows: List[Row], references: List[Row]) -> Tuple[Optional[Row], Optional[Row]]:
    """The last row that is compared with one device, and its ceiling."""
    row = next((row for row in reversed(rows) if "halves" in row.rounds), None)
    return row, row and find(references, processes=len(row.devices))
