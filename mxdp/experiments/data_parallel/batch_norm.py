"""Batch normalisation over devices: by the statistics of each device's shard, or by those of the whole batch?

Batch normalisation is the one layer in which a sample's result depends on the others of its batch. So a network that
has it is not the same on several devices, unless they exchange statistics: per layer two numbers a channel forward, and
two backward (:mod:`mxdp.parallel.batch_norm`). The statistics of n samples are off by about 1 / sqrt(n) of a deviation.

What is saved for evaluation are running statistics. Synchronised, all replicas have the same. Otherwise each has those
of its own shards: PyTorch saves those of rank 0, others average them.
"""

from __future__ import annotations

from typing import List

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find, find_all
from mxdp.experiments.report import style

OWN, APART, SYNCED, OTHER_ORDER = "own", "own, mxdp's operators", "synchronised", "1 device, other order"
PANELS = {
    "differs": "Way off the serial run",
    "gain": "Accuracy: off the serial run's",
    "other_replica": "Accuracy: another replica's statistics",
    "seconds": "Seconds a step",
}
"""The picture's, by the number that each shows."""


@experiment
class BatchNormalisation(Experiment):
    """The book's LeNet with batch normalisation, by three ways to normalise on several devices."""

    name = "batch-norm"
    question = (
        "Batch normalisation on k devices: what do each device's own statistics change, and what do common ones cost?"
    )
    source = "Dive into Deep Learning, 'Batch Normalization' and 'Training on Multiple GPUs'"
    how_to_read = (
        "A round trains 'steps' steps from a new seed, equal in all rows; the rows take turns. Each device has as many "
        "samples as the row says. 'Differs': how far the parameters end from those of one device with the whole batch, "
        "as a share of the way from their start. The row on one device gets each batch in reverse order, so it differs "
        "by rounding alone, which training magnifies. 'Of own': the time of a step over that with MXNet's own operator "
        "on each shard; 'mxdp's operators' do the same without an exchange. Accuracy: with the running statistics of "
        "replica 0; 'from serial', 'other replica' (the last one's) and 'averaged' (over the replicas): how much "
        "another one differs."
    )
    claims = {
        "none": Claim(
            "Synchronised, the parameters differ from the serial run's by rounding: at most 0.01 of their way.",
            "the definition (Ioffe and Szegedy 2015); rounding, magnified by training, is read as 0.01",
            0.01,
        ),
        "own": Claim(
            "With each device's own statistics they differ: by at least 0.01 of their way.",
            "Ioffe and Szegedy 2015: a result depends on the other samples of the batch; read as 0.01",
            0.01,
            least=True,
        ),
        "smaller": Claim(
            "Smaller shards differ more: the smallest at least twice as much as the largest.",
            "an error of 1 / sqrt(n); read as twice",
            2.0,
            least=True,
        ),
        "accurate": Claim(
            "With own statistics of at least 32 samples the accuracy is at most 0.02 below the serial run's.",
            "Goyal et al. 2017, who keep 32 samples a worker and its own statistics on purpose; read as 0.02",
            -0.02,
            least=True,
        ),
        "saved": Claim(
            "Whichever replica's running statistics are saved, the accuracy changes by at most 0.02.",
            "PyTorch's DistributedDataParallel keeps those of rank 0; read as 0.02",
            0.02,
        ),
        "price": Claim(
            "With the largest shards a synchronised step takes at most 1.25 times as long.",
            "ours: a few numbers a channel travel",
            1.25,
        ),
    }
    compared = "summed gradients and running statistics of every replica, in an uneven batch"
    together = True
    common = dict(devices=[2], kind="auto", data="auto", data_dir=None, seed=0, lr=0.25)
    presets = {
        "quick": dict(common, rounds=1, timeout=600.0, shards=[8, 64], steps=30, test=1000),
        "full": dict(common, rounds=1, timeout=3600.0, shards=[8, 32, 64], steps=50, test=5000),
    }
    checks = {
        "shards": (
            lambda own: all(type(n) is int and n > 1 for n in own) and len(set(own)) == len(own),
            "different whole numbers above 1, as in 8,32: one sample has no variance",
        )
    }
    little = dict(data="synthetic", shards=[4, 32], steps=2, test=50)

    def cases(self, settings: Settings) -> List[Case]:
        n, cases = max(settings["devices"]), []
        for shard in settings["shards"]:
            for way in (OWN, APART, SYNCED, OTHER_ORDER):
                own = dict(way=way, shard=shard, batch=n * shard)
                alone = way == OTHER_ORDER
                cases.append(Case(f"{shard}: {way}", 1 if alone else n, settings=own, reference=alone))
        return cases

    def predict(self, settings: Settings, cores: int) -> str:
        said = ", ".join(f"{n**-0.5:.2f} with {plural(n, 'sample')}" for n in settings["shards"])
        return f"A shard's mean is off by this share of a deviation: {said}. Synchronised, only rounding differs."

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows + references:
            row.metrics["ms"] = row.median * 1e3
            if row.case["way"] in (APART, SYNCED):
                row.keep_ratios("of_own", find(rows, way=OWN, shard=row.case["shard"]))
        smallest, largest = (find(rows, way=OWN, shard=pick(settings["shards"])) for pick in (min, max))
        several = [row for row in rows if len(row.devices) > 1]
        for row in find_all(several, way=OWN):
            row.keep("own", row.rounds["differs"])
            row.keep("saved", row.rounds["other_replica"])
            if row.case["shard"] >= 32:
                row.keep("accurate", row.rounds["gain"])
            if row is smallest and largest and largest is not smallest:
                row.keep("smaller", row.ratios(largest, "differs"))
        for row in find_all(several, way=SYNCED):
            row.keep("none", row.rounds["differs"])
            if row.case["shard"] == max(settings["shards"]) and "of_own" in row.rounds:
                row.keep("price", row.rounds["of_own"])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        own, synced = (find(rows, way=way, shard=min(settings["shards"])) for way in (OWN, SYNCED))
        assert own is not None
        assert synced is not None
        if len(own.devices) == 1:
            return "One device has nothing to exchange: run it with --devices 2."
        reach = "reach" if synced.metrics["none"] <= self.claims["none"].bound else "miss"
        return (
            f"Normalised by shards of {own.case['shard']} samples, training misses the serial run's parameters by "
            f"{own.estimate('own'):.2f} of its way; synchronised statistics {reach} them, and make a step "
            f"{synced.estimate('of_own'):.2f} times as long."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        own, apart, synced = (find(rows, way=way, shard=max(settings["shards"])) for way in (OWN, APART, SYNCED))
        if own is None or apart is None or synced is None or len(own.devices) == 1:
            return ""
        small = find(rows, way=OWN, shard=min(settings["shards"]))
        assert small is not None
        return (
            f"With shards of {own.case['shard']} it is {own.estimate('own'):.2f} of the way, and synchronised "
            f"{synced.estimate('none'):.2g}, at {synced.estimate('of_own'):.2f} times the time. Of that, "
            f"{apart.estimate('of_own'):.2f} times is what mxdp's operators take without an exchange, in place of "
            f"MXNet's one. With shards of {small.case['shard']} the accuracy differs from the serial run's by "
            f"{small.estimate('gain'):+.3f}, with another replica's running statistics by "
            f"{small.estimate('other_replica'):.3f}, and with their average by {small.estimate('averaged'):+.3f}."
        )

    def columns(self) -> List[Column]:
        return [
            Column("ms", "ms", ".1f"),
            Column("of_own", "of own", ".2f", spread=True),
            Column("differs", "differs", ".2g", spread=True),
            Column("test_accuracy", "accuracy", ".3f"),
        ]

    def more_columns(self) -> List[Column]:
        return [
            Column("gain", "from serial", "+.3f", spread=True),
            Column("other_replica", "other replica", ".3f", spread=True),
            Column("averaged", "averaged", "+.3f", spread=True),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        """Four numbers by the samples on each device: medians, and their intervals."""
        shards = result["settings"]["shards"]
        for axes, (name, title) in zip(figure.subplots(len(PANELS), sharex=True), PANELS.items()):
            for number, way in enumerate((OWN, APART, SYNCED, OTHER_ORDER)):
                rows = find_all(result["rows"] + result["references"], way=way)
                found = [row.estimate(name) for row in rows]
                ends = [(middle - (low or middle), (high or middle) - middle) for middle, low, high in found]
                axes.errorbar(
                    [shards.index(row.case["shard"]) + 0.08 * number for row in rows],  # beside each other
                    [each.median for each in found], list(zip(*ends)) or None, marker=style.MARKERS[number],
                    color=style.COLOURS[number], label=way, capsize=3, linestyle="--",
                )  # fmt: skip
            axes.set(title=title, xlabel="samples on each device" if name == "seconds" else "")
            axes.set_xticks([place + 0.12 for place in range(len(shards))], [str(shard) for shard in shards])
        figure.axes[0].set_yscale("log")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        figure.set_figheight(3 * style.HEIGHT)
