"""What does it save to cut the optimiser's state into shards, and what does it cost?

The state of momentum is as large as the parameters, Adam's twice as large. Plain, one device holds it for a whole
parameter, updates the parameter after the all-reduce, and copies it to the others. In shards each device holds, and
updates, an equal part of all: the all-reduce becomes a reduce-scatter before the update and an all-gather after it. The
cost model says: a third fewer bytes.
"""

from __future__ import annotations

from typing import List

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find
from mxdp.experiments.report import style

NETS = {"mlp": "MLP", "resnet": "ResNet-18"}
OPTIMIZERS = {"sgd": "momentum", "adam": "Adam"}


@experiment
class ShardedOptimizer(Experiment):
    """``mxdp.Trainer`` with and without ``shard_optimizer``."""

    name = "sharded-optimizer"
    question = "What does an optimiser's state in shards save, and what does it cost?"
    source = "Rajbhandari et al., 'ZeRO', SC 2020, stage 1"
    how_to_read = (
        "A round is 'steps' steps of 'batch_size' samples a device (ten times as many of the MLP, which has two hidden "
        "layers of 'units'); "
        "the rows take turns. 'State' is what the optimiser holds in all, and in shards on the fullest device; 'of "
        "plain' is that over all. 'Moved' is what a step sends between devices, if all of it were messages. 'Time' "
        "is a step's over the step's without shards, round by round."
    )
    claims = {
        "state": Claim(
            "Each of k devices holds at most 1.05 / k of the state (the number is k times the share).",
            "ZeRO: the state divided by the devices",
            1.05,
            exact=True,
        ),
        "moved": Claim(
            "No more bytes are moved than without shards.", "ZeRO: stage 1 communicates no more", 1.0, exact=True
        ),
        "time": Claim("On two devices a step takes at most 1.05 times as long as without shards.", "ours", 1.05),
    }
    compared = "parameters after five steps with those of the shards of samples one by one, on one device"
    together = True
    common = dict(devices=[2], kind="auto", seed=0, width=64, units=1024)
    presets = {
        "quick": dict(common, batch_size=8, steps=1, rounds=1, timeout=300.0),
        "full": dict(common, devices=[2, 4], batch_size=8, steps=1, rounds=1, timeout=900.0),
    }
    little = dict(batch_size=2, steps=1, width=4, units=64)

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(
                f"{NETS[net]}, {OPTIMIZERS[optimizer]}, {'shards' if sharded else 'plain'}"
                f"{f', {n} devices' * (n != 2)}",
                n,
                settings={"net": net, "optimizer": optimizer, "sharded": sharded},
            )
            for n in settings["devices"]
            for net in NETS
            for optimizer in OPTIMIZERS
            for sharded in (False, True)
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        said = ", ".join(f"1 / {n} of the state on {plural(n, 'device')}" for n in settings["devices"])
        return f"{said}; the same bytes; no more time, since each device updates its part alone."

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            own = {name: row.case[name] for name in ("net", "optimizer", "devices")}
            plain = find(rows, sharded=False, **own)
            if plain is None or not row.case["sharded"]:
                continue
            row.keep("of_plain", row.ratios(plain, "state_bytes"))
            row.keep("state", [len(row.devices) * share for share in row.rounds["of_plain"]])
            row.keep("moved", row.ratios(plain, "moved_bytes"))
            row.keep_ratios("of_time", plain)
            if len(row.devices) == 2:
                row.keep("time", row.rounds["of_time"])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        row = next((row for row in reversed(rows) if "time" in row.rounds), None)
        if row is None:
            return "Nothing to compare: run it with --devices 2."
        return (
            f"In shards each of 2 devices holds {row.metrics['of_plain']:.2f} of Adam's state for ResNet-18, and a "
            f"step takes {row.estimate('time'):.2f} of the plain step's time."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        return (
            "A step of many samples has more to compute, so its time changes less. Gradients and parameters stay whole "
            "on each device (ZeRO's stages 2 and 3 cut them too)."
        )

    def columns(self) -> List[Column]:
        return [
            Column("seconds", "ms", ".1f", 1e3),
            Column("of_time", "time", ".2f", spread=True),
            Column("state_bytes", "state, MB", ".1f", 1e-6),
            Column("of_plain", "of plain", ".2f"),
            Column("moved_bytes", "moved, MB", ".1f", 1e-6),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        """State and time of each row."""
        rows = result["rows"]
        colours = [style.COLOURS[row.case["sharded"]] for row in rows]
        upper, lower = figure.subplots(2, 1)
        megabytes = [row.metrics["state_bytes"] / 1e6 for row in rows]
        style.bars(upper, [row.label for row in rows], megabytes, unit="MB", colours=colours)
        style.row_bars(figure, rows, "ms", colours, [1e3] * len(rows), lower)
        upper.set_title("The optimiser's state: all, or a shard")
        lower.set_title("A step")
