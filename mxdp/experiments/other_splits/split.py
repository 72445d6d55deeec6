"""What ``strategies``, ``layerwise`` and ``tiles`` share: what is compared, finished and shown of a step."""

from __future__ import annotations

from typing import ClassVar, List, Sequence, Tuple

from mxdp.experiments.harness.experiment import Column, Experiment, Settings
from mxdp.experiments.harness.rows import Row, find

SERIAL = "serial"
COMBINED = ("data x pipeline", "data x layerwise")
GROUPS = 2
"""Over which ``COMBINED`` splits the batch. A group splits its shard once more, as the second word says."""
ONE_DEVICE = "One device has nothing to split: run it with --devices 2."
"""In place of an answer."""
COMPARED = "losses, scores, each gradient and, after three steps, each parameter"
COLUMNS = (
    "The column 'ms' is the time of a step (forward, backward, update), and 'pred.' the cost model's prediction, with "
    "the interval that its measured constants give it. 'Faster' compares with one device. 'Moved' is what a step sends "
    "between devices, calculated from the shapes. 'MB' is the memory of the device that needs most, as MXNet counts "
    "it, and 'MB pred.' is calculated from the shapes."
)
"""For ``how_to_read``."""
QUICK = dict(devices=[2], kind="auto", seed=0, timeout=120.0)
FULL = dict(devices=[2, 4], kind="auto", seed=0, timeout=1200.0)
"""What the presets of this room have in common."""
INTEGERS = (lambda values: all(type(each) is int for each in values), "whole numbers")
"""A check of a setting."""


class SplitExperiment(Experiment):
    """One network, split in several ways. A row is a way to split it, and a round some steps."""

    together = True
    compared = COMPARED
    alike: ClassVar[Sequence[str]] = ()
    """What a row's case has in common with that of the serial row it is compared with."""

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            row.metrics["seconds_per_step"] = row.median
            row.keep("predicted_seconds", row.rounds["predicted_seconds"])
            serial = find(rows, strategy=SERIAL, **{name: row.case[name] for name in self.alike})
            if serial:
                row.keep("speedup", serial.ratios(row))

    def columns(self) -> List[Column]:
        return [
            Column("seconds", "ms", scale=1e3),
            Column("predicted_seconds", "pred.", scale=1e3, spread=True),
            Column("speedup", "faster", ".2f", unit="x"),
            Column("bytes_moved", "moved MB", scale=1e-6),
            Column("peak_bytes", "MB", scale=1e-6),
            Column("predicted_peak_bytes", "MB pred.", scale=1e-6),
        ]


def several(settings: Settings) -> List[int]:
    """The numbers of devices on which a network can be split."""
    return [n for n in settings["devices"] if n > 1]


def wide_numbers(units: int) -> Tuple[int, int]:
    """Of three dense layers of ``units`` units, from 784 inputs to 10 outputs: the parameters, and the numbers that
    layerwise partitioning sums over devices for one sample, forward and backward.

    >>> wide_numbers(512)
    (932362, 1034)
    """
    return (784 + 1) * units + 2 * (units + 1) * units + 10 * (units + 1), 2 * units + 10
