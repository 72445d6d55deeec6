"""What if one device is slower than the other?

With equal shards the fast device waits at each all-reduce, and a step takes as long as the slow device's half. With
shards in proportion to the devices' speeds both end at the same time. If a slow device takes f times as long for a
sample, equal shards take f / 2 of what the fast device alone would take, and proportional ones f / (1 + f): 2 / (1 + f)
of the time of equal shards. The gradients are sums over the whole batch, so their values don't depend on the shards.
"""

from __future__ import annotations

from typing import List

from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Settings, experiment
from mxdp.experiments.harness.rows import Row, find

EQUAL, BY_SPEED = "equal", "by speed"


@experiment
class Uneven(Experiment):
    """LeNet on two CPU devices, of which the second shares its core with a busy process."""

    name = "uneven"
    question = "What if one device is slower than the other?"
    source = "Dive into Deep Learning, 'Concise Implementation for Multiple GPUs', exercise 2"
    how_to_read = (
        "Each device's thread stays on a core of its own, and in all rows but the reference a process that only counts "
        "keeps the last device's core busy. So this needs Linux, and a core for each device. 'Slower' is how much "
        "longer that device then takes for the same samples alone, measured before each round. A round is 'steps' "
        "steps; 'shards' are the samples of each device, from the speeds that `split_and_load` gets as `weights`. 'Of "
        "equal' is the time over that of equal shards, round by round; 'predicted' is 2 / (1 + slower)."
    )
    claims = {
        "pays": Claim(
            "Shards in proportion to the measured speeds take less time than equal ones.",
            "the book's exercise asks how to divide the work",
            1.0,
        ),
        "model": Claim("They take at most 1.25 times what the cost model says.", "the cost model", 1.25),
    }
    compared = "gradients and parameters of every replica, steps with shards in proportion to other weights"
    common = dict(devices=[2], kind="cpu", seed=0)
    presets = {
        "quick": dict(common, batch_size=128, steps=8, rounds=1, timeout=300.0),
        "full": dict(common, batch_size=128, steps=8, rounds=1, timeout=600.0),
    }
    little = dict(batch_size=24, steps=2)

    def cases(self, settings: Settings) -> List[Case]:
        n = settings["devices"][0]
        return [
            Case("equal shards", n, settings={"split": EQUAL, "busy": True}),
            Case("shards by speed", n, settings={"split": BY_SPEED, "busy": True}),
            Case("equal shards, equal devices", n, settings={"split": EQUAL, "busy": False}, reference=True),
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        return "If a device is half as fast: 2/3 of the time of equal shards on two devices."

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        equal, by_speed = (find(rows, split=split) for split in (EQUAL, BY_SPEED))
        for row in rows + references:
            row.keep_ratios("of_equal", equal)
        if equal and by_speed:
            n = len(by_speed.devices)
            predicted = [n / (1 + (n - 1) * slower) for slower in by_speed.rounds["slower"]]
            by_speed.keep("predicted", predicted)
            by_speed.keep("pays", by_speed.rounds["of_equal"])
            by_speed.keep("model", [own / said for own, said in zip(by_speed.rounds["of_equal"], predicted)])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        row = find(rows, split=BY_SPEED)
        assert row is not None
        return (
            f"If one device takes {row.estimate('slower'):.2f} times as long for a sample, shards by speed take "
            f"{row.estimate('of_equal'):.2f} of the time of equal ones."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        row = find(rows, split=BY_SPEED)
        assert row is not None
        return (
            f"The cost model says {row.metrics['predicted']:.2f}. The shards had {row.case['shards']} samples. "
            "Gradients are sums over the whole batch, divided once: uneven shards change them by rounding alone. "
            "(A mean of the shards' means would differ.)"
        )

    def columns(self) -> List[Column]:
        return [
            Column("seconds", "seconds", ".3f"),
            Column("shards", "shards"),
            Column("slower", "slower", ".2f", spread=True),
            Column("of_equal", "of equal", ".2f", spread=True),
            Column("predicted", "predicted", ".2f"),
        ]
